"""Compare arms on the same examples: paired differences with intervals and tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from gradatim.schemas.errors import DataRefused, UsageError, nearest
from gradatim.tasks.core.intervals import RESAMPLES, Arm, Interval, bootstrap, holm, mcnemar
from gradatim.tasks.evaluation.cells import ID, OOD, Cell, Settings, arm, named
from gradatim.tasks.evaluation.comparison import COLUMNS, Comparison
from gradatim.tasks.evaluation.result import Evaluation, evaluation_rows, evaluation_table
from gradatim.tasks.evaluation.scores import RUN
from gradatim.tasks.evaluation.seeds import POOLED

_QUANTITIES: dict[str, tuple[list[int], list[float]]] = {
    OOD: ([1], [1.0, -1.0]),
    ID: ([0], [1.0, -1.0]),
    "gap": ([0, 1], [1.0, -1.0, -1.0, 1.0]),
}


def compare(
    arms: Mapping[str, Evaluation],
    baseline: str | None = None,
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
    split_version: int = 0,
) -> Comparison:
    """Compare arms with a baseline on the examples that all of them answered, at each arm's last checkpoint.

    Parameters
    ----------
    arms : mapping of str to Evaluation
        Two or more, of the same splits.
    baseline : str, optional
        By default ``random`` where there is such an arm, else the first.
    resamples, seed : int
        Of the paired cluster bootstrap: clusters are drawn for both arms together, runs of each arm on their own.
    split_version : int
        Recorded in the rows of the table `evaluation`.

    Raises
    ------
    UsageError, DataRefused
        Fewer than two arms, an unknown baseline, other splits or clusters, no common example of test or test_ood.

    Notes
    -----
    p is the exact McNemar test for one run each of independent 0/1 rows, else from the bootstrap; p_holm adjusts over
    the arms, for each quantity. With one run of an arm nothing is known of how much its runs differ: a warning says so.
    """
    baseline = _baseline(arms, baseline)
    last = {name: found.scores.filter(pl.col("checkpoint") == found.checkpoint) for name, found in arms.items()}
    common, warnings = _common(last)
    clusters = {found.clusters for found in arms.values()}
    if len(clusters) > 1:
        raise UsageError(f"the arms differ in their clusters: {', '.join(sorted(clusters))}", where="compare")
    steps = {found.checkpoint for found in arms.values()}
    if len(steps) > 1:
        warnings.append(f"the arms were trained for different numbers of steps: {', '.join(map(str, sorted(steps)))}")
    if any(frame["run_id"].n_unique() == 1 for frame in last.values()):
        warnings.append(
            "an arm has one run only: intervals and p speak of these trained models on other examples, not of other "
            "training seeds, which can turn the difference round; compare several (train.seeds)"
        )
    settings = Settings(resamples, seed, clusters.pop())
    common = common.with_columns(code=pl.col("cluster").rank("dense").cast(pl.Int64) - 1)
    codes = common.select("example_id", "code")
    runs = {
        name: [
            run.drop("code").join(codes, on="example_id", how="inner", maintain_order="left")
            for run in frame.partition_by(RUN, maintain_order=True)
        ]
        for name, frame in last.items()
    }
    conditions = [pl.col("split") == ID, pl.col("split") == OOD]
    sums = {name: arm(its, conditions, common["code"].n_unique()) for name, its in runs.items()}
    splits = common["split"].unique().to_list()
    quantities = [q for q in _QUANTITIES if q in splits or (q == "gap" and {ID, OOD} <= set(splits))]
    others = [name for name in arms if name != baseline]
    rows, cells = [], []
    for quantity in quantities:
        found = [_difference(sums[name], sums[baseline], quantity, settings) for name in others]
        tests = [_test(runs[name], runs[baseline], quantity) for name in others]
        p = [interval.p if test is None else test for interval, test in zip(found, tests, strict=True)]
        size = common.filter(pl.lit(quantity == "gap") | (pl.col("split") == quantity)).height
        for name, interval, test, value, adjusted in zip(others, found, tests, p, holm(p), strict=True):
            ends = (interval.value, interval.low, interval.high, size)
            both = (_mean(sums[name], quantity), _mean(sums[baseline], quantity))
            test_name = "exact McNemar" if test is not None else "bootstrap"
            rows.append((name, baseline, quantity, *ends, *both, value, float(adjusted), test_name, interval.method))
            cells.append((name, Cell("comparison", quantity, f"difference_from_{baseline}", interval, size)))
    first = next(iter(arms.values()))
    records = []
    for name, cell in cells:
        key = {"run_id": name, "checkpoint": arms[name].checkpoint, "seed": POOLED, "split_version": split_version}
        records += evaluation_rows([cell], **key)  # type: ignore[arg-type]
    metric = "score" if any(found.metric == "score" for found in arms.values()) else "exact_match"
    table = pl.DataFrame(rows, schema=COLUMNS, orient="row").with_columns(pl.col(pl.Float64).fill_nan(None))
    order = pl.col("arm").replace_strict({name: i for i, name in enumerate(others)}, return_dtype=pl.Int64)
    table = table.sort(order, maintain_order=True)
    titles = {name: name if found.name == "the model" else found.name for name, found in arms.items()}
    return Comparison(table, evaluation_table(records), baseline, titles, metric, first.strategy, tuple(warnings))


def _baseline(arms: Mapping[str, Evaluation], baseline: str | None) -> str:
    if len(arms) < 2:
        raise UsageError(f"{len(arms)} arm", where="compare", expected="two or more evaluations, by name")
    if baseline is None:
        return "random" if "random" in arms else next(iter(arms))
    if baseline not in arms:
        raise UsageError(
            f"there is no arm {baseline!r}{nearest(baseline, arms)}", where="compare", expected=", ".join(arms)
        )
    return baseline


def _common(frames: Mapping[str, pl.DataFrame]) -> tuple[pl.DataFrame, list[str]]:
    """Return the examples of test and test_ood that every run of every arm answered, with split and cluster."""
    runs = [run for frame in frames.values() for run in frame.partition_by(RUN)]
    tested = [run.filter(pl.col("split").is_in([ID, OOD])).select("example_id", "split", "cluster") for run in runs]
    common = tested[0]
    for run in tested[1:]:
        common = common.join(run.select("example_id"), on="example_id", how="semi")
    if common.is_empty():
        raise DataRefused("the arms have no example of test or test_ood in common", where="compare")
    for run in tested[1:]:
        both = common.join(run, on="example_id", how="inner")
        moved = both.filter((pl.col("split") != pl.col("split_right")) | (pl.col("cluster") != pl.col("cluster_right")))
        if len(moved):
            raise UsageError(
                f"{len(moved):,} examples are in another split or cluster for another arm, "
                f"first {moved['example_id'][0]}",
                where="compare",
                expected="evaluations of the same splits",
            )
    most = max(len(run) for run in tested)
    left_out = (
        [f"{most - len(common):,} examples that not every run answered were left out"] if most > len(common) else []
    )
    return common.sort("example_id"), left_out


def _difference(first: Arm, second: Arm, quantity: str, settings: Settings) -> Interval:
    columns, contrast = _QUANTITIES[quantity]
    both: list[Arm] = [(sums[:, :, columns], counts[:, :, columns]) for sums, counts in (first, second)]
    return named(bootstrap(both, contrast, resamples=settings.resamples, seed=settings.seed), settings)


def _mean(sums: Arm, quantity: str) -> float:
    total, rows = sums[0].sum(axis=(0, 1)), sums[1].sum(axis=(0, 1))
    with np.errstate(invalid="ignore"):
        inside, outside = total / rows
    return float({ID: inside, OOD: outside, "gap": inside - outside}[quantity])


def _test(first: Sequence[pl.DataFrame], second: Sequence[pl.DataFrame], quantity: str) -> float | None:
    """McNemar's p where it applies: one run each, 0/1 scores, every example its own cluster."""
    if quantity == "gap" or len(first) > 1 or len(second) > 1:
        return None
    one, other = (frame[0].filter(pl.col("split") == quantity) for frame in (first, second))
    if one["cluster"].is_duplicated().any() or not all(f["score"].is_in([0.0, 1.0]).all() for f in (one, other)):
        return None
    a, b = one["score"].to_numpy(), other["score"].to_numpy()  # both sorted by example_id
    return mcnemar(int((a > b).sum()), int((a < b).sum()))
