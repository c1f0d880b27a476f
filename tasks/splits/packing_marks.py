"""From packed clusters to marked rows: sides, reasons, what a release holds, and rows too like what is held out."""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gradatim.tasks.splits.engine import IN, NEITHER, OUT, Marks
from gradatim.tasks.splits.frozen import CONTROLS
from gradatim.tasks.splits.inputs import phrase
from gradatim.tasks.splits.packing import Packed
from gradatim.tasks.splits.packing_config import WHERE
from gradatim.tasks.splits.packing_search import Units
from gradatim.tasks.splits.packing_units import Located

Ints = NDArray[np.int64]


def released_places(frozen: pl.DataFrame | None, ids: pl.Series, seed: int) -> Ints:
    """Return where each row was released: 0 in distribution, 1 test_ood, 2 validation_ood, -1 nowhere."""
    if frozen is None:
        return np.full(len(ids), -1, np.int64)
    if "strategy" in frozen.columns:
        frozen = frozen.filter(~pl.col("strategy").str.contains(CONTROLS))
    for name, value in (("seed", seed), ("fold", 0)):
        if name in frozen.columns:
            frozen = frozen.filter(pl.col(name) == value)
    place = pl.col("split").replace_strict(
        {"train": 0, "validation": 0, "test": 0, "test_ood": 1, "validation_ood": 2}, default=-1, return_dtype=pl.Int64
    )
    known = frozen.select(pl.col("example_id").cast(pl.String), place.alias("place")).unique("example_id", keep="any")
    joined = ids.to_frame("example_id").join(known, on="example_id", how="left", maintain_order="left")
    return joined["place"].fill_null(-1).to_numpy().astype(np.int64)


def fixed_places(unit: Ints, before: Ints, rank: Ints, count: int) -> Ints:
    """Return the split of each unit that has released rows, that of its highest rank; -1 for a new one."""
    fixed = np.full(count, -1, np.int64)
    known = np.flatnonzero((unit >= 0) & (before >= 0))
    known = known[np.argsort(rank[known], kind="stable")]
    fixed[unit[known]] = before[known]
    return fixed


def marked(
    ids: pl.Series,
    unit: Ints,
    units: Units,
    packed: Packed,
    label: pl.Series,
    released: NDArray[np.bool_],
    before: Ints,
    vectors: Located | None,
    margin: float | None,
) -> Marks:
    """Mark each row by the place of its unit.

    Parameters
    ----------
    ids : polars.Series of String, (rows,)
    unit : numpy.ndarray, shape (rows,), int64
        -1 for a row in none, which is excluded.
    units, packed
    label : polars.Series of String, (units,)
        The smallest id of each.
    released : numpy.ndarray of bool, (units,)
        Which have their place from a release.
    before : numpy.ndarray, shape (rows,), int64
        From `released_places`. A row released in distribution whose unit is held out is excluded.
    vectors : Located, optional
    margin : float, optional
        Cosine to a row held out from which an in-distribution row is excluded.
    """
    held = unit >= 0
    place = np.where(held, packed.place[unit], -1)
    code = np.where(held, unit, 0)
    cluster = phrase("cluster ", label.gather(code))
    size = pl.Series(units.mass[code]).cast(pl.String)
    where = pl.Series(np.where(place > 0, " rows) is held out", " rows) is in distribution"))
    reason = phrase(cluster, " (", size, where)
    reason = phrase(reason, ", as released", when=pl.Series(released[code]), otherwise=reason)
    left = held & (place > 0) & (before == 0)
    reason = phrase(reason, "; this row was released in distribution", when=pl.Series(left), otherwise=reason)
    if vectors is not None:
        lack = phrase(pl.lit(vectors.lack.fill_null("no row of its component has a vector")))
        reason = phrase(lack, when=pl.Series(~held), otherwise=reason)
    side = np.where(left | ~held, NEITHER, np.where(place > 0, OUT, IN))
    if margin is not None and vectors is not None:
        alike, likest = _beside(side, ids, vectors)
        near = alike >= margin - 1e-9
        share = pl.Series(alike).round(3).cast(pl.String)
        note = (reason, "; as like as ", share, " to ", ids.gather(likest), ", which is held out")
        reason = phrase(*note, when=pl.Series(near), otherwise=reason)
        side = np.where(near, NEITHER, side)
    out = side == OUT
    named = pl.select(pl.when(pl.Series(out)).then(cluster).alias("held_out"))["held_out"]
    return Marks(side.astype(np.int8), reason, named, validation=(place == 2) & out)


def _beside(side: Ints, ids: pl.Series, vectors: Located) -> tuple[NDArray[np.float64], Ints]:
    """Return how like each in-distribution row is to the likest row held out (-1 for other rows), and which that is."""
    from gradatim.tasks.core.neighbours import NearestNeighbours

    alike, likest = np.full(len(side), -1.0), np.zeros(len(side), np.int64)
    inside, outside = (np.flatnonzero(side[vectors.row] == which) for which in (IN, OUT))
    if len(inside) and len(outside):
        held_out = vectors.row[outside]
        index = NearestNeighbours(vectors.unit.view(outside).whole(), ids=ids.gather(held_out), where=WHERE)
        for part, some in vectors.unit.view(inside).slices():
            found = index.search(some, 1)
            here = vectors.row[inside[part]]
            alike[here], likest[here] = found.measure[:, 0], held_out[found.index[:, 0]]
    return alike, likest
