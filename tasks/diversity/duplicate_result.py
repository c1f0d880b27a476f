"""What pairs of near-duplicates say about a set: components, giant ones cut, each row's nearest, and the summary."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from gradatim.schemas.summary import SummaryTable
from gradatim.tasks.core import format as fmt
from gradatim.tasks.core.components import Cut, cut_giants
from gradatim.tasks.core.frames import polars_schema
from gradatim.tasks.core.minhash import Bands
from gradatim.tasks.core.picture import Picture
from gradatim.tasks.core.statistics import Statistic, statistics_table
from gradatim.tasks.diversity.result import Diversity

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
    index = pl.DataFrame({"id": found.ids}).with_row_index("row")
    placed = pairs.join(index.rename({"row": "left"}), left_on="left_id", right_on="id", maintain_order="left").join(
        index.rename({"row": "right"}), left_on="right_id", right_on="id", maintain_order="left"
    )
    places = placed.select("left", "right").to_numpy().astype(np.int64).reshape(-1, 2)
    cut = cut_giants(n, places, pairs["similarity"].to_numpy(), threshold, share=giant, step=step)
    raised = pl.Series(cut.thresholds)
    decided = pairs.with_columns(threshold=pl.max_horizontal("threshold", raised))
    size = np.bincount(cut.labels)
    exact = int((pairs["method"] == "exact").sum())
    statistics = {
        "share": (n - len(size)) / n,
        "exact_share": exact / n,
        "pairs": float(cut.kept.sum()),
        "components": float((size > 1).sum()),
        "rows": float(size[size > 1].sum()),
        "largest_share": float(size.max() / n),
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
        table=_rows(found, cut, name),
        main="near_duplicates_share",
        parameters=parameters,
        source=source,
        warnings=tuple(_warnings(found, cut, rows, n, giant)),
        pairs=decided,
        pictures=_pictures(found, threshold),
        tables=_largest(found, cut, places, size),
    )


def _rows(found: Facts, cut: Cut, name: str) -> pl.DataFrame:
    """Each row's component, and its nearest partner: most similar, then smallest id."""
    one = found.pairs.select(example_id="left_id", nearest_id="right_id", nearest_similarity="similarity")
    two = found.pairs.select(example_id="right_id", nearest_id="left_id", nearest_similarity="similarity")
    near = pl.concat([one, two]).sort("example_id", "nearest_similarity", "nearest_id", descending=[False, True, False])
    near = near.unique("example_id", keep="first", maintain_order=True)
    frame = pl.DataFrame({"example_id": found.ids, "cluster": cut.labels}).join(near, on="example_id", how="left")
    frame = frame.with_columns(method=pl.lit(name), value="nearest_similarity")
    schema = polars_schema("diversity")
    return frame.select(pl.col(column).cast(kind) for column, kind in schema.items()).sort("example_id")


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


def _largest(found: Facts, cut: Cut, places: Any, size: Any) -> tuple[SummaryTable, ...]:
    """List the largest components: number, rows, least similarity of a pair, first ids."""
    order = np.argsort(-size, kind="stable")[:_COMPONENTS]
    order = order[size[order] > 1]
    if not len(order):
        return ()
    kept = places[cut.kept]
    least = np.full(len(size), np.inf)
    np.minimum.at(least, cut.labels[kept[:, 0]], found.pairs["similarity"].to_numpy()[cut.kept])
    rows = []
    for number in order:
        first = np.flatnonzero(cut.labels == number)[:_IDS]
        ids = ", ".join(found.ids.gather(first).to_list())
        rows.append(
            (int(number), int(size[number]), float(least[number]), ids + (", …" if size[number] > _IDS else ""))
        )
    more = int((size > 1).sum()) - len(rows)
    note = f"{more:,} more in the column cluster of the table diversity" if more else ""
    columns = ("component", "rows", "least similarity of a pair", "ids")
    return (SummaryTable("Largest components of near-duplicates", columns, tuple(rows), note=note),)
