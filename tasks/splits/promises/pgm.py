"""No training structure holds what a regime holds out, and every tested one does; values lie on their side."""

from __future__ import annotations

import re
from itertools import combinations
from typing import Any

import polars as pl

from gradatim.tasks.splits.constraints import Check, by_rule, zero

_END = " | "


def promises(settings: dict[str, Any], rows: pl.DataFrame) -> list[Check]:
    """Read the names in ``held_out`` and look for them in every structure, each distinct one once."""
    inside, outside = by_rule(rows)
    axis = str(rows["axis"][0])
    if axis == "none":
        return [zero("constraint:test_ood rows of the neutral regime", int(outside.sum()), len(rows))]
    long = _triples(rows[settings["column"]])
    if axis in ("interpolation", "extrapolation"):
        return _values(settings, rows, long, inside, outside, axis)
    joined = long.unique(["row", "triple"]).sort("row", "triple").group_by("row").agg(pl.col("triple").str.join(_END))
    index = pl.DataFrame({"row": pl.int_range(len(rows), eager=True)})
    structure = index.join(joined, on="row", how="left", maintain_order="left").get_column("triple").fill_null("")
    named = sorted({name for text in rows["held_out"].drop_nulls().unique() for name in text.split("; ")})
    wanted = [name.lower().split(" + ") for name in named]
    distinct = structure.unique().sort()
    parts = [_parts(text) for text in distinct]
    hits = [any(all(part in have for part in one) for one in wanted) for have in parts]
    several = [_END in text for text in distinct]
    hit, several_here = (
        structure.replace_strict(distinct, pl.Series(told, dtype=pl.Boolean), return_dtype=pl.Boolean)
        for told in (hits, several)
    )
    checks = [
        zero("constraint:training structures with what is held out", int((inside & hit).sum()), int(inside.sum())),
        zero("constraint:test_ood structures without it", int((outside & ~hit).sum()), int(outside.sum())),
    ]
    most = {"attr.rel.pairs": 40, "attrs.pairs": 4, "attr.rels": 7}.get(axis, 1)
    # a name that no row holds is not told: a bound from above
    checks.append(zero("constraint:things held out beyond the paper's number", max(len(named) - most, 0), len(named)))
    if axis in ("attr.rel.pairs", "attrs.pairs"):
        lone = (inside | outside) & ~several_here
        checks.append(zero("constraint:structures of one triple", int(lone.sum()), len(rows)))
        trained = set().union(*(_parts(text) for text in structure.filter(inside).unique()))
        unseen = sum(not trained.issuperset(one) for one in wanted)
        checks.append(Check("held_out_pairs:a member not trained on", float(unseen), None, None, len(wanted)))
    if axis == "attr.rels":
        of = [tuple(name.split(" ")[-2:]) for name in named]
        twice = sum(one == other for one, other in combinations(of, 2))
        checks.append(zero("constraint:attributes with two held-out triples", twice, len(named)))
    return checks


def _parts(structure: str) -> set[str]:
    """Return what a structure can be said to have: its triples, and the attributes of their objects."""
    triples = structure.split(_END)
    return {*triples, *(" ".join(triple.split(" ")[-2:]) for triple in triples)}


def _triples(column: pl.Series) -> pl.DataFrame:
    """List the triples of each row in one spelling: row, at (the place in the row's list), triple."""
    if isinstance(column.dtype, pl.Array):
        column = column.arr.to_list()
    frame = pl.DataFrame({"row": pl.int_range(len(column), eager=True), "triple": column})
    frame = frame.with_columns(at=pl.int_ranges(0, pl.col("triple").list.len())).explode("triple", "at")
    inner: Any = column.dtype.inner  # type: ignore[attr-defined]
    one = pl.col("triple")
    if isinstance(inner, pl.Struct):
        one = pl.concat_str([one.struct.field(name) for name in ("relation", "object", "attribute")], separator=" ")
    elif isinstance(inner, pl.List):
        one = one.cast(pl.List(pl.String)).list.join(" ")
    frame = frame.with_columns(triple=one.cast(pl.String)).drop_nulls("triple")
    told = {text: " ".join(re.split(r"[\s_,;/]+", text.strip().lower())) for text in frame["triple"].unique()}
    told = {text: spelt.replace("color", "colour").strip() for text, spelt in told.items()}
    return frame.with_columns(pl.col("triple").replace_strict(told, return_dtype=pl.String))


def _values(
    settings: dict[str, Any], rows: pl.DataFrame, long: pl.DataFrame, inside: pl.Series, outside: pl.Series, axis: str
) -> list[Check]:
    used = pl.DataFrame({"value": rows[settings["values"]], "inside": inside, "outside": outside})
    used = used.with_columns(row=pl.int_range(pl.len())).filter(pl.col("inside") | pl.col("outside"))
    governed = long.filter(pl.col("triple").str.contains(r" (?:colour|size)$"))
    if isinstance(used["value"].dtype.inner, pl.List):  # type: ignore[attr-defined]
        used = used.with_columns(at=pl.int_ranges(0, pl.col("value").list.len())).explode("value", "at")
        used = used.join(governed, on=["row", "at"], how="semi")
    else:
        used = used.join(governed, on="row", how="semi")
    values = used.explode("value").drop_nulls("value")
    half = settings["levels"] // 2
    away = pl.col("value") % 2 == 1 if axis == "interpolation" else pl.col("value") >= half
    per = values.group_by("row").agg(pl.col("inside", "outside").first(), any=away.any(), all=away.all())
    known = int((inside | outside).sum())
    near, far = per.filter("inside", "any").height, per.filter(pl.col("outside") & ~pl.col("all")).height
    return [
        zero("constraint:training rows with a value of the other side", near, int(inside.sum())),
        zero("constraint:test_ood rows with a value of training's side", far, int(outside.sum())),
        zero("constraint:rows without a value of an ordered attribute", known - len(per), known),
    ]
