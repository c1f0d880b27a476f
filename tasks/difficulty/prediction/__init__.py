"""What the methods share that predict difficulty from vectors."""
