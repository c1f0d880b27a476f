"""One diversity measure a file."""
