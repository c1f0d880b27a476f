"""From training ids and a difficulty to an order of training."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import polars as pl

from gradatim.schemas.errors import DataRefused, UsageError, nearest
from gradatim.schemas.hashing import random_bits
from gradatim.tasks.core.registry import configure, get
from gradatim.tasks.curriculum.order import Plan, check_pacing, positions_of
from gradatim.tasks.curriculum.result import ARMS, CurriculumOrder


def build_curriculum(
    train_ids: pl.Series | Iterable[str],
    difficulty: Any,
    *,
    by: str = "",
    pacing: str = "competence",
    settings: Mapping[str, Any] | None = None,
    arms: str | Sequence[str] = ARMS,
    passes: float = 1.0,
    stages: int = 10,
    seed: int = 0,
) -> CurriculumOrder:
    """Order training rows from easy to hard, with control arms of the same rows.

    Parameters
    ----------
    train_ids : polars.Series or iterable of str
        Ids of the training rows, in any order.
    difficulty : polars.DataFrame, or a result with ``.table``
        Table ``difficulty``.
    by : str
        Its method; may be left out where the table has one.
    pacing : str
        A pacing plug-in.
    settings : mapping, optional
        The pacing's settings.
    arms : str or sequence of str
        One or more of curriculum, random, anti, shuffled.
    passes : float
        Positions are ceil(passes x rows).
    stages : int
        Equal parts of the order; ``shuffled`` shuffles within one.
    seed : int

    Returns
    -------
    CurriculumOrder

    Raises
    ------
    UsageError
        For an unknown method, pacing, arm or setting.
    DataRefused
        Where no training row has a difficulty, or an id is null or comes twice.

    Notes
    -----
    Rows are ranked on the total order (value rounded to 1e-9, example_id), so neither the order of the input nor
    threads matter. A training row without a difficulty (none, null or NaN) is in no arm; `without_difficulty` lists it.
    """
    arms = (arms,) if isinstance(arms, str) else tuple(arms)
    for arm in arms:
        if arm not in ARMS:
            raise UsageError(f"there is no arm {arm!r}{nearest(arm, ARMS)}", expected=", ".join(ARMS))
    if not arms or len(set(arms)) != len(arms):
        raise UsageError(f"found the arms {list(arms)}", expected="one or more different ones of " + ", ".join(ARMS))
    if not passes > 0 or not np.isfinite(passes):
        raise UsageError(f"found passes = {passes}", expected="a number above 0")
    if stages < 1:
        raise UsageError(f"found stages = {stages}", expected="1 or more")
    plugin = get("pacing", pacing, where="curriculum: pacing")
    config = configure(plugin, settings or {}, where=f"curriculum: pacing.{pacing}")
    share = partial(plugin.run, config=config)
    check_pacing(share, pacing)
    table, method = _one_method(difficulty, by)
    ids, missing = easiest_first(train_ids, table)
    if ids.is_empty():
        raise DataRefused(
            f"none of {len(missing):,} training rows has a difficulty {method!r}",
            where="curriculum",
            expected="ids that stand in the difficulty table too",
            remedy="estimate the difficulty of these rows, or order by another one",
        )
    said = ", ".join(f"{name} {json.dumps(value)}" for name, value in config.model_dump(exclude_defaults=True).items())
    return CurriculumOrder(
        ids=ids,
        without_difficulty=missing,
        plan=Plan(random_bits(ids, seed, "curriculum"), positions_of(len(ids), passes), stages, share),
        arms=arms,
        seed=seed,
        by=method,
        passes=passes,
        pacing=f"{pacing} ({said})" if said else pacing,
        source=plugin.source,
    )


def easiest_first(train_ids: pl.Series | Iterable[str], difficulty: pl.DataFrame) -> tuple[pl.Series, pl.Series]:
    """Sort ids by (value rounded to 1e-9, example_id); return them and, sorted, the ids without a value."""
    ids = pl.Series("example_id", train_ids, dtype=pl.String)
    if ids.null_count():
        raise DataRefused(f"{ids.null_count()} training rows have no id", where="curriculum")
    ids = ids if ids.is_sorted() else ids.sort()
    double = (ids == ids.shift(1)).fill_null(False)
    if double.any():
        raise DataRefused(f"the id {ids.filter(double)[0]!r} comes more than once in train", where="curriculum")
    known = difficulty.select("example_id", pl.col("value").cast(pl.Float64).fill_nan(None)).drop_nulls()
    known = known if known["example_id"].is_sorted() else known.sort("example_id")
    names = known["example_id"]
    if (names == names.shift(1)).any():
        raise DataRefused("an id comes more than once in the difficulty table", where="curriculum")
    # both are sorted: a binary search takes no memory, where a join would hash every id
    place = names.search_sorted(ids).clip(upper_bound=max(len(names) - 1, 0))
    found = names.gather(place) == ids if len(names) else pl.repeat(False, len(ids), eager=True)
    missing = ids.filter(~found)
    if len(missing):
        ids, place = ids.filter(found), place.filter(found)
    # ids are sorted, so a stable sort by value alone settles ties by id
    order = np.argsort(np.round(known["value"].gather(place).to_numpy(), 9), kind="stable")
    return ids.gather(pl.Series(order)), missing


def _one_method(difficulty: Any, by: str) -> tuple[pl.DataFrame, str]:
    table = difficulty if isinstance(difficulty, pl.DataFrame) else getattr(difficulty, "table", None)
    if not isinstance(table, pl.DataFrame):
        raise UsageError(
            f"found {type(difficulty).__name__}", expected="a difficulty: a frame, or a result with .table"
        )
    for name in ("example_id", "value"):
        if name not in table.columns:
            raise UsageError(f"the difficulty has no column {name!r}", expected="example_id and value")
    if "method" not in table.columns:
        return table, by or "difficulty"
    methods = table["method"].unique().sort().to_list()
    if by and by not in methods:
        raise UsageError(
            f"there is no difficulty {by!r}{nearest(by, methods)}",
            where="curriculum: by",
            expected="one of " + ", ".join(methods),
        )
    if not by and len(methods) > 1:
        raise UsageError(
            f"the table holds {len(methods)} difficulties",
            where="curriculum: by",
            expected="one of " + ", ".join(methods),
        )
    method = by or (methods[0] if methods else "")
    return table.filter(pl.col("method") == method), method
