"""MinHash: the S-curve holds, bands fit the threshold, and crowds stay bounded."""

from __future__ import annotations

import numpy as np
import pytest

from gradatim.schemas.errors import UsageError
from gradatim.tasks.core.minhash import (
    CROWD,
    REACH,
    Bands,
    band_keys,
    band_pairs,
    choose_bands,
    crowded_apart,
    decoded,
    minima,
    pairs_between,
)
from gradatim.tasks.core.shingles import Hashes, Shingles

random = np.random.default_rng(0)


def sets(rows: int, size: int) -> Hashes:
    return random.integers(0, 2**64, size=(rows, size), dtype=np.uint64)


def flat(matrix: Hashes) -> Shingles:
    return Shingles(matrix.ravel(), np.arange(len(matrix) + 1) * matrix.shape[1])


def test_bands_are_those_of_the_published_curve() -> None:
    # Leskovec, Rajaraman, Ullman, figure 3.8 (20 bands of 5 rows), and the midpoint (1/14)^(1/8) = .72 of 14 x 8
    curve = Bands(20, 5).chance([0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8])
    assert curve.round(3).tolist() == [0.006, 0.047, 0.186, 0.470, 0.802, 0.975, 1.000]
    assert Bands(14, 8).chance((1 / 14) ** (1 / 8)) == pytest.approx(1 - (1 - 1 / 14) ** 14)


@pytest.mark.parametrize("threshold", [0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 1.0])
@pytest.mark.parametrize("recall", [0.9, 0.999])
def test_bands_reach_the_recall_with_no_band_too_many(threshold: float, recall: float) -> None:
    bands = choose_bands(threshold, 256, recall)
    assert bands.bands * bands.rows <= 256
    assert bands.chance(threshold) >= recall - 1e-9
    assert bands.bands == 1 or Bands(bands.bands - 1, bands.rows).chance(threshold) < recall


def test_a_threshold_that_so_few_permutations_do_not_reach_is_an_error() -> None:
    with pytest.raises(UsageError, match=r"do not find pairs of similarity 0\.01"):
        choose_bands(0.01, 128)
    with pytest.raises(UsageError, match="threshold 0"):
        choose_bands(0)


@pytest.mark.parametrize(("common", "alone"), [(8, 1), (6, 1), (40, 5), (4, 1), (5, 2), (90, 60)])
def test_minima_agree_as_often_as_sets_overlap_and_bands_as_the_curve_says(common: int, alone: int) -> None:
    rows = 6000 if common < 50 else 2000
    shared = sets(rows, common)
    one = flat(np.concatenate([shared, sets(rows, alone)], axis=1))
    two = flat(np.concatenate([sets(rows, alone), shared], axis=1))
    similarity = common / (common + 2 * alone)
    same = minima(one, 100) == minima(two, 100)
    spread = np.sqrt(similarity * (1 - similarity) / 100)
    assert same.mean() == pytest.approx(similarity, abs=4 * spread / np.sqrt(rows))
    assert same.mean(axis=1).std() == pytest.approx(spread, rel=0.1)  # as permutations that know nothing of another
    bands = Bands(8, 5)
    seen = (band_keys(one, bands) == band_keys(two, bands)).any(axis=1).mean()
    chance = float(bands.chance(similarity))
    assert seen == pytest.approx(chance, abs=4.5 * np.sqrt(chance * (1 - chance) / rows) + 1e-3)


def test_minima_do_not_depend_on_order_repetition_or_the_cut_into_pieces() -> None:
    values = sets(1, 700)[0]
    mixed = np.concatenate([random.permutation(values), values[:100]])
    empty = np.empty(0, np.uint64)
    found = minima(
        Shingles(np.concatenate([values, empty, mixed, values[:3]]), np.array([0, 700, 700, 1500, 1503])), 33
    )
    assert (found[0] == found[2]).all()
    assert (found[1] == 2**32 - 1).all()
    assert (found[0] <= found[3]).all()
    parts = [minima(Shingles(part, np.array([0, len(part)])), 33) for part in np.split(values, [1, 64, 300])]
    assert (np.minimum.reduce(parts)[0] == found[0]).all()


def test_band_pairs_are_all_pairs_of_small_bands_and_a_window_of_crowds() -> None:
    small = np.array([[1, 5], [2, 6], [1, 7], [1, 8], [3, 9]], dtype=np.uint64)
    pairs, crowded, left_out = band_pairs(np.arange(5), small[:, 0], small[:, 1], 5)
    assert sorted(map(tuple, decoded(pairs, 5).tolist())) == [(0, 2), (0, 3), (2, 3)]
    assert (len(crowded), left_out) == (0, 0)
    some = np.array([0, 2, 3])  # of ten rows, those of one range of keys
    pairs = band_pairs(some * 2, small[some, 0], np.zeros(10, np.uint64), 10)[0]
    assert sorted(map(tuple, decoded(pairs, 10).tolist())) == [(0, 4), (0, 6), (4, 6)]
    size = CROWD + 40
    crowd = np.stack([np.ones(size, np.uint64), random.permutation(size).astype(np.uint64)], axis=1)
    pairs, crowded, left_out = band_pairs(np.arange(size), crowd[:, 0], crowd[:, 1], size)
    assert len(pairs) == 0
    assert len(crowded) == REACH * size - REACH * (REACH + 1) // 2
    assert len(crowded) + left_out == size * (size - 1) // 2
    left, right = decoded(crowded, size).T
    assert (left < right).all()
    place = crowd[:, 1].astype(np.int64)
    assert np.abs(place[left] - place[right]).max() == REACH  # those that also agree in the next band come together


def test_pairs_of_a_crowd_that_nothing_ties_are_counted() -> None:
    size = CROWD + 6
    key = np.ones(size + 2, np.uint64)
    key[-2:] = 2
    assert crowded_apart(key, np.zeros(size + 2, np.int64)) == 0
    assert crowded_apart(key, np.arange(size + 2)) == size * (size - 1) // 2
    assert crowded_apart(key, np.append([1, 1], np.zeros(size, np.int64))) == 2 * (size - 2)


def test_pairs_between_old_and_new_are_those_of_the_whole_and_bounded_in_crowds() -> None:
    keys = random.integers(0, 40, size=(60, 3)).astype(np.uint64)
    found, left_out = pairs_between(keys[:20].T, keys[20:])
    true = {(i, j) for i in range(20) for j in range(40) if (keys[i] == keys[20 + j]).any()}
    assert set(map(tuple, found.tolist())) == true
    assert left_out == 0
    one = np.ones((2, 1), np.uint64)
    found, left_out = pairs_between(one.T, np.ones((CROWD + 5, 1), np.uint64))
    assert (len(found), left_out) == (2 * CROWD, 10)
    assert found[:, 1].max() == CROWD - 1
