"""Where each row of a cross-data-set fold belongs, row by row."""

from __future__ import annotations

from typing import Any


def plans(names: list[str], asked: list[str]) -> list[tuple[set[str], str]]:
    """Return what each fold trains on, and what it says that it holds out."""
    found = [({name}, f"dataset other than {name}") for name in names if "single" in asked]
    found += [(set(names) - {name}, f"dataset={name}") for name in names if "leave_one_out" in asked]
    if "union" in asked:
        found.append((set(names), ""))
    return found


def sides(rows: list[dict[str, Any]], trained: set[str]) -> dict[str, str]:
    """Return in, out or neither for each id."""
    return {
        row["example_id"]: "neither" if row["dataset"] is None else "in" if row["dataset"] in trained else "out"
        for row in rows
    }
