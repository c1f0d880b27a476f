"""One embedder a file: text or columns of the examples become the vectors of a table `features_NAME`."""
