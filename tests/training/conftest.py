"""Fixtures of the training tests."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))


@pytest.fixture(autouse=True, scope="session")
def _quiet_workers() -> Iterator[None]:
    """Workers find the tests' own models, and two of them share two cores."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(HERE))
        patch.setenv("OMP_NUM_THREADS", "1")
        yield
