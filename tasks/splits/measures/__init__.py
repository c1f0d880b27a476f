"""What a certificate measures: a module a topic, run alike on a split and on its controls."""
