"""The certificate of a split: promises checked anew, the shift measured, each number beside those of the controls."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import polars as pl

from gradatim.schemas.errors import UsageError
from gradatim.schemas.summary import Summary
from gradatim.tasks.splits import certificate_page as page
from gradatim.tasks.splits.constraints import Check, constraint, groups_across, zero
from gradatim.tasks.splits.controls import best_matched, cells, one_method, ways
from gradatim.tasks.splits.details import Details, details
from gradatim.tasks.splits.factor_tables import factor_measures
from gradatim.tasks.splits.inputs import columns_of, require_column, with_factors
from gradatim.tasks.splits.measure import measure
from gradatim.tasks.splits.measures.block import Block, Measured
from gradatim.tasks.splits.measures.duplicates import alike, normalised
from gradatim.tasks.splits.measures.ood_shift import SOURCE as OOD_SOURCE
from gradatim.tasks.splits.measures.scores import UNITS, known_answers, whole
from gradatim.tasks.splits.measures.shift import SOURCE as SHIFT_SOURCE
from gradatim.tasks.splits.measures.shift import told_of
from gradatim.tasks.splits.result import Split

_DTYPES = {
    "strategy": pl.String, "seed": pl.Int64, "fold": pl.Int32, "check": pl.String, "value": pl.Float64,
    "bound": pl.String, "holds": pl.Boolean, "control_value": pl.Float64, "matched_value": pl.Float64, "n": pl.Int64,
}  # fmt: skip
_UNLIKELY = 1e-9
SOURCES = (SHIFT_SOURCE, OOD_SOURCE)
_OPTIONAL = ("input", "output", "domain", "template", "length_input", "structure")


@dataclass(frozen=True)
class Certificate:
    """What was checked and measured on a split.

    Attributes
    ----------
    strategy : str
    table : polars.DataFrame
        The table ``certificate``: strategy, seed, fold, check, value, bound, holds, control_value (the size-matched
        random control's), matched_value (the difficulty-matched control's), n.
    details : Details
        Examples, nearest pairs and excluded rows of the first seed and fold.
    """

    strategy: str
    table: pl.DataFrame
    details: Details

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
        r"""Return promises and measures as LaTeX (booktabs), means over seeds and folds, ready for ``\input``."""
        return page.latex(self.table)

    def summary(self) -> Summary:
        """Describe the certificate for terminal, report and artifact."""
        return page.summary(self.strategy, self.table, self.details, SOURCES)

    def plot(self) -> Any:
        """Draw the distances between train and the tests beside the controls' (an Altair chart)."""
        return page.shift_chart(self.strategy, self.table)

    def cite(self) -> str:
        """Name the sources."""
        return "; ".join(SOURCES)

    def __repr__(self) -> str:
        return f"Certificate of {self.strategy}: {self.summary().headline}, {len(self.table)} lines"


def certify(
    split: Split, examples: Any, difficulty: Any = None, responses: Any = None, pairs: Any = None
) -> Certificate:
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
    pairs : the same, optional
        Table ``pairs``: adds the near-duplicates across splits.

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
    answers, near = _answers(_frame(responses), frame), _near(_frame(pairs))
    factors = factor_measures(split, frame)
    lines: list[dict[str, Any]] = []
    shown: Details | None = None
    folds = split.main.select("seed", "fold").unique().sort("seed", "fold")
    for seed, fold in folds.iter_rows():
        here = split.table.filter((pl.col("seed") == seed) & (pl.col("fold") == fold))
        rows = {name: _beside(part, frame) for (name,), part in here.group_by("strategy", maintain_order=True)}
        main = rows.pop(split.strategy)
        checks = _promises(split, main, frame)
        block = Block(main.filter(pl.col("split") != "excluded"), seed, near, answers)
        told = told_of(block)
        measured = measure(block, told)
        beside: dict[str, Measured] = {}
        for name, part in rows.items():
            control = Block(part.filter(pl.col("split") != "excluded"), seed, near, answers)
            beside[name.removeprefix(f"{split.strategy}.")] = measure(control, told_of(control))
        measured |= _support(split, here, main, frame, seed) | factors.get((seed, fold), {})
        head = {"strategy": split.strategy, "seed": seed, "fold": fold}
        lines += [{**head, **vars(check)} for check in checks]
        random, matched = beside.get("random", {}), beside.get("matched", {})
        for name, (value, n) in measured.items():
            of_controls = {
                "control_value": random.get(name, (None, 0))[0],
                "matched_value": matched.get(name, (None, 0))[0],
            }
            lines.append({**head, "check": name, "value": value, **of_controls, "n": n})
        if shown is None:
            where = f" (seed {seed}, fold {fold})" if len(folds) > 1 else ""
            shown = details(block, main.filter(pl.col("split") == "excluded"), told, where)
    assert shown is not None
    table = pl.DataFrame(lines, schema=_DTYPES).sort("strategy", "seed", "fold", "check")
    return Certificate(split.strategy, table, shown)


def _beside(block: pl.DataFrame, frame: pl.DataFrame) -> pl.DataFrame:
    """Put what is known of each row beside its place."""
    if block["example_id"].equals(frame["example_id"]):
        return pl.concat([block, frame.drop("example_id")], how="horizontal")
    return block.join(frame, on="example_id", how="left", maintain_order="left")


def _promises(split: Split, rows: pl.DataFrame, frame: pl.DataFrame) -> list[Check]:
    ids = rows["example_id"]
    missing = strange = 0
    if not ids.equals(frame["example_id"]):
        missing = frame.join(rows, on="example_id", how="anti").height
        strange = rows.join(frame, on="example_id", how="anti").height
    checks = [zero("ids_exactly_once", len(ids) - ids.n_unique() + missing + strange, len(frame))]
    checks += constraint(split.method, split.settings, rows)
    for column in split.together:
        checks.append(groups_across(rows, column, merge_tests=bool(split.frozen)))
    if rows["component"].null_count() < len(rows):
        checks.append(groups_across(rows, "component", merge_tests=bool(split.frozen)))
    fold = (int(rows["seed"][0]), int(rows["fold"][0]))
    checks += [
        zero("released_rows_moved", outcome.moved, outcome.frozen)
        for outcome in split.frozen
        if (outcome.seed, outcome.fold) == fold
    ]
    return checks + _shares(split, rows)


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


def _support(split: Split, here: pl.DataFrame, main: pl.DataFrame, frame: pl.DataFrame, seed: int) -> Measured:
    """Say how much of test_ood has a counterpart of the same difficulty, and the gap on those pairs alone."""
    outside = int((main["split"] == "test_ood").sum())
    if "bin" not in frame.columns or not outside:
        return {}
    match = here.filter(pl.col("strategy") == f"{split.strategy}.matched")
    choices = [cells(main, main.select("example_id", "bin"), way) for way in ways(main, split.config)]
    if match.is_empty():
        match = best_matched(here.filter(pl.col("strategy") == split.strategy), choices, seed)
    cell = choices[-1]
    taken = int((match["split"] == "test_ood").sum())
    inside = cell.filter(main["split"] == "test").drop_nulls().unique()
    supported = int(cell.filter(main["split"] == "test_ood").is_in(inside.implode()).fill_null(False).sum())
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
    examples = with_factors(examples, named, lists=split.config.lists)
    require_column(examples, "example_id")
    known = [name.removesuffix("?") for name in named if name.removesuffix("?") in examples.columns]
    needed = list(dict.fromkeys(["example_id", *known]))
    frame = examples.select([*needed, *[c for c in _OPTIONAL if c in examples.columns and c not in needed]])
    if difficulty is not None:
        one = one_method(difficulty, split.settings["difficulty"]).select("example_id", "bin", "value")
        frame = frame.drop(["bin", "value"], strict=False).join(one, on="example_id", how="left")
    if responses is not None:
        for name in ("example_id", "score"):
            if name not in responses.columns:
                raise UsageError(f"the responses have no column {name!r}", expected="example_id and score")
        known_scores = responses.drop_nulls("score").select("example_id", score=whole("score"))
        mean = known_scores.group_by("example_id").agg(pl.col("score").sum() / pl.len() / UNITS)
        frame = frame.drop("score", strict=False).join(mean, on="example_id", how="left")
    if "input" in frame.columns and frame["input"].dtype == pl.String:
        frame = frame.with_columns(normalised(frame["input"]).alias("text"))
    return frame.sort("example_id").with_row_index("row")


def _frame(given: Any) -> pl.DataFrame | None:
    if given is None or isinstance(given, pl.DataFrame):
        return given
    table = getattr(given, "table", None)
    if isinstance(table, pl.DataFrame):
        return table
    raise UsageError(f"found {type(given).__name__}", expected="a Polars frame, or a result with .table")


def _answers(responses: pl.DataFrame | None, frame: pl.DataFrame) -> pl.DataFrame | None:
    """Return what each model scored; None where responses do not say whose they are."""
    if responses is None or "respondent_id" not in responses.columns:
        return None
    return known_answers(responses, frame)


def _near(pairs: pl.DataFrame | None) -> pl.DataFrame | None:
    return None if pairs is None else alike(pairs)
