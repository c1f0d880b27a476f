"""Time split: train before a moment, test after it; nothing that is trained on is later than what is tested."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date, datetime
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import polars as pl
from pydantic import Field, field_validator, model_validator

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.tasks.core.registry import Cost
from gradatim.tasks.splits.config import SplitConfig
from gradatim.tasks.splits.engine import IN, NEITHER, OUT, Marks, rule
from gradatim.tasks.splits.inputs import keep_together, phrase
from gradatim.tasks.splits.moments import Moments, moments, share_before
from gradatim.tasks.splits.together import together

SOURCE = (
    "Tashman (2000). Out-of-sample tests of forecasting accuracy: an analysis and review; "
    "Koh et al. (2021). WILDS: A Benchmark of in-the-Wild Distribution Shifts."
)


class TimeConfig(SplitConfig):
    """Settings of a time split."""

    column: str = Field("created_at", description="column of times, dates, or numbers that rise with time")
    before: tuple[str, ...] = Field(
        (), description="moment before which rows are in distribution; several give a fold each; by share by default"
    )
    share: float = Field(0.8, gt=0, lt=1, description="share of the rows, the earliest, that are before the boundary")
    windows: int = Field(
        1, ge=1, le=100, description="folds of a growing past, each tested on the window after it (rolling origin)"
    )
    gap: str | None = Field(None, description="rows this long after the boundary are excluded: 30d, 12h; or a number")
    until: str | None = Field(
        None, description="later rows before this moment are validation_ood, those from it on test_ood"
    )
    validation_ood: float = Field(
        0.0, ge=0, lt=1, description="share of each fold's later rows, the earliest, for validation"
    )
    across: Literal["test", "train"] = Field(
        "test", description="where a group on both sides of a boundary stays; its rows on the other side are excluded"
    )

    @field_validator("before", mode="before")
    @classmethod
    def _one_or_more_moments(cls, found: Any) -> Any:
        each = () if found is None else found if isinstance(found, list | tuple) else (found,)
        return tuple(_as_text(one) for one in each)

    @field_validator("gap", "until", mode="before")
    @classmethod
    def _moment(cls, found: Any) -> Any:
        return _as_text(found)

    @model_validator(mode="after")
    def _one_way(self) -> TimeConfig:
        if self.before and self.windows > 1:
            raise ValueError("windows are cut by share: name several moments in 'before' in place of them")
        if self.until is not None and (self.validation_ood or self.windows > 1 or len(self.before) > 1):
            raise ValueError("'until' ends the validation of one fold; of several, use validation_ood")
        return self


def _as_text(found: Any) -> Any:
    """YAML reads a bare date as a date, and a bare year as a number."""
    if isinstance(found, date | datetime):
        return found.isoformat()
    return str(found) if isinstance(found, int | float) and not isinstance(found, bool) else found


@rule(
    "time",
    config=TimeConfig,
    needs=("examples.{column}",),
    axis=lambda config: config.column,
    cost=lambda rows, width: Cost(2.5e-6 * rows * max(width, 1), 400 * rows * max(width, 1)),
    source=SOURCE,
)
def mark(examples: pl.DataFrame, config: TimeConfig, seed: int, tables: Mapping[str, pl.DataFrame]) -> list[Marks]:
    """Train before a moment (or on the earliest share), test on what comes after, with a gap and validation between."""
    at = moments(examples[config.column], examples["example_id"])
    released = _released(tables.get("frozen"), at, seed, config.folds)
    starts = _starts(at, config, released)
    component = together(examples, keep_together(examples, config), tables).component
    group = None if component.null_count() == len(component) else component
    folds = pairwise([*starts, None])
    return [
        _fold(at, config, number, start, end, group, released.get(number, {}).get("test"))
        for number, (start, end) in enumerate(folds)
        if start is not None
    ]


def _starts(at: Moments, config: TimeConfig, released: Mapping[int, Mapping[str, float]]) -> list[float]:
    """Return the boundaries: those of the recipe, else those of the release, else those of the shares."""
    value = at.value[at.known]
    if config.before:
        starts = sorted(at.read(text) for text in config.before)
    elif len(released) == config.windows:
        starts = [released[number]["start"] for number in sorted(released)]
    else:
        step = (1 - config.share) / config.windows
        found = [share_before(value, config.share + step * number) for number in range(config.windows)]
        starts = [one for one in found if one is not None]
        if not starts:
            raise DataRefused(
                f"all {len(value):,} rows have the same {at.name}",
                where="split time",
                remedy="name another column",
            )
    for first, second in pairwise(starts):
        if first >= second:
            raise DataRefused(
                f"two windows begin at {at.write(first)}: too many rows have that {at.name}",
                where="split time",
                remedy="ask for fewer windows, or name moments that differ in 'before'",
            )
    return starts


def _fold(
    at: Moments,
    config: TimeConfig,
    number: int,
    start: float,
    end: float | None,
    group: pl.Series | None,
    test: float | None,
) -> Marks:
    """Mark one fold: the past before `start`, and the rows from there to before `end`."""
    value, name = at.value, at.name
    opens = start + at.span(config.gap) if config.gap else start
    after = at.known & (value >= start)
    late = np.zeros(len(value), np.bool_) if end is None else at.known & (value >= end)
    waiting = after & (value < opens) & ~late
    out = after & ~waiting & ~late
    if config.until is not None:
        test = at.read(config.until)
        if test <= opens:
            raise UsageError(
                f"validation ends at {config.until}, before it begins",
                where="until",
                expected=f"a moment after {at.write(opens)}",
            )
    elif config.validation_ood and test is None:
        test = share_before(value[out], config.validation_ood)
    elif not config.validation_ood:
        test = None
    validation = out & (value < test) if test is not None else np.zeros(len(value), np.bool_)
    label = f"{name} >= {at.write(start)}" + (f", < {at.write(end)}" if end is not None else "")
    label += f"; test from {at.write(test)}" if test is not None else ""

    side = np.select([~at.known | waiting | late, out], [NEITHER, OUT], IN).astype(np.int8)
    reason = phrase(f"{name} ", at.shown, f" < {at.write(start)}")
    reason = phrase(f"{name} ", at.shown, f" >= {at.write(opens)}", when=pl.Series(out), otherwise=reason)
    gap = f" is in the gap of {config.gap} after {at.write(start)}"
    reason = phrase(f"{name} ", at.shown, gap, when=pl.Series(waiting), otherwise=reason)
    if end is not None:
        beyond = f" is after the window, which ends at {at.write(end)}"
        reason = phrase(f"{name} ", at.shown, beyond, when=pl.Series(late), otherwise=reason)
    reason = phrase(f"{name} is null", when=pl.Series(~at.known), otherwise=reason)
    if group is not None and (config.across == "train" or validation.any()):
        side, reason = _apart(side, reason, validation, group, config.across)
        if out.any() and not (side == OUT).any():
            raise DataRefused(
                f"every row from {at.write(start)} on is of a group that stays elsewhere",
                where="split time",
                remedy="keep together by a finer column, or set across: test",
            )
    return Marks(side, reason, label, number, validation=validation & (side == OUT))


def _apart(
    side: np.ndarray, reason: pl.Series, validation: np.ndarray, group: pl.Series, across: str
) -> tuple[np.ndarray, pl.Series]:
    """Leave each group in one of past, validation and test, the last or the first that it is in.

    The past rows of a group that stays in test are left to the engine, which excludes them in every strategy.
    """
    code = group.rank("dense").fill_null(0).cast(pl.Int64).to_numpy()  # 0: stands alone
    past, test = side == IN, (side == OUT) & ~validation
    watched = (side == OUT) & validation

    def has(rows: np.ndarray) -> np.ndarray:
        held = np.bincount(code[rows], minlength=int(code.max()) + 1) > 0
        held[0] = False
        return np.asarray(held[code])

    if across == "test":
        dropped, words = watched & has(test), " also has later rows, in test_ood"
    else:
        dropped = (watched | test) & has(past)
        words = " also has rows before the boundary"
        between = test & has(watched & ~dropped)
        reason = phrase(
            reason, "; its group ", group, " also has rows in validation_ood",
            when=pl.Series(between & ~dropped), otherwise=reason,
        )  # fmt: skip
        side = np.where(between, NEITHER, side).astype(np.int8)
    reason = phrase(reason, "; its group ", group, words, when=pl.Series(dropped), otherwise=reason)
    return np.where(dropped, NEITHER, side).astype(np.int8), reason


def _released(frozen: pl.DataFrame | None, at: Moments, seed: int, folds: int) -> dict[int, dict[str, float]]:
    """Read each fold's boundaries from what a released split says it holds out."""
    if frozen is None or not {"held_out", "fold"} <= set(frozen.columns):
        return {}
    if "seed" in frozen.columns:
        frozen = frozen.filter(pl.col("seed") == seed)
    told = frozen.drop_nulls("held_out").select("fold", "held_out").unique().sort("fold", "held_out")
    # in a composed split other rules' words stand around these
    begins, ends_at = rf"(?:^|; ){re.escape(at.name)} >= (\S+?)(?:, < \S+?)?", r"(?:; test from (\S+?))?(?:$|; )"
    pattern = re.compile(begins + ends_at)
    found: dict[int, dict[str, float]] = {}
    for fold, label in told.iter_rows():
        if fold // folds not in found and (match := pattern.search(label)):
            ends = {"start": match[1], "test": match[2]}
            found[fold // folds] = {name: at.read(text) for name, text in ends.items() if text}
    return found
