"""Where each row of a leave-one-domain-out fold belongs, row by row."""

from __future__ import annotations

from typing import Any


def sides(rows: list[dict[str, Any]], column: str, held_out: set[str]) -> dict[str, str]:
    """Return in, out or neither for each id; groups do not count here."""
    found = {}
    for row in rows:
        domain = row[column]
        found[row["example_id"]] = "neither" if domain is None else "out" if domain in held_out else "in"
    return found
