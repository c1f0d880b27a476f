"""Fixtures of all rooms, and the one switch that turns skips into failures."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest
from hypothesis import settings

# a busy machine is slow, not wrong; the same examples in every run
settings.register_profile("gradatim", deadline=None, derandomize=True)
settings.load_profile("gradatim")

REQUIRED = {name.strip() for name in os.environ.get("GRADATIM_REQUIRE", "").split(",") if name.strip()}
"""What must be present: data, s3, postgres, train."""


def lacking(what: str, reason: str) -> None:
    """Skip the test with `reason`, or fail where GRADATIM_REQUIRE names `what`."""
    if what in REQUIRED:
        pytest.fail(f"GRADATIM_REQUIRE names {what!r}, but {reason}")
    pytest.skip(reason)


@pytest.fixture(scope="session")
def data() -> Path:
    """Folder of the shared reference data."""
    folder = Path(os.environ.get("GRADATIM_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not (folder / "FACTS.md").is_file():
        lacking("data", f"there is no reference data in {folder} (set GRADATIM_DATA)")
    return folder


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Tests marked `train` need torch and deepspeed."""
    if item.get_closest_marker("train"):
        for package in ("torch", "deepspeed"):
            if importlib.util.find_spec(package) is None:
                lacking("train", f"{package} is not installed (pip install 'gradatim[train]')")
