"""Diversity inside subsets, disparity between them, fragmentation of the whole, and the shortcut that they offer."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray
from pydantic import Field, field_validator

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.tasks.core.clusters import cluster_sums
from gradatim.tasks.core.cover import hashed_part
from gradatim.tasks.core.frames import polars_schema
from gradatim.tasks.core.picture import Picture
from gradatim.tasks.core.reduce import moments, one_thread, ordered_sum
from gradatim.tasks.core.registry import Cost, register
from gradatim.tasks.core.row_numbers import by_code, codes_of, counted, per_row
from gradatim.tasks.core.statistics import Statistic, statistics_table
from gradatim.tasks.diversity.coverage import remote_clique
from gradatim.tasks.diversity.result import Diversity
from gradatim.tasks.diversity.spectra import effective_number, spectrum
from gradatim.tasks.diversity.vectors import OnVectors, directed, locate, subset_names, text_column

SOURCE = (
    "Y. Xing, X. Luo, J. Xie, L. Gao, H. T. Shen, J. Song (2025). Shortcut learning in generalist robot policies: the "
    "role of dataset diversity and fragmentation (the two causes; the formulas are ours); G. J. Székely, M. L. Rizzo "
    "(2013). Energy statistics: a class of statistics based on distances"
)
WHERE = "diversity subsets"

Floats = NDArray[np.float64]


class SubsetsConfig(OnVectors):
    """Settings of `subsets`."""

    by: str = Field("domain", description="column of examples that says which subset a row is of")
    features: str = Field("", description="name of a features table; by default the only one at hand")
    column: str = Field("input", description="without features: a column of text (hashed words) or of number lists")
    label: str = Field(
        "", description="column of examples: what should be learned; tells how far a nuisance gives it away"
    )
    nuisance: str = Field("", description="column of examples that should not matter; by default that of `by`")
    orders: tuple[float, ...] = Field((1.0, 2.0), description="orders q of the Vendi score inside subsets")
    sample_size: int = Field(1000, ge=2, le=10_000, description="rows of each subset that are compared, at most")
    largest: int = Field(
        30, ge=2, le=200, description="subsets that are compared with each other: those with most rows"
    )

    @field_validator("orders")
    @classmethod
    def _valid_orders(cls, found: tuple[float, ...]) -> tuple[float, ...]:
        if not found or not all(q >= 0 for q in found):
            raise ValueError("orders should be one or more numbers of 0 or more (.inf for infinity)")
        return found


def fragmentation(totals: Floats, squares: float, n: ArrayLike) -> tuple[float, float]:
    """Return which share of the variance of vectors lies between subsets, plain and adjusted for chance.

    Parameters
    ----------
    totals : numpy.ndarray, shape (subsets, d)
        Sum of the vectors of each subset.
    squares : float
        Sum of the squared norms of all vectors.
    n : array-like of int, shape (subsets,)
        Rows of each subset.

    Returns
    -------
    eta : float
        From 0 (all subsets have one mean) to 1 (each is one point); 0 where the vectors do not vary.
    adjusted : float
        ``1 - (1 - eta) (n - 1) / (n - subsets)``, at least 0: about 0 for ids without meaning, also of many subsets.
        NaN where every row is a subset.

    Source: R. A. Fisher (1925). Statistical methods for research workers; T. L. Kelley (1935). An unbiased correlation
    ratio measure.
    """
    size = np.asarray(n, dtype=np.float64)
    rows, groups = float(size.sum()), int((size > 0).sum())
    means = totals / np.maximum(size, 1)[:, None]
    pooled = totals.sum(axis=0) / rows
    within = squares - float(size @ np.einsum("gd,gd->g", means, means))
    away = means - pooled
    between = float(size @ np.einsum("gd,gd->g", away, away))
    whole = max(within, 0.0) + between
    if whole <= 1e-9 * squares:
        return 0.0, 0.0
    eta = between / whole
    adjusted = max(0.0, 1 - (1 - eta) * (rows - 1) / (rows - groups)) if rows > groups else float("nan")
    return eta, adjusted


def energy_distance(x: Floats, y: Floats) -> float:
    """Return the energy distance of two samples: 2 E|X - Y| - E|X - X'| - E|Y - Y'|.

    Parameters
    ----------
    x, y : numpy.ndarray, shapes (n, d) and (m, d)

    Returns
    -------
    float
        0 for equal samples, never below; 2 D for two points at distance D.

    Notes
    -----
    The V statistic, whose mean is a little above 0 for samples of one source. O((n + m)² d).
    """
    return max(0.0, 2 * _mean_distance(x, y) - _mean_distance(x, x) - _mean_distance(y, y))


def mutual_information(table: ArrayLike) -> dict[str, float]:
    """Return what a table of counts says of how far its rows' factor tells its columns' label.

    Parameters
    ----------
    table : array-like of int, shape (factor values, labels)

    Returns
    -------
    dict
        ``normalised``: I / mean of both entropies, 0 to 1; ``known``: I / entropy of the label, 1 where the factor
        gives the label away; NaN where a label or factor has only one value.

    Source: A. Strehl, J. Ghosh (2002). Cluster ensembles: a knowledge reuse framework for combining multiple
    partitions; H. Theil (1972). Statistical decomposition analysis.
    """
    counts = np.asarray(table, dtype=np.float64)
    n = counts.sum()
    rows, columns = (_entropy(counts.sum(axis=axis) / n) for axis in (1, 0))
    shared = max(0.0, rows + columns - _entropy(counts.ravel() / n))
    if min(rows, columns) <= 1e-12:
        return {"normalised": float("nan"), "known": float("nan")}
    return {"normalised": min(1.0, 2 * shared / (rows + columns)), "known": min(1.0, shared / columns)}


@register(
    "diversity",
    "subsets",
    config=SubsetsConfig,
    needs=(
        "examples.{by}",
        "examples.{column}",
        "examples.{label}",
        "examples.{nuisance}",
        "features_{features}.embedding",
    ),
    cost=lambda rows, width: Cost(
        seconds=2 + rows * 2.5e-8 * (width or 256), bytes=3e8 + 1e6 * (width or 256) + rows * 100.0
    ),
    source=SOURCE,
    maturity="experimental",
)
def subsets(tables: Mapping[str, pl.DataFrame], config: SubsetsConfig, seed: int) -> Diversity:
    """Diversity inside each subset, disparity between them, how far the whole falls apart, and the shortcut on offer.

    Returns of each subset ``subset_vendi_q1`` ... (on samples of one size) and ``subset_mean_distance``; of each two
    ``subset_energy_distance``; of the whole ``subset_fragmentation`` (and ``_adjusted``), ``subset_disparity`` (mean of
    the pairs) and, with `label`, ``subset_shortcut``: the normalised mutual information of nuisance and label.
    """
    found = locate(tables, config.features, config.column, WHERE)
    warnings = list(found.warnings)
    by = text_column(found.rows, config.by, WHERE)
    sizes = counted(by)
    names = subset_names(by, WHERE)
    if len(names) < 2:
        raise DataRefused(
            f"{config.by} has {len(names)} value{'s' if len(names) != 1 else ''} ({', '.join(names) or 'none'})",
            where=WHERE,
            expected="at least two subsets to compare",
            remedy="name another column with by:",
        )
    if by.null_count():
        warnings.append(f"{by.null_count():,} rows have no {config.by} and are in no subset")
    code = codes_of(by, names)
    order, ends = by_code(code, len(names))
    n = np.diff(ends)
    totals = cluster_sums(found.matrix, code, len(names))
    squares = per_row(len(code))
    for part, some in found.matrix.slices():
        squares[part] = np.einsum("nd,nd->n", some, some, dtype=np.float64)
    of = [order[ends[i] : ends[i + 1]] for i in range(len(names))]
    per = np.array([ordered_sum(squares[here]) for here in of])
    distance = remote_clique(totals, per, n.astype(np.float64)) / 2
    eta, adjusted = fragmentation(totals, ordered_sum(per), n)
    rows = int(n.sum())
    statistics = [
        Statistic("all", "subset_fragmentation", eta, rows),
        Statistic("all", "subset_fragmentation_adjusted", adjusted, rows),
        Statistic("all", "subsets", float(len(names)), rows),
    ]
    size = int(min(config.sample_size, max(2, n.min())))
    if size < config.sample_size:
        warnings.append(f"subsets are compared by the Vendi score of {size:,} rows, as many as the smallest has")
    kept = sorted(sizes["name"].head(config.largest).to_list())
    compared, samples = set(kept), {}
    for i, name in enumerate(names):
        drawn = _sample(found.ids, of[i], config.sample_size, seed)
        if name in compared:
            samples[name] = found.matrix[drawn].astype(np.float64)
        values = spectrum(moments([found.matrix[_sample(found.ids, drawn, size, seed)]], prepare=directed))
        subset = f"{config.by}={name}"
        statistics.append(Statistic(subset, "subset_mean_distance", float(distance[i]), int(n[i])))
        statistics.append(Statistic(subset, "subset_share", float(n[i] / rows), rows))
        statistics += [
            Statistic(subset, f"subset_vendi_q{q:g}", effective_number(values, q, size), min(size, int(n[i])))
            for q in config.orders
        ]
    if len(kept) < len(names):
        warnings.append(f"the {len(kept):,} subsets with most rows of {len(names):,} are compared with each other")
    inner = {name: _mean_distance(samples[name], samples[name]) for name in kept}
    pairs = [
        (a, b, max(0.0, 2 * _mean_distance(samples[a], samples[b]) - inner[a] - inner[b]))
        for i, a in enumerate(kept)
        for b in kept[i + 1 :]
    ]
    for a, b, away in pairs:
        statistics.append(
            Statistic(
                f"{config.by}={a}",
                "subset_energy_distance",
                away,
                len(samples[a]) + len(samples[b]),
                reference=f"{config.by}={b}",
            )
        )
    statistics.append(
        Statistic("all", "subset_disparity", ordered_sum([away for *_, away in pairs]) / len(pairs), rows)
    )
    if config.label:
        told, said = _shortcut(found.rows, config)
        statistics, warnings = statistics + told, warnings + said
    elif config.nuisance:
        raise UsageError(
            "nuisance is set, label is not", where=WHERE, expected="both", remedy="name the label's column"
        )
    parameters = {
        **config.model_dump(exclude={"orders"}),
        "orders": [f"{q:g}" for q in config.orders],
        "vectors": found.name,
        "seed": seed,
    }
    return Diversity(
        method="subsets" if config.by == "domain" else f"subsets({config.by})",
        statistics=statistics_table(
            [s for s in statistics if s.value is not None and np.isfinite(s.value)], parameters
        ),
        table=pl.DataFrame(schema=polars_schema("diversity")),
        main="subset_fragmentation",
        parameters=parameters,
        source=SOURCE,
        warnings=tuple(warnings),
        pictures={
            "disparity": Picture(
                "Energy distance of every two subsets: nought is no difference.",
                lambda: _draw_pairs(pairs, kept, config.by),
            ),
            "inside": Picture(
                "Effective number of different rows in samples of one size of each subset.",
                lambda: _draw_inside(statistics, config),
            ),
        },
    )


def _mean_distance(x: Floats, y: Floats) -> float:
    """Return the mean distance of the rows of x to those of y."""
    with one_thread():
        squared = np.einsum("nd,nd->n", x, x)[:, None] + np.einsum("nd,nd->n", y, y) - 2 * (x @ y.T)
    return float(np.sqrt(np.maximum(squared, 0)).mean())


def _sample(ids: pl.Series, rows: NDArray[np.int64], size: int, seed: int) -> NDArray[np.int64]:
    if len(rows) <= size:
        return rows
    return hashed_part(ids, rows, size, seed, "subsets/sample")


def _entropy(p: Floats) -> float:
    held = p[p > 0]
    return -ordered_sum(held * np.log(held))


def _shortcut(rows: pl.DataFrame, config: SubsetsConfig) -> tuple[list[Statistic], list[str]]:
    """Mutual information of nuisance and label, plain and adjusted for chance."""
    from sklearn.metrics import adjusted_mutual_info_score

    name = config.nuisance or config.by
    both = pl.DataFrame(
        {"label": text_column(rows, config.label, WHERE), "nuisance": text_column(rows, name, WHERE)}
    ).drop_nulls()
    left = len(rows) - len(both)
    warnings = [f"{left:,} rows lack {config.label} or {name} and say nothing of the shortcut"] if left else []
    if both["label"].n_unique() < 2 or both["nuisance"].n_unique() < 2:
        which = config.label if both["label"].n_unique() < 2 else name
        return [], [*warnings, f"{which} has fewer than two values: there is no shortcut to measure"]
    codes = [both[c].rank("dense").to_numpy().astype(np.int64) - 1 for c in ("nuisance", "label")]
    width = int(codes[1].max()) + 1
    cells = np.bincount(codes[0] * width + codes[1], minlength=(int(codes[0].max()) + 1) * width).reshape(-1, width)
    found = mutual_information(cells)
    with one_thread():
        adjusted = float(adjusted_mutual_info_score(codes[0], codes[1]))
    n = len(both)
    return [
        Statistic("all", "subset_shortcut", found["normalised"], n),
        Statistic("all", "subset_shortcut_adjusted", max(0.0, round(adjusted, 9)), n),
        Statistic("all", "subset_label_known", found["known"], n),
    ], warnings


def _draw_pairs(pairs: list[tuple[str, str, float]], names: list[str], by: str) -> object:
    from gradatim.tasks.core.charts import heatmap

    found = {(a, b): away for a, b, away in pairs} | {(b, a): away for a, b, away in pairs}
    rows = [(a, b, found.get((a, b), 0.0)) for a in names for b in names]
    frame = pl.DataFrame(rows, schema=[by, f"other {by}", "energy distance"], orient="row")
    return heatmap(frame, x=by, y=f"other {by}", value="energy distance", title=f"Disparity between values of {by}")


def _draw_inside(statistics: list[Statistic], config: SubsetsConfig) -> object:
    from gradatim.tasks.core.charts import bars

    metric = f"subset_vendi_q{config.orders[0]:g}"
    rows = [(s.subset.removeprefix(f"{config.by}="), s.value) for s in statistics if s.metric == metric]
    frame = pl.DataFrame(rows, schema=[config.by, "effective number"], orient="row").sort("effective number", config.by)
    return bars(frame, x=config.by, y="effective number", title="Diversity inside subsets")
