"""`python -m benchmarks [NAME ...]`: run the benchmarks and print one table.

A benchmark is a module of this folder with ``run() -> dict``: names of numbers, and bounds as true or false. A missed
bound or a crash does not stop the others, but the exit code is 1.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from gradatim.schemas.errors import UsageError, nearest


def find(folder: Path) -> list[str]:
    """Return the names of the benchmarks in a folder."""
    return sorted(
        module.name
        for module in pkgutil.iter_modules([str(folder)])
        if not module.name.startswith("_") and "def run(" in (folder / f"{module.name}.py").read_text(encoding="utf-8")
    )


def chosen(names: list[str], known: list[str]) -> list[str]:
    """Return the benchmarks to run: all of them if none is named."""
    for name in names:
        if name not in known:
            raise UsageError(f"there is no benchmark {name!r}{nearest(name, known)}", expected=", ".join(known))
    return names or known


def flatten(figures: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Flatten nested figures: ``{"a": {"b": 1}}`` to ``{"a b": 1}``."""
    flat: dict[str, Any] = {}
    for key, value in figures.items():
        name = f"{above} {key}".strip()
        flat.update(flatten(value, name) if isinstance(value, Mapping) else {name: value})
    return flat


def shown(value: Any) -> str:
    """Show a figure with three significant digits, a bound as holds or MISSED."""
    if isinstance(value, bool):
        return "holds" if value else "MISSED"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def measure(names: list[str], load: Callable[[str], Callable[[], Mapping[str, Any]]], console: Console) -> int:
    """Run benchmarks one after the other and print the table; returns the exit code."""
    table = Table("benchmark", "figure", "value", box=None, header_style="bold")
    failed = []
    for name in names:
        console.print(f"{name} ...", style="dim")
        start = time.perf_counter()
        try:
            figures = flatten(load(name)())
        except Exception as error:
            traceback.print_exc()
            figures = {"crashed": f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"}
            failed.append(name)
        if any(value is False for value in figures.values()):
            failed.append(name)
        figures["took (s)"] = time.perf_counter() - start
        for row, (figure, value) in enumerate(figures.items()):
            table.add_row("" if row else name, figure, shown(value), style="red" if value is False else "")
        table.add_row()
    console.print(table)
    if failed:
        console.print(f"failed: {', '.join(failed)}", style="red")
    return 1 if failed else 0


def _load(name: str) -> Callable[[], Mapping[str, Any]]:
    run: Callable[[], Mapping[str, Any]] = importlib.import_module(f"benchmarks.{name}").run
    return run


def main(arguments: list[str]) -> int:
    """Run what the command line names."""
    try:
        names = chosen(arguments, find(Path(__file__).parent))
    except UsageError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return measure(names, _load, Console())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
