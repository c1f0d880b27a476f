"""Bands of rows by how near they are to their own domain and to the others, in the manner of DaaR."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import Field

from gradatim.schemas.errors import DataRefused
from gradatim.tasks.core.clusters import cluster_sums
from gradatim.tasks.core.picture import Picture
from gradatim.tasks.core.ranks import percentile_and_bin
from gradatim.tasks.core.reduce import one_thread, ordered_sum
from gradatim.tasks.core.registry import Cost, register
from gradatim.tasks.core.row_numbers import by_code, codes_of, per_row, slices
from gradatim.tasks.core.statistics import Statistic, statistics_table
from gradatim.tasks.core.vector_rows import AnyVectors
from gradatim.tasks.diversity.result import Diversity
from gradatim.tasks.diversity.row_table import row_table
from gradatim.tasks.diversity.vectors import OnVectors, locate, subset_names, text_column

SOURCE = (
    "Z. Ling, D. Chen, L. Yao, Q. Shen, Y. Li, Y. Shen (2025). Diversity as a reward: fine-tuning LLMs on a mixture of "
    "domain-undetermined data (its idea of domain bands; entropy by centroids in place of its probe)"
)
WHERE = "diversity domain_bands"
CHUNK = 65_536
"""Rows that are looked at together."""
HELD = 2**23
"""Distances that are held at a time."""

Floats = NDArray[np.float64]


class DomainBandsConfig(OnVectors):
    """Settings of `domain_bands`."""

    by: str = Field("domain", description="column of examples that says which domain a row is of")
    features: str = Field("", description="name of a features table; by default the only one at hand")
    column: str = Field("input", description="without features: a column of text (hashed words) or of number lists")
    score: Literal["inter", "intra", "entropy"] = Field(
        "inter", description="what is cut: cosine to the other domains, cosine to its own, or entropy over domains"
    )
    bands: int = Field(5, ge=1, le=100, description="bands of equal size in each domain; 5 are of 20 % each")
    tau: float | None = Field(
        None, gt=0, description="temperature of the entropy; by default the rows' mean squared distance to their domain"
    )


def domain_scores(matrix: AnyVectors, code: NDArray[Any], centres: Floats) -> tuple[Floats, Floats]:
    """Return of each row the mean cosine to the centres of other domains, and that to its own.

    Parameters
    ----------
    matrix : array or VectorRows, shape (N, d)
        Rows of length 1, read some at a time.
    code : numpy.ndarray of int, shape (N,)
        Domain of each row.
    centres : numpy.ndarray, shape (K, d)
        Mean of each domain's rows.

    Returns
    -------
    inter, intra : numpy.ndarray, shape (N,), float64
        In [-1, 1], rounded to 1e-9. A centre of zeros has cosine 0.
    """
    length = np.sqrt(np.einsum("kd,kd->k", centres, centres))[:, None]
    unit = np.divide(centres, length, out=np.zeros_like(centres), where=length > 1e-9)
    others = unit.sum(axis=0)
    inter, intra = per_row(len(matrix)), per_row(len(matrix))
    for part in slices(len(matrix), CHUNK):
        rows = matrix[part].astype(np.float64)
        own = np.einsum("nd,nd->n", rows, unit[code[part]])
        total = np.einsum("nd,d->n", rows, others)
        inter[part], intra[part] = np.round((total - own) / max(1, len(centres) - 1), 9), np.round(own, 9)
    return inter, intra


def squared_distances(matrix: AnyVectors, centres: Floats) -> Iterator[Floats]:
    """Give the squared distances of rows to all centres, some rows at a time: shape (rows, K)."""
    squares = np.einsum("kd,kd->k", centres, centres)
    step = max(64, min(CHUNK, HELD // len(centres)))
    for start in range(0, len(matrix), step):
        rows = matrix[start : start + step].astype(np.float64)
        with one_thread():
            products = rows @ centres.T
        yield np.maximum(np.einsum("nd,nd->n", rows, rows)[:, None] + squares - 2 * products, 0)


def domain_entropy(squared: Floats, tau: float) -> Floats:
    """Return the entropy, in nats, of ``softmax(-squared / tau)`` of each row, from 0 to ln K (between all domains)."""
    scaled = -(squared - squared.min(axis=1, keepdims=True)) / tau
    weight = np.exp(scaled)
    total = weight.sum(axis=1)
    found = np.log(total) - (weight * scaled).sum(axis=1) / total
    return np.asarray(np.round(np.maximum(found, 0), 9), dtype=np.float64)


@register(
    "diversity",
    "domain_bands",
    config=DomainBandsConfig,
    needs=("examples.{by}", "examples.{column}", "features_{features}.embedding"),
    cost=lambda rows, width: Cost(
        seconds=1 + rows * 4e-8 * (width or 256), bytes=3e8 + 1e6 * (width or 256) + rows * 250.0
    ),
    source=SOURCE,
    maturity="experimental",
)
def domain_bands(tables: Mapping[str, pl.DataFrame], config: DomainBandsConfig, seed: int) -> Diversity:
    """Bands of rows in each domain by their nearness to other domains, to their own, or by how undecided they are.

    Each row's value is the score that `score` names, its cluster the band in its domain, from 0 (lowest fifth). Returns
    ``domain_inter`` (mean distance of two domains' centres), and of each domain ``domain_intra`` (mean squared distance
    of rows to its centre), ``domain_phi_inter``, ``domain_phi_intra``, ``domain_entropy`` (means of rows). `seed` is
    not used.
    """
    from scipy.spatial.distance import pdist

    found = locate(tables, config.features, config.column, WHERE)
    by = text_column(found.rows, config.by, WHERE)
    names = subset_names(by, WHERE)
    if len(names) < 2:
        raise DataRefused(
            f"{config.by} has {len(names)} value{'s' if len(names) != 1 else ''} ({', '.join(names) or 'none'})",
            where=WHERE,
            expected="at least two domains, so that there is an other one",
            remedy="name another column with by:",
        )
    held = by.is_not_null().to_numpy()
    warnings = list(found.warnings)
    if not held.all():
        warnings.append(f"{int((~held).sum()):,} rows have no {config.by} and are in no band")
    ids, matrix, code = found.ids, found.matrix.view(held), codes_of(by, names)
    if not held.all():
        ids, code = ids.filter(by.is_not_null()), code[held]
    order, ends = by_code(code, len(names))
    n = np.diff(ends)
    centres = cluster_sums(matrix, code, len(names)) / n[:, None]
    inter, intra = domain_scores(matrix, code, centres)
    own = _to_own(matrix, code, centres)
    tau = config.tau or max(ordered_sum(own) / len(own), 1e-9)
    entropy, start = per_row(len(code)), 0
    for squared in squared_distances(matrix, centres):
        entropy[start : start + len(squared)] = domain_entropy(squared, tau)
        start += len(squared)
    value = {"inter": inter, "intra": intra, "entropy": entropy}[config.score]
    band = per_row(len(code), np.int32)
    pairs = pdist(centres)
    statistics = [
        Statistic("all", "domain_inter", ordered_sum(pairs) / len(pairs), len(code)),
        Statistic("all", "domains", float(len(names)), len(code)),
        *_means("all", slice(None), inter, intra, entropy, own),
    ]
    for i, name in enumerate(names):
        rows = order[ends[i] : ends[i + 1]]
        band[rows] = percentile_and_bin(ids.gather(rows), value[rows], config.bands)[1]
        statistics += _means(f"{config.by}={name}", rows, inter, intra, entropy, own)
    small = [name for name, count in zip(names, n.tolist(), strict=True) if count < config.bands]
    if small:
        warnings.append(f"{len(small)} domains have fewer rows than bands: {', '.join(small[:5])}")
    parameters = {**config.model_dump(), "temperature": tau, "vectors": found.name}
    return Diversity(
        method=f"domain_bands({config.score})",
        statistics=statistics_table(statistics, parameters),
        table=row_table("domain_bands", ids, value, band),
        main="domain_inter",
        parameters=parameters,
        source=SOURCE,
        warnings=tuple(warnings),
        pictures={
            "domains": Picture(
                "Distance of the centres of every two domains.", lambda: _draw_domains(names, centres, config.by)
            ),
            "scores": Picture(
                "The score whose bands are cut, over all rows.", lambda: _draw_scores(value, config.score)
            ),
        },
    )


def _means(
    subset: str, rows: NDArray[Any] | slice, inter: Floats, intra: Floats, entropy: Floats, own: Floats
) -> list[Statistic]:
    n = len(inter[rows])
    found = {"phi_inter": inter, "phi_intra": intra, "entropy": entropy, "intra": own}
    return [Statistic(subset, f"domain_{name}", ordered_sum(values[rows]) / n, n) for name, values in found.items()]


def _to_own(matrix: AnyVectors, code: NDArray[Any], centres: Floats) -> Floats:
    """Return the squared distance of each row to the centre of its domain."""
    own = per_row(len(matrix))
    for part in slices(len(matrix), CHUNK):
        away = matrix[part] - centres[code[part]]
        own[part] = np.einsum("nd,nd->n", away, away)
    return own


def _draw_domains(names: list[str], centres: Floats, by: str) -> object:
    from scipy.spatial.distance import cdist

    from gradatim.tasks.core.chart_parts import CATEGORIES
    from gradatim.tasks.core.charts import heatmap

    names, centres = names[:CATEGORIES], centres[:CATEGORIES]
    away = cdist(centres, centres)
    rows = [(a, b, float(away[i, j])) for i, a in enumerate(names) for j, b in enumerate(names)]
    frame = pl.DataFrame(rows, schema=[by, f"other {by}", "distance of centres"], orient="row")
    return heatmap(
        frame, x=by, y=f"other {by}", value="distance of centres", title="Distance between the centres of domains"
    )


def _draw_scores(value: Floats, score: str) -> object:
    from gradatim.tasks.core.charts import histogram

    words = {"inter": "mean cosine to other domains", "intra": "cosine to the own domain", "entropy": "entropy (nats)"}
    return histogram(value, title=f"Rows by {words[score]}", x=words[score])
