"""Where each row of a task hold-out belongs, row by row."""

from __future__ import annotations

from typing import Any


def sides(
    rows: list[dict[str, Any]], tasks: set[str], categories: set[str], links: list[str], *, fixed_point: bool
) -> dict[str, str]:
    """Return in, out or neither for each id; `links` are the columns by which tasks are tied."""
    held = {row["task"] for row in rows if row["task"] in tasks or (row["task"] and row["category"] in categories)}
    left: set[str] = set()
    sources = set(held)
    while True:
        new = set()
        for row in rows:
            if row["task"] is None or row["task"] in held or row["task"] in left:
                continue
            for other in rows:
                if other["task"] in sources and any(row[c] is not None and row[c] == other[c] for c in links):
                    new.add(row["task"])
        left |= new
        if not new or not fixed_point:
            break
        sources = new
    found = {}
    for row in rows:
        task = row["task"]
        found[row["example_id"]] = "neither" if task is None or task in left else "out" if task in held else "in"
    return found
