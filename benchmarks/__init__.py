"""Speed beside peers: each module with a `run() -> dict` measures ours and theirs in one process, as a ratio."""
