"""The engine of every strategy: marked rows in, a `Split` out.

A strategy marks each row as in-distribution, out-of-distribution or excluded. The engine cuts the in-distribution pool
into train, validation and test by one uniform number a component, a pure function of (seed, strategy, component):
adding rows moves nobody, and sizes are binomial around the shares asked for. Groups never cross a split.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any, TypeVar

import numpy as np
import polars as pl

from gradatim.schemas.hashing import uniform
from gradatim.schemas.tables import SPLITS
from gradatim.tasks.core.registry import Cost, Maturity, register
from gradatim.tasks.splits import controls, frozen
from gradatim.tasks.splits.balancing import beyond_smallest, smallest
from gradatim.tasks.splits.config import SplitConfig
from gradatim.tasks.splits.cuts import (
    EXCLUDED,
    TEST_OOD,
    TRAIN,
    VALIDATION,
    VALIDATION_OOD,
    Cut,
    Pool,
    cut_by_draw,
    cut_by_strata,
    rotated,
    within_strata,
)
from gradatim.tasks.splits.emptiness import refuse_empty
from gradatim.tasks.splits.inputs import keep_together, phrase, prepare
from gradatim.tasks.splits.keep_labels import Kept, keep_labels
from gradatim.tasks.splits.result import Split, arrange
from gradatim.tasks.splits.together import together as find_together

__all__ = ["IN", "NEITHER", "OUT", "RULES", "SPLITS", "VALIDATION", "Marks", "build", "rule"]

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
    held_out : str, polars.Series of String (rows,), or None
        The held-out value or rule, of the fold or of each row; None where nothing is held out.
    fold : int
    axis : str or None
        What is shifted in this fold, where folds differ in it.
    warnings : tuple of str
    validation : numpy.ndarray of bool, (rows,), or None
        The rows marked OUT that are validation_ood; by default the engine draws them.
    kept : tuple of Kept
        What each value, or cell, is to have in train.
    """

    side: np.ndarray
    reason: pl.Series
    held_out: str | pl.Series | None = None
    fold: int = 0
    axis: str | None = None
    warnings: tuple[str, ...] = ()
    validation: np.ndarray | None = None
    kept: tuple[Kept, ...] = ()

    @property
    def label(self) -> str:
        """The held-out rule in a few words, for errors."""
        if isinstance(self.held_out, pl.Series):
            values = self.held_out.drop_nulls().unique().sort()
            if values.is_empty():
                return self.axis or "nothing"
            return ", ".join(values.head(3)) + (f" and {len(values) - 3:,} more" if len(values) > 3 else "")
        return str(self.held_out)


Mark = Callable[[pl.DataFrame, Any, int, Mapping[str, pl.DataFrame]], Sequence[Marks]]
"""Marks rows: (examples sorted by id, settings, seed, tables) -> one `Marks` a fold."""
F = TypeVar("F", bound=Mark)

RULES: dict[str, Mark] = {}
"""The strategies that are nothing but a rule, by name: what `composed` puts together."""


def rule(
    name: str,
    *,
    config: type[SplitConfig],
    needs: tuple[str, ...] = (),
    axis: str | Callable[[Any], str],
    cost: Callable[[int, int], Cost],
    source: str,
    maturity: Maturity = "stable",
    revision: int = 1,
) -> Callable[[F], F]:
    """Register a strategy that is a rule: the decorated function marks rows, and the engine does the rest.

    Parameters
    ----------
    name, config, needs, cost, source, maturity, revision
        As `register` takes them; columns to keep together and to stratify by need not be listed.
    axis : str or callable
        What is shifted, or how the settings say it.
    """

    def decorate(mark: F) -> F:
        shared = ("examples.{keep_together}", "examples.{stratify}")

        @register(
            "split", name, config=config, needs=(*needs, *shared), revision=revision, cost=cost, source=source,
            maturity=maturity,
        )  # fmt: skip
        @wraps(mark)
        def run(tables: Mapping[str, pl.DataFrame], settings: SplitConfig, seed: int) -> Split:
            examples = prepare(tables, name, settings)
            shifted = axis if isinstance(axis, str) else axis(settings)
            return build(
                examples, lambda one: mark(examples, settings, one, tables), settings, seed, tables,
                method=name, axis=shifted, source=source,
            )  # fmt: skip

        RULES[name] = mark
        return mark

    return decorate


@dataclass(frozen=True)
class _Placed:
    """One fold, cut: split codes and reasons of all rows."""

    marks: Marks
    fold: int
    split: np.ndarray
    reason: pl.Series


def build(
    examples: pl.DataFrame,
    mark: Callable[[int], Sequence[Marks]],
    config: SplitConfig,
    seed: int,
    tables: Mapping[str, pl.DataFrame],
    *,
    method: str,
    axis: str,
    source: str,
    together: tuple[str, ...] | None = None,
    tied: pl.Series | None = None,
    cut: Cut | None = None,
    strata: pl.Series | None = None,
) -> Split:
    """Cut, keep what was released, add controls, check that nothing is empty.

    Parameters
    ----------
    examples : polars.DataFrame
        From `inputs.prepare`: sorted by example_id, ids unique.
    mark : callable
        Gives the marks of a seed, one a fold.
    config : SplitConfig
    seed : int
    tables : mapping
        Optional: ``difficulty`` (for the matched control), ``components`` of near-duplicates or their ``pairs`` (kept
        together, and named where a row is excluded for them), ``frozen`` (the released split: example_id, split, and
        where there are several also strategy, seed, fold).
    method, axis, source : str
    together : tuple of str, optional
        Columns to keep together in place of the setting.
    tied : polars.Series of String, (rows,), optional
        Components to use in place of those of `together` and of near-duplicates; null for a row that stands alone.
    cut : callable, optional
        How the pool is divided: by the draw, or within `strata`, by default.
    strata : polars.Series, (rows,), optional
        In place of the column `stratify`.

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
    whole = find_together(examples, columns, tables, tied)
    component, key, ids = whole.component, whole.key, examples["example_id"]
    alone = component.null_count() == len(component)
    names = ids if alone else key.unique().sort()
    code = np.arange(len(ids)) if alone else (key.rank("dense").cast(pl.Int64).to_numpy() - 1)
    cells: list[pl.Series] = []
    if config.controls and "difficulty" in tables:
        matches = controls.ways(examples, config)
        cells = [controls.cells(examples, tables["difficulty"], match, config.difficulty) for match in matches]
    stratum, count = _strata(examples, config, strata)
    chosen_cut = cut or (cut_by_draw if stratum is None else cut_by_strata(stratum, count))
    released = frozen.released(tables.get("frozen"))
    blocks: list[pl.DataFrame] = []
    outcomes: list[frozen.Outcome] = []
    warnings: list[str] = []
    for one_seed in range(seed, seed + config.seeds):
        draw = uniform(names, one_seed, f"split {method}")
        draw_ood = uniform(names, one_seed, f"split {method} validation_ood") if config.validation_ood else None
        placed: list[_Placed] = []
        for marks in mark(one_seed):
            warnings += marks.warnings
            pool, side, told = _pool(marks, code, draw, component)
            if stratum is not None and config.folds > 1:
                pool = within_strata(pool, stratum, count)
            for turn in range(config.folds):
                fold = marks.fold * config.folds + turn
                turned = rotated(pool, turn, config.folds)
                chosen = chosen_cut(turned, config)
                moved = keep_labels(turned, chosen, marks.kept, f"split {method}")
                split = np.where(pool.rows, chosen[code], np.uint8(EXCLUDED)).astype(np.uint8)
                reason = _oversize(turned, config, chosen, split, told, code)
                if moved.any():
                    note = (reason, "; kept in train for the sake of its values")
                    reason = phrase(*note, when=pl.Series(moved[code] & pool.rows), otherwise=reason)
                split[side == OUT] = TEST_OOD
                if marks.validation is not None:
                    split[marks.validation] = VALIDATION_OOD
                    reason = _watched_and_tested(split, reason, code, component)
                elif draw_ood is not None:
                    split[(side == OUT) & (draw_ood[code] < config.validation_ood)] = VALIDATION_OOD
                if released is not None:
                    now = frozen.Now(ids, split, component, reason, tables.get("pairs"))
                    split, reason, outcome = frozen.keep(now, released, one_seed, fold)
                    outcomes.append(outcome)
                held_out = marks.label if marks.held_out is not None else ""
                where = f"split {method}" + (f", fold {marks.fold} ({held_out} held out)" if held_out else "")
                straddling = int(((marks.side == IN) & ~pool.rows).sum())
                refuse_empty(split, turned, config, where, held_out, straddling)
                placed.append(_Placed(marks, fold, split, reason))
        if config.balance:
            placed = _balanced(placed, code, uniform(names, one_seed, f"split {method} balance"))
        for one in placed:
            shifted = one.marks.axis or axis
            block = arrange(
                method, one_seed, one.fold, ids, one.split, shifted, one.marks.held_out, component, one.reason
            )
            blocks.append(block)
            if config.controls:
                blocks.append(controls.random_control(block, names, code, one_seed))
                if cells and one.marks.held_out is not None:
                    blocks.append(controls.best_matched(block, cells, one_seed))
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
        ledger=frozen.ledger(released, ids),
        warnings=tuple(dict.fromkeys(warnings)) + _notes(tables, config),
        drawn=cut is None and stratum is None and not config.balance,
        alike=tied is None and not tables.keys().isdisjoint(("components", "pairs")),
    )


def _strata(examples: pl.DataFrame, config: SplitConfig, strata: pl.Series | None) -> tuple[np.ndarray | None, int]:
    """Number the strata; None where the cut is not stratified."""
    if strata is None and config.stratify is not None:
        strata = examples[config.stratify].cast(pl.String).fill_null("null")
    if strata is None:
        return None, 0
    return strata.rank("dense").cast(pl.Int64).to_numpy() - 1, strata.n_unique()


def _balanced(placed: list[_Placed], code: np.ndarray, draw: np.ndarray) -> list[_Placed]:
    """Exclude training rows until each fold has as many as the smallest."""
    folds = [one.split for one in placed]
    least, result = smallest(folds), []
    for one, out in zip(placed, beyond_smallest(folds, [one.marks.kept for one in placed], code, draw), strict=True):
        note = (one.reason, f"; beyond the {least:,} training rows that the smallest fold has")
        reason = phrase(*note, when=pl.Series(out), otherwise=one.reason)
        result.append(replace(one, split=np.where(out, np.uint8(EXCLUDED), one.split), reason=reason))
    return result


def _pool(marks: Marks, code: np.ndarray, draw: np.ndarray, component: pl.Series) -> tuple[Pool, np.ndarray, pl.Series]:
    """Take the in-distribution rows, less those whose group also has out-of-distribution rows.

    Those are excluded rather than moved to test_ood: test_ood then holds nothing but rows that break the rule, and
    train nothing that shares a group with them.
    """
    count = len(draw)
    out = np.bincount(code[marks.side == OUT], minlength=count)
    straddles = (marks.side == IN) & (out[code] > 0)
    rows = (marks.side == IN) & ~straddles
    reason = marks.reason
    if straddles.any():
        note = (reason, "; its group ", component, frozen.STRADDLES)
        reason = phrase(*note, when=pl.Series(straddles), otherwise=reason)
    side = np.where(straddles, NEITHER, marks.side)
    return Pool(rows, code, draw, np.bincount(code[rows], minlength=count)), side, reason


def _watched_and_tested(split: np.ndarray, reason: pl.Series, code: np.ndarray, component: pl.Series) -> pl.Series:
    """Exclude the rows of validation_ood whose group also has rows in test_ood; `split` is changed in place."""
    tested = np.bincount(code[split == TEST_OOD], minlength=int(code.max()) + 1) > 0
    both = (split == VALIDATION_OOD) & tested[code]
    if not both.any():
        return reason
    split[both] = EXCLUDED
    note = (reason, "; its group ", component, " also has rows in test_ood")
    return phrase(*note, when=pl.Series(both), otherwise=reason)


def _oversize(
    pool: Pool, config: SplitConfig, chosen: np.ndarray, split: np.ndarray, reason: pl.Series, code: np.ndarray
) -> pl.Series:
    """Say of each row of a component that its draw meant for test or validation why it is in train."""
    kept = (chosen == TRAIN) & (pool.draw < config.test_share + config.validation) & (pool.size > 1)
    rows = kept[code] & (split == TRAIN)
    if not rows.any():
        return reason
    size = pl.Series(pool.size[code]).cast(pl.String)
    note = (reason, "; its group of ", size, " rows is larger than the split it was drawn for")
    return phrase(*note, when=pl.Series(rows), otherwise=reason)


def _notes(tables: Mapping[str, pl.DataFrame], config: SplitConfig) -> tuple[str, ...]:
    if not config.controls or "difficulty" not in tables:
        return ()
    methods = tables["difficulty"]["method"].unique().sort().to_list()
    if len(methods) > 1 and not config.difficulty:
        return (f"the matched control uses the difficulty {methods[0]!r}; name another one with 'difficulty'",)
    return ()
