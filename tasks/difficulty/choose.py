"""Which method is used where the user names none."""

from __future__ import annotations

ENOUGH_FOR_IRT = 8


def default_method(n_respondents: int) -> str:
    """Return ``irt`` (1PL) for eight respondents or more, ``pass_rate`` for one to seven, ``length`` for none."""
    if n_respondents >= ENOUGH_FOR_IRT:
        return "irt"
    return "pass_rate" if n_respondents > 0 else "length"
