"""Stores, and small tables that pass their audits."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import polars as pl
import pytest

from gradatim.schemas.hashing import value_hash
from gradatim.storage.casting import Frame
from gradatim.storage.parts import fingerprint
from gradatim.storage.publish import Wanted
from gradatim.storage.store import Store
from gradatim.storage.tables import Dataset


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """An empty local store."""
    return Store.open(tmp_path / "store")


@pytest.fixture
def dataset(store: Store) -> Dataset:
    """An empty dataset."""
    return store.dataset("arith")


def examples(start: int, stop: int, **more: object) -> pl.DataFrame:
    """Rows e{start} to e{stop - 1} of the table `examples`, with further or other columns."""
    numbers = range(start, stop)
    frame = pl.DataFrame(
        {
            "example_id": [f"e{i:06d}" for i in numbers],
            "source_uri": ["items.jsonl"] * len(numbers),
            "source_row": list(numbers),
            "input": [f"what is {i} + 1" for i in numbers],
            "output": [str(i + 1) for i in numbers],
            "content_hash": [value_hash(i) for i in numbers],
        }
    )
    return frame.with_columns(
        pl.Series(name, values if isinstance(values, list) else [values] * len(numbers))
        for name, values in more.items()
    )


def made(name: str) -> str:
    """A fingerprint for a test's step."""
    return fingerprint(name, 1, "", [])


def want(name: str, *frames: Frame, group: str = "", ordered: bool = False) -> Wanted:
    """Ask for a result that yields `frames`."""
    return Wanted(made(name), lambda: iter(frames), group, ordered)


def never(name: str, group: str = "") -> Wanted:
    """Ask for a result that has to be there already."""

    def produce() -> Iterable[Frame]:
        raise AssertionError(f"{name} was computed again")

    return Wanted(made(name), produce, group)


@pytest.fixture
def with_examples(dataset: Dataset) -> Callable[[int], Dataset]:
    """Publish `n` examples, and return the dataset."""

    def fill(n: int) -> Dataset:
        dataset.publish("examples", [want("examples", examples(0, n))])
        return dataset

    return fill
