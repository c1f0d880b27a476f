"""Length of reasoning traces: of one a row, or averaged over several rollouts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import numpy as np
import polars as pl
from pydantic import Field, model_validator

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.tasks.core.reduce import group_sums
from gradatim.tasks.core.registry import Config, Cost, register
from gradatim.tasks.difficulty.result import Difficulty
from gradatim.tasks.difficulty.rows import example_column
from gradatim.tasks.difficulty.text.lengths import UNITS, Unit, measure, tokens_only, unit_name
from gradatim.tasks.difficulty.text.texts import is_text, measured

SOURCE = (
    "P. Hase, M. Bansal, P. Clark, S. Wiegreffe (2024). The unreasonable effectiveness of easy training data for hard "
    "tasks"
)


class TraceLengthConfig(Config):
    """Settings of `trace_length`."""

    paths: ClassVar[tuple[str, ...]] = ("tokenizer",)

    of: str = Field("output", min_length=1, description="column with a trace, or a list of traces (rollouts)")
    correct: str | None = Field(
        None, min_length=1, description="column that says which rollouts were right, a list where `of` is: only these"
    )
    unit: Unit = Field("words", description=UNITS)
    tokenizer: str | None = Field(None, description="file of a model's tokenizer (tokenizer.json), for unit tokens")
    bins: int | None = Field(None, ge=1, le=1000, description="10, or fewer where there are fewer different lengths")

    @model_validator(mode="after")
    def _agree(self) -> TraceLengthConfig:
        tokens_only(self.unit, self.tokenizer)
        return self


@register(
    "difficulty",
    "trace_length",
    config=TraceLengthConfig,
    needs=("examples.{of}", "examples.{correct}"),
    cost=lambda rows, width: Cost(seconds=0.1 + 4e-6 * rows, bytes=1e8 + 600.0 * rows),
    source=SOURCE,
    row_wise=True,
)
def run(tables: Mapping[str, pl.DataFrame], config: TraceLengthConfig, seed: int = 0) -> Difficulty:
    """Length of a reasoning trace, averaged over rollouts, all or the right ones only.

    Parameters
    ----------
    tables : mapping
        ``examples`` with example_id and the columns `config.of` (text, or a list of texts) and `config.correct`
        (true/false or 0/1, in lists of the same lengths).
    config : TraceLengthConfig
    seed : int
        Without effect.

    Returns
    -------
    Difficulty
        value and raw are the mean length; n the rollouts behind it; standard_error their standard deviation / sqrt(n),
        where there are two or more. Null traces do not count. An example without a trace, or without a right one, has
        no difficulty.

    Raises
    ------
    UsageError
        If there is no such column, it holds no text, or the tokenizer's file cannot be used.
    DataRefused
        If traces and right-or-wrong differ in number, or that is neither true/false nor 0/1.
    """
    where = f"difficulty trace_length: of: {config.of}"
    frame = example_column(tables, config.of, where)
    frame = frame.with_columns(_as_list(frame["found"]))
    kind = frame.schema["found"]
    inner = kind.inner if isinstance(kind, pl.List) else kind
    if not is_text(inner):  # type: ignore[arg-type]
        raise UsageError(f"the column is of type {kind}", where=where, expected="text, or a list of texts")
    traces = frame["found"] if isinstance(kind, pl.List) else frame.select(pl.concat_list("found")).to_series()
    count = traces.list.len().fill_null(0).cast(pl.Int64).to_numpy()
    texts = traces.filter(pl.Series(count > 0)).explode().cast(pl.String)
    right = np.ones(len(texts), dtype=bool)
    if config.correct is not None:
        right = _right(tables, config.correct, frame["example_id"], count)
    use = right & texts.is_not_null().to_numpy()
    row = np.repeat(np.arange(len(frame)), count)[use]
    length = measure(texts.filter(pl.Series(use)), config.unit, config.tokenizer).cast(pl.Float64).to_numpy()
    n = np.bincount(row, minlength=len(frame))
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = group_sums(row, length, len(frame)) / n
        square = group_sums(row, (length - mean[row]) ** 2, len(frame))
        error = np.where(n > 1, np.sqrt(square / (n - 1) / n), np.nan)
    traced = np.bincount(np.repeat(np.arange(len(frame)), count), texts.is_not_null().to_numpy(), len(frame)) > 0
    notes = {"traces": len(length)}
    if unused := int(texts.is_not_null().sum()) - len(length):
        notes["traces that were wrong, not counted"] = unused
    unit = unit_name(config.unit, config.tokenizer)
    return measured(
        frame.select(
            "example_id",
            pl.Series("raw", mean),
            pl.Series("n", n),
            pl.Series("standard_error", error),
            pl.when(pl.Series(traced)).then(pl.lit("no trace was right")).alias("reason"),
        ),
        config=config,
        name="trace_length",
        title=f"trace_length of {config.of} in {unit}{', right traces only' if config.correct else ''}",
        scale=unit,
        lacking=f"no trace in {config.of!r}",
        source=SOURCE,
        notes={**notes, **({"tokenizer": Path(config.tokenizer).name} if config.tokenizer else {})},
    )


def _as_list(found: pl.Series) -> pl.Series:
    """Take arrays of one width, as Parquet files of rollouts have, for lists."""
    return found.arr.to_list() if isinstance(found.dtype, pl.Array) else found


def _right(tables: Mapping[str, pl.DataFrame], name: str, ids: pl.Series, count: np.ndarray) -> np.ndarray:
    """Which of all traces, row after row, were right; a null says that one was not."""
    where = f"difficulty trace_length: correct: {name}"
    frame = example_column(tables, name, where)
    frame = frame.with_columns(_as_list(frame["found"]))
    kind = frame.schema["found"]
    flags = frame["found"] if isinstance(kind, pl.List) else frame.select(pl.concat_list("found")).to_series()
    inner = kind.inner if isinstance(kind, pl.List) else kind
    if not (inner in (pl.Boolean, pl.Null) or inner.is_numeric()):
        raise UsageError(f"the column is of type {kind}", where=where, expected="true/false or 0/1, or lists of these")
    own = flags.list.len().fill_null(0).cast(pl.Int64).to_numpy()
    unequal = np.flatnonzero((own != count) & (count > 0))
    if len(unequal):
        at = int(unequal[0])
        raise DataRefused(
            f"{count[at]} traces come with {own[at]} marks of right or wrong, as in {len(unequal)} rows",
            where=f"{where}: example {ids[at]!r}",
            expected="a mark for each trace",
        )
    number = flags.filter(pl.Series(count > 0)).explode().cast(pl.Float64)
    odd = ~number.is_in([0.0, 1.0]).fill_null(True)
    if odd.any():
        at = int(np.repeat(np.arange(len(count)), count)[odd.arg_max() or 0])
        raise DataRefused(
            f"{int(odd.sum())} marks are neither 0 nor 1, first {number.filter(odd)[0]:g}",
            where=f"{where}: example {ids[at]!r}",
            expected="true/false or 0/1",
        )
    return (number == 1.0).fill_null(False).to_numpy()
