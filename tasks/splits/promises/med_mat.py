"""The target's triple is tested alone and never trained on; training triples provide what the regime says."""

from __future__ import annotations

from typing import Any

import polars as pl

from gradatim.tasks.splits.constraints import Check, by_rule, zero


def promises(settings: dict[str, Any], rows: pl.DataFrame) -> list[Check]:
    """Count the elements that each row has in common with the target of the rows held out."""
    inside, outside = by_rule(rows)
    elements = ("modality", "anatomy", "task")
    columns = [str(settings[name]) for name in elements]
    regime = str(rows["axis"][0]).rsplit(": ", 1)[1]
    out = rows.filter(outside).select(pl.col(columns).cast(pl.String)).unique()
    checks = [zero("constraint:triples tested beside the target", abs(len(out) - 1), len(out))]
    if len(out) != 1:
        return checks
    target = out.row(0)
    shares = [
        (rows[name].cast(pl.String) == value).fill_null(False) for name, value in zip(columns, target, strict=True)
    ]
    common = shares[0].cast(pl.Int8) + shares[1].cast(pl.Int8) + shares[2].cast(pl.Int8)
    known = list({tuple(sorted(one.items())) for one in settings["targets"]})
    asked = tuple(sorted(zip(elements, target, strict=True)))
    checks.append(zero("constraint:a triple tested that is no target", int(asked not in known), len(known)))
    checks.append(
        zero("constraint:training rows of the target", int((inside & (common == 3)).sum()), int(inside.sum()))
    )
    if regime == "unrelated":
        wrong = inside & (common > 0)
    elif regime == "all":
        wrong = inside & False
    else:
        wrong = inside & (common == 0)
    if regime.startswith("without_"):
        wrong = wrong | (inside & shares[elements.index(regime.removeprefix("without_"))])
    checks.append(zero(f"constraint:training rows against the regime {regime}", int(wrong.sum()), int(inside.sum())))
    for name, share in zip(columns, shares, strict=True):
        checks.append(Check(f"provided:{name}", float((inside & share).sum()), None, None, int(inside.sum())))
    return checks
