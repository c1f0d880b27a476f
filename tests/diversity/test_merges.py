"""Parts merge to the whole in any order and grouping, and the order of rows changes no bit of any measure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import pytest
from every_measure import healthy, measured, vectors_of
from hypothesis import given, settings
from hypothesis import strategies as st

from gradatim.tasks.core import reduce
from gradatim.tasks.core.ngrams import hash_words
from gradatim.tasks.core.registry import plugins
from gradatim.tasks.diversity import column_counts, contamination_retrieval, distinct_n, hill, self_repetition

ROWS = 90
TOLD = ["a b c", "b c d e", "a b c d e f g", "g f e", "", "c c c c"]
EVALUATION = ["a b c d e", "g f e d c b a", "c c c", "x y z"]


@dataclass(frozen=True)
class Parts:
    """A measure's partial and merge, with how two merged parts are told to be equal."""

    partial: Callable[[pl.DataFrame], Any]
    merge: Callable[[Sequence[Any]], Any]
    equal: Callable[[Any, Any], bool]


def rows_of(texts: Sequence[str], numbers: Sequence[float | None], sides: Sequence[int]) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "example_id": [f"e{i:03d}" for i in range(len(texts))],
            "text": pl.Series(texts, dtype=pl.String),
            "number": pl.Series(numbers, dtype=pl.Float64),
            "environment": pl.Series(sides, dtype=pl.Int32),
        }
    )


def same_counts(left: column_counts.Counts, right: column_counts.Counts) -> bool:
    return (left.kind, left.level) == (right.kind, right.level) and left.cells.equals(right.cells)


def same_sample(left: Any, right: Any) -> bool:
    return bool(left.rows.equals(right.rows) and (left.words, left.texts) == (right.words, right.texts))


def near(left: reduce.Moments, right: reduce.Moments) -> bool:
    return left.n == right.n and np.allclose(left.gram, right.gram, rtol=1e-12, atol=1e-9)


def figures(part: pl.DataFrame) -> np.ndarray:
    number = part["number"].fill_null(0.0).fill_nan(0.0).clip(-1e3, 1e3)
    return np.stack([number, part["environment"], np.ones(len(part))], axis=1).astype(np.float64)


INDEX = contamination_retrieval.build(contamination_retrieval.normalised(pl.Series(EVALUATION)), 3)
MEASURES = {
    "distinct_n": Parts(
        lambda part: distinct_n.partial(part.select("example_id", "text"), 40, 3),
        lambda parts: distinct_n.merge(parts, 40),
        same_sample,
    ),
    "hill": Parts(
        lambda part: hill.partial(part.select(category="text", by="environment")), hill.merge, pl.DataFrame.equals
    ),
    "self_repetition": Parts(
        lambda part: self_repetition.partial(hash_words(part["text"]), 2), self_repetition.merge, pl.DataFrame.equals
    ),
    "column_shift of numbers": Parts(
        lambda part: column_counts.partial(part["number"], part["environment"]), column_counts.merge, same_counts
    ),
    "column_shift of categories": Parts(
        lambda part: column_counts.partial(part["text"], part["environment"]), column_counts.merge, same_counts
    ),
    "contamination": Parts(
        lambda part: contamination_retrieval.partial(INDEX, part.select("text", train_id="example_id"), 3),
        lambda parts: contamination_retrieval.merge(parts, 3),
        pl.DataFrame.equals,
    ),
    "vendi": Parts(lambda part: reduce.moments([figures(part)]), reduce.merge, near),
}
"""Of the measures that are written part by part; sums of floats are near in any grouping, their bits are those of the
canonical order, as the next test holds."""


@pytest.mark.parametrize("name", MEASURES)
@settings(max_examples=20)
@given(found=st.data())
def test_parts_merge_to_the_whole_in_any_order_and_grouping(name: str, found: st.DataObject) -> None:
    measure = MEASURES[name]
    texts = found.draw(st.lists(st.sampled_from(TOLD), min_size=1, max_size=ROWS))
    numbers = found.draw(
        st.lists(st.none() | st.floats(width=32), min_size=len(texts), max_size=len(texts)), label="numbers"
    )
    sides = found.draw(st.lists(st.integers(0, 2), min_size=len(texts), max_size=len(texts)))
    frame = rows_of(texts, numbers, sides)
    whole = measure.merge([measure.partial(frame)])
    cuts = sorted(found.draw(st.lists(st.integers(1, len(frame)), max_size=4, unique=True)))
    bounds = zip([0, *cuts], [*cuts, len(frame)], strict=True)
    parts = [measure.partial(frame[a:b]) for a, b in bounds if b > a]
    shuffled = found.draw(st.permutations(parts))
    assert measure.equal(measure.merge(shuffled), whole)
    cut = found.draw(st.integers(1, len(parts)))
    grouped = [measure.merge(some) for some in (shuffled[:cut], shuffled[cut:]) if some]
    assert measure.equal(measure.merge(grouped[::-1]), whole)


@pytest.mark.parametrize("name", sorted(plugins("diversity")))
def test_the_order_of_rows_changes_no_bit_of_a_measure(name: str) -> None:
    frame = healthy()
    reads = any(need.startswith("features_") for need in plugins("diversity")[name].needs)
    vectors = vectors_of(frame) if reads else None
    whole = measured(name, frame, vectors)
    mixed = measured(
        name,
        frame.sample(fraction=1, shuffle=True, seed=4),
        vectors.sample(fraction=1, shuffle=True, seed=5) if vectors is not None else None,
    )
    assert mixed.statistics.equals(whole.statistics)
    assert mixed.table.equals(whole.table)
    assert (mixed.pairs is None) == (whole.pairs is None)
    assert whole.pairs is None or mixed.pairs.equals(whole.pairs)
    assert mixed.warnings == whole.warnings
