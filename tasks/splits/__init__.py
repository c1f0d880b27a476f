"""One split builder a file."""
