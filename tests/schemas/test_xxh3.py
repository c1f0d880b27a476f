"""The hash of a whole column is that of the package, text by text."""

from __future__ import annotations

import polars as pl
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from gradatim.schemas.hashing import random_bits
from gradatim.schemas.xxh3 import xxh3_64


@given(st.lists(st.binary(max_size=80), max_size=40), st.integers(0, 2**64 - 1), st.integers(0, 5))
def test_any_bytes_and_seeds_hash_as_the_package_does(texts: list[bytes], seed: int, skipped: int) -> None:
    column = pa.array(texts, pa.large_binary())[skipped:]
    assert xxh3_64(column, seed).tolist() == [xxhash.xxh3_64_intdigest(text, seed) for text in texts[skipped:]]


@pytest.mark.parametrize("seed", [0, 1, 2**63, 2**64 - 1])
def test_every_length_hashes_as_the_package_does(seed: int) -> None:
    texts = [bytes((7 * i + 31 * length) % 256 for i in range(length)) for length in range(140)]
    expected = [xxhash.xxh3_64_intdigest(text, seed) for text in texts]
    assert xxh3_64(pa.array(texts, pa.large_binary()), seed).tolist() == expected
    for text, number in zip(texts, expected, strict=True):  # one length at a time takes another way
        assert xxh3_64(pa.array([text, text], pa.large_binary()), seed).tolist() == [number, number]


def test_a_series_draws_as_a_list_does() -> None:
    names = ["", "a", "né", "q00001", "x" * 12, "y" * 30, "z" * 64, "ä" * 50, "v" * 300]
    many = names * 9000  # more than a chunk
    expected = random_bits(many, 3, "test").tolist()
    assert random_bits(pl.Series(many), 3, "test").tolist() == expected
    assert random_bits(pl.Series(many).slice(5, 20), 3, "test").tolist() == expected[5:25]
    assert random_bits(pl.Series(many).cast(pl.Categorical), 3, "test").tolist() == expected
    assert random_bits(pl.Series([], dtype=pl.String), 3, "test").tolist() == []
