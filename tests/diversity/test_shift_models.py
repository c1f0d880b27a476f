"""Partitions of chosen heterogeneity, and the agreement of models across domains."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import cohen_kappa_score

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.schemas.tables import spec
from gradatim.tasks.core.registry import configure, get
from gradatim.tasks.diversity import domain_agreement
from gradatim.tasks.diversity.domain_agreement import kappa
from gradatim.tasks.diversity.heterogeneous_partition import main_clients, partition_counts
from gradatim.tasks.diversity.result import Diversity

sizes = st.lists(st.integers(1, 300), min_size=1, max_size=9)
mixings = st.sampled_from([0.0, 0.1, 0.3, 1 / 3, 0.5, 1.0])


def run(name: str, tables: dict[str, pl.DataFrame], seed: int = 0, **settings: object) -> Diversity:
    plugin = get("diversity", name)
    found: Diversity = plugin.run(tables, configure(plugin, settings), seed)
    assert found.statistics.to_arrow().schema.names == spec("statistics").schema.names
    assert found.summary().charts
    return found


def examples(domain: list[str | None]) -> pl.DataFrame:
    return pl.DataFrame({"example_id": [f"e{i:05d}" for i in range(len(domain))], "domain": domain})


@settings(max_examples=30, deadline=None)
@given(sizes, st.integers(1, 12), mixings)
def test_every_row_is_used_once_and_shares_are_rounded_by_less_than_a_row(rows, clients, mixing) -> None:
    counts = partition_counts(rows, clients, mixing)
    assert counts.sum(axis=0).tolist() == rows
    assert (counts >= 0).all()
    own = main_clients(rows, clients)
    exact = np.array(rows) * ((1 - mixing) * own / own.sum(axis=0) + mixing / clients)
    assert np.abs(counts - exact).max() < 1 + 1e-6


@settings(max_examples=20, deadline=None)
@given(sizes, st.integers(1, 12))
def test_no_mixing_keeps_domains_apart_and_full_mixing_deals_all_alike(rows, clients) -> None:
    apart = partition_counts(rows, clients, 0) > 0
    if len(rows) <= clients:
        assert (apart.sum(axis=1) <= 1).all()  # a client holds one domain
    else:
        assert (apart.sum(axis=0) == 1).all()  # a domain stays whole
    alike = partition_counts(rows, clients, 1)
    assert (np.ptp(alike, axis=0) <= 1).all()


def test_further_clients_go_to_the_domain_with_most_rows_a_client() -> None:
    own = main_clients([900, 100, 200], 6)
    assert own.sum(axis=0).tolist() == [4, 1, 1]
    assert partition_counts([900, 100, 200], 6, 0)[:, 0].tolist() == [225, 0, 0, 225, 225, 225]
    small = main_clients([50, 10, 30, 40], 2)  # largest first, each to the client with the fewest rows
    assert small.astype(int).tolist() == [[1, 1, 0, 0], [0, 0, 1, 1]]
    assert partition_counts([10], 3, 0.5).ravel().tolist() == [4, 3, 3]


def test_the_partition_names_a_client_for_each_row_by_hash_and_its_heterogeneity_falls() -> None:
    frame = examples([f"d{i % 4}" for i in range(800)])
    found = [run("heterogeneous_partition", {"examples": frame}, clients=8, mixing=m) for m in (0.0, 0.5, 1.0)]
    values = [one.value("partition_heterogeneity") for one in found]
    assert values == pytest.approx([0.75, 0.375, 0.0], abs=0.01)
    assert found[0].table["example_id"].to_list() == frame["example_id"].to_list()
    joined = found[0].table.join(frame, on="example_id")
    assert joined.group_by("cluster").agg(pl.col("domain").n_unique())["domain"].to_list() == [1] * 8
    mixed = run(
        "heterogeneous_partition", {"examples": frame.sample(fraction=1, shuffle=True, seed=1)}, clients=8, mixing=0.5
    )
    assert mixed.table.equals(found[1].table)
    other = run("heterogeneous_partition", {"examples": frame}, seed=1, clients=8, mixing=0.5)
    assert not other.table["cluster"].equals(found[1].table["cluster"])
    assert found[0].plot("clients") is not None


def test_rows_without_a_domain_and_empty_clients_are_counted() -> None:
    found = run("heterogeneous_partition", {"examples": examples(["x", "y", None])}, clients=4, mixing=0)
    assert "1 rows have no domain" in found.warnings[0]
    assert "2 of 4 clients get no row" in found.warnings[1]
    with pytest.raises(DataRefused, match="no value"):
        run("heterogeneous_partition", {"examples": examples([None, None])})
    with pytest.raises(UsageError, match="mixing"):
        run("heterogeneous_partition", {"examples": examples(["x"])}, mixing=1.5)
    with pytest.raises(UsageError, match="clients"):
        partition_counts([3], 0, 0.5)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), min_size=2, max_size=30))
def test_kappa_is_that_of_scikit_learn(rows: list[tuple[int, int]]) -> None:
    one, other = np.array(rows).T
    found = kappa(*(int(((one == a) & (other == b)).sum()) for a, b in ((1, 1), (1, 0), (0, 1), (0, 0))))
    if len(set(one)) == 1 and set(one) == set(other):
        assert np.isnan(found.value)
    else:
        assert found.value == pytest.approx(cohen_kappa_score(one, other))
        assert found.low <= found.value <= found.high


def test_kappas_error_is_the_spread_over_samples() -> None:
    rng, truth = np.random.default_rng(0), np.array([0.4, 0.1, 0.2, 0.3])
    drawn = [kappa(*row) for row in rng.multinomial(400, truth, 400)]
    width = np.mean([one.high - one.low for one in drawn]) / (2 * 1.96)
    assert width == pytest.approx(np.std([one.value for one in drawn]), rel=0.1)
    assert kappa(*truth).value == pytest.approx((0.7 - 0.5) / 0.5)


def test_models_that_fail_on_the_same_examples_agree_and_others_do_not() -> None:
    rng = np.random.default_rng(0)
    frame = examples(["same", "other"] * 400)
    hard = rng.random(800) < 0.5
    rows = []
    for model in ("m0", "m1", "m2"):
        alone = rng.random(800) < 0.5
        right = np.where(frame["domain"] == "same", hard, alone)
        rows.append(
            pl.DataFrame({"respondent_id": model, "example_id": frame["example_id"], "score": right.astype(float)})
        )
    responses = pl.concat(rows)
    found = run("domain_agreement", {"examples": frame, "responses": responses})
    assert found.value("kappa_mean", "domain=same") == 1
    assert found.value("kappa_mean", "domain=other") == pytest.approx(0, abs=0.1)
    assert found.value("kappa", "domain=same", "respondent=m0 / m1") == 1
    low, high = found.statistics.filter(pl.col("metric") == "score", pl.col("subset") == "domain=same").row(0)[5:7]
    assert low < found.value("score", "domain=same", "respondent=m0") < high
    assert found.plot("domains") is not None
    twice = pl.concat([responses, responses.with_columns(score=pl.lit(0.0))])  # two attempts: half right is right
    assert run("domain_agreement", {"examples": frame, "responses": twice}).value("kappa_mean", "domain=same") == 1
    shuffled = run(
        "domain_agreement", {"examples": frame, "responses": responses.sample(fraction=1, shuffle=True, seed=1)}
    )
    assert shuffled.statistics.equals(found.statistics)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(domain_agreement, "BLOCK", 7)
        assert run("domain_agreement", {"examples": frame, "responses": responses}).statistics.equals(found.statistics)


def test_models_that_are_always_right_have_no_kappa_and_strangers_are_counted() -> None:
    frame = examples(["x", "x", None])
    responses = pl.DataFrame(
        {"respondent_id": ["a", "a", "a", "b", "b"], "example_id": ["e00000", "e00001", "zz", "e00000", "e00001"]}
    ).with_columns(score=pl.lit(1.0))
    found = run("domain_agreement", {"examples": frame, "responses": responses})
    assert np.isnan(found.value("kappa_mean", "domain=x"))
    assert "1 answers" in found.warnings[0]
    assert "no kappa" in found.warnings[1]
    with pytest.raises(DataRefused, match="1 models"):
        run("domain_agreement", {"examples": frame, "responses": responses}, respondents=["a"])
