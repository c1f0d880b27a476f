"""Shift of embeddings, of labels against inputs, conditional transport and oracles: closed forms, laws, bad input."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.schemas.tables import spec
from gradatim.tasks.core.registry import configure, get
from gradatim.tasks.diversity.label_shift import balancing_weights
from gradatim.tasks.diversity.result import Diversity

A, B = "domain=a", "domain=b"
FAST = {"permutations": 19, "frequencies": 32}


def table(vectors: np.ndarray, **columns: object) -> dict[str, pl.DataFrame]:
    frame = pl.DataFrame(columns).with_columns(example_id=pl.format("e{}", pl.int_range(pl.len()) + 100_000))
    embedding = pl.Series("embedding", vectors.astype(np.float32), dtype=pl.Array(pl.Float32, vectors.shape[1]))
    return {"examples": frame, "features_x": frame.select("example_id").with_columns(embedding)}


def run(name: str, tables: dict[str, pl.DataFrame], **settings: object) -> Diversity:
    plugin = get("diversity", name)
    found: Diversity = plugin.run(tables, configure(plugin, settings), 0)
    assert found.statistics.to_arrow().schema.names == spec("statistics").schema.names
    assert found.summary().charts
    return found


def two(n: int = 800, d: int = 4, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, d)), np.array(["a", "b"])[np.arange(n) % 2]


def test_a_shift_of_the_mean_is_seen_by_every_measure_and_none_by_none() -> None:
    rows, domain = two()
    same = run("embedding_shift", table(rows, domain=domain), **FAST)
    low, high = same.statistics.filter(pl.col("metric") == "c2st_auc", pl.col("reference") == B).row(0)[5:7]
    assert low < 0.5 < high
    assert same.value("mmd_rbf_p", A, B) > 0.05
    moved = run("embedding_shift", table(rows + 2 * (domain == "b")[:, None], domain=domain), **FAST)
    assert moved.value("c2st_auc", A, B) > 0.98
    assert moved.value("proxy_a", A, B) > 1.7
    assert moved.value("mmd_linear", A, B) == pytest.approx(16, rel=0.15)
    assert moved.value("frechet", A, B) == pytest.approx(16, rel=0.15)
    assert (moved.value("mmd_linear_p", A, B), moved.value("mmd_rbf_p", A, B)) == (0.05, 0.05)
    assert moved.value() == moved.value("c2st_auc", A, B)
    assert moved.plot("told_apart") is not None


def test_the_order_of_rows_changes_not_one_bit_and_samples_are_drawn_by_id() -> None:
    rows, domain = two(300)
    tables = table(rows, domain=domain, label=np.where(rows[:, 0] > 0, "u", "v"))
    order = np.random.default_rng(1).permutation(300)
    mixed = {name: frame[order] for name, frame in tables.items()}
    settings = {**FAST, "label": "label", "most_rows": 100, "mmd_rows": 60}
    one, other = (run("embedding_shift", given, **settings) for given in (tables, mixed))
    assert one.statistics.equals(other.statistics)
    assert one.statistics.filter(pl.col("metric") == "c2st_auc", pl.col("reference") == B)["n"].item() == 200
    assert one.value("c2st_auc", f"{A} & label=u", f"{B} & label=u") is not None


def test_several_environments_get_adjusted_p_values_and_a_grid() -> None:
    rows, _ = two(240)
    found = run("embedding_shift", table(rows, domain=[f"d{i % 4}" for i in range(240)]), **FAST)
    adjusted = found.statistics.filter(pl.col("metric") == "mmd_rbf_p_holm")["value"]
    plain = found.statistics.filter(pl.col("metric") == "mmd_rbf_p")["value"]
    assert len(adjusted) == 6
    assert (adjusted.sort() >= plain.sort()).all()
    assert found.plot("told_apart").to_dict()["data"]


def test_without_features_the_words_are_compared() -> None:
    domain = ["a", "b"] * 60
    texts = [("walk run jump " if name == "a" else "swim dive row ") + str(i % 5) for i, name in enumerate(domain)]
    tables = {"examples": table(np.zeros((120, 1)), domain=domain, input=texts)["examples"]}
    assert run("embedding_shift", tables, **FAST).value("c2st_auc", A, B) == 1.0
    blank = {"examples": tables["examples"].with_columns(input=pl.lit(""))}
    assert run("embedding_shift", blank, **FAST).value("c2st_auc", A, B) == 0.5
    with pytest.raises(UsageError, match="no column 'nothing'"):
        run("embedding_shift", tables, column="nothing")


def test_bad_vectors_are_refused_and_small_sides_have_no_number() -> None:
    rows, domain = two(60)
    for bad in (np.nan, np.inf):
        broken = rows.copy()
        broken[7, 1] = bad
        with pytest.raises(DataRefused, match="'e100007'"):
            run("embedding_shift", table(broken, domain=domain))
    few = run("embedding_shift", table(rows, domain=["a"] + ["b"] * 59), **FAST)
    assert np.isnan(few.value("c2st_auc", A, B))
    assert np.isnan(few.value("frechet", A, B))
    assert "too few rows" in few.warnings[-1]
    ragged = table(rows, domain=domain)
    ragged["features_x"] = ragged["features_x"].with_columns(embedding=pl.Series([[1.0, 2.0]] * 59 + [[1.0]]))
    with pytest.raises(DataRefused, match="1 numbers"):
        run("embedding_shift", ragged)
    equal = run("embedding_shift", table(np.zeros((60, 3)), domain=domain), **FAST)
    assert (equal.value("c2st_auc", A, B), equal.value("frechet", A, B), equal.value("mmd_rbf_p", A, B)) == (0.5, 0, 1)
    half = table(rows, domain=domain)
    half["features_x"] = half["features_x"].filter(pl.Series(domain == "a"))
    with pytest.raises(DataRefused, match="no example of domain=b has a vector"):
        run("embedding_shift", half)
    with pytest.raises(UsageError, match="'y'"):
        run("embedding_shift", table(rows, domain=domain), features="y")
    twice = table(rows, domain=domain)
    twice["examples"] = pl.concat([twice["examples"], twice["examples"][:1]])
    with pytest.raises(DataRefused, match="stands twice"):
        run("embedding_shift", twice)


def labelled(n: int, shares: tuple[float, float], moved: float, seed: int = 0) -> dict[str, pl.DataFrame]:
    """Two domains whose label u has these shares; u lies 3 away from v, and b `moved` away from a within labels."""
    rng = np.random.default_rng(seed)
    domain = np.array(["a", "b"])[np.arange(n) % 2]
    label = np.where(rng.random(n) < np.where(domain == "a", *shares), "u", "v")
    rows = rng.standard_normal((n, 3))
    rows[:, 0] += 3 * (label == "u")
    rows[:, 1] += moved * (domain == "b")
    return table(rows, domain=domain, output=label)


def test_an_input_shift_that_is_the_labels_own_vanishes_when_labels_are_balanced() -> None:
    found = run("label_shift", labelled(3000, (0.8, 0.3), 0))
    assert found.value("label_tv", A, B) == pytest.approx(0.5, abs=0.05)
    assert found.value("label_p", A, B) < 1e-6
    assert found.value("input_auc", A, B) > 0.65
    assert found.value("input_auc_balanced", A, B) == pytest.approx(0.5, abs=0.04)
    assert found.value("conditional_auc", A, B) == pytest.approx(0.5, abs=0.04)


def test_an_input_shift_within_labels_stays() -> None:
    found = run("label_shift", labelled(3000, (0.5, 0.5), 1.5))
    assert found.value("label_tv", A, B) < 4 * found.value("label_tv_noise", A, B)
    for metric in ("input_auc", "input_auc_balanced", "conditional_auc"):
        assert found.value(metric, A, B) == pytest.approx(0.856, abs=0.03)  # Φ(1.5 / √2)
    assert found.plot("inputs") is not None


def test_labels_of_one_side_are_counted_and_left_out_and_one_label_is_defined() -> None:
    tables = labelled(600, (0.5, 0.5), 0)
    split = pl.when(pl.col("domain") == "a").then(pl.lit("w")).otherwise("output")
    some = tables["examples"].with_columns(output=pl.when(pl.col("output") == "u").then(split).otherwise("output"))
    found = run("label_shift", {**tables, "examples": some})
    assert found.value("label_unshared", A, B) == pytest.approx(0.5, abs=0.05)
    assert "one side only" in found.warnings[0]
    none = tables["examples"].with_columns(output=pl.col("domain"))
    apart = run("label_shift", {**tables, "examples": none})
    assert (apart.value("label_tv", A, B), apart.value("label_unshared", A, B)) == (1, 1)
    assert np.isnan(apart.value("conditional_auc", A, B))
    one = run("label_shift", {**tables, "examples": tables["examples"].with_columns(output=pl.lit("u"))})
    assert (one.value("label_tv", A, B), one.value("label_p", A, B)) == (0, 1)
    with pytest.raises(DataRefused, match="no value"):
        run("label_shift", {**tables, "examples": tables["examples"].with_columns(output=pl.lit(None, pl.String))})


def test_free_texts_are_no_labels() -> None:
    tables = table(np.zeros((1002, 1)), domain=["a", "b"] * 501, output=[f"text {i}" for i in range(1002)])
    for name in ("label_shift", "conditional_wasserstein", "nico", "ood_bench"):
        with pytest.raises(UsageError, match="1,002 different values"):
            run(name, tables)


def test_balancing_gives_both_sides_the_same_shares() -> None:
    rng = np.random.default_rng(0)
    side, label = rng.integers(0, 2, 400), rng.integers(-1, 3, 400)
    label[(side == 1) & (label == 2)] = 0
    weight = balancing_weights(label, side, 3)
    shares = [[weight[(side == s) & (label == y)].sum() / weight[side == s].sum() for y in range(3)] for s in (0, 1)]
    assert shares[0] == pytest.approx(shares[1])
    assert shares[0][2] == 0
    assert [weight[side == s].mean() for s in (0, 1)] == pytest.approx([1, 1])
    assert not weight[label < 0].any()
    assert not balancing_weights(np.array([0, 1]), np.array([0, 1]), 2).any()


def test_the_conditional_distance_of_two_normals_is_that_of_their_means_and_of_equal_ones_nought() -> None:
    rng = np.random.default_rng(0)
    side = np.arange(40_000) % 2
    label = np.where(rng.random(40_000) < np.where(side == 0, 0.8, 0.3), "u", "v")
    rows = rng.standard_normal((40_000, 1)) + side[:, None]
    tables = table(rows, domain=np.array(["a", "b"])[side], output=label)
    found = run("conditional_wasserstein", tables)
    assert found.value("conditional_w2_gaussian", A, B) == pytest.approx(1.0, abs=0.03)
    assert found.value("conditional_w1_sliced", A, B) == pytest.approx(1.0, abs=0.03)
    again = np.concatenate([rows[:2000], rows[:2000]])
    twins = table(again, domain=["a"] * 2000 + ["b"] * 2000, output=np.concatenate([label[:2000]] * 2))
    equal = run("conditional_wasserstein", twins)
    assert equal.value("conditional_w2_gaussian", A, B) == pytest.approx(0, abs=1e-3)
    assert equal.value("conditional_w1_sliced", A, B) == pytest.approx(0, abs=1e-9)
    assert equal.plot("distances") is not None


def test_the_conditional_distance_weighs_labels_by_both_sides_and_reports_what_is_missing() -> None:
    rows = np.array([[0.0], [0], [0], [5], [0], [1], [6], [9]])
    tables = table(rows, domain=["a"] * 4 + ["b"] * 4, output=list("uuuvuuvw"))
    found = run("conditional_wasserstein", tables)
    weight_u, weight_v = (0.75 + 0.5) / 2, (0.25 + 0.25) / 2
    expected = (weight_u * 0.5 + weight_v * 1.0) / (weight_u + weight_v)
    assert found.value("conditional_w1_sliced", A, B) == pytest.approx(expected)
    assert found.value("label_unshared", A, B) == pytest.approx(0.125)
    assert "one side only" in found.warnings[0]
    assert found.value("conditional_w2_gaussian", A, B) == pytest.approx(np.sqrt(0.25 + 0.5))  # v has one row a side


def test_oracles_disagree_where_the_labels_rule_differs_and_not_where_only_the_inputs_do() -> None:
    rng = np.random.default_rng(0)
    rows, side = rng.standard_normal((3000, 3)), np.arange(3000) % 2
    domain = np.array(["a", "b"])[side]
    turned = np.where(side == 0, rows[:, 0], rows[:, 1]) > 0
    concept = run("nico", table(rows, domain=domain, output=np.where(turned, "u", "v")))
    assert concept.value("concept_disagreement_min", A, B) == pytest.approx(0.5, abs=0.05)  # orthogonal half-spaces
    assert concept.value("covariate_proxy_a", A, B) < 0.2
    moved = rows + 1.5 * side[:, None] * np.array([0, 1, 0])
    covariate = run("nico", table(moved, domain=domain, output=np.where(rows[:, 0] > 0, "u", "v")))
    assert covariate.value("covariate_proxy_a", A, B) > 0.9
    assert covariate.value("concept_disagreement_max", A, B) < 0.06
    assert covariate.value("concept_noise", A, B) < 0.06
    one = run("nico", table(rows[:40], domain=domain[:40], output=["u"] * 40))
    assert one.value("concept_disagreement_max", A, B) == 0
    apart = run("nico", table(rows[:40], domain=domain[:40], output=domain[:40]))
    assert np.isnan(apart.value("concept_disagreement_max", A, B))
