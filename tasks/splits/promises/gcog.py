"""What a fold of gCOG tests is no part of its training set: counts, objects of operators, kinds of tree, depths."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from gradatim.tasks.splits.constraints import Check, by_rule, zero


def promises(settings: dict[str, Any], rows: pl.DataFrame) -> list[Check]:
    """Compare training rows with those of the test, by what the fold's axis says is shifted."""
    inside, outside = by_rule(rows)
    rows = rows.with_columns(depth_of=_depths(rows, settings))
    train, test = rows.filter(inside), rows.filter(outside)
    axis = str(rows["axis"][0])
    if axis == "distractors":
        column = settings["distractors"]
        trained, tested = (part[column].cast(pl.Float64) for part in (train, test))
        least = tested.min() if len(tested) else None
        over = int((trained >= least).sum()) if least is not None else 0
        checks = [zero("constraint:training rows with as many distractors as a test row", over, len(train))]
        return checks + _of_depth(train, test, [1])
    if axis == "operator and object":
        names = [settings["operator"], settings["color"], settings["shape"]]
        known = train.select(pl.col(names).cast(pl.String)).unique()
        asked = test.select(pl.col(names).cast(pl.String))
        again = asked.join(known, on=names, how="semi").height
        checks = [zero("constraint:test rows whose operator is trained on their object", again, len(test))]
        for name in names:
            lost = asked.join(known, on=name, how="anti").height
            checks.append(zero(f"constraint:test rows with a {name} that is not trained on", lost, len(test)))
        return checks + _of_depth(train, test, [1])
    if axis == "tree":
        kinds = [_kinds(part, settings) for part in (train, test)]
        mixed = int((kinds[0] != 1).sum())
        own = int((kinds[1] != 2).sum())
        return [
            zero("constraint:training trees of two kinds", mixed, len(train)),
            zero("constraint:test trees of one kind", own, len(test)),
            *_of_depth(train, test, [3]),
        ]
    deepest = max(settings["train_depths"])
    strange = int((~train["depth_of"].is_in(settings["train_depths"])).sum())
    shallow = int((test["depth_of"] <= deepest).sum())
    return [
        zero("constraint:training rows of another depth", strange, len(train)),
        zero("constraint:test rows no deeper than training rows", shallow, len(test)),
    ]


def _of_depth(train: pl.DataFrame, test: pl.DataFrame, valid: list[int]) -> list[Check]:
    wrong = sum(int((~part["depth_of"].is_in(valid)).sum()) for part in (train, test))
    return [zero("constraint:rows of another depth", wrong, len(train) + len(test))]


def _kinds(rows: pl.DataFrame, settings: dict[str, Any]) -> pl.Series:
    """Return 1 where a tree starts and ends in one kind, 2 where it ends in the other kind, else 0."""
    ends = rows[settings["ends"]]
    frame = rows.select(start=pl.col(settings["operator"]).cast(pl.String), end=ends).with_row_index("row")
    if ends.dtype.is_nested():
        frame = frame.explode("end")
    place = {end: kind for kind, half in enumerate(settings["endings"]) for end in half}
    begin = {start: kind for kind, half in enumerate(settings["starts"]) for start in half}
    frame = frame.drop_nulls("end").select(
        "row",
        end=pl.col("end").replace_strict(place, default=-9, return_dtype=pl.Int64),
        start=pl.col("start").replace_strict(begin, default=-99, return_dtype=pl.Int64),
    )
    same, other = pl.col("end") == pl.col("start"), pl.col("end") == 1 - pl.col("start")
    told = frame.group_by("row").agg(kind=pl.when(same.all()).then(1).when(other.all()).then(2).otherwise(0))
    index = pl.DataFrame({"row": pl.int_range(len(rows), dtype=pl.UInt32, eager=True)})
    kinds: pl.Series = index.join(told, on="row", how="left", maintain_order="left").get_column("kind").fill_null(0)
    return kinds


def _depths(rows: pl.DataFrame, settings: dict[str, Any]) -> pl.Series:
    """Return the column, or the levels of each tree: how often parents can be followed."""
    if settings["depth"] is not None:
        return rows.get_column(settings["depth"]).cast(pl.Float64).cast(pl.Int64)
    lists = rows["structure"]
    size = lists.list.len().fill_null(0).to_numpy().astype(np.int64)
    start = np.repeat(np.cumsum(size) - size, size)
    tree = np.repeat(np.arange(len(size)), size)
    nodes = lists.filter(pl.Series(size > 0)).explode().struct.unnest()
    parent = nodes["parent"].fill_null(-1).cast(pl.Int64).to_numpy()
    levels = np.zeros(len(size), np.int64)
    up = np.where(parent >= 0, start + parent, -1)
    at = np.arange(len(parent))
    for _ in range(int(size.max(initial=0))):  # the parents of all nodes, then their parents, until there are none
        levels[np.unique(tree[at])] += 1
        at = np.unique(up[at])
        at = at[at >= 0]
    return pl.Series(levels)
