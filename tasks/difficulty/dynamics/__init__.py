"""What the measures of training dynamics share."""
