"""Rows as dicts, loops, and nothing of the package: what the rules must have done."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import combinations
from typing import Any

Row = dict[str, Any]
INSIDE, OUTSIDE = ("train", "validation", "test"), ("test_ood", "validation_ood")


def missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def holdout_values(rows: Iterable[Row], column: str, held: set[Any]) -> None:
    """Each row is where its values say, and says why."""
    for row in rows:
        value = row[column]
        if missing(value):
            assert row["split"] == "excluded", row
            continue
        own = [one for one in value if one is not None] if isinstance(value, list) else [value]
        hit = sorted({one for one in own if one in held})
        assert (row["split"] in OUTSIDE) == bool(hit), row
        assert row["split"] != "excluded", row
        if hit:
            assert row["held_out"] == "; ".join(f"{column}={one}" for one in hit), row
            assert row["reason"] == "; ".join(f"{column} {one} is held out" for one in hit), row
        else:
            assert row["held_out"] is None, row


def cells_of(row: Row, columns: list[str], r: int) -> list[str]:
    return [", ".join(f"{name}={row[name]}" for name in some) for some in combinations(sorted(columns), r)]


def holdout_combinations(rows: list[Row], columns: list[str], r: int, least: int, group: str | None) -> set[str]:
    """Cells are on one side each, groups whole, and every value of a complete row trained on; gives the cells."""
    held = {part for row in rows if row["held_out"] for part in row["held_out"].split("; ")}
    outside = {row[group] for row in rows if group and row["split"] in OUTSIDE and row[group] is not None}
    trained: dict[tuple[str, Any], int] = {}
    for row in rows:
        if any(missing(row[name]) for name in columns):
            assert row["split"] == "excluded", row
            assert all((f"{name} is null" in row["reason"]) == missing(row[name]) for name in columns), row
            continue
        hit = [cell for cell in cells_of(row, columns, r) if cell in held]
        assert (row["split"] in OUTSIDE) == bool(hit), row
        if hit:
            assert row["held_out"] == "; ".join(hit) or set(row["held_out"].split("; ")) == set(hit), row
        elif row["split"] == "excluded":
            assert group, row
            assert row[group] in outside, row
        for name in columns:
            key = (name, row[name])
            trained[key] = trained.get(key, 0) + (row["split"] == "train")
    assert all(count >= least for count in trained.values()), trained
    return held


def grid(rows: list[Row], columns: list[str], k: int) -> None:
    """Each value of the first column is in exactly k training cells; no cell is on both sides."""
    cells: dict[tuple[Any, ...], set[str]] = {}
    for row in rows:
        cell = tuple(row[name] for name in columns)
        if any(missing(value) for value in cell):
            assert row["split"] == "excluded", row
            continue
        cells.setdefault(cell, set()).add("in" if row["split"] in INSIDE else "out")
    assert all(len(sides) == 1 for sides in cells.values())
    trained = {tuple(row[name] for name in columns) for row in rows if row["split"] == "train"}
    assert trained == {cell for cell, sides in cells.items() if sides == {"in"}}
    values = [sorted({cell[place] for cell in cells}) for place in range(len(columns))]
    n, m = len(values[0]), len(values[1])
    for place, own in enumerate(values):
        for value in own:
            count = sum(cell[place] == value for cell in trained)
            if len(columns) == 2 and place == 1:
                assert count in (k * n // m, -(-k * n // m)), (value, count)
            else:
                assert count == k * n ** (len(columns) - 2), (value, count)


def verdict(node: Any, row: Row) -> Any:
    """Evaluate an expression given as nested tuples on one row of Python values; None where it is not known."""
    kind, *rest = node
    if kind == "value":
        return rest[0]
    if kind == "column":
        return None if missing(row[rest[0]]) else row[rest[0]]
    if kind == "len":
        return None if row[rest[0]] is None else len(row[rest[0]])
    if kind in ("and", "or"):
        found = [verdict(one, row) for one in rest]
        decisive = kind == "or"
        return decisive if decisive in found else (None if None in found else not decisive)
    if kind == "not":
        found = verdict(rest[0], row)
        return None if found is None else not found
    if kind == "null":
        return (verdict(rest[0], row) is None) != rest[1]
    left = verdict(rest[0], row)
    if kind == "in":
        return None if left is None else (left in rest[1]) != rest[2]
    right = verdict(rest[1], row)
    if left is None or right is None:
        return None
    if kind in ("+", "-", "*", "/"):
        left, right = float(left), float(right)
        if kind == "/":
            return None if right == 0 else left / right
        found = left + right if kind == "+" else left - right if kind == "-" else left * right
        return None if math.isnan(found) else found
    return (
        {"==": left == right, "!=": left != right}[kind]
        if kind in ("==", "!=")
        else {"<": left < right, "<=": left <= right, ">": left > right, ">=": left >= right}[kind]
    )


def written(node: Any) -> str:
    """Write the same expression as a recipe has it, every part in parentheses."""
    kind, *rest = node
    if kind == "value":
        value = rest[0]
        if isinstance(value, str):
            return "'" + value.replace("'", "''") + "'"
        return str(value).lower() if isinstance(value, bool) else repr(value)
    if kind == "column":
        return f"`{rest[0]}`"
    if kind == "len":
        return f"len({rest[0]})"
    if kind in ("and", "or"):
        return "(" + f" {kind} ".join(written(one) for one in rest) + ")"
    if kind == "not":
        return f"not ({written(rest[0])})"
    if kind == "null":
        return f"({written(rest[0])}) is {'not ' if rest[1] else ''}null"
    if kind == "in":
        members = ", ".join(written(("value", one)) for one in rest[1])
        return f"({written(rest[0])}) {'not ' if rest[2] else ''}in [{members}]"
    pair = f"({written(rest[0])}) {kind} ({written(rest[1])})"
    return f"({pair})" if kind in "+-*/" else pair
