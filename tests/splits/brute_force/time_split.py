"""Where each row of a time split belongs, row by row."""

from __future__ import annotations

from typing import Any


def boundary(values: list[Any], share: float) -> Any:
    """Return the first value of the later side: equal values are later, but the earliest of all are earlier."""
    ordered = sorted(values)
    place = 0
    while place + 1 < len(ordered) and (place + 1) / len(ordered) <= share + 1e-12:
        place += 1
    found = ordered[place]
    return found if found > ordered[0] else min(value for value in ordered if value > ordered[0])


def sides(
    rows: list[dict[str, Any]],
    start: Any,
    end: Any,
    *,
    gap: Any = 0,
    test: Any = None,
    group: str | None = None,
    across: str = "test",
) -> dict[str, str]:
    """Return in, validation_ood, out or neither for each id; times are numbers here."""
    first = {}
    for row in rows:
        at = row["at"]
        if at is None or (end is not None and at >= end):
            side = "neither"
        elif at < start:
            side = "in"
        elif at < start + gap:
            side = "neither"
        else:
            side = "validation_ood" if test is not None and at < test else "out"
        first[row["example_id"]] = side
    if group is None:
        return first
    rank = ["in", "validation_ood", "out"]
    keep = max if across == "test" else min
    found = {}
    for row in rows:
        mine = first[row["example_id"]]
        if mine != "neither" and row[group] is not None:
            theirs = [first[o["example_id"]] for o in rows if o[group] == row[group]]
            stays = keep((side for side in theirs if side != "neither"), key=rank.index)
            mine = mine if mine == stays else "neither"
        found[row["example_id"]] = mine
    return found
