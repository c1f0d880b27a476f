"""Test rows have a new value of the fold's factors and of no other; every other value of theirs is trained on."""

from __future__ import annotations

from typing import Any

import polars as pl

from gradatim.tasks.splits.constraints import Check, by_rule, zero
from gradatim.tasks.splits.promises import holdout_values
from gradatim.tasks.splits.promises._sides import texts


def promises(settings: dict[str, Any], rows: pl.DataFrame) -> list[Check]:
    """Compare the values of both sides, factor by factor."""
    shifted = str(rows["axis"][0]).split(" + ")
    factors = list(settings["factors"])
    if not set(shifted) <= set(factors):  # a name that holds the sign
        shifted = [name for name in factors if name == str(rows["axis"][0])]
    inside, outside = by_rule(rows)
    checks = []
    for name in sorted(factors):
        values = texts(rows[name])
        trained = set(values.filter(rows["split"] == "train").drop_nulls())
        tested = values.filter(outside)
        seen = tested.is_in(list(trained))
        if name in shifted:
            within = set(values.filter(inside).drop_nulls())
            old = int(tested.is_in(list(within)).sum()) + tested.null_count()
            checks.append(zero(f"constraint:test_ood rows with a trained {name}", old, len(tested)))
        else:
            strange = int((~seen.fill_null(False)).sum())
            checks.append(zero(f"constraint:test_ood rows with an untrained {name}", strange, len(tested)))
        if name in settings["train_values"]:
            side = holdout_values.sides({"column": name, "values": settings["train_values"][name]}, rows)
            wrong = int((inside.to_numpy() & (side != 1)).sum())
            checks.append(zero(f"constraint:in-distribution rows of a new {name}", wrong, int(inside.sum())))
            new = outside.to_numpy() & (side != (0 if name in shifted else 1))
            told = f"constraint:test_ood rows whose {name} is not as the fold says"
            checks.append(zero(told, int(new.sum()), len(tested)))
        else:
            missing = int((inside & values.is_null()).sum())
            checks.append(zero(f"constraint:in-distribution rows without {name}", missing, int(inside.sum())))
    return checks
