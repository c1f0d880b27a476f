"""One summary object, rendered to terminal, HTML and Prefect artifact."""
