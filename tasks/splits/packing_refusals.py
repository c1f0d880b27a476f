"""What a packing is refused for, and what is told of one that stands."""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gradatim.schemas.errors import DataRefused
from gradatim.tasks.splits.packing import Packed, room
from gradatim.tasks.splits.packing_config import SPLIT_NAMES, WHERE, NonLeakingConfig
from gradatim.tasks.splits.packing_search import Units
from gradatim.tasks.splits.packing_units import Kept

GIANT = 0.5
"""Share of the rows from which a cluster is told."""

Ints = NDArray[np.int64]


def refuse_empty(rows: int, config: NonLeakingConfig) -> None:
    """Refuse a share that rounds to no row."""
    for name, share in zip(SPLIT_NAMES, config.shares, strict=False):
        if round(share * rows) == 0:
            raise DataRefused(
                f"{share:g} of {rows:,} rows is none for {name}",
                where=WHERE,
                expected="at least one row in each",
                remedy=f"raise {'validation_ood' if name == SPLIT_NAMES[2] else 'fraction'}",
            )


def too_large(size: Ints, label: pl.Series, config: NonLeakingConfig) -> tuple[Ints, list[str]]:
    """Find the units that no split has room for, and refuse them unless they may overflow; refuse too few units.

    Parameters
    ----------
    size : numpy.ndarray, shape (units,), int64
    label : polars.Series of String, (units,)

    Returns
    -------
    (numpy.ndarray of int64, list of str)
        Those units, and what is told of them.
    """
    rows, need = int(size.sum()), len(config.shares)
    most = room(rows, config.shares, config.epsilon)
    giants = np.flatnonzero(size > most)
    if len(size) - len(giants) < need - len(giants[:1]):
        raise DataRefused(
            f"there {'is one cluster' if len(size) == 1 else f'are {len(size)} clusters'} for {need} sets of rows",
            where=WHERE,
            expected="a whole cluster for each of " + ", ".join(SPLIT_NAMES[:need]),
            remedy=_finer(config),
        )
    if not len(giants):
        return giants, []
    one = int(giants[0])
    found = f"the cluster of {label[one]!r} holds {size[one]:,} of {rows:,} rows ({size[one] / rows:.0%})"
    if config.oversize == "overflow":
        rest = rows - int(size[giants].sum())
        return giants, [f"{found}, more than any split has room for: the shares are of the other {rest:,} rows"]
    raise DataRefused(
        f"{found}, more than any split has room for",
        where=WHERE,
        expected=f"at most {most:,} rows in a cluster",
        remedy=_finer(config),
    )


def sizes_told(
    units: Units, packed: Packed, label: pl.Series, strata: pl.Series, config: NonLeakingConfig, *, released: bool
) -> list[str]:
    """Refuse sizes beside the tolerances, or tell them where the settings or a release let them be; tell a giant.

    Parameters
    ----------
    label : polars.Series of String, (units,)
    strata : polars.Series of String
        The values of the strata, sorted; none where nothing is stratified.
    """
    size, rows = units.mass, int(units.mass.sum())
    told = []
    if size.max() > GIANT * rows:
        told.append(f"the largest cluster, of {label[int(np.argmax(size))]}, holds {size.max() / rows:.0%} of the rows")
    if not packed.missing.any():
        return told
    split, column = (int(one) for one in np.argwhere(packed.missing == packed.missing.max())[0])
    what = "" if column == 0 else f" of {config.stratify} {strata[column - 1]}"
    got, whole = int(units.rows[packed.place == split, column].sum()), int(units.rows[:, column].sum())
    found = f"{SPLIT_NAMES[split]} has {got:,} of {whole:,} rows{what}, asked {config.shares[split]:.1%}"
    if released:
        return [*told, f"released rows keep their places: {found}"]
    if config.oversize == "overflow":
        return [*told, f"sizes are the nearest that whole clusters allow: {found}"]
    tolerance = "epsilon" if column == 0 else "delta"
    raise DataRefused(
        f"{len(size):,} whole clusters do not give the sizes asked for: the nearest are such that {found} "
        f"less {tolerance} {getattr(config, tolerance):g}",
        where=WHERE,
        remedy=f"raise {tolerance}, or say oversize: overflow; or {_finer(config).split(';')[0]}",
    )


def parted_told(kept: Kept | None, unit: Ints, packed: Packed) -> list[str]:
    """Tell what the cut of giant components leaves across."""
    if kept is None:
        return []
    one, two = (packed.place[unit[kept.dropped[side].to_numpy().astype(np.int64)]] for side in ("left", "right"))
    levels = ", ".join(f"{level:g}" for level in kept.levels)
    return [
        f"{len(kept.levels)} components were larger than any split and cut at similarity {levels}: "
        f"{int((one != two).sum()):,} near-duplicate pairs stand across"
    ]


def _finer(config: NonLeakingConfig) -> str:
    finer = {
        "components": "find near-duplicates from a higher threshold, or keep together by a finer column",
        "kmeans": "ask for more clusters",
        "single": "raise the threshold, or say by: average",
        "average": "raise the threshold",
    }[config.by]
    ways = {"refuse": "; or say oversize: cut or overflow", "cut": "; or say oversize: overflow", "overflow": ""}
    return finer + ways[config.oversize]
