"""Frames on disk are those in memory, whatever they hold and however they come."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradatim.schemas.errors import UsageError
from gradatim.tasks.core import mapped, row_numbers
from gradatim.tasks.core.mapped import collected, taken
from gradatim.tasks.core.row_numbers import by_code, codes_of, counted, matched, smallest, twice, windows

ROWS = 1000
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep nothing in memory, and look at few rows together."""
    for module in (mapped, row_numbers):
        monkeypatch.setattr(module, "HELD", 0)
        monkeypatch.setattr(module, "SLICE", 37)
    monkeypatch.setattr(mapped, "rows_together", lambda _, most: 37)


def table(rows: int = ROWS) -> pl.DataFrame:
    random = np.random.default_rng(0)
    return pl.DataFrame(
        {
            "example_id": [f"e{i:05d}" for i in random.permutation(rows)],
            "text": [None if i % 7 == 0 else "x" * (i % 40) + f"{i}é" for i in range(rows)],
            "vector": pl.Series(
                [None if i % 11 == 0 else [float(i), 2.0] for i in range(rows)], dtype=pl.Array(pl.Float32, 2)
            ),
            "number": [None if i % 5 == 0 else i for i in range(rows)],
            "list": [[i] for i in range(rows)],
            "truth": [i % 3 == 0 for i in range(rows)],
            "real": np.arange(rows) / 2,
        }
    )


@pytest.mark.parametrize("rows", [0, 1, 2, 37, ROWS])
def test_a_table_on_disk_is_the_sorted_one(rows: int) -> None:
    frame = table(rows)
    by_id = frame.sort("example_id")
    assert collected(frame.lazy()).equals(by_id)
    assert collected(by_id.lazy()).equals(by_id)
    assert collected([part.lazy() for part in frame.iter_slices(111)] or frame.lazy()).equals(by_id)
    assert set(collected(frame.lazy()).n_chunks("all")) <= {1}


def test_long_texts_lie_behind_several_buffers_and_rows_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapped, "TEXTS", 500)
    frame = table()
    found = collected(frame.lazy())
    assert found.equals(frame.sort("example_id"))
    rows = np.array([3, 3, 999, 0])
    assert taken(found, rows).equals(found[rows])


def test_equal_ids_keep_their_order_and_a_full_disk_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    frame = table().with_columns(example_id=pl.col("example_id").str.head(5))
    assert collected(frame.lazy()).equals(frame.sort("example_id", maintain_order=True))

    class Full:
        def write(self, _: object) -> None:
            raise OSError(28, "No space left on device")

    with pytest.raises(UsageError, match=r"(?s)No space left on device.*TMPDIR"):
        mapped._write(Full(), np.zeros(3))


@settings(max_examples=40, deadline=None)
@given(st.lists(TEXT, unique=True, max_size=120), st.lists(TEXT, unique=True, max_size=120))
def test_ids_are_matched_as_by_a_join(left: list[str], right: list[str]) -> None:
    one, other = (pl.Series("id", sorted(ids, key=str.encode), dtype=pl.String) for ids in (left, right + left[::2]))
    other = other.unique().sort()
    at, place = matched(one, other)
    assert one.gather(at).equals(other.gather(place))
    assert set(one.gather(at)) == set(left) & set(other)
    assert (np.diff(at) > 0).all()


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(-1, 5), max_size=200))
def test_numbers_of_rows_are_those_of_whole_arrays(found: list[int]) -> None:
    codes = np.array(found, dtype=np.int64)
    rows, starts = by_code(codes, 6)
    order = np.argsort(codes, kind="stable")
    assert rows.tolist() == order[codes[order] >= 0].tolist()
    assert np.diff(starts).tolist() == [int((codes == i).sum()) for i in range(6)]
    assert smallest(codes, 10).tolist() == sorted(order[:10].tolist())
    if len(codes) > 3:
        spans = [(0, 2), (1, len(codes)), (2, 3)]
        assert [part.tolist() for part in windows(codes, spans)] == [order[a:b].tolist() for a, b in spans]
    texts = pl.Series([None if i < 0 else str(i) for i in found], dtype=pl.String)
    assert codes_of(texts, list("012345")).tolist() == found
    assert dict(counted(texts).rows()) == {str(i): found.count(i) for i in range(6) if i in found}
    ids = pl.Series(sorted(map(str, found)), dtype=pl.String)
    again = ids.filter((ids == ids.shift(1)).fill_null(False))
    assert twice(ids) == (again[0] if len(again) else None)
