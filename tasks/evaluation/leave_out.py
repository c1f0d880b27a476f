"""Difficulty that is used to evaluate a model leaves that model out.

An item is hard because respondents failed it. If the evaluated model is one of them, the hard bins hold what this very
model failed, and its curve over difficulty is partly an echo of itself.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import polars as pl

from gradatim.schemas.errors import UsageError


@runtime_checkable
class LeavesOut(Protocol):
    """A difficulty that can be estimated again without one of its respondents."""

    @property
    def table(self) -> pl.DataFrame:
        """Table `difficulty`."""
        ...

    def leave_out(self, respondent: str, /) -> Any:
        """Return the same difficulty estimated without `respondent`."""
        ...


@dataclass(frozen=True)
class Independent:
    """A difficulty that is safe to evaluate with, and what was done for that."""

    table: pl.DataFrame
    note: str


def independent(difficulty: Any, models: Collection[str], respondents: Collection[str] | None = None) -> Independent:
    """Return the difficulty without the evaluated models.

    Parameters
    ----------
    difficulty : polars.DataFrame or object with `.table` and, where it rests on responses, `.respondents`, `.leave_out`
        `.respondents` is a collection of names, or a frame with the column respondent_id.
    models : collection of str
        Names of the evaluated models, as among the respondents.
    respondents : collection of str, optional
        Whose responses a plain frame was made from.

    Raises
    ------
    UsageError
        If the models are among the respondents and the difficulty cannot be estimated without them.
    """
    frame = difficulty if isinstance(difficulty, pl.DataFrame) else getattr(difficulty, "table", None)
    if not isinstance(frame, pl.DataFrame):
        raise UsageError(
            f"a difficulty of type {type(difficulty).__name__}",
            where="evaluate",
            expected="a frame, or the result of an estimator",
        )
    known = _names(respondents if respondents is not None else getattr(difficulty, "respondents", None))
    if known is None and getattr(difficulty, "refit", None) is not None:
        return _tried(difficulty, models)
    if known is None:
        return Independent(frame, "not known to rest on responses of the evaluated model")
    inside = sorted(set(models) & known)
    if not inside:
        return Independent(frame, f"the evaluated model is not among its {len(known):,} respondents")
    if not isinstance(difficulty, LeavesOut) or isinstance(difficulty, pl.DataFrame):
        raise UsageError(
            f"the difficulty rests on responses of the evaluated model {inside[0]!r}",
            where="evaluate",
            expected="a difficulty without it",
            remedy=f"pass the estimator's result itself, or its .leave_out({inside[0]!r}).table",
        )
    result: Any = difficulty
    for name in inside:
        result = result.leave_out(name)
    if not isinstance(result, pl.DataFrame):
        result = result.table
    return Independent(result, f"estimated without {', '.join(inside)} ({len(known) - len(inside):,} respondents left)")


def _tried(difficulty: Any, models: Collection[str]) -> Independent:
    """Leave the models out of a difficulty that can be estimated again but does not list its respondents."""
    left_out = []
    for name in sorted(models):
        try:
            difficulty = difficulty.leave_out(name)
        except UsageError as error:
            if error.where != "leave_out":
                raise
            continue  # nobody is so called
        left_out.append(name)
    note = (
        f"estimated without {', '.join(left_out)}" if left_out else "the evaluated model is not among its respondents"
    )
    return Independent(difficulty.table, note)


def _names(respondents: Any) -> set[str] | None:
    if respondents is None:
        return None
    if isinstance(respondents, pl.DataFrame):
        respondents = respondents["respondent_id"].to_list()
    return {str(name) for name in respondents} or None
