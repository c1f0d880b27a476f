"""The certificate of a split: promises checked anew, the shift measured, each number beside the random control's."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import polars as pl

from gradatim.schemas.errors import UsageError
from gradatim.schemas.summary import Fact, Summary, SummaryTable
from gradatim.tasks.core.format import number
from gradatim.tasks.splits.constraints import Check, constraint, groups_across, zero
from gradatim.tasks.splits.controls import best_matched, cells, one_method, ways
from gradatim.tasks.splits.inputs import columns_of, require_column, with_factors
from gradatim.tasks.splits.measures import Measured, measure
from gradatim.tasks.splits.result import Split
from gradatim.tasks.splits.shift import SOURCE as SHIFT_SOURCE

_DTYPES = {
    "strategy": pl.String, "seed": pl.Int64, "fold": pl.Int32, "check": pl.String, "value": pl.Float64,
    "bound": pl.String, "holds": pl.Boolean, "control_value": pl.Float64, "n": pl.Int64,
}  # fmt: skip
_UNLIKELY = 1e-9
_LITTLE = 0.5
_HEADLINES = {
    "duplicates_across": "inputs in more than one split",
    "shift_auc": "shift AUC",
    "score_gap": "zero-shot gap",
    "score_gap_matched": "difficulty-matched gap",
    "matched_rows": "share of test_ood matched on difficulty",
    "detectable_gap": "smallest detectable gap",
}


@dataclass(frozen=True)
class Certificate:
    """What was checked and measured on a split.

    Attributes
    ----------
    strategy : str
    table : polars.DataFrame
        The table ``certificate``: strategy, seed, fold, check, value, bound, holds, control_value, n.
    """

    strategy: str
    table: pl.DataFrame

    @property
    def holds(self) -> bool:
        """Whether every promise holds."""
        return self.failures.is_empty()

    @property
    def failures(self) -> pl.DataFrame:
        """The checks that do not hold."""
        return self.table.filter(~pl.col("holds"))

    def value(self, check: str) -> float | None:
        """Return a check's value, of a certificate with one seed and fold."""
        found = self.table.filter(pl.col("check") == check)["value"]
        if len(found) != 1:
            raise UsageError(
                f"the certificate has {len(found)} values of {check!r}",
                expected="one of " + ", ".join(self.table["check"].unique().sort().to_list()),
            )
        return found.item()  # type: ignore[no-any-return]

    def to_latex(self) -> str:
        r"""Return the table as LaTeX (booktabs), ready for ``\input``."""
        lines = [
            r"\begin{tabular}{lrlrr}", r"\toprule", r"check & value & bound & random control & $n$ \\", r"\midrule",
        ]  # fmt: skip
        several = self.table.select("seed", "fold").unique().height > 1
        for row in self.table.iter_rows(named=True):
            name = f"seed {row['seed']} fold {row['fold']}: {row['check']}" if several else row["check"]
            bound = "" if row["bound"] is None else _latex(row["bound"]) + ("" if row["holds"] else r" \textbf{fails}")
            cells_ = (_latex(name), _number(row["value"]), bound, _number(row["control_value"]), f"{row['n']:,}")
            lines.append(" & ".join(cells_) + r" \\")
        return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])

    def summary(self) -> Summary:
        """Describe the certificate for terminal, report and artifact."""
        checked = self.table.drop_nulls("holds")
        failed = self.failures
        values, folds = self._means()
        several = f"mean of {folds} splits" if folds > 1 else ""
        said = []
        for check, label in _HEADLINES.items():
            value, control = values.get(check, (None, None))
            if value is not None:
                beside = f"random control {number(control, 2)}" if control is not None and check == "shift_auc" else ""
                said.append(Fact(label, round(value, 4), note=", ".join(filter(None, (beside, several)))))
        facts = [Fact("promises that hold", f"{len(checked) - len(failed)} of {len(checked)}"), *said]
        warnings = tuple(
            f"does not hold: {row['check']} is {_number(row['value'])}, asked {row['bound']} (fold {row['fold']})"
            for row in failed.head(20).iter_rows(named=True)
        )
        if values.get("duplicates_across", (0, None))[0]:
            warnings += ("equal inputs stand in more than one split; 'keep_together: input' holds them together",)
        support = values.get("matched_support", (None, None))[0]
        if support is not None and support < _LITTLE:
            warnings += (f"only {support:.0%} of test_ood has an in-distribution row of the same difficulty",)
        columns = ("seed", "fold", "check", "value", "bound", "holds", "random control", "n")
        rows = tuple(self.table.drop("strategy").head(200).iter_rows())
        return Summary(
            step=f"certificate {self.strategy}",
            headline="every promise holds" if self.holds else f"{len(failed)} promises do not hold",
            facts=tuple(facts),
            tables=(SummaryTable("Certificate", columns, rows),),
            warnings=warnings,
            sources=(SHIFT_SOURCE,),
        )

    def _means(self) -> tuple[dict[str, tuple[float | None, float | None]], int]:
        """Return each check's mean value and control over seeds and folds, and the number of those."""
        mean = self.table.group_by("check").agg(pl.col("value").mean(), pl.col("control_value").mean())
        folds = self.table.select("seed", "fold").unique().height
        return {check: (value, control) for check, value, control in mean.iter_rows()}, folds

    def plot(self) -> Any:
        """Draw the distances between train and the tests beside the random control's (an Altair chart)."""
        from gradatim.tasks.core import charts

        shown = (
            self.table.filter(pl.col("check").str.contains(r"^(tv:|shift_auc)"))
            .group_by("check")
            .agg(pl.col("value").mean().alias(self.strategy), pl.col("control_value").mean().alias("random control"))
        )
        long = (
            shown.unpivot(index="check", variable_name="split", value_name="distance")
            .drop_nulls()
            .sort("check", "split")
        )
        return charts.bars(long, x="check", y="distance", color="split", title=f"Shift of {self.strategy}")

    def cite(self) -> str:
        """Name the sources."""
        return SHIFT_SOURCE

    def __repr__(self) -> str:
        return f"Certificate of {self.strategy}: {self.summary().headline}, {len(self.table)} lines"


def certify(split: Split, examples: Any, difficulty: Any = None, responses: Any = None) -> Certificate:
    """Check what a split promises and measure what it shifts.

    Parameters
    ----------
    split : Split
    examples : polars.DataFrame, or a result with ``.table``
        The rows that were split, with every column that the strategy names.
    difficulty : the same, optional
        Table ``difficulty``: adds its histogram, means and the matched control.
    responses : the same, optional
        Table ``responses``: adds the scores of models that never saw the split.

    Returns
    -------
    Certificate

    Raises
    ------
    UsageError
        Where a column is missing.

    Notes
    -----
    Signs: ``score_gap`` is test_ood less test, so that a harder test_ood gives a negative number. ``shift_auc`` costs
    some seconds a fold; the rest is group-bys.
    """
    frame = _known(_frame(examples), split, _frame(difficulty), _frame(responses))
    lines: list[dict[str, Any]] = []
    main = split.main
    for seed, fold in main.select("seed", "fold").unique().sort("seed", "fold").iter_rows():
        here = split.table.filter((pl.col("seed") == seed) & (pl.col("fold") == fold))
        block = here.filter(pl.col("strategy") == split.strategy)
        control = here.filter(pl.col("strategy") == f"{split.strategy}.random")
        rows = block.join(frame, on="example_id", how="left", maintain_order="left")
        checks = _promises(split, block, rows, frame)
        measured = measure(rows, seed)
        beside: Measured = {}
        if len(control):
            beside = measure(control.join(frame, on="example_id", how="left", maintain_order="left"), seed)
        matched = _matched(split, here, block, frame, seed)
        head = {"strategy": split.strategy, "seed": seed, "fold": fold}
        lines += [{**head, **vars(check), "control_value": None} for check in checks]
        for name, (value, n) in {**measured, **matched}.items():
            other = beside.get(name, (None, 0))[0]
            lines.append({**head, "check": name, "value": value, "control_value": other, "n": n})
    table = pl.DataFrame(lines, schema=_DTYPES).sort("strategy", "seed", "fold", "check")
    return Certificate(split.strategy, table)


def _promises(split: Split, block: pl.DataFrame, rows: pl.DataFrame, frame: pl.DataFrame) -> list[Check]:
    ids = block["example_id"]
    missing = frame.join(block, on="example_id", how="anti").height
    strange = block.join(frame, on="example_id", how="anti").height
    checks = [zero("ids_exactly_once", len(ids) - ids.n_unique() + missing + strange, len(frame))]
    checks += constraint(split.method, split.settings, rows)
    for column in split.together:
        checks.append(groups_across(rows, column, merge_tests=bool(split.frozen)))
    if block["component"].null_count() < len(block):
        checks.append(groups_across(rows, "component", merge_tests=bool(split.frozen)))
    fold = (int(block["seed"][0]), int(block["fold"][0]))
    checks += [
        zero("released_rows_moved", outcome.moved, outcome.frozen)
        for outcome in split.frozen
        if (outcome.seed, outcome.fold) == fold
    ]
    return checks + _shares(split, block)


def _shares(split: Split, block: pl.DataFrame) -> list[Check]:
    """Compare shares with those asked for; a bound only where each row was drawn by itself."""
    pool = block.filter(pl.col("split").is_in(["train", "validation", "test"]))
    config = split.config
    free = split.drawn and not split.frozen and pool["component"].null_count() == len(pool)
    checks = []
    for name, asked in (("validation", config.validation), ("test", config.test_share)):
        found = int((pool["split"] == name).sum())
        share = found / len(pool) if len(pool) else 0.0
        if free and len(pool) and asked:
            from scipy.stats import binomtest

            plausible = bool(binomtest(found, len(pool), asked).pvalue >= _UNLIKELY)
            checks.append(Check(f"share:{name}", share, f"{asked:g} (binomial, p >= 1e-9)", plausible, len(pool)))
        else:
            checks.append(Check(f"share:{name}", share, None, None, len(pool)))
    return checks


def _matched(split: Split, here: pl.DataFrame, block: pl.DataFrame, frame: pl.DataFrame, seed: int) -> Measured:
    """Say how much of test_ood has a counterpart of the same difficulty, and the gap on those pairs alone."""
    outside = int((block["split"] == "test_ood").sum())
    if "bin" not in frame.columns or not outside:
        return {}
    match = here.filter(pl.col("strategy") == f"{split.strategy}.matched")
    known = block.select("example_id").join(frame, on="example_id", how="left", maintain_order="left")
    choices = [cells(known, known.select("example_id", "bin"), way) for way in ways(known, split.config)]
    if match.is_empty():
        match = best_matched(block, choices, seed)
    cell = choices[-1]
    taken = int((match["split"] == "test_ood").sum())
    inside = cell.filter(block["split"] == "test").drop_nulls().unique()
    supported = int(cell.filter(block["split"] == "test_ood").is_in(inside.implode()).fill_null(False).sum())
    found: Measured = {
        "matched_support": (supported / outside, outside),
        "matched_rows": (taken / outside, outside),
    }
    if "score" in frame.columns and taken:
        scores = match.join(frame.select("example_id", "score"), on="example_id", how="left").drop_nulls("score")
        sides = scores.partition_by("split", as_dict=True)
        means = {split: math.fsum(part["score"]) / len(part) for (split,), part in sides.items()}
        if "test" in means and "test_ood" in means:
            found["score_gap_matched"] = (means["test_ood"] - means["test"], 2 * taken)
    return found


def _known(
    examples: pl.DataFrame | None, split: Split, difficulty: pl.DataFrame | None, responses: pl.DataFrame | None
) -> pl.DataFrame:
    """Put side by side what the checks read of each example."""
    if examples is None:
        raise UsageError("a certificate needs the examples that were split", remedy="s.certify(examples)")
    named = [*columns_of(split.method, split.config), *split.together]
    examples = with_factors(examples, named)
    require_column(examples, "example_id")
    known = [name.removesuffix("?") for name in named if name.removesuffix("?") in examples.columns]
    needed = list(dict.fromkeys(["example_id", *known]))
    optional = ["input", "output", "domain"] + (
        ["length_input"] if "length" in (split.settings["match"] or ("length",)) else []
    )
    frame = examples.select([*needed, *[c for c in optional if c in examples.columns and c not in needed]])
    if difficulty is not None:
        one = one_method(difficulty, split.settings["difficulty"]).select("example_id", "bin", "value")
        frame = frame.drop(["bin", "value"], strict=False).join(one, on="example_id", how="left")
    if responses is not None:
        for name in ("example_id", "score"):
            if name not in responses.columns:
                raise UsageError(f"the responses have no column {name!r}", expected="example_id and score")
        # sorted inside each group, so that the sum is the same whatever the threads
        mean = responses.group_by("example_id").agg(pl.col("score").sort().mean())
        frame = frame.drop("score", strict=False).join(mean, on="example_id", how="left")
    return frame


def _frame(given: Any) -> pl.DataFrame | None:
    if given is None or isinstance(given, pl.DataFrame):
        return given
    table = getattr(given, "table", None)
    if isinstance(table, pl.DataFrame):
        return table
    raise UsageError(f"found {type(given).__name__}", expected="a Polars frame, or a result with .table")


def _number(value: float | None) -> str:
    if value is None:
        return "--"
    return f"{value:,.0f}" if float(value).is_integer() and abs(value) >= 1 else f"{value:.4g}"


def _latex(text: str) -> str:
    signs = {"\\": r"\textbackslash{}", "_": r"\_", "%": r"\%", "&": r"\&", "#": r"\#", "$": r"\$", "<": "$<$",
             ">": "$>$", "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}  # fmt: skip
    return "".join(signs.get(sign, sign) for sign in text)
