"""The benchmarks' runner: one table, every benchmark, and an exit code that tells."""

from __future__ import annotations

import importlib.util
import io
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from gradatim.schemas.errors import UsageError

FOLDER = Path(__file__).parents[1] / "benchmarks"
spec = importlib.util.spec_from_file_location("benchmarks_main", FOLDER / "__main__.py")
assert spec is not None
assert spec.loader is not None
runner = importlib.util.module_from_spec(spec)
spec.loader.exec_module(runner)


def crash() -> Mapping[str, Any]:
    raise ValueError("no peer\nsecond line")


RUNS: dict[str, Callable[[], Mapping[str, Any]]] = {
    "good": lambda: {"ratio": 5.4321, "rows": 1234567, "inner": {"peak": 2345.6}, "at least 5": True},
    "slow": lambda: {"ratio": 0.5, "at least 5": False},
    "broken": crash,
}


def measured(*names: str) -> tuple[int, str]:
    out = io.StringIO()
    return runner.measure(list(names), RUNS.__getitem__, Console(file=out, width=120)), out.getvalue()


def test_figures_are_printed_short_and_the_exit_code_is_zero() -> None:
    code, text = measured("good")
    assert code == 0
    for shown in ("5.43", "1,234,567", "inner peak", "2,346", "holds"):
        assert shown in text


def test_a_missed_bound_is_said_and_the_exit_code_is_one() -> None:
    code, text = measured("good", "slow")
    assert code == 1
    assert "MISSED" in text
    assert "failed: slow" in text


def test_a_crash_does_not_stop_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    code, text = measured("broken", "good")
    assert code == 1
    assert "ValueError: no peer" in text
    assert "5.43" in text
    assert "failed: broken" in text
    assert "second line" in capsys.readouterr().err


def test_every_module_with_a_run_is_found_and_an_unknown_name_is_answered() -> None:
    known = runner.find(FOLDER)
    assert "imports" in known
    assert not [name for name in known if name.startswith("_")]
    assert runner.chosen([], known) == known
    assert runner.chosen(["imports"], known) == ["imports"]
    with pytest.raises(UsageError, match=r"no benchmark 'import' \(did you mean 'imports'\?\)"):
        runner.chosen(["import"], known)
