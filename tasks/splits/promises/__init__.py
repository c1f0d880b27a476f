"""What strategies promise, checked anew: a module each, called like the strategy, that shares no code with it."""
