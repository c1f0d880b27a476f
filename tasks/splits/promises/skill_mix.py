"""Training rows show few skills, none of a held-out category; what is tested shows more skills, or held-out ones."""

from __future__ import annotations

from typing import Any

import polars as pl

from gradatim.tasks.splits.constraints import Check, by_rule, zero


def promises(settings: dict[str, Any], rows: pl.DataFrame) -> list[Check]:
    """Count skills, and those of held-out categories, in every row that is used."""
    inside, outside = by_rule(rows)
    axis = str(rows["axis"][0])
    columns = [settings["column"], *filter(None, [settings["category"]])]
    used = rows.with_row_index("at").with_columns(inside=inside, outside=outside).filter(inside | outside)
    long = used.select("at", *columns).explode(*columns).rename({settings["column"]: "skill"}).drop_nulls("skill")
    if not settings["held_out"]:
        held = pl.lit(False)
    elif settings["category"] is not None:
        held = pl.col(settings["category"]).is_in(settings["held_out"]).fill_null(False)
    else:
        lacking = [skill for skill, category in settings["categories"].items() if category in settings["held_out"]]
        held = pl.col("skill").is_in(lacking)
    counts = long.group_by("at").agg(
        k=pl.col("skill").n_unique(), held=pl.col("skill").filter(held).n_unique()
    )  # fmt: skip
    used = used.join(counts, on="at", how="left").with_columns(pl.col("k", "held").fill_null(0))
    train, test = used.filter("inside"), used.filter("outside")
    few, many = pl.col("k").is_in(settings["train_k"]), pl.col("k").is_in(settings["test_k"])
    checks = [
        zero("constraint:training rows with another number of skills", train.filter(~few).height, len(train)),
        zero("constraint:training rows with a held-out skill", train.filter(pl.col("held") > 0).height, len(train)),
    ]
    asked_k = few if axis == "category" else many
    checks.append(zero("constraint:test rows with another number of skills", test.filter(~asked_k).height, len(test)))
    if axis == "k":
        wrong = test.filter(pl.col("held") > 0)
        checks.append(zero("constraint:test rows with a held-out skill", len(wrong), len(test)))
    else:
        enough = pl.col("held") > 0 if settings["mixed"] == "test" else pl.col("held") == pl.col("k")
        wrong = test.filter(~enough | (pl.col("held") == 0))
        checks.append(zero("constraint:test rows without held-out skills", len(wrong), len(test)))
    return checks
