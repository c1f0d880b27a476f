"""What pairs of near-duplicates say about a set: components, giant ones cut, each row's nearest, and the summary."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gradatim.schemas.summary import SummaryTable
from gradatim.tasks.core import format as fmt
from gradatim.tasks.core.components import Cut, cut_giants
from gradatim.tasks.core.minhash import Bands
from gradatim.tasks.core.picture import Picture
from gradatim.tasks.core.row_numbers import per_row
from gradatim.tasks.core.statistics import Statistic, statistics_table
from gradatim.tasks.diversity.result import Diversity
from gradatim.tasks.diversity.row_table import row_table

_COMPONENTS, _IDS = 10, 5  # shown in the table


@dataclass(frozen=True)
class Facts:
    """What a comparison found.

    Attributes
    ----------
    ids : polars.Series
        Rows that could be compared, sorted.
    pairs : polars.DataFrame
        In the schema of the table `pairs`.
    candidates, left_out, untied : int
        Pairs that were measured, pairs of crowds that were not, and of these those that no other pairs tie; night after
        night the sums of all nights.
    why : str
        Why rows could not be compared.
    curve : Bands or None
        Bands of MinHash.
    """

    ids: pl.Series
    pairs: pl.DataFrame
    candidates: int
    left_out: int
    untied: int
    why: str
    curve: Bands | None


def result(
    found: Facts,
    *,
    rows: int,
    name: str,
    threshold: float,
    giant: float,
    step: float,
    parameters: dict[str, Any],
    source: str,
) -> Diversity:
    """Form the components and tell what there is; arguments as the plug-in's settings, `rows` counts all examples."""
    n, pairs = len(found.ids), found.pairs
    places = np.stack([_places(found.ids, pairs[end]) for end in ("left_id", "right_id")], axis=1)
    cut = cut_giants(n, places, pairs["similarity"].to_numpy(), threshold, share=giant, step=step)
    raised = pl.Series(cut.thresholds)
    decided = pairs.with_columns(threshold=pl.max_horizontal("threshold", raised))
    tied, size = np.unique(cut.labels[np.unique(places)], return_counts=True)  # all others are of one row
    groups = int(cut.labels.max(initial=-1)) + 1
    exact = int((pairs["method"] == "exact").sum())
    statistics = {
        "share": (n - groups) / n,
        "exact_share": exact / n,
        "pairs": float(cut.kept.sum()),
        "components": float((size > 1).sum()),
        "rows": float(size[size > 1].sum()),
        "largest_share": float(size.max(initial=1) / n),
        "candidates": float(found.candidates),
        "not_compared": float(found.left_out),
    }
    if found.curve is not None:
        statistics["expected_recall"] = float(found.curve.chance(threshold))
    return Diversity(
        method=name,
        statistics=statistics_table(
            [Statistic("all", f"near_duplicates_{key}", value, n) for key, value in statistics.items()], parameters
        ),
        table=_rows(found, cut, places, name),
        main="near_duplicates_share",
        parameters=parameters,
        source=source,
        warnings=tuple(_warnings(found, cut, rows, n, giant)),
        pairs=decided,
        pictures=_pictures(found, threshold),
        tables=_largest(found, cut, places, tied, size),
    )


def _places(ids: pl.Series, wanted: pl.Series) -> NDArray[np.int64]:
    """Return where ids stand among sorted ones."""
    return np.asarray(ids.search_sorted(wanted).to_numpy(), dtype=np.int64)


def _rows(found: Facts, cut: Cut, places: NDArray[np.int64], name: str) -> pl.DataFrame:
    """Each row's component, and its nearest partner: most similar, then smallest id."""
    rows, other = (np.concatenate([places[:, a], places[:, b]]) for a, b in ((0, 1), (1, 0)))
    alike = np.tile(found.pairs["similarity"].to_numpy(), 2)
    order = np.lexsort((other, -alike, rows))
    order = order[np.flatnonzero(np.diff(rows[order], prepend=-1))]
    value, nearest = per_row(len(found.ids), fill=np.nan), per_row(len(found.ids), np.int64, -1)
    value[rows[order]], nearest[rows[order]] = alike[order], other[order]
    return row_table(name, found.ids, value, cut.labels, nearest, lambda part: value[part])


def _warnings(found: Facts, cut: Cut, rows: int, n: int, giant: float) -> list[str]:
    told = [f"{rows - n:,} of {rows:,} rows were not compared: {found.why}"] if n < rows else []
    for first, size, threshold, largest in cut.steps:
        end = f"its largest piece has {largest:,} rows"
        if largest > giant * n:
            end += ", all tied by similarity 1: no threshold parts them"
        told.append(
            f"a component of {size:,} of {n:,} rows (with {found.ids[first]!r}) is a chain: inside it the threshold "
            f"was raised to {threshold:g}, and {end}"
        )
    dropped = int((~cut.kept).sum())
    if dropped:
        told.append(f"{dropped:,} pairs of cut components no longer count: they are less alike than their threshold")
    if found.left_out:
        told.append(
            f"{found.left_out:,} pairs of crowds (many rows in one band or list) were not compared one by one, so a "
            "row's nearest may not be its very nearest; "
            + (f"about {found.untied:,} of them might tie components" if found.untied else "no component would change")
        )
    return told


def _pictures(found: Facts, threshold: float) -> dict[str, Picture]:
    from gradatim.tasks.core.charts import histogram, lines

    pictures = {
        "similarity": Picture(
            f"Similarity of the {len(found.pairs):,} pairs from {threshold:g} up; exact copies have 1.",
            lambda: histogram(found.pairs["similarity"], title="Pairs of near-duplicates", x="similarity"),
        )
    }
    curve = found.curve
    if curve is not None:
        at = np.linspace(0, 1, 101)
        frame = pl.DataFrame({"similarity": at, "chance": curve.chance(at)})
        pictures["detection"] = Picture(
            f"Chance that {curve.bands} bands of {curve.rows} see a pair, by its similarity: "
            f"{fmt.fixed(float(curve.chance(threshold)), 4)} at {threshold:g}.",
            lambda: lines(frame, x="similarity", y="chance", title="Which pairs MinHash sees"),
        )
    return pictures


def _largest(found: Facts, cut: Cut, places: Any, tied: Any, size: Any) -> tuple[SummaryTable, ...]:
    """List the largest components: number, rows, least similarity of a pair, first ids; `tied` are their numbers."""
    order = np.argsort(-size, kind="stable")[:_COMPONENTS]
    order = order[size[order] > 1]
    if not len(order):
        return ()
    kept = places[cut.kept]
    least = np.full(len(size), np.inf)
    np.minimum.at(least, np.searchsorted(tied, cut.labels[kept[:, 0]]), found.pairs["similarity"].to_numpy()[cut.kept])
    rows = []
    for number in order:
        first = np.flatnonzero(cut.labels == tied[number])[:_IDS]
        ids = ", ".join(found.ids.gather(first).to_list())
        rows.append(
            (int(tied[number]), int(size[number]), float(least[number]), ids + (", …" if size[number] > _IDS else ""))
        )
    more = int((size > 1).sum()) - len(rows)
    note = f"{more:,} more in the column cluster of the table diversity" if more else ""
    columns = ("component", "rows", "least similarity of a pair", "ids")
    return (SummaryTable("Largest components of near-duplicates", columns, tuple(rows), note=note),)
