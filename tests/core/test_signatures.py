"""Near-duplicates of texts: signatures row by row, every pair verified, new against all equal to all at once."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.tasks.core import minhash, near_duplicates, signature_files
from gradatim.tasks.core.components import components
from gradatim.tasks.core.near_duplicates import Compared, Scheme, Texts, compare, signatures

SCHEME = Scheme(threshold=0.5, shingle=2)


def frame(texts: list[str | None], first: int = 0) -> pl.DataFrame:
    ids = [f"q{i + first:04d}" for i in range(len(texts))]
    return pl.DataFrame({"example_id": ids, "text": texts}, schema_overrides={"text": pl.String})


def reader(examples: pl.DataFrame, asked: list[str] | None = None) -> Texts:
    def texts(ids: pl.Series) -> pl.DataFrame:
        if asked is not None:
            asked.extend(ids.to_list())
        return examples.filter(pl.col("example_id").is_in(ids.implode()))

    return texts


def found(compared: Compared) -> dict[tuple[str, str], tuple[float, str]]:
    columns = ("left_id", "right_id", "similarity", "method")
    return {(a, b): (s, m) for a, b, s, m in compared.pairs.select(columns).rows()}


def sentences(rows: int, seed: int = 0) -> list[str | None]:
    """Texts of which every third is an edit or a copy of an earlier one."""
    random = np.random.default_rng(seed)
    texts: list[str] = []
    for row in range(rows):
        words = [f"w{i}" for i in random.integers(0, 2000, 12)]
        if row % 3 == 2:
            words = texts[int(random.integers(len(texts)))].split(" ")
            if row % 2:
                words[int(random.integers(len(words)))] = "other"
        texts.append(" ".join(words))
    return list(texts)


def test_every_pair_names_its_similarity_and_how_it_was_found() -> None:
    examples = frame(["a b c d", "a b c e", "A  B c d", "a b c d ", "x y", "", None, " \u3000"])
    kept = signatures(examples, SCHEME)
    assert kept.filter(pl.col("digest").is_null())["example_id"].to_list() == ["q0005", "q0006", "q0007"]
    compared = compare(kept, reader(examples), SCHEME)
    assert found(compared) == {
        ("q0000", "q0001"): (0.5, "minhash"),
        ("q0000", "q0002"): (1.0, "minhash"),
        ("q0000", "q0003"): (1.0, "exact"),
        ("q0001", "q0002"): (0.5, "minhash"),
    }
    assert compared.pairs["threshold"].to_list() == [0.5, 0.5, 1.0, 0.5]
    assert set(compared.pairs["kind"]) == {"near_duplicate"}


def test_signatures_of_parts_are_those_of_the_whole_whatever_the_order_of_rows() -> None:
    examples = frame(sentences(90))
    whole = signatures(examples, SCHEME)
    parts = [signatures(part, SCHEME) for part in (examples[50:].reverse(), examples[:50])]
    assert pl.concat(parts).sort("example_id").equals(whole)


@given(cuts=st.lists(st.integers(0, 120), max_size=4), mixed=st.randoms(use_true_random=False))
@settings(max_examples=10)
def test_new_against_all_night_by_night_finds_the_components_of_all_at_once(cuts: list[int], mixed: object) -> None:
    examples = frame(sentences(120)).sample(fraction=1, shuffle=True, seed=mixed.randrange(10**6))  # type: ignore[attr-defined]
    texts = reader(examples)
    whole = found(compare(signatures(examples, SCHEME), texts, SCHEME))
    kept: list[pl.DataFrame] = []
    pairs: dict[tuple[str, str], tuple[float, str]] = {}
    ends = [0, *sorted(cuts), len(examples)]
    for start, stop in pairwise(ends):
        new = signatures(examples[start:stop], SCHEME)
        pairs |= found(compare(new, texts, SCHEME, kept))
        kept.append(new)
    ids = sorted(examples["example_id"])
    labels = [components(len(ids), [(ids.index(a), ids.index(b)) for a, b in some]).tolist() for some in (pairs, whole)]
    assert labels[0] == labels[1]
    assert all(pairs[pair] == whole[pair] for pair in pairs.keys() & whole.keys())


def test_only_candidates_are_read_and_old_rows_are_not_compared_with_one_another() -> None:
    old, new = frame(sentences(60)), frame([sentences(60)[7], "z1 z2 z3 z4", "z1 z2 z3 z5"], first=900)
    asked: list[str] = []
    kept = signatures(old, SCHEME)
    compared = compare(signatures(new, SCHEME), reader(pl.concat([old, new]), asked), SCHEME, kept)
    rows = found(compared)
    assert ("q0901", "q0902") in rows
    assert any(right == "q0900" and method == "exact" for (_, right), (_, method) in rows.items())
    assert all(right >= "q0900" for _, right in rows)
    assert len(set(asked)) < 10
    assert found(compare(kept, reader(old), SCHEME, kept)) == found(compare(kept, reader(old), SCHEME))  # once more


def test_signatures_of_other_settings_are_refused() -> None:
    examples = frame(["a b", "a c"])
    other = signatures(examples, Scheme(threshold=0.5, shingle=3))
    with pytest.raises(UsageError, match="other settings"):
        compare(signatures(examples, SCHEME), reader(examples), SCHEME, other)
    assert Scheme(threshold=0.5, shingle=2, recall=0.99).name != SCHEME.name
    with pytest.raises(DataRefused, match="stands twice"):
        signatures(pl.concat([examples, examples]), SCHEME)
    near = frame(["a b c d", "a b c e"])
    kept = signatures(near, SCHEME)
    with pytest.raises(UsageError, match="no text of 'q0001'"):
        compare(kept, reader(near[:1]), SCHEME)


def test_signatures_are_those_of_the_first_release() -> None:
    # they are kept for years: who changes one on purpose raises REVISION
    kept = signatures(frame(["The quick brown fox jumps over the lazy dog", "1 + 2", "\u00e9t\u00e9"]), Scheme())
    assert Scheme().name == "8cee82caeb7392b3ebd7853f0f0c4d0f"
    assert [f"{bands.to_numpy().sum():016x}" for bands in kept["bands"]] == [
        "5f0164d12fb060a4",
        "eec89188581381d0",
        "698c9068d81066c4",
    ]


def test_signatures_without_bands_compare_copies_alone() -> None:
    examples = frame(["a b c d", "a b c e", "a b c d "])
    plain = signatures(examples, SCHEME, banded=False)
    assert list(found(compare(plain, reader(examples), SCHEME))) == [("q0000", "q0002")]
    with pytest.raises(UsageError, match="have no bands"):
        compare(signatures(frame(["x"], 9), SCHEME), reader(examples), SCHEME, plain)


def test_a_crowd_is_tied_together_without_all_its_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(minhash, "CROWD", 10)
    monkeypatch.setattr(minhash, "REACH", 3)
    base = [f"w{i}" for i in range(40)]
    texts: list[str | None] = [" ".join([*base, f"end{i}"]) for i in range(200)]
    examples = frame([*texts, "quite another text"])
    scheme = Scheme(shingle=2)
    compared = compare(signatures(examples, scheme), reader(examples), scheme)
    ids = examples["example_id"].to_list()
    labels = components(
        201, [(ids.index(a), ids.index(b)) for a, b in compared.pairs.select("left_id", "right_id").rows()]
    )
    assert labels.tolist() == [0] * 200 + [1]
    assert compared.candidates < 5000 < compared.left_out
    assert compared.untied == 0
    assert (compared.pairs["similarity"] == round(39 / 41, 9)).all()


def test_nothing_to_compare_is_no_error() -> None:
    for texts in ([], [None, ""], ["one"]):
        examples = frame(list(texts))
        kept = signatures(examples, SCHEME)
        assert compare(kept, reader(examples), SCHEME, kept[:0]).pairs.is_empty()
        assert compare(kept, reader(examples), SCHEME, []).candidates == 0


@pytest.mark.parametrize("banded", [True, False])
def test_parts_in_any_order_and_small_ranges_find_what_the_whole_finds(
    monkeypatch: pytest.MonkeyPatch, banded: bool
) -> None:
    examples = frame([*sentences(400), None, "", "one", "one "])
    kept = signatures(examples, SCHEME, banded=banded)
    new, old = kept[150:], kept[:200]  # ids that are in both are new
    true = [compare(kept, reader(examples), SCHEME), compare(new, reader(examples), SCHEME, old)]
    assert len(true[0].pairs) > 100 * banded
    monkeypatch.setattr(signature_files, "ROWS", 37)
    monkeypatch.setattr(near_duplicates, "ROWS", 37)
    monkeypatch.setattr(signature_files, "SLICE", 50)
    monkeypatch.setattr(near_duplicates, "_VERIFIED", 11)
    mixed = kept.sample(fraction=1, shuffle=True, seed=3)
    for whole, some in [(mixed, None), (kept.lazy(), None), (mixed.iter_slices(90), None), (new, old.iter_slices(33))]:
        found_here = compare(whole, reader(examples), SCHEME, () if some is None else some)
        assert found_here.pairs.equals(true[some is not None].pairs)
        assert found_here.candidates == true[some is not None].candidates


def test_an_id_in_two_parts_and_parts_with_and_without_bands_are_refused() -> None:
    examples = frame(["a b c d", "a b c e", "x y"])
    kept = signatures(examples, SCHEME)
    with pytest.raises(DataRefused, match="'q0001' stands twice"):
        compare([kept[:2], kept[1:]], reader(examples), SCHEME)
    with pytest.raises(UsageError, match="some signatures have bands"):
        compare([kept[:1], signatures(examples[1:], SCHEME, banded=False)], reader(examples), SCHEME)


def test_ranges_of_hashes_hold_every_row_once_and_equal_hashes_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signature_files, "ROWS", 10)
    values = np.random.default_rng(0).integers(0, 2**64, 300, dtype=np.uint64)
    values[::7] = values[0]
    values[1:3] = 0, 2**64 - 1
    among = np.arange(300) % 5 > 0
    parts = list(signature_files.by_range(values, among))
    assert len(parts) > 10
    assert sorted(np.concatenate(parts).tolist()) == np.flatnonzero(among).tolist()
    assert all((np.diff(part) > 0).all() for part in parts)
    seen = [set(values[part].tolist()) for part in parts]
    assert sum(map(len, seen)) == len(set.union(*seen))
