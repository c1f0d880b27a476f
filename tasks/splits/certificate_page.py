"""A certificate for readers: one page in the report, a table in LaTeX, a picture of the shift."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from gradatim.schemas.summary import Cell, Fact, Summary, SummaryChart, SummaryTable
from gradatim.tasks.core.format import number
from gradatim.tasks.splits.details import Details
from gradatim.tasks.splits.measures.difficulty import histogram

_LITTLE = 0.5
_HEADLINES = {
    "duplicates_across": "inputs in more than one split",
    "near_duplicates_across": "near-duplicates across",
    "shift_auc": "shift AUC",
    "compound_divergence": "compound divergence",
    "leakage": "leakage ratio",
    "score_gap": "zero-shot gap",
    "score_gap_matched": "difficulty-matched gap",
    "matched_rows": "share of test_ood matched on difficulty",
    "detectable_gap": "smallest detectable gap",
}
_BESIDE_CONTROL = ("shift_auc", "compound_divergence", "leakage")
_LISTED = r"^(bin:|score(_gap|:test|:test_ood):)"
"""Checks that are shown as a picture or a table of their own."""
_ORDER = (
    "rows", "share", "constraint", "grid_coverage", "held_out_values", "groups", "label_values", "label_largest_share",
    "domain_values", "domain_largest_share", "tv", "duplicates_across", "near_duplicates_across",
    "near_duplicates_of_train", "leakage", "leakage_low", "leakage_high", "shift_auc", "diversity_shift",
    "correlation_shift", "atom_divergence", "compound_divergence", "factor_coverage", "factor_distance",
    "difficulty_mean", "matched_support", "matched_rows", "score", "score_gap", "score_gap_matched", "detectable_gap",
)  # fmt: skip
_SIGNS = {"\\": r"\textbackslash{}", "_": r"\_", "%": r"\%", "&": r"\&", "#": r"\#", "$": r"\$", "<": "$<$",
          ">": "$>$", "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}  # fmt: skip


def means(table: pl.DataFrame) -> pl.DataFrame:
    """Average each check over seeds and folds.

    Returns
    -------
    polars.DataFrame
        check, value, deviation (over seeds and folds; null for one), control_value, matched_value, n (the mean), bound,
        holds (of all), promises first, then measures in the order of the page.
    """
    of = [pl.col(name).sort().mean() for name in ("value", "control_value", "matched_value")]
    mean = table.group_by("check").agg(
        *of,
        deviation=pl.col("value").sort().std(),
        n=pl.col("n").sum() // pl.len(),
        bound=pl.col("bound").first(),
        holds=pl.col("holds").all(),
        promised=pl.col("holds").is_not_null().any(),
    )
    mean = mean.with_columns(holds=pl.when("promised").then("holds"))
    place = {name: index for index, name in enumerate(_ORDER)}
    kind = pl.col("check").str.split(":").list.first().replace_strict(place, default=len(_ORDER), return_dtype=pl.Int64)
    return mean.sort(~pl.col("promised"), kind, "check").drop("promised")


def summary(strategy: str, table: pl.DataFrame, shown: Details, sources: Sequence[str]) -> Summary:
    """Describe a certificate for terminal, report and artifact."""
    checked, failed = table.drop_nulls("holds"), table.filter(~pl.col("holds"))
    averaged = means(table)
    folds = table.select("seed", "fold").unique().height
    values = {row["check"]: row for row in averaged.iter_rows(named=True)}
    return Summary(
        step=f"certificate {strategy}",
        headline="every promise holds" if failed.is_empty() else f"{len(failed)} promises do not hold",
        facts=(Fact("promises that hold", f"{len(checked) - len(failed)} of {len(checked)}"), *_facts(values, folds)),
        tables=(*_tables(averaged, folds), *shown.tables()),
        charts=_charts(strategy, table),
        warnings=_warnings(values, failed),
        sources=tuple(sources),
    )


def _facts(values: dict[str, dict[str, Any]], folds: int) -> list[Fact]:
    several = f"mean of {folds} splits" if folds > 1 else ""
    said = []
    for check, label in _HEADLINES.items():
        row = values.get(check)
        if row is None or row["value"] is None:
            continue
        control = row["control_value"] if check in _BESIDE_CONTROL else None
        beside = "" if control is None else f"random control {number(control, 2)}"
        said.append(Fact(label, round(row["value"], 4), note=", ".join(filter(None, (beside, several)))))
    return said


def _warnings(values: dict[str, dict[str, Any]], failed: pl.DataFrame) -> tuple[str, ...]:
    warnings = tuple(
        f"does not hold: {row['check']} is {_number(row['value'])}, asked {row['bound']} (fold {row['fold']})"
        for row in failed.head(20).iter_rows(named=True)
    )
    if values.get("duplicates_across", {}).get("value"):
        warnings += ("equal inputs stand in more than one split; 'keep_together: input' holds them together",)
    support = values.get("matched_support", {}).get("value")
    if support is not None and support < _LITTLE:
        warnings += (f"only {support:.0%} of test_ood has an in-distribution row of the same difficulty",)
    return warnings


def _tables(averaged: pl.DataFrame, folds: int) -> tuple[SummaryTable, ...]:
    note = f"Means of {folds} seeds and folds." if folds > 1 else ""
    promises = averaged.drop_nulls("holds").select("check", "value", "bound", "holds", "n")
    shown = averaged.filter(pl.col("holds").is_null() & ~pl.col("check").str.contains(_LISTED))
    measured = shown.select(
        "check", "value", *(["deviation"] if folds > 1 else []), "control_value", "matched_value", "n"
    )
    headings = ("measure", "value", *(["deviation"] if folds > 1 else []), "random control", "matched control", "rows")
    found = [
        SummaryTable("Promises", ("promise", "value", "asked", "holds", "rows"), _cells(promises), note=note),
        SummaryTable("Measures", headings, _cells(measured), note=note),
    ]
    models = _models(averaged)
    if len(models):
        title = "Models that never saw the split"
        found.append(SummaryTable(title, ("model", "test", "test_ood", "gap"), tuple(models.head(50).iter_rows())))
    return tuple(found)


def _cells(frame: pl.DataFrame) -> tuple[tuple[Cell, ...], ...]:
    """Return rows, whole numbers without decimals: most values are counts."""
    return tuple(
        tuple(int(cell) if isinstance(cell, float) and cell.is_integer() else cell for cell in row)
        for row in frame.iter_rows()
    )


def _models(averaged: pl.DataFrame) -> pl.DataFrame:
    """List each model's scores: model, test, test_ood, gap; the best in distribution first."""
    parts = [
        averaged.filter(pl.col("check").str.starts_with(prefix))
        .select(pl.col("check").str.strip_prefix(prefix).alias("model"), pl.col("value").alias(name))
        for prefix, name in (("score:test:", "test"), ("score:test_ood:", "test_ood"), ("score_gap:", "gap"))
    ]  # fmt: skip
    joined = parts[0].join(parts[1], on="model", how="left").join(parts[2], on="model", how="left")
    return joined.sort(["test", "model"], descending=[True, False], nulls_last=True)


def _charts(strategy: str, table: pl.DataFrame) -> tuple[SummaryChart, ...]:
    from gradatim.tasks.core import charts

    found = []
    if table["check"].str.contains(r"^(tv:|shift_auc|diversity_shift|correlation_shift)").any():
        caption = "How far train and the tests are apart, beside the same of both controls; 0 is alike (an AUC: .5)."
        found.append(charts.chart(shift_chart(strategy, table), caption))
    shares = histogram(table)
    if len(shares):
        drawn = charts.bars(
            shares.with_columns(pl.col("bin").cast(pl.String)), x="bin", y="share", color="split",
            title=f"Difficulty in each split of {strategy}",
        )  # fmt: skip
        found.append(charts.chart(drawn, "Share of each split's rows in each difficulty bin, 0 the easiest."))
    return tuple(found)


def shift_chart(strategy: str, table: pl.DataFrame) -> Any:
    """Draw the distances between train and the tests beside the controls' (an Altair chart)."""
    from gradatim.tasks.core import charts

    shown = means(table).filter(pl.col("check").str.contains(r"^(tv:|shift_auc|diversity_shift|correlation_shift)"))
    names = {"value": strategy, "control_value": "random control", "matched_value": "matched control"}
    long = (
        shown.select("check", *names).rename(names)
        .unpivot(index="check", variable_name="split", value_name="distance").drop_nulls().sort("check", "split")
    )  # fmt: skip
    return charts.bars(long, x="check", y="distance", color="split", title=f"Shift of {strategy}")


def latex(table: pl.DataFrame) -> str:
    r"""Write promises and measures as a LaTeX table (booktabs), means over seeds and folds."""
    lines = [
        r"\begin{tabular}{lrlrrr}", r"\toprule",
        r"check & value & asked & random control & matched control & $n$ \\", r"\midrule",
    ]  # fmt: skip
    averaged = means(table).filter(~pl.col("check").str.contains(_LISTED))
    promised = averaged["holds"].is_not_null()
    for place, row in enumerate(averaged.iter_rows(named=True)):
        if place and promised[place - 1] and not promised[place]:
            lines.append(r"\midrule")
        bound = "" if row["bound"] is None else _latex(row["bound"]) + ("" if row["holds"] else r" \textbf{fails}")
        cells = (
            _latex(row["check"]), _number(row["value"]), bound, _number(row["control_value"]),
            _number(row["matched_value"]), f"{row['n']:,}",
        )  # fmt: skip
        lines.append(" & ".join(cells) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def _number(value: float | None) -> str:
    if value is None:
        return "--"
    return f"{value:,.0f}" if float(value).is_integer() and abs(value) >= 1 else f"{value:.4g}"


def _latex(text: str) -> str:
    return "".join(_SIGNS.get(sign, sign) for sign in " ".join(text.split()))
