"""Steps of a written solution."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl
from pydantic import Field

from gradatim.tasks.core.registry import Config, Cost, register
from gradatim.tasks.difficulty.result import Difficulty
from gradatim.tasks.difficulty.text.patterns import checked_pattern
from gradatim.tasks.difficulty.text.texts import measured, text_column

SOURCE = (
    "P. Hase, M. Bansal, P. Clark, S. Wiegreffe (2024). The unreasonable effectiveness of easy training data for hard "
    "tasks; K. Cobbe et al. (2021). Training verifiers to solve math word problems"
)


class ReasoningStepsConfig(Config):
    """Settings of `reasoning_steps`."""

    of: str = Field("output", min_length=1, description="text column of the examples with the solution")
    separator: str = Field(r"\n", min_length=1, description="regular expression of what stands between two steps")
    until: str | None = Field("####", min_length=1, description="the solution ends before this; null: at its end")
    count_blank: bool = Field(False, description="whether a blank line is a step, as where line breaks are counted")
    cap: int | None = Field(10, ge=1, description="more steps count as so many; null: as they are")
    bins: int | None = Field(None, ge=1, le=1000, description="10, or fewer where there are fewer different numbers")


@register(
    "difficulty",
    "reasoning_steps",
    config=ReasoningStepsConfig,
    needs=("examples.{of}",),
    cost=lambda rows, width: Cost(seconds=0.1 + 3e-6 * rows, bytes=1e8 + 500.0 * rows),
    source=SOURCE,
    row_wise=True,
)
def run(tables: Mapping[str, pl.DataFrame], config: ReasoningStepsConfig, seed: int = 0) -> Difficulty:
    """Steps of a written solution: lines before ####, or pieces between matches of a pattern.

    Parameters
    ----------
    tables : mapping
        ``examples`` with example_id and the column `config.of`.
    config : ReasoningStepsConfig
    seed : int
        Without effect.

    Returns
    -------
    Difficulty
        raw is the number of pieces before the first `until` that are not blank, value the same but at most `cap`. Where
        `until` does not occur the whole text counts. 0 for an empty text. With `count_blank` a blank piece counts as
        well, unless it is the last.

    Raises
    ------
    UsageError
        If there is no such column, it holds no text, or the separator is invalid.
    """
    frame = text_column(tables, config.of, f"difficulty reasoning_steps: of: {config.of}")
    separator = checked_pattern(config.separator, "difficulty reasoning_steps: separator")
    text = frame["found"]
    unmarked = 0
    if config.until is not None:
        marked = text.str.contains(config.until, literal=True)
        unmarked = int((~marked).sum())
        text = text.str.splitn(config.until, 2).struct.field("field_0")
    # one character stands for any separator, so that a step is one match
    pieces = text.str.replace_all("\0", " ", literal=True).str.replace_all(separator, "\0")
    if config.count_blank:
        raw = pieces.str.count_matches("\0", literal=True) + pieces.str.contains(r"[^\x00\s][^\x00]*$").cast(pl.UInt32)
    else:
        raw = pieces.str.count_matches(r"[^\x00]*[^\x00\s][^\x00]*")
    raw = raw.cast(pl.Float64)
    value = raw.clip(upper_bound=config.cap)
    known = len(frame) - frame["found"].null_count()
    notes = {f"texts without {config.until!r}": unmarked} if unmarked else {}
    if config.cap is not None and (more := int((raw > config.cap).sum())):
        notes[f"texts with more than {config.cap} steps"] = more
    return measured(
        frame.select("example_id", raw.alias("raw"), value.alias("value")),
        config=config,
        name="reasoning_steps",
        title=f"reasoning_steps of {config.of}",
        scale="steps",
        lacking=f"no text in {config.of!r}",
        source=SOURCE,
        notes=notes,
        warnings=[f"no text has {config.until!r}: all of each was taken for the solution"]
        if unmarked and unmarked == known
        else [],
    )
