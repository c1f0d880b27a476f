"""Inductive-bias complexity: published rows, the estimators it rests on, and the plug-in."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.schemas.recipe import Step
from gradatim.tasks.core.registry import resolve
from gradatim.tasks.difficulty import inductive_bias
from gradatim.tasks.difficulty.inductive_bias import InductiveBiasConfig, run
from gradatim.tasks.difficulty.result import Difficulty
from gradatim.tasks.difficulty.task_bias import class_resolution
from gradatim.tasks.difficulty.task_bias.bits import classification_bits, control_bits
from gradatim.tasks.difficulty.task_bias.class_resolution import extreme_value_resolution, nearest_other_class
from gradatim.tasks.difficulty.task_bias.intrinsic_dimension import intrinsic_dimension

IMAGENET = (943.5923, 48, 1000, 65)
IMAGES = {
    "MNIST": ((60000, 17.179045827183984, 14, 10, 2.3987084824335305, 0.001), 1.484804e16, 6),
    "SVHN": ((73257, 53.86932485133339, 19, 10, 1.5766998174969105, 0.01), 1.212903e31, 6),
    "CIFAR10": ((50000, 54.9156786783691, 27, 10, 2.7506414616587023, 0.01), 3.437718e32, 6),
    "ImageNet": ((1280901, *IMAGENET, 0.1), 3.583253e41, 6),
    "ImageNet at .0906": ((1280901, *IMAGENET, 0.0906), 3.6037e41, 4),
    "ImageNet of 1e10": ((1e10, *IMAGENET, 0.1), 3.5446e41, 4),
}
CONTROL = {
    **{
        f"cartpole T={t}": ((10_000, 2 * t, 1), bits)
        for t, bits in enumerate([4.4147e9, 3.3257e17, 1.4639e25, 4.6891e32, 1.1873e40], start=1)
    },
    "Reacher": ((1_000_000, 6, 2), 2.9142e25),
    "Hopper": ((1_000_000, 15, 4), 7.6130e58),
    "Half-Cheetah": ((1_000_000, 17, 6), 1.7184e66),
}


def _ids(n: int) -> pl.Series:
    return pl.Series([f"e{i:05d}" for i in range(n)])


# --- published numbers


@pytest.mark.parametrize("task", IMAGES)
def test_image_tasks_have_their_bits(task: str) -> None:
    given_, bits, digits = IMAGES[task]
    assert classification_bits(*given_).bits == pytest.approx(bits, rel=0.51 * 10**-digits)


@pytest.mark.parametrize("task", CONTROL)
def test_control_tasks_have_their_bits(task: str) -> None:
    given_, bits = CONTROL[task]
    assert control_bits(*given_).bits == pytest.approx(bits, rel=0.51e-4)


def test_the_intermediate_numbers_of_mnist() -> None:
    found = classification_bits(*IMAGES["MNIST"][0])
    assert found.frequency == pytest.approx(44.99885, abs=5e-6)
    assert found.degree == pytest.approx(38.96588, abs=5e-6)
    assert found.bits_per_dimension == pytest.approx(19.97527, abs=5e-6)
    harmonics = (10**found.log10_dimensions + 60000 * 9) / (2 * 9 * 10)
    assert harmonics == pytest.approx(4.12956e12, rel=2e-6)


# --- laws of the formula


@given(
    st.floats(1, 1e9),
    st.floats(0.1, 1e3),
    st.floats(1, 400),
    st.integers(2, 1000),
    st.floats(1e-3, 1),
    st.floats(1e-4, 0.5),
)
@settings(max_examples=30)
def test_bits_grow_with_dimension_and_precision_and_never_overflow(
    n: float, radius: float, m: float, classes: int, share: float, epsilon: float
) -> None:
    bits = classification_bits(n, radius, m, classes, share * radius, epsilon)
    finer = classification_bits(n, radius, m, classes, share * radius / 2, epsilon)
    better = classification_bits(n, radius, m, classes, share * radius, epsilon / 2)
    for more in (finer, better):
        assert np.isnan(bits.log10_bits) or more.log10_bits > bits.log10_bits
    higher = classification_bits(n, radius, m + 1, classes, share * radius, epsilon)
    if bits.frequency > 2 * m:  # below, classes are too coarse for their harmonics to reach far
        assert np.isnan(bits.log10_dimensions) or higher.log10_dimensions > bits.log10_dimensions
    rescaled = classification_bits(n, radius * 7, m, classes, share * radius * 7, epsilon)
    assert rescaled.log10_dimensions == pytest.approx(bits.log10_dimensions, nan_ok=True)


def test_enough_data_leave_nothing_and_nonsense_is_named() -> None:
    nothing = classification_bits(1e30, 1.0, 2, 2, 1.0, 0.1)
    assert np.isnan(nothing.log10_bits)
    assert nothing.bits == 0.0
    assert classification_bits(100, 1.0, 2000, 10, 1e-3, 0.01).bits == np.inf
    for given_ in ((0, 1, 2, 2, 1, 0.1), (1, 1, 0.5, 2, 1, 0.1), (1, 1, 2, 1, 1, 0.1), (1, 1, 2, 2, 0, 0.1)):
        with pytest.raises(UsageError):
            classification_bits(*given_)


# --- the estimators


def test_the_dimension_is_that_of_the_definition_and_ignores_equal_vectors() -> None:
    x = np.random.default_rng(0).normal(size=(300, 3)).astype(np.float32)
    away = np.sort(cdist(x.astype(float), x.astype(float)), axis=1)
    expected = 1 / np.mean(np.log(away[:, 5:6] / away[:, 1:5]))
    found = intrinsic_dimension(x, _ids(300))
    assert found.value == pytest.approx(expected, rel=1e-6)
    twice = intrinsic_dimension(np.concatenate([x, x]), _ids(600))
    assert twice.value == pytest.approx(expected, rel=1e-6)
    assert twice.equal == 300


@pytest.mark.parametrize("m", [1, 2, 5])
def test_the_dimension_of_a_cube_in_a_wide_space_is_its_own(m: int) -> None:
    random = np.random.default_rng(m)
    turn, _ = np.linalg.qr(random.normal(size=(20, 20)))
    x = random.random((4000, m)) @ turn[:m] * 3 + 1
    assert intrinsic_dimension(x, _ids(4000), sample=2000).value == pytest.approx(m, rel=0.08)


def test_a_dimension_that_cannot_be_told_is_refused() -> None:
    with pytest.raises(DataRefused, match="equally far"):
        intrinsic_dimension(np.eye(12), _ids(12))
    with pytest.raises(DataRefused, match="only 1 of 12"):
        intrinsic_dimension(np.ones((12, 3)), _ids(12))
    with pytest.raises(UsageError):
        intrinsic_dimension(np.eye(12), _ids(12), k=1)


@pytest.mark.parametrize("classes", [2, 40])
def test_the_nearest_of_another_class_is_that_of_brute_force(classes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(class_resolution, "NEAR", 4)  # so that some rows need the second look
    random = np.random.default_rng(classes)
    x, label = random.normal(size=(500, 4)).astype(np.float32), random.integers(0, classes, 500)
    x += (3 * np.eye(4)[label % 4]).astype(np.float32)
    away = cdist(x.astype(float), x.astype(float))
    away[label[:, None] == label] = np.inf
    found = nearest_other_class(x, label, _ids(500), np.arange(500))
    assert found == pytest.approx(away.min(axis=1), abs=1e-7)
    some = np.arange(0, 500, 3)
    assert nearest_other_class(x, label, _ids(500), some) == pytest.approx(away[:, some].min(axis=1), abs=1e-7)


@pytest.mark.parametrize(("d", "gap"), [(2, 1.3), (6, 1.3)])
def test_the_tail_of_a_sample_tells_the_smallest_distance_of_the_whole(d: int, gap: float) -> None:
    """The smallest of a sample of two cubes a gap apart is too large; the estimate is right on average."""
    errors = []
    for seed in range(10):
        random = np.random.default_rng(seed)
        x = random.random((4000, d))
        x[2000:, 0] += gap
        label = np.repeat([0, 1], 2000)
        true = cdist(x[:2000], x[2000:]).min()
        some = random.choice(4000, 800, replace=False)
        found = extreme_value_resolution(x[some], label[some], np.array([2000, 2000]))
        assert found.minimum >= true
        assert found.pairs == 4_000_000
        errors.append((np.log(min(found.value, found.minimum) / true), np.log(found.minimum / true)))
    ours, smallest = np.mean(errors, axis=0)
    assert abs(ours) < smallest / 3


def test_the_tail_follows_its_formula() -> None:
    x = np.linspace(0, 1, 60)[:, None] ** 2
    label = np.arange(60) % 2
    away = cdist(x, x)[(np.arange(60)[:, None] < np.arange(60)) & (label[:, None] != label)]
    found = extreme_value_resolution(x, label, np.array([300, 300]))
    assert (found.sample, found.k, found.pairs) == (900, 20, 90_000)
    largest = np.sort(1 / away)[::-1]
    excess = np.log(largest[:20]) - np.log(largest[20])
    m1, m2 = excess.mean(), (excess**2).mean()
    g = m1 + 1 - 0.5 / (1 - m1**2 / m2)
    scale = largest[20] * m1 * (1 if g >= 0 else 1 - g)
    level = largest[20] + scale * ((20 * 90_000 / 900) ** g - 1) / g
    assert found.index == pytest.approx(g)
    assert found.value == pytest.approx(1 / level)


# --- the plug-in


def _tables(n: int = 400, gap: float = 1.0, seed: int = 0) -> dict[str, pl.DataFrame]:
    random = np.random.default_rng(seed)
    label = random.integers(0, 4, n)
    x = random.random((n, 3)) + gap * np.eye(4, 3)[label] * 2
    ids = _ids(n)
    return {
        "features_small": pl.DataFrame({"example_id": ids, "embedding": x.astype(np.float32)}),
        "examples": pl.DataFrame({"example_id": ids, "kind": [f"k{c}" for c in label]}),
    }


def _run(tables: dict[str, pl.DataFrame], **given_: object) -> Difficulty:
    return run(tables, InductiveBiasConfig.model_validate({"features": "small", "label": "kind", **given_}))


def _statistic(d: Difficulty, metric: str, subset: str = "all") -> float:
    assert d.statistics is not None
    return float(d.statistics.filter((pl.col("metric") == metric) & (pl.col("subset") == subset))["value"][0])


def test_the_task_has_its_bits_and_each_example_its_distance_to_another_class() -> None:
    tables = _tables()
    x = tables["features_small"]["embedding"].to_numpy().astype(float)
    label = tables["examples"]["kind"].to_numpy()
    away = cdist(x, x)
    away[label[:, None] == label] = np.inf
    d = _run(tables)
    assert d.table["raw"].to_numpy() == pytest.approx(away.min(axis=1), abs=1e-7)
    assert d.table["value"].to_numpy() == pytest.approx(-away.min(axis=1), abs=1e-7)
    assert d.table["n"].to_list() == [(label != own).sum() for own in label]
    m = np.rint(_statistic(d, "intrinsic_dimension_estimate"))
    radius = np.linalg.norm(x, axis=1).max()
    expected = classification_bits(400, radius, m, 4, away.min(), 0.01)
    assert _statistic(d, "log10_bits") == pytest.approx(expected.log10_bits)
    assert _statistic(d, "class_resolution") == pytest.approx(away.min())
    assert _statistic(d, "nearest_other_class", "kind=k2") == pytest.approx(away.min(axis=1)[label == "k2"].min())
    assert any("an order of tasks" in w for w in d.warnings)
    assert "log10" in str(d.summary().facts)
    shuffled = {name: frame.sample(fraction=1, shuffle=True, seed=1) for name, frame in tables.items()}
    again = _run(shuffled)
    assert again.table.equals(d.table)
    assert d.statistics is not None
    assert again.statistics is not None
    assert again.statistics.equals(d.statistics)


def test_nearer_classes_and_more_of_them_ask_for_more_bits() -> None:
    wide, narrow = (_statistic(_run(_tables(gap=gap), dimension=3), "log10_bits") for gap in (1.0, 0.2))
    assert narrow > wide
    at = [_statistic(_run(_tables(), dimension=3, epsilon=e), "log10_bits") for e in (0.1, 0.01, 0.001)]
    assert all(a < b for a, b in pairwise(at))


def test_numbers_that_are_given_are_used() -> None:
    n, radius, m, _, delta, epsilon = IMAGES["MNIST"][0]
    d = _run(_tables(), n=n, radius=radius, dimension=m, resolution=delta, epsilon=epsilon)
    assert _statistic(d, "log10_bits") == pytest.approx(classification_bits(n, radius, m, 4, delta, epsilon).log10_bits)
    assert d.notes["class resolution is"] == "given"


def test_many_examples_are_compared_with_a_sample_and_extreme_values_step_in(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = _tables(6000, gap=0.6)
    whole = _run(tables)
    monkeypatch.setattr(inductive_bias, "PAIRS", 6000 * 2500)
    d = _run(tables, pairs=500_000)
    assert d.notes["examples that each is compared with, a sample"] == 2500
    assert len(d.table) == 6000
    assert (d.table["raw"].to_numpy() >= whole.table["raw"].to_numpy() - 1e-9).all()
    assert _statistic(d, "class_resolution") <= _statistic(d, "class_resolution_minimum")
    assert str(d.notes["class resolution is"]).startswith(("extreme-value", "smallest that was found"))
    assert _statistic(_run(tables, resolution="extreme_value"), "class_resolution") > 0


def test_equal_vectors_of_two_classes_are_flagged() -> None:
    tables = _tables()
    first = tables["features_small"]["embedding"][0].to_list()
    other = tables["examples"].filter(pl.col("kind") != tables["examples"]["kind"][0])["example_id"][0]
    vectors = tables["features_small"].with_columns(
        embedding=pl.when(pl.col("example_id") == other)
        .then(pl.lit(first, pl.Array(pl.Float32, 3)))
        .otherwise("embedding")
    )
    d = _run({**tables, "features_small": vectors})
    flagged = d.table.filter(pl.col("flag").is_not_null())
    assert set(flagged["example_id"]) >= {"e00000", other}
    assert flagged["value"].max() == 0
    assert _statistic(d, "class_resolution") > 0
    assert any("same vector" in w for w in d.warnings)


def test_what_lacks_a_label_or_vector_is_listed_and_bad_tasks_are_refused() -> None:
    tables = _tables()
    lacking = {
        "examples": tables["examples"].with_columns(kind=pl.when(pl.col("example_id") != "e00001").then("kind")),
        "features_small": tables["features_small"].filter(pl.col("example_id") != "e00002"),
    }
    assert _run(lacking).excluded.rows() == [("e00001", "no label"), ("e00002", "no vector")]
    one = tables["examples"].with_columns(kind=pl.lit("a"))
    each = tables["examples"].with_columns(kind="example_id")
    for frame, said in ((one, "1 class"), (each, "400 different values")):
        with pytest.raises(DataRefused, match=said):
            _run({**tables, "examples": frame})
    with pytest.raises(UsageError, match="did you mean 'kind'"):
        _run(tables, label="kinds")
    assert _run(tables, features=None).table.drop("method").equals(_run(tables).table.drop("method"))
    with pytest.raises(UsageError, match="several features"):
        _run({**tables, "features_other": tables["features_small"]}, features=None)
    with pytest.raises(UsageError, match="no features 'big'"):
        _run(tables, features="big")
    zeros = tables["features_small"].with_columns(embedding=pl.lit([0.0] * 3, pl.Array(pl.Float32, 3)))
    with pytest.raises(DataRefused, match="same vector as one of another class"):
        _run({**tables, "features_small": zeros})
    with pytest.raises(UsageError, match="epsilon"):
        resolve("difficulty", Step(method="inductive_bias", settings={"features": "f", "label": "l", "epsilon": 0}))
