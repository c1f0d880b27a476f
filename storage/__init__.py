"""Object stores, Delta tables, audit and publish, releases, lineage."""
