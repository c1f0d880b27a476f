"""The work of the pipeline, one folder an area."""
