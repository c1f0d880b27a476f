"""Near-duplicates: recall and precision against brute force on real texts, components, giants, and bad input."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.tasks.core.registry import configure, get
from gradatim.tasks.diversity.result import Diversity


def run(examples: pl.DataFrame, vectors: Any = None, **options: Any) -> Diversity:
    plugin = get("diversity", "near_duplicates")
    tables = {"examples": examples}
    if vectors is not None:
        table = vectors if isinstance(vectors, pl.DataFrame) else pl.DataFrame(
            {"example_id": examples["example_id"], "embedding": vectors}
        )  # fmt: skip
        tables["features_e"] = table
    found: Diversity = plugin.run(tables, configure(plugin, options), 0)
    return found


def frame(texts: list[str | None]) -> pl.DataFrame:
    ids = [f"q{i:04d}" for i in range(len(texts))]
    return pl.DataFrame({"example_id": ids, "input": texts}, schema_overrides={"input": pl.String})


def edited(texts: list[str], edits: int, seed: int = 0) -> list[str]:
    """Some of the texts with one or two words changed, added or left out, or a sentence added."""
    random = np.random.default_rng(seed)
    made = []
    for row in random.choice(len(texts), edits, replace=False):
        words = texts[row].split(" ")
        for _ in range(int(random.integers(1, 3))):
            kind, place = random.integers(4), int(random.integers(len(words)))
            if kind == 0:
                words[place] = "other"
            elif kind == 1:
                words.insert(place, "very")
            elif kind == 2 and len(words) > 3:
                del words[place]
            else:
                words.append("Indeed.")
        made.append(" ".join(words))
    return made


def brute_force(texts: list[str], unit: str, size: int, threshold: float) -> dict[tuple[int, int], float]:
    """Every pair's Jaccard similarity, from sets of tuples and a sparse product."""
    from scipy.sparse import csr_array

    code: dict[tuple[str, ...], int] = {}
    rows: list[int] = []
    columns: list[int] = []
    for row, text in enumerate(texts):
        units = text.lower().split(" ") if unit == "words" else list(text.lower())
        for shingle in {tuple(units[i : i + size]) for i in range(max(1, len(units) - size + 1))}:
            rows.append(row)
            columns.append(code.setdefault(shingle, len(code)))
    held = csr_array((np.ones(len(rows)), (rows, columns)), shape=(len(texts), len(code)))
    count = np.bincount(rows, minlength=len(texts))
    both = (held @ held.T).tocoo()
    left, right, shared = both.row, both.col, both.data
    similarity = shared / (count[left] + count[right] - shared)
    true = (left < right) & (similarity >= threshold - 1e-9)
    return {(int(a), int(b)): float(s) for a, b, s in zip(left[true], right[true], similarity[true], strict=True)}


@pytest.mark.data
@pytest.mark.parametrize(
    ("unit", "size", "threshold"), [("words", 5, 0.8), ("words", 3, 0.5), ("characters", 5, 0.8), ("words", 2, 0.7)]
)
def test_on_real_texts_nearly_every_pair_of_brute_force_is_found_and_no_other(
    data: Path, unit: str, size: int, threshold: float
) -> None:
    winogrande = pl.read_parquet(data / "cartography_winogrande" / "winogrande_xl_train.parquet", n_rows=700)
    with gzip.open(data / "gsm8k" / "train.jsonl.gz", "rt") as file:
        questions = [json.loads(line)["question"] for line, _ in zip(file, range(300), strict=False)]
    base = [" ".join(text.split()) for text in [*winogrande["sentence"], *questions]]
    texts = list(dict.fromkeys([*base, *edited(base, 400)]))
    true = brute_force(texts, unit, size, threshold)
    d = run(frame(list(texts)), unit=unit, shingle=size, threshold=threshold)
    assert d.pairs is not None
    rows = d.pairs.select("left_id", "right_id", "similarity").rows()
    found = {(int(a[1:]), int(b[1:])): s for a, b, s in rows}
    assert len(true) > 200
    assert found.keys() <= true.keys()
    assert len(found) >= 0.995 * len(true)
    assert all(found[pair] == pytest.approx(true[pair], abs=1e-9) for pair in found)


def test_each_row_names_its_partner_its_similarity_and_its_component() -> None:
    texts: list[str | None] = [
        "a b c d e f g h i j",
        "z",
        None,
        "a b c d e f g h i k",
        "y",
        "z ",
        "a b c d e f g h i j!",
    ]
    d = run(frame(texts), threshold=0.7)
    assert d.table.select("example_id", "cluster", "nearest_id", "nearest_similarity").rows() == [
        ("q0000", 0, "q0003", round(5 / 7, 9)),
        ("q0001", 1, "q0005", 1.0),
        ("q0003", 0, "q0000", round(5 / 7, 9)),
        ("q0004", 2, None, None),
        ("q0005", 1, "q0001", 1.0),
        ("q0006", 0, "q0000", round(5 / 7, 9)),
    ]
    assert d.table["value"].equals(d.table["nearest_similarity"].alias("value"))
    assert d.value() == pytest.approx(3 / 6)
    assert d.value("near_duplicates_exact_share") == pytest.approx(1 / 6)
    assert d.value("near_duplicates_components") == 2
    assert d.value("near_duplicates_largest_share") == 0.5
    assert d.value("near_duplicates_pairs") == 4
    assert d.warnings == ("1 of 7 rows were not compared: the text has no word",)
    assert d.tables[0].rows == ((0, 3, round(5 / 7, 9), "q0000, q0003, q0006"), (1, 2, 1.0, "q0001, q0005"))
    assert d.plot("similarity").to_dict()
    assert d.plot("detection").to_dict()
    assert "near_duplicates_share 0.5 over 6 rows" in d.summary().to_dict()["headline"]


def test_exact_finds_copies_alone() -> None:
    d = run(frame(["a b c", "A b c", "a  b\tc", "", ""]), using="exact")
    assert d.pairs is not None
    assert d.pairs.select("left_id", "right_id", "method", "threshold").rows() == [("q0000", "q0002", "exact", 1.0)]
    assert "detection" not in d.pictures
    with pytest.raises(UsageError, match="no threshold"):
        run(frame(["a"]), using="exact", threshold=0.5)


def test_short_texts_are_one_shingle_so_only_equal_ones_pair() -> None:
    d = run(frame(["is it", "is it?", "Is it", "is"]), threshold=0.1, permutations=256, recall=0.9)
    assert d.pairs is not None
    assert d.pairs.select("left_id", "right_id").rows() == [("q0000", "q0002")]


def test_a_chain_that_ties_most_rows_is_cut_and_said() -> None:
    rows = 260
    words = [f"w{i}" for i in range(4 * rows)]
    texts: list[str | None] = [" ".join(words[3 * i : 3 * i + 24]) for i in range(rows)]  # neighbours share 7 of 8
    texts += [texts[0]]
    texts += [f"another {i} thing" for i in range(100)]
    d = run(frame(texts), shingle=3, threshold=0.6)
    assert d.value("near_duplicates_largest_share") < 0.5
    assert any("a component of 261 of 361 rows (with 'q0000') is a chain" in text for text in d.warnings)
    assert d.pairs is not None
    assert d.pairs.filter(method="exact").select("similarity", "threshold").rows() == [(1.0, 1.0)]
    counted = d.pairs["similarity"] >= d.pairs["threshold"]
    assert (counted.sum(), len(counted)) == (d.value("near_duplicates_pairs"), len(d.pairs))
    assert 0 < counted.sum() < len(counted)
    whole = run(frame(texts), shingle=3, threshold=0.6, giant=1.0)
    assert whole.value("near_duplicates_largest_share") == pytest.approx(261 / 361)
    assert whole.warnings == ()


def test_half_of_the_rows_being_one_text_is_said_and_not_cut() -> None:
    d = run(frame([*["the same text for all of them"] * 150, *[f"text {i}" for i in range(20)]]))
    assert any("no threshold parts them" in text for text in d.warnings)
    assert d.value("near_duplicates_pairs") == 149
    assert d.value("near_duplicates_largest_share") == pytest.approx(150 / 170)


@given(seed=st.integers(0, 10**6))
@settings(max_examples=8)
def test_the_order_of_rows_changes_nothing(seed: int) -> None:
    base = [f"w{i} w{i + 1} w{i + 2} w{i * 7 % 40} w{i * 3 % 40} w{i}" for i in range(60)]
    examples = frame([*base, *edited(base, 40), *base[:9]])
    mixed = examples.sample(fraction=1, shuffle=True, seed=seed)
    one, two = (run(rows, shingle=2, threshold=0.4) for rows in (examples, mixed))
    assert one.table.equals(two.table)
    assert one.pairs is not None
    assert one.pairs.equals(two.pairs)
    assert one.statistics.equals(two.statistics)
    random = np.random.default_rng(seed)
    vectors = random.normal(size=(20, 6)).astype("f4")[random.integers(0, 20, len(examples))]
    vectors[::2] += 0.2 * random.normal(size=vectors[::2].shape)
    table = examples.select("example_id").with_columns(embedding=pl.Series(vectors, dtype=pl.Array(pl.Float32, 6)))
    three, four = (run(examples, rows) for rows in (table, table.sample(fraction=1, shuffle=True, seed=seed)))
    assert three.table.equals(four.table)
    assert three.pairs is not None
    assert three.pairs.equals(four.pairs)


def test_embeddings_pair_by_cosine_and_equal_vectors_are_exact() -> None:
    vectors = [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 0.0], [0.1, 1.0], None]
    d = run(frame(["t"] * 6), pl.DataFrame({"example_id": [f"q{i:04d}" for i in range(6)], "embedding": vectors}))
    assert d.pairs is not None
    assert d.pairs.select("left_id", "right_id", "similarity", "method", "threshold").rows() == [
        ("q0000", "q0002", 1.0, "exact", 1.0),
        ("q0001", "q0004", round(1 / np.sqrt(1.01), 9), "embedding", 0.9),
    ]
    assert d.method == "near_duplicates(e)"
    assert any("2 of 6 rows were not compared: there is no vector, or one of zeros" in text for text in d.warnings)


def test_in_a_notebook_one_features_table_needs_no_name_and_two_are_an_error() -> None:
    examples = frame(["same", "same"])
    near = pl.DataFrame({"example_id": ["q0000", "q0001"], "embedding": [[1.0, 0.0], [0.0, 1.0]]})
    assert run(examples, near).value() == run(examples, near, features="e").value() == 0
    assert run(examples, near, using="minhash").value() == 0.5
    with pytest.raises(UsageError, match="there are 2 features: e, f"):
        get("diversity", "near_duplicates").run(
            {"examples": examples, "features_e": near, "features_f": near},
            configure(get("diversity", "near_duplicates"), {}),
            0,
        )


def test_bad_embeddings_are_refused_with_the_row() -> None:
    with pytest.raises(DataRefused, match="'q0001' holds NaN"):
        run(frame(["a", "b"]), [[1.0, 2.0], [float("nan"), 1.0]])
    with pytest.raises(DataRefused, match="has 1 numbers"):
        run(frame(["a", "b"]), [[1.0, 2.0], [1.0]])
    with pytest.raises(DataRefused, match="none of 2 examples can be compared"):
        run(frame(["a", "b"]), [[0.0, 0.0], [0.0, 0.0]])


def test_wrong_settings_and_sets_without_words_are_errors_that_say_what_to_do() -> None:
    with pytest.raises(UsageError, match="did you mean 'input'"):
        run(frame(["a"]), column="inputt")
    with pytest.raises(UsageError, match="holds Int64"):
        run(pl.DataFrame({"example_id": ["a"], "input": [1]}))
    with pytest.raises(UsageError, match="there are no features"):
        run(frame(["a"]), using="embedding")
    with pytest.raises(UsageError, match="features has no part"):
        run(frame(["a"]), using="minhash", features="e")
    with pytest.raises(UsageError, match="there are no features 'g'"):
        run(frame(["a"]), features="g")
    with pytest.raises(DataRefused, match="none of 2 examples can be compared: the text has no word"):
        run(frame(["", None]))
    with pytest.raises(DataRefused, match="none of 0 examples"):
        run(frame([]))
    with pytest.raises(DataRefused, match="stands twice"):
        run(pl.DataFrame({"example_id": ["a", "a"], "input": ["x", "y"]}))


def test_one_row_and_rows_that_are_all_equal() -> None:
    one = run(frame(["alone"]))
    assert one.value() == 0
    assert one.table.rows() == [("q0000", "near_duplicates", None, 0, None, None)]
    assert one.plot("similarity").to_dict()
    same = run(frame(["equal"] * 5))
    assert same.value() == pytest.approx(0.8)
    assert same.table["cluster"].to_list() == [0] * 5
