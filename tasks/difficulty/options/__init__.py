"""What the uncertainty about multiple-choice questions is made of."""
