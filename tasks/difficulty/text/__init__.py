"""What the measures of texts share."""
