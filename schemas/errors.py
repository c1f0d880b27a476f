"""What the user is told when something is wrong: what, where, what was expected, what to do.

Every error that a user can cause or mend is one of these. The command line turns the class into an exit code;
Prefect retries only `TryAgain`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class GradatimError(Exception):
    """An error that explains itself.

    Parameters
    ----------
    what : str
        What is wrong, in one sentence, with the value that was found.
    where : str, optional
        File, row or id, column, or the path inside a recipe.
    expected : str, optional
        What would have been right.
    remedy : str, optional
        The next thing to type or change.
    """

    exit_code = 1

    def __init__(self, what: str, *, where: str = "", expected: str = "", remedy: str = "") -> None:
        self.what, self.where, self.expected, self.remedy = what, where, expected, remedy
        super().__init__(what)

    def __str__(self) -> str:
        lines = [f"{self.where}: {self.what}" if self.where else self.what]
        if self.expected:
            lines.append(f"  expected  {self.expected}")
        if self.remedy:
            lines.append(f"  do        {self.remedy}")
        return "\n".join(lines)

    def __reduce__(self) -> tuple[object, ...]:
        # keyword-only fields do not survive the default pickling of exceptions between worker processes
        return (_rebuild, (type(self), self.what, self.where, self.expected, self.remedy))


def _rebuild(kind: type[GradatimError], what: str, where: str, expected: str, remedy: str) -> GradatimError:
    return kind(what, where=where, expected=expected, remedy=remedy)


class UsageError(GradatimError):
    """Wrong use: a recipe, an argument, a name, a missing extra. Exit code 2."""

    exit_code = 2


class DataRefused(GradatimError):
    """The data broke a rule and nothing was published. Exit code 3."""

    exit_code = 3


class TryAgain(GradatimError):
    """A passing condition: a lost race, a store that did not answer. Exit code 4; Prefect retries it."""

    exit_code = 4


def nearest(name: str, valid: Iterable[str]) -> str:
    """Return `` (did you mean 'x'?)`` for the closest valid spelling, or an empty string."""
    match = difflib.get_close_matches(name, list(valid), n=1, cutoff=0.6)
    return f" (did you mean {match[0]!r}?)" if match else ""


def missing_extra(package: str, extra: str) -> UsageError:
    """Build the error for an optional dependency that is not installed."""
    return UsageError(
        f"this needs the package {package!r}, which is not installed",
        remedy=f'pip install "gradatim[{extra}]"',
    )
