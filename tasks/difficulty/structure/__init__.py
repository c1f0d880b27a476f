"""What the measures of trees share."""
