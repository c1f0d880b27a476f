"""Atoms of train and test are alike, and each atom of the test is trained on; how far compounds differ is told."""

from __future__ import annotations

import math
from typing import Any

import polars as pl

from gradatim.tasks.core.divergences import divergences, factor_profile, text_profile, tree_profile
from gradatim.tasks.core.factor_cells import named_factors
from gradatim.tasks.splits.constraints import OUT, Check, by_rule, zero


def promises(settings: dict[str, Any], rows: pl.DataFrame) -> list[Check]:
    """Count atoms anew from raw columns: labels of trees, values of factors, or words."""
    inside, outside = by_rule(rows)
    atoms = _atoms(settings, rows.with_columns(inside.alias("is_in"), outside.alias("is_out")))
    alpha, cap = float(settings["alpha_atoms"]), float(settings["atom_divergence"])
    per = atoms.group_by("atom").agg(
        pl.col("is_in").sum().alias("p"),
        pl.col("is_out").sum().alias("q"),
        pl.col("example_id").filter(pl.col("split") == "train").n_unique().alias("train"),
        pl.col("split").is_in(OUT).any().alias("tested"),
    )
    total_p, total_q = int(per["p"].sum()), int(per["q"].sum())
    coefficient = (
        math.fsum((p / total_p) ** alpha * (q / total_q) ** (1 - alpha) for p, q in per.select("p", "q").iter_rows())
        if total_p and total_q
        else 1.0
    )
    least = int(settings["min_atom_count"])
    tested = per.filter(pl.col("q") > 0)
    rare = int((tested["train"] < least).sum())
    divergence = max(0.0, 1 - coefficient)
    sides = int((inside | outside).sum())
    checks = [
        Check("constraint:atom divergence", divergence, f"<= {cap:g}", divergence <= cap + 1e-9, sides),
        zero(f"constraint:test_ood atoms in fewer than {least} train rows", rare, len(tested)),
    ]
    profile = _profile(settings, rows)
    found = divergences(
        profile, inside.to_numpy(), outside.to_numpy(), atoms=alpha, compounds=float(settings["alpha_compounds"])
    )
    if found.compound is not None:
        checks.append(Check("constraint:compound divergence", found.compound, None, None, sides))
    return checks


def _atoms(settings: dict[str, Any], rows: pl.DataFrame) -> pl.DataFrame:
    """List the atoms of the used rows: atom, and beside it example_id, split, is_in and is_out."""
    used = rows.filter(pl.col("split") != "excluded")
    beside = ["example_id", "split", "is_in", "is_out"]
    if settings["factors"]:
        parts = [
            used.select(*beside, atom=pl.lit(f"{name}=") + values)
            for column in settings["factors"]
            for name, values in named_factors(used, column).items()
        ]
        return pl.concat(parts).drop_nulls("atom")
    if settings["text"]:
        words = pl.col(settings["text"]).cast(pl.String).str.extract_all(r"\S+")
        return used.select(*beside, atom=words).explode("atom").drop_nulls("atom")
    labels = pl.col("structure").list.eval(pl.element().struct.field("label"))
    return used.select(*beside, atom=labels).explode("atom").drop_nulls("atom")


def _profile(settings: dict[str, Any], rows: pl.DataFrame) -> Any:
    if settings["factors"]:
        return factor_profile(rows, settings["factors"], settings["ways"], top=settings["top"])
    if settings["text"]:
        return text_profile(rows[settings["text"]].cast(pl.String), settings["max_size"], top=settings["top"])
    return tree_profile(rows["structure"], settings["max_size"], top=settings["top"])
