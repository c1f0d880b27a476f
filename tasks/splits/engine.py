"""The engine of every strategy: marked rows in, a `Split` out.

A strategy marks each row as in-distribution, out-of-distribution or excluded. The engine cuts the in-distribution pool
into train, validation and test by one uniform number a component, a pure function of (seed, strategy, component):
adding rows moves nobody, and sizes are binomial around the shares asked for. Groups never cross a split.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from gradatim.schemas.errors import DataRefused
from gradatim.schemas.hashing import uniform
from gradatim.schemas.tables import SPLITS
from gradatim.tasks.splits import controls, frozen
from gradatim.tasks.splits.config import SplitConfig
from gradatim.tasks.splits.inputs import components, keep_together, phrase
from gradatim.tasks.splits.result import Split, arrange

TRAIN, VALIDATION, VALIDATION_OOD, TEST, TEST_OOD, EXCLUDED = range(len(SPLITS))
IN, OUT, NEITHER = 0, 1, 2


@dataclass(frozen=True)
class Marks:
    """What a strategy says about one fold.

    Attributes
    ----------
    side : numpy.ndarray, shape (rows,), int8
        IN, OUT or NEITHER for each row, rows sorted by example_id.
    reason : polars.Series of String, (rows,)
        Why, e.g. ``n_steps 9 > 6``.
    held_out : str or None
        The held-out value or rule.
    fold : int
    """

    side: np.ndarray
    reason: pl.Series
    held_out: str | None = None
    fold: int = 0


@dataclass(frozen=True)
class Pool:
    """What a cut works on: the in-distribution rows of one fold and seed.

    Attributes
    ----------
    rows : numpy.ndarray of bool, (rows of examples,)
        Members of the pool.
    code : numpy.ndarray of int64, (rows of examples,)
        Component of each row, from 0.
    draw : numpy.ndarray of float64, (components,)
        The component's uniform number.
    size : numpy.ndarray of int64, (components,)
        Its rows in the pool.
    """

    rows: np.ndarray
    code: np.ndarray
    draw: np.ndarray
    size: np.ndarray


Cut = Callable[[Pool, SplitConfig], np.ndarray]
"""Assigns TRAIN, VALIDATION or TEST (uint8) to each component of a pool."""


def cut_by_draw(pool: Pool, config: SplitConfig) -> np.ndarray:
    """Cut by thresholds on the uniform number; a component with more rows than the split asked for stays in train."""
    rows = int(pool.rows.sum())
    chosen = np.full(len(pool.draw), TRAIN, np.uint8)
    for split, low, high in ((TEST, 0.0, config.test), (VALIDATION, config.test, config.test + config.validation)):
        fits = pool.size <= max(1.0, (high - low) * rows)
        chosen[(pool.draw >= low) & (pool.draw < high) & fits] = split
    return chosen


def build(
    examples: pl.DataFrame,
    marks: Sequence[Marks],
    config: SplitConfig,
    seed: int,
    tables: Mapping[str, pl.DataFrame],
    *,
    method: str,
    axis: str,
    source: str,
    together: tuple[str, ...] | None = None,
    cut: Cut = cut_by_draw,
    warnings: tuple[str, ...] = (),
) -> Split:
    """Cut, keep what was released, add controls, check that nothing is empty.

    Parameters
    ----------
    examples : polars.DataFrame
        From `inputs.prepare`: sorted by example_id, ids unique.
    marks : sequence of Marks
        One a fold.
    config : SplitConfig
    seed : int
    tables : mapping
        Optional: ``difficulty`` (for the matched control), ``pairs`` (near-duplicates, kept together), ``frozen`` (the
        released split: example_id, split, and where there are several also strategy, seed, fold).
    method, axis, source : str
    together : tuple of str, optional
        Columns to keep together in place of the setting.
    cut : callable
        How the pool is divided.
    warnings : tuple of str

    Returns
    -------
    Split

    Raises
    ------
    DataRefused
        Where train, test or (with out-of-distribution rows asked for) test_ood would be empty.

    Notes
    -----
    About 1.5 s per million rows and fold with both controls; memory some 300 bytes a row.
    """
    columns = together if together is not None else keep_together(examples, config)
    component = components(examples, columns, tables.get("pairs"))
    ids = examples["example_id"]
    alone = component.null_count() == len(component)
    # the mark keeps a group called like the id of a row that stands alone apart from it
    key = ids if alone else phrase("\x1f", component, when=component.is_not_null(), otherwise=ids)
    names = ids if alone else key.unique().sort()
    code = np.arange(len(ids)) if alone else (key.rank("dense").cast(pl.Int64).to_numpy() - 1)
    cells = (
        controls.cells(examples, tables["difficulty"], config) if config.controls and "difficulty" in tables else None
    )
    released = frozen.released(tables.get("frozen"))
    blocks: list[pl.DataFrame] = []
    outcomes: list[frozen.Outcome] = []
    for one_seed in range(seed, seed + config.seeds):
        draw = uniform(names, one_seed, f"split {method}")
        for mark in marks:
            pool, side, reason = _pool(mark, code, draw, component)
            chosen = cut(pool, config)
            split = np.where(pool.rows, chosen[code], np.uint8(EXCLUDED)).astype(np.uint8)
            reason = _oversize(pool, config, chosen, split, reason, code)
            split[side == OUT] = TEST_OOD
            if config.validation_ood:
                draw_ood = uniform(names, one_seed, f"split {method} validation_ood")
                split[(side == OUT) & (draw_ood[code] < config.validation_ood)] = VALIDATION_OOD
            if released is not None:
                now = frozen.Now(ids, split, component, reason)
                split, reason, outcome = frozen.keep(now, released, one_seed, mark.fold)
                outcomes.append(outcome)
            _refuse_empty(split, pool, config, method, mark, int(((mark.side == IN) & ~pool.rows).sum()))
            block = arrange(method, one_seed, mark.fold, ids, split, axis, mark.held_out, component, reason)
            blocks.append(block)
            if config.controls:
                blocks.append(controls.random_control(block, names, code, one_seed))
                if cells is not None and mark.held_out is not None:
                    blocks.append(controls.matched_control(block, cells, one_seed))
    blocks.sort(key=lambda block: (block["strategy"][0], block["seed"][0], block["fold"][0]) if len(block) else ("",))
    return Split(
        strategy=method,
        axis=axis,
        table=pl.concat(blocks),
        method=method,
        settings=config.model_dump(mode="json"),
        together=columns,
        source=source,
        frozen=tuple(outcomes),
        warnings=warnings + _notes(tables, config),
    )


def _pool(mark: Marks, code: np.ndarray, draw: np.ndarray, component: pl.Series) -> tuple[Pool, np.ndarray, pl.Series]:
    """Take the in-distribution rows, less those whose group also has out-of-distribution rows.

    Those are excluded rather than moved to test_ood: test_ood then holds nothing but rows that break the rule, and
    train nothing that shares a group with them.
    """
    count = len(draw)
    out = np.bincount(code[mark.side == OUT], minlength=count)
    straddles = (mark.side == IN) & (out[code] > 0)
    rows = (mark.side == IN) & ~straddles
    reason = mark.reason
    if straddles.any():
        note = (reason, "; its group ", component, " also has out-of-distribution rows")
        reason = phrase(*note, when=pl.Series(straddles), otherwise=reason)
    side = np.where(straddles, NEITHER, mark.side)
    return Pool(rows, code, draw, np.bincount(code[rows], minlength=count)), side, reason


def _oversize(
    pool: Pool, config: SplitConfig, chosen: np.ndarray, split: np.ndarray, reason: pl.Series, code: np.ndarray
) -> pl.Series:
    """Say of each row of a component that its draw meant for test or validation why it is in train."""
    kept = (chosen == TRAIN) & (pool.draw < config.test + config.validation) & (pool.size > 1)
    rows = kept[code] & (split == TRAIN)
    if not rows.any():
        return reason
    size = pl.Series(pool.size[code]).cast(pl.String)
    note = (reason, "; its group of ", size, " rows is larger than the split it was drawn for")
    return phrase(*note, when=pl.Series(rows), otherwise=reason)


def _refuse_empty(
    split: np.ndarray, pool: Pool, config: SplitConfig, method: str, mark: Marks, straddling: int
) -> None:
    counts = np.bincount(split, minlength=len(SPLITS))
    wants_ood = mark.held_out is not None
    needed = [TRAIN, TEST, TEST_OOD] if wants_ood else [TRAIN, TEST]
    empty = [index for index in needed if counts[index] == 0]
    if not empty:
        return
    sizes = ", ".join(f"{SPLITS[index]} {counts[index]:,}" for index in range(len(SPLITS)))
    where = f"split {method}" + (f", fold {mark.fold} ({mark.held_out} held out)" if wants_ood else "")
    if TEST_OOD in empty:
        if counts[VALIDATION_OOD]:
            remedy = f"lower validation_ood (now {config.validation_ood:g})"
        else:
            remedy = f"no row is out of distribution ({mark.held_out}): move the boundary"
    elif not pool.rows.any():
        remedy = "no row is left in distribution: move the boundary"
    elif TEST in empty:
        present = pool.size > 0
        share = np.maximum(pool.draw, pool.size / pool.rows.sum())[present].min()
        enough = np.ceil(share * 1000) / 1000
        if enough + config.validation < 1:
            remedy = f"raise test above {enough:g} (now {config.test:g}), or take another seed"
        else:
            kind = "groups" if (pool.size > 1).any() else "rows"
            remedy = f"there are too few {kind} in distribution ({present.sum():,}): add some, or take another seed"
        if (pool.size > 1).any():
            remedy += f"; the smallest group holds {pool.size[present].min():,} of {pool.rows.sum():,} rows"
    else:
        remedy = f"lower test (now {config.test:g}) or validation (now {config.validation:g})"
    if straddling:
        remedy += (
            f"; {straddling:,} rows are excluded since their group lies on both sides: keep together by a finer column"
        )
    raise DataRefused(
        f"{' and '.join(SPLITS[index] for index in empty)} would be empty ({sizes})", where=where, remedy=remedy
    )


def _notes(tables: Mapping[str, pl.DataFrame], config: SplitConfig) -> tuple[str, ...]:
    if not config.controls or "difficulty" not in tables:
        return ()
    methods = tables["difficulty"]["method"].unique().sort().to_list()
    if len(methods) > 1 and not config.difficulty:
        return (f"the matched control uses the difficulty {methods[0]!r}; name another one with 'difficulty'",)
    return ()
