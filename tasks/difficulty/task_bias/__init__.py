"""What the measures of a whole task are made of."""
