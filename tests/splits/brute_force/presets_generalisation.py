"""Presets by the paper's name, as loops over dicts; nothing of the package is used."""

from __future__ import annotations

import json
import re
from collections import Counter
from itertools import combinations
from typing import Any

from brute_force.rules import INSIDE, OUTSIDE, Row, missing

Side = str


def side_of(row: Row) -> Side:
    """In, out or neither."""
    return "in" if row["split"] in INSIDE else "out" if row["split"] in OUTSIDE else "neither"


def agree(rows: list[Row], expected: list[Side]) -> None:
    for row, side in zip(rows, expected, strict=True):
        assert side_of(row) == side, (side, row)
        assert (row["held_out"] is not None) == (side == "out"), row
        assert row["reason"], row


def exploratory(rows: list[Row], template: str, level: str, most: float) -> None:
    low = {row[template] for row in rows if not missing(row[level]) and row[level] <= most} - {None}
    expected = []
    for row in rows:
        if row[template] is None or missing(row[level]):
            expected.append("neither")
        elif row[level] <= most:
            expected.append("in")
        else:
            expected.append("out" if row[template] in low else "neither")
    agree(rows, expected)
    trained = {row[template] for row in rows if row["split"] == "train"}
    assert all(row[template] in trained for row in rows if row["split"] in OUTSIDE)


def compositional(rows: list[Row], skills_of: Any, pairs: list[tuple[str, str]], least: int) -> None:
    skills = [skills_of(row) for row in rows]
    alone = {next(iter(own)) for own in skills if own is not None and len(own) == 1}
    expected = []
    for own in skills:
        if not own:
            expected.append("neither")
        elif len(own) == 1:
            expected.append("in")
        else:
            hit = not pairs or any(a in own and b in own for a, b in pairs)
            expected.append("out" if hit and own <= alone else "neither")
    agree(rows, expected)
    trained: Counter[str] = Counter()
    for row, own in zip(rows, skills, strict=True):
        if row["split"] == "train":
            assert own is not None
            assert len(own) == 1
            trained[next(iter(own))] += 1
        if row["split"] in OUTSIDE:
            assert row["held_out"] == " + ".join(sorted(own or ()))
    tested = {one for row, own in zip(rows, skills, strict=True) if row["split"] in OUTSIDE for one in own or ()}
    assert all(trained[skill] >= least for skill in tested)


def cube(rows: list[Row], points: list[list[int] | None], axis: str) -> None:
    expected = []
    for x in points:
        if x is None or not x or any(one is None for one in x):
            expected.append("neither")
            continue
        if axis == "the region of f1 is seen":
            seen = x[0] * x[1] * x[2] == 1
        elif axis in ("the region of f2 is seen", "the region of f4 is seen"):
            seen = x[0] == 1 or x[1] == 1
        elif axis == "the region of f3 is seen":
            seen = x[0] == 1 or x[1] == 1 or x[2] == 1
        elif axis.startswith("at most"):
            seen = sum(one == -1 for one in x) <= int(axis.split()[2])
        else:
            seen = x[int(axis.split()[0][1:])] == 1
        expected.append("in" if seen else "out")
    agree(rows, expected)


def one_level(rows: list[Row], base: dict[str, str], axis: str) -> None:
    factor, level = axis.split(": trained on ")
    expected = []
    for row in rows:
        at_base = all(str(row[name]) == value for name, value in base.items() if name != factor)
        if row[factor] is None or not at_base:
            expected.append("neither")
        else:
            expected.append("in" if str(row[factor]) == level else "out")
    agree(rows, expected)
    for row in rows:
        if row["split"] in OUTSIDE:
            assert row["held_out"] == f"{factor}={row[factor]}"


def new_values(rows: list[Row], new: dict[str, set[str]], axis: str) -> None:
    shift = set(axis.split(" + "))
    complete = [row for row in rows if all(row[name] is not None for name in new)]
    trained: dict[str, set[str]] = {name: set() for name in new}
    for row in complete:
        if not any(row[name] in values for name, values in new.items()):
            for name in new:
                trained[name].add(row[name])
    expected = []
    for row in rows:
        if any(row[name] is None for name in new):
            expected.append("neither")
            continue
        fresh = {name for name, values in new.items() if row[name] in values}
        rest = all(row[name] in trained[name] for name in new if name not in fresh)
        expected.append("in" if not fresh else "out" if fresh == shift and rest else "neither")
    agree(rows, expected)
    values = {name: {row[name] for row in rows if row["split"] == "train"} for name in new}
    assert values == trained


def level_number(text: Any) -> int | None:
    found = re.search(r"\d+$", str(text).strip()) if text is not None else None
    return int(found[0]) if found else None


def up_to(rows: list[Row], numbers: list[int | None], most: float, tested: set[int] | None = None) -> None:
    expected = []
    for number in numbers:
        if number is None:
            expected.append("neither")
        elif number <= most:
            expected.append("in")
        else:
            expected.append("out" if tested is None or number in tested else "neither")
    agree(rows, expected)


def answer_lines(answer: str | None) -> int | None:
    if answer is None:
        return None
    count = 0
    for line in answer.split("\n"):
        if line.strip().startswith("####"):
            break
        count += bool(line.strip())
    return count or None


def no_shared(rows: list[Row], template_of: Any) -> tuple[int, int]:
    inside = {template_of(row) for row in rows if row["split"] in INSIDE}
    outside = {template_of(row) for row in rows if row["split"] in OUTSIDE}
    assert not inside & outside
    assert all((template_of(row) is None) == (row["split"] == "excluded") for row in rows)
    return len(inside), len(outside)


def label_pairs(rows: list[Row], column: str, least: int) -> set[tuple[str, str]]:
    held = set()
    for row in rows:
        for piece in (row["held_out"] or "").split("; "):
            if piece:
                first, second = (json.loads(one) if one.startswith('"') else one for one in piece.split(" + "))
                held.add((first, second))
    expected, counts, trained = [], Counter[str](), Counter[str]()
    for row in rows:
        own = None if row[column] is None else {one for one in row[column] if one is not None}
        counts.update(own or ())
        trained.update((own or ()) if row["split"] == "train" else ())
        if own is None:
            expected.append("neither")
        else:
            expected.append("out" if any(pair in held for pair in combinations(sorted(own), 2)) else "in")
    agree(rows, expected)
    for label, count in counts.items():
        assert trained[label] >= min(least, count), (label, count)
    return held


def structures(nodes: list[dict[str, Any]], n: int) -> set[tuple[Any, ...]]:
    """Local structures of one tree, by walking from each node."""
    label = {node["node"]: node["label"] for node in nodes}
    parent = {node["node"]: node["parent"] for node in nodes}
    children: dict[Any, list[int]] = {}
    for node in sorted(label):
        children.setdefault(parent[node], []).append(node)
    root = next(node for node in label if parent[node] not in label)
    found = set()
    for node in label:
        above, at = [], node
        while at != root:
            at = parent[at]
            above.append(label[at])
        above.append("<s>")
        beside = [] if node == root else children[parent[node]]
        left = [label[one] for one in reversed(beside[: beside.index(node)])] if beside else []
        for a in range(n):
            for b in range(n - a):
                if a + b > 0 and a <= len(above) and b <= len(left):
                    found.add((a, b, *above[:a], *left[:b], label[node]))
    return found


def held_structures(rows: list[Row], n: int, least: int) -> set[tuple[Any, ...]]:
    """Every structure of test_ood that train lacks; each test_ood row has one, and train has every symbol."""
    own = [structures(row["structure"], n) if row["structure"] else None for row in rows]
    seen = set().union(*(one for one, row in zip(own, rows, strict=True) if one and row["split"] in INSIDE))
    counts, trained = Counter[str](), Counter[str]()
    for one, row in zip(own, rows, strict=True):
        if one is None:
            assert row["split"] == "excluded"
            continue
        assert (row["split"] in OUTSIDE) == bool(row["held_out"])
        if row["split"] in OUTSIDE:
            assert one - seen, row
        symbols = {node["label"] for node in row["structure"]}
        counts.update(symbols)
        trained.update(symbols if row["split"] == "train" else ())
    for symbol, count in counts.items():
        assert trained[symbol] >= min(least, count), (symbol, count)
    return seen
