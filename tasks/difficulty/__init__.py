"""One difficulty estimator a file."""
