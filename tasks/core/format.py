"""How numbers stand in sentences, tables and charts: `38,812,110`, `.62`, `12.4 %`, `8 min 41 s`, `580 MB`.

One place, so that terminal, report, certificate and artifact show the same digits for the same number.
A number between -1 and 1 goes without its leading zero, as statistics are printed; what is missing is a dash.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from numbers import Integral, Real
from typing import Any

MISSING = "–"
PLAIN = frozenset({"seed", "year", "version", "release", "revision", "fold", "rank", "epoch", "port", "bin", "id"})
"""Names of whole numbers that are labels, not amounts: they carry no thousands separator."""


_UNSAFE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufeff\ufffe\uffff]")

_BREAKS = re.compile(r"[^\S \u00a0\u202f]+")  # all white space but blanks, which may be thin or tied


def safe(text: Any, limit: int | None = None) -> str:
    """Return text that any terminal, file and page can hold; keeps line ends and tabs.

    Control characters, lone surrogates and marks that reverse the reading order become ``�``: a terminal would obey
    them, UTF-8 cannot store them. Text longer than `limit` characters ends in an ellipsis.
    """
    shown = str(text)
    if limit is not None and len(shown) > limit:
        shown = shown[: limit - 1] + "…"
    return _UNSAFE.sub("\ufffd", shown.replace("\r\n", "\n"))


def line(text: Any, limit: int | None = None) -> str:
    """Return `safe` text on one line: line ends and tabs, with the white space around them, become one space."""
    pieces = (piece.strip() for piece in _BREAKS.split(str(text)))
    return safe(" ".join(filter(None, pieces)), limit)


def _real(value: Any) -> float | None:
    """Return the value as a float, or None where there is no number (None, NaN)."""
    if value is None:
        return None
    number = float(value)
    return None if math.isnan(number) else number


def _bare(text: str) -> str:
    """Drop the leading zero of a decimal fraction and the sign of a zero."""
    sign, digits = ("-", text[1:]) if text.startswith("-") else ("", text)
    if digits.startswith("0."):
        digits = digits[1:]
    return digits if not digits.strip("0.") else sign + digits


def _trim(text: str) -> str:
    """Drop the zeros that end a decimal fraction."""
    return text.rstrip("0").rstrip(".") if "." in text else text


def count(value: int | float | None) -> str:
    """Format an amount: ``38812110`` gives ``38,812,110``."""
    number = _real(value)
    if number is None:
        return MISSING
    if math.isinf(number):
        return "∞" if number > 0 else "-∞"
    return f"{int(value) if isinstance(value, Integral) else round(number):,}"


def signed(value: int | float | None) -> str:
    """Format a change: ``369204`` gives ``+369,204``, ``-.18`` gives ``-.18``."""
    text = count(value) if isinstance(value, Integral) else number(value)
    return text if text in (MISSING, "0") or text.startswith("-") else "+" + text


def number(value: float | None, digits: int = 3) -> str:
    """Format a real number to `digits` significant digits: ``.62``, ``-.18``, ``12.3``, ``38,812``, ``1.2e-5``."""
    real = _real(value)
    if real is None:
        return MISSING
    if math.isinf(real):
        return "∞" if real > 0 else "-∞"
    if real == 0:
        return "0"
    if not 1e-4 <= abs(real) < 1e15:
        mantissa, exponent = f"{real:.{digits - 1}e}".split("e")
        return f"{_trim(mantissa)}e{int(exponent)}"
    return _trim(fixed(real, decimals(real, digits)))


def decimals(value: float, digits: int = 3) -> int:
    """Return how many places after the point show `digits` significant digits of a finite, non-zero value."""
    exponent = int(f"{abs(value):.{digits - 1}e}".split("e")[1])
    return max(0, digits - 1 - exponent)


def fixed(value: float, places: int) -> str:
    """Format a finite number to a fixed number of places: ``fixed(.5, 2)`` gives ``.50``."""
    return _bare(f"{value:,.{places}f}")


def share(value: float | None, digits: int = 3) -> str:
    """Format a share of one as percent: ``.124`` gives ``12.4 %``; what is below 1 never reads ``100 %``."""
    real = _real(value)
    if real is None or math.isinf(real):
        return number(real) if real is None else f"{number(real)} %"
    if real == 0:
        return "0 %"
    percent = 100 * real
    if abs(percent) < 1e-3:
        return "<0.001 %" if percent > 0 else "-<0.001 %"
    text = _trim(f"{percent:,.{min(decimals(percent, digits), 5)}f}")
    return ">99.9 %" if text == "100" and real < 1 else f"{text} %"


def interval(low: float | None, high: float | None, *, percent: bool = False) -> str:
    """Format an interval with equal places at both ends: ``.12 to .18``, or ``12 % to 18.4 %``."""
    if percent:
        return f"{share(low)} to {share(high)}"
    lower, upper = column([low, high])
    return f"{lower} to {upper}"


def estimate(value: float | None, low: float | None, high: float | None, *, percent: bool = False) -> str:
    """Format an estimate with its interval: ``.15 (.12 to .18)``."""
    if percent:
        return f"{share(value)} ({interval(low, high, percent=True)})"
    middle, lower, upper = column([value, low, high])
    return f"{middle} ({lower} to {upper})"


def column(values: Sequence[float | None], digits: int = 3) -> list[str]:
    """Format real numbers that stand below one another: equally many places after the point.

    The largest shows `digits` significant digits or more, the smallest one less. Where their sizes are too different
    for that, or amounts stand among fractions, each is formatted on its own.
    """
    finite = [real for real in map(_real, values) if real is not None and math.isfinite(real) and real != 0]
    largest = max(map(abs, finite), default=0.0)
    if not finite or not 1e-4 <= largest < 1e15:
        return [number(value, digits) for value in values]
    smallest = min(map(abs, finite))
    places = max(decimals(largest, digits), decimals(smallest, digits if largest < 10 * smallest else digits - 1))
    amounts = largest >= 100 * smallest and any(abs(real) >= 1 and real.is_integer() for real in finite)
    if amounts or places > digits + 1 or largest >= 1e4 * smallest:
        return [number(value, digits) for value in values]
    shown = [f"{real:.{places}f}" for real in finite]
    while places and all(text.endswith("0") for text in shown):
        shown, places = [text[:-1] for text in shown], places - 1
    formatted = []
    for value in values:
        real = _real(value)
        formatted.append(number(real) if real is None or math.isinf(real) else fixed(real, places))
    return formatted


def duration(seconds: float | None) -> str:
    """Format a time in seconds: ``420 ms``, ``12.3 s``, ``8 min 41 s``, ``2 h 5 min``, ``3 d 4 h``."""
    real = _real(seconds)
    if real is None or math.isinf(real):
        return number(real)
    if real < 0:
        return "-" + duration(-real)
    if real == 0:
        return "0 s"
    if real < 0.9995:
        milliseconds = 1000 * real
        return "<1 ms" if milliseconds < 1 else f"{milliseconds:.0f} ms"
    if real < 59.95:
        return f"{real:.1f}".removesuffix(".0") + " s"
    minutes, rest = divmod(round(real), 60)
    if minutes < 60:
        return _two(minutes, rest, "min", "s")
    hours, minutes = divmod(round(real / 60), 60)
    return _two(hours, minutes, "h", "min") if hours < 24 else _two(*divmod(round(real / 3600), 24), "d", "h")


def _two(large: int, small: int, unit: str, part: str) -> str:
    return f"{large:,} {unit}" + (f" {small} {part}" if small else "")


def size(bytes_: float | None) -> str:
    """Format an amount of memory or storage in decimal units: ``0 B``, ``12 kB``, ``580 MB``, ``1.35 GB``."""
    real = _real(bytes_)
    if real is None or math.isinf(real):
        return number(real)
    for unit in ("B", "kB", "MB", "GB", "TB", "PB"):
        if abs(real) < 999.5 or unit == "PB":
            break
        real /= 1000
    places = min(2, decimals(real)) if real and unit != "B" else 0
    return f"{_trim(f'{real:,.{places}f}')} {unit}"


def cell(value: Any, name: str = "") -> str:
    """Format one value of a table: yes or no, a whole number, a real number, text as it is, a dash where none is.

    `name` is its column's: whole numbers of the names in `PLAIN` are labels and carry no separators.
    """
    if value is None:
        return MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Integral):
        label = name.lower().replace("_", " ").split()
        return str(int(value)) if label and label[-1] in PLAIN else count(int(value))
    return number(float(value)) if isinstance(value, Real) else str(value)


def quantity(value: Any, unit: str = "", name: str = "") -> str:
    """Format a value with its unit; ``share`` (of one), ``s`` and ``bytes`` take the forms above."""
    if isinstance(value, Real) and not isinstance(value, bool):
        forms: dict[str, Callable[[float], str]] = {"share": share, "s": duration, "bytes": size}
        if unit in forms:
            return forms[unit](float(value))
    text = cell(value, name)
    return f"{text} {unit}" if unit and value is not None and unit not in ("share", "bytes") else text
