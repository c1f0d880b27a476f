"""Measures of training dynamics: published numbers, a plain loop as peer, laws, bad input."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gradatim as gd
from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.schemas.recipe import Step
from gradatim.tasks.core.frames import polars_schema
from gradatim.tasks.core.registry import plugins, resolve
from gradatim.tasks.difficulty.dynamics.data_map import regions
from gradatim.tasks.difficulty.dynamics.table import _parts
from gradatim.tasks.difficulty.dynamics.window import DynamicsConfig, window
from gradatim.tasks.difficulty.result import Difficulty

FAMILY = {
    "confidence": "gold_probability",
    "variability": "gold_probability",
    "threshold_closeness": "gold_probability",
    "correctness": "correct",
    "forgetting": "correct",
    "el2n": "error_norm",
    "grand": "hidden_norm",
    "aum": "margin",
    "margin": "margin",
    "loss": "loss",
    "prequential": "gold_probability",
}


def _run(method: str, dynamics: Any, examples: pl.DataFrame | None = None, seed: int = 0, **given_: Any) -> Difficulty:
    plugin, config = resolve("difficulty", Step(method=method, settings=given_))
    tables = {"dynamics": dynamics} | ({} if examples is None else {"examples": examples})
    result = plugin.run(tables, config, seed)
    assert isinstance(result, Difficulty)
    return result


def _dynamics(examples: int = 40, epochs: int = 6, runs: int = 3, seed: int = 0) -> pl.DataFrame:
    """Dynamics of examples whose ease is i / examples, in the table's schema."""
    random = np.random.default_rng(seed)
    run, epoch, item = (a.ravel() for a in np.meshgrid(*map(np.arange, (runs, epochs, examples)), indexing="ij"))
    margin = 6 * item / examples - 2.5 + 0.4 * epoch + random.normal(size=len(item))
    p = 1 / (1 + np.exp(-margin))
    return pl.DataFrame(
        {
            "run_id": [f"run-{r}" for r in run],
            "position": epoch * examples + item,
            "example_id": [f"q{i:03d}" for i in item],
            "epoch": epoch,
            "gold_probability": p,
            "correct": margin > 0,
            "loss": -np.log(p),
            "margin": margin,
            "error_norm": np.sqrt(2) * (1 - p),
            "hidden_norm": 1 + random.random(len(item)),
            "alignment": None,
        },
        schema=polars_schema("dynamics"),
    )


TABLE = _dynamics()


def _value(d: Difficulty) -> dict[str, float]:
    return dict(d.table.select("example_id", "value").iter_rows())


def _raw(d: Difficulty) -> dict[str, float]:
    return dict(d.table.select("example_id", "raw").iter_rows())


# --- published numbers and fixtures


def _winogrande(data: Path) -> pl.DataFrame:
    """Data map of RoBERTa-large on WinoGrande: guid, confidence, variability, correctness of 6 epochs."""
    return pl.read_parquet(data / "cartography_winogrande" / "winogrande_roberta_data_map.parquet")


@pytest.mark.data
def test_the_winogrande_map_has_the_cut_offs_of_its_regions(data: Path) -> None:
    frame = _winogrande(data)
    confidence, variability = frame["confidence"].to_numpy(), frame["variability"].to_numpy()
    assert confidence.mean(dtype=float) == pytest.approx(0.89743, abs=5e-6)
    assert variability.mean(dtype=float) == pytest.approx(0.14802, abs=5e-6)
    found = regions(confidence, variability, 0.33)
    assert found.rows == 13_331
    assert found.hard == pytest.approx(0.9015976, abs=5e-8)
    assert found.ambiguous == pytest.approx(0.19062135, abs=5e-9)
    assert found.easy == pytest.approx(0.93720406, abs=5e-9)
    assert found.is_hard.sum() == found.is_ambiguous.sum() == found.is_easy.sum() == 13_331


@pytest.mark.data
def test_dynamics_with_the_winogrande_means_and_deviations_give_its_map_again(data: Path) -> None:
    frame = _winogrande(data).with_columns(pl.col("confidence", "variability").cast(pl.Float64))
    m, s = frame["confidence"].to_numpy(), frame["variability"].to_numpy()
    # k epochs high and 60 - k low with mean m and population deviation s, both in [0, 1]
    high, low, k = np.full(len(m), np.nan), np.full(len(m), np.nan), np.zeros(len(m), dtype=int)
    for tried in range(1, 60):
        up, down = m + s * np.sqrt((60 - tried) / tried), m - s * np.sqrt(tried / (60 - tried))
        fits = np.isnan(high) & (up <= 1) & (down >= 0)
        high, low, k = np.where(fits, up, high), np.where(fits, down, low), np.where(fits, tried, k)
    assert not np.isnan(high).any()
    rows = [
        pl.DataFrame(
            {
                "example_id": frame["guid"],
                "epoch": epoch,
                "gold_probability": np.where(epoch < k, high, low),
                "correct": True,
            }
        )
        for epoch in range(60)
    ]
    d = _run("confidence", pl.concat(rows))
    assert d.statistics is not None
    told = {(s, m): v for s, m, v in d.statistics.select("subset", "metric", "value").iter_rows()}
    assert told["all", "mean confidence"] == pytest.approx(0.89743, abs=5e-6)
    assert told["all", "mean variability"] == pytest.approx(0.14802, abs=5e-6)
    assert told["all", "spearman of confidence and variability"] == pytest.approx(-0.91247, abs=5e-6)
    assert told["region=hard", "highest confidence"] == pytest.approx(0.9015976, abs=5e-8)
    assert told["region=ambiguous", "lowest variability"] == pytest.approx(0.19062135, abs=5e-9)
    assert told["region=easy", "lowest confidence"] == pytest.approx(0.93720406, abs=5e-9)
    v = _run("variability", pl.concat(rows))
    top = v.table.sort("value").tail(1)
    assert top["example_id"][0] == "13724"
    assert top["value"][0] == pytest.approx(0.477776, abs=5e-7)


@pytest.mark.data
def test_correctness_has_the_winogrande_histogram(data: Path) -> None:
    frame = _winogrande(data)
    epochs = pl.concat(
        [
            frame.select(
                pl.col("guid").alias("example_id"),
                pl.lit(e).alias("epoch"),
                (pl.col("correctness") > e).alias("correct"),
            )
            for e in range(6)
        ]
    )
    d = _run("correctness", epochs)
    assert d.table["raw"].value_counts().sort("raw").rows() == list(enumerate([27, 84, 266, 698, 2208, 12215, 24900]))
    assert d.table["value"].to_numpy() == pytest.approx(1 - d.table["raw"].to_numpy() / 6)


def test_the_fixture_of_the_aum_library() -> None:
    logits = {(0, "a"): [1, 2, 3], (0, "b"): [6, 5, 4], (1, "b"): [7, 8, 9], (1, "c"): [12, 11, 10]}
    gold = {(0, "a"): 1, (0, "b"): 0, (1, "b"): 2, (1, "c"): 1}
    rows = []
    for (step, name), z in logits.items():
        others = [value for k, value in enumerate(z) if k != gold[step, name]]
        rows.append((name, step, float(z[gold[step, name]] - max(others))))
    d = _run("aum", pl.DataFrame(rows, schema=["example_id", "epoch", "margin"], orient="row"))
    assert _raw(d) == {"a": -1.0, "b": 1.0, "c": -1.0}
    assert _value(d) == {"a": 1.0, "b": -1.0, "c": 1.0}
    assert d.table["n"].to_list() == [1, 2, 1]
    assert d.table["flag"].to_list() == ["epochs missing", None, "epochs missing"]


# --- a plain loop as peer


def _peer(frame: pl.DataFrame, column: str) -> dict[str, dict[str, list[float]]]:
    """Values of each example and run in the order of epochs, as a dict loop collects them."""
    found: dict[str, dict[str, list[float]]] = {}
    for row in frame.sort("run_id", "epoch", "position").iter_rows(named=True):
        value = row[column]
        if value is not None and np.isfinite(value):
            found.setdefault(row["example_id"], {}).setdefault(row["run_id"], []).append(float(value))
    return found


def _forgets(values: list[float]) -> int:
    return sum(a > 0.5 and b < 0.5 for a, b in pairwise(values))


PEERS = {
    "confidence": lambda v: 1 - np.mean(v),
    "variability": lambda v: np.std(v),
    "threshold_closeness": lambda v: np.mean(v) * (1 - np.mean(v)),
    "correctness": lambda v: 1 - np.mean(v),
    "el2n": lambda v: np.mean(v),
    "aum": lambda v: -np.mean(v),
    "loss": lambda v: np.mean(v),
}


def _holed(seed: int) -> pl.DataFrame:
    """A table with epochs missing, nulls, NaN and infinities, in a random order of rows."""
    random = np.random.default_rng(seed)
    frame = TABLE.filter(pl.Series(random.random(len(TABLE)) < 0.85))
    spoilt = pl.Series(random.choice([0, 1, 2, 3], len(frame), p=[0.91, 0.03, 0.03, 0.03]))
    numbers = pl.col("gold_probability", "loss", "margin", "error_norm", "hidden_norm")
    frame = frame.with_columns(spoilt.alias("spoilt")).with_columns(
        pl.when(pl.col("spoilt") == 0)
        .then(numbers)
        .when(pl.col("spoilt") == 1)
        .then(float("nan"))
        .when(pl.col("spoilt") == 2)
        .then(float("inf"))
        .name.keep(),
        pl.when(pl.col("spoilt") == 0).then("correct").name.keep(),
    )
    return frame.drop("spoilt").sample(fraction=1, shuffle=True, seed=seed)


@pytest.mark.parametrize("method", list(PEERS))
@pytest.mark.parametrize("seed", [1, 2])
def test_means_over_epochs_then_runs_equal_those_of_a_plain_loop(method: str, seed: int) -> None:
    frame = _holed(seed)
    d = _run(method, frame)
    expected = {
        example: np.mean([PEERS[method](values) for values in by_run.values()])
        for example, by_run in _peer(frame, FAMILY[method]).items()
    }
    found = _value(d)
    assert found.keys() == expected.keys()
    assert found == pytest.approx(expected, abs=1e-9)
    n = {example: sum(map(len, by_run.values())) for example, by_run in _peer(frame, FAMILY[method]).items()}
    assert dict(d.table.select("example_id", "n").iter_rows()) == n


def test_grand_is_the_mean_of_the_products_and_equals_the_norm_of_the_gradient() -> None:
    random = np.random.default_rng(5)
    weights, h, gold = random.normal(size=(3, 4)), random.normal(size=(20, 4)), random.integers(0, 3, 20)
    z = h @ weights.T
    p = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
    error = p - np.eye(3)[gold]
    gradients = np.einsum("ic,id->icd", error, h)
    frame = pl.DataFrame(
        {
            "example_id": [f"q{i:02d}" for i in range(20)],
            "epoch": 0,
            "error_norm": np.linalg.norm(error, axis=1),
            "hidden_norm": np.linalg.norm(h, axis=1),
        }
    )
    d = _run("grand", frame)
    assert d.table["value"].to_numpy() == pytest.approx(np.linalg.norm(gradients.reshape(20, -1), axis=1), abs=1e-9)
    assert any("one run" in w for w in d.warnings)


def test_the_ci_form_widens_by_the_number_of_epochs() -> None:
    v = _run("variability", TABLE, runs=["run-1"]).table["value"].to_numpy() ** 2
    d = _run("variability", TABLE, runs=["run-1"], form="ci")
    assert d.table["value"].to_numpy() == pytest.approx(np.sqrt(v + v**2 / 5), abs=1e-9)
    assert d.method == "variability form=ci runs=run-1"
    one = _run("variability", TABLE, form="ci", last_epoch=0)
    assert one.table["value"].unique().to_list() == [0.0]
    assert one.table["flag"].unique().to_list() == ["one observation"]


def test_errors_are_over_runs_or_over_epochs_of_one_run() -> None:
    d, peer = _run("confidence", TABLE), _peer(TABLE, "gold_probability")
    means = np.array([[np.mean(v) for v in peer[q].values()] for q in d.table["example_id"]])
    assert d.table["standard_error"].to_numpy() == pytest.approx(np.std(means, axis=1, ddof=1) / np.sqrt(3), abs=1e-9)
    one = _run("confidence", TABLE, runs=["run-2"])
    values = np.array([peer[q]["run-2"] for q in one.table["example_id"]])
    assert one.table["standard_error"].to_numpy() == pytest.approx(
        np.std(values, axis=1, ddof=1) / np.sqrt(6), abs=1e-9
    )
    assert one.reliability is None
    assert _run("confidence", TABLE, runs=["run-2"], last_epoch=0).table["standard_error"].null_count() == 40


def test_margin_is_that_of_the_last_epoch_of_each_run() -> None:
    short = TABLE.filter((pl.col("run_id") != "run-0") | (pl.col("epoch") < 3))
    d = _run("margin", short)
    ends = pl.concat([short.filter(run_id="run-0", epoch=2), short.filter(pl.col("run_id") != "run-0", epoch=5)])
    expected = ends.group_by("example_id").agg(-pl.col("margin").cast(pl.Float64).mean())
    assert _value(d) == pytest.approx(dict(expected.iter_rows()), abs=1e-9)
    assert d.notes["at epoch"] == "2, 5"
    absent = TABLE.filter(~((pl.col("example_id") == "q000") & (pl.col("epoch") == 5)))
    gone = _run("margin", absent, examples=TABLE.select("example_id").unique())
    assert gone.excluded.rows() == [("q000", "no row in the runs and epochs that count")]


# --- forgetting


def _right(*sequences: str, run: str = "run") -> pl.DataFrame:
    """One example a sequence such as 1101; a dot is an epoch without a row."""
    rows = [
        (run, f"q{i}", e, bit == "1") for i, bits in enumerate(sequences) for e, bit in enumerate(bits) if bit != "."
    ]
    return pl.DataFrame(rows, schema=["run_id", "example_id", "epoch", "correct"], orient="row")


def test_forgetting_counts_turns_from_right_to_wrong() -> None:
    d = _run("forgetting", _right("111111", "101010", "000111", "000000", "1.0..1", "100000"))
    assert _raw(d) == {"q0": 0, "q1": 3, "q2": 0, "q3": 0, "q4": 1, "q5": 1}
    assert _value(d) == {"q0": 0, "q1": 3, "q2": 0, "q3": 4, "q4": 1, "q5": 1}
    assert d.table["flag"].to_list() == [None, None, None, "never learned", "epochs missing", None]
    assert (d.notes["never learned"], d.notes["learned and never forgotten"]) == (1, 2)
    hardest = d.table.sort("percentile").tail(1)["example_id"][0]
    assert hardest == "q3"


def test_never_learned_in_one_run_is_flagged_and_averaged() -> None:
    d = _run("forgetting", pl.concat([_right("1010", "0000"), _right("1111", "0101", run="other")]))
    assert _value(d) == {"q0": 1.0, "q1": (3 + 1) / 2}
    assert d.table["flag"].to_list() == [None, "never learned in some runs"]
    assert d.table["standard_error"].to_numpy() == pytest.approx([1.0, 1.0])


@given(st.lists(st.text("01.", min_size=1, max_size=150), min_size=1, max_size=6), st.integers(0, 99))
@settings(deadline=None, max_examples=30)
def test_forgetting_equals_a_plain_loop_and_never_passes_half_the_epochs(sequences: list[str], seed: int) -> None:
    frame = _right(*sequences)
    if frame.is_empty():
        return
    frame = frame.sample(fraction=1, shuffle=True, seed=seed)
    d = _run("forgetting", frame)
    for example, raw in _raw(d).items():
        seen = sequences[int(example[1:])].replace(".", "")
        assert raw == _forgets([float(bit) for bit in seen])
        assert raw <= len(seen) // 2
    never = d.table.filter(pl.col("flag").fill_null("").str.contains("never learned"))["value"]
    others = d.table.filter(~pl.col("flag").fill_null("").str.contains("never learned"))["value"]
    assert not len(never) or not len(others) or never.min() > others.max()  # type: ignore[operator]


def test_several_presentations_in_an_epoch_are_counted_by_position_or_as_one() -> None:
    # epoch 0: right, wrong, right; epoch 1: wrong
    frame = pl.DataFrame(
        {"example_id": "q", "epoch": [0, 0, 0, 1], "position": [0, 3, 5, 9], "correct": [True, False, True, False]}
    ).sample(fraction=1, shuffle=True, seed=1)
    assert _raw(_run("forgetting", frame)) == {"q": 2}
    assert _raw(_run("forgetting", frame, count="epoch")) == {"q": 1}
    assert _run("forgetting", frame).notes["rows beyond one an example and epoch"] == 2
    with pytest.raises(UsageError, match="no column 'position'"):
        _run("forgetting", frame.drop("position"))
    # without repeats both are one
    assert _run("forgetting", TABLE).table.equals(
        _run("forgetting", TABLE, count="epoch").table.with_columns(method=pl.lit("forgetting"))
    )


# --- laws


@given(st.lists(st.floats(0, 1, width=32), min_size=1, max_size=30))
@settings(deadline=None, max_examples=30)
def test_variability_stays_below_that_of_a_coin(values: list[float]) -> None:
    frame = pl.DataFrame({"example_id": "q", "epoch": range(len(values)), "gold_probability": values})
    c, v = 1 - _value(_run("confidence", frame))["q"], _value(_run("variability", frame))["q"]
    assert v <= np.sqrt(max(c * (1 - c), 0)) + 1e-6
    assert v == pytest.approx(np.std(values), abs=1e-6)
    if len(set(values)) == 1:
        assert v == 0.0  # not merely small
    assert _value(_run("threshold_closeness", frame))["q"] == pytest.approx(c * (1 - c), abs=1e-9)


def test_el2n_of_two_classes_is_root_two_times_the_missing_probability() -> None:
    d = _run("el2n", TABLE).table.join(_run("confidence", TABLE).table, on="example_id")
    assert d["value"].to_numpy() == pytest.approx(np.sqrt(2) * d["value_right"].to_numpy(), abs=1e-6)


@pytest.mark.parametrize("method", list(FAMILY))
def test_neither_the_order_of_rows_nor_the_cut_into_batches_changes_a_bit(method: str) -> None:
    frame = _holed(4)
    first = _run(method, frame)
    for seed in (1, 2):
        shuffled = frame.sample(fraction=1, shuffle=True, seed=seed)
        cut = pl.concat([shuffled[a : a + 97] for a in range(0, len(shuffled), 97)], rechunk=False)
        again = _run(method, cut.lazy())
        assert again.table.equals(first.table)
        assert again.reliability == first.reliability
        assert again.excluded.equals(first.excluded)


@pytest.mark.parametrize("method", ["confidence", "forgetting", "prequential"])
def test_many_cells_take_several_passes_and_give_the_same(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = _holed(6)
    once = _run(method, frame)
    monkeypatch.setattr("gradatim.tasks.difficulty.dynamics.table.PASS", 7)
    assert len(list(_parts(window({"dynamics": frame}, DynamicsConfig(), (), "")))) > 10
    again = _run(method, frame)
    assert again.table.equals(once.table)
    assert again.notes == once.notes


@pytest.mark.parametrize("method", list(FAMILY))
def test_every_measure_gives_the_table_of_the_contract_and_explains_itself(method: str) -> None:
    d = _run(method, TABLE, TABLE.select("example_id").unique())
    assert d.table.schema == polars_schema("difficulty")
    assert d.table["example_id"].to_list() == sorted(set(TABLE["example_id"]))
    assert d.table["value"].is_finite().all()
    summary = d.summary()
    assert type(summary).from_dict(summary.to_dict()) == summary
    assert d.explain("q003").startswith("q003: ")
    assert d.cite()
    assert plugins("difficulty")[method].summary
    for name in d.pictures:
        assert "vega-lite" in d.plot(name).to_dict()["$schema"]
    # examples are easier from first to last
    order = d.table["value"].to_numpy()
    if method not in ("variability", "threshold_closeness", "forgetting", "grand"):
        assert np.corrcoef(order, np.arange(40))[0, 1] < -0.8


def test_statistics_of_several_steps_have_keys_of_their_own() -> None:
    steps = [("confidence", {}), ("confidence", {"last_epoch": 2}), ("variability", {}), ("prequential", {})]
    tables = [_run(method, TABLE, **given_).statistics for method, given_ in steps]
    together = pl.concat([table for table in tables if table is not None])
    assert together.select("subset", "reference", "metric", "parameters_hash").is_unique().all()


def test_reliability_over_runs_rises_with_their_number() -> None:
    many = _dynamics(200, 4, 8)
    assert _run("confidence", many, runs=["run-0"]).reliability is None
    two = _run("loss", many, runs=["run-0", "run-3"])
    all_ = _run("loss", many)
    assert two.notes["reliability is"] == "from standard errors over runs"
    assert all_.notes["reliability is"] == "split-half over runs"
    assert two.reliability is not None
    assert all_.reliability is not None
    assert 0.5 < two.reliability < all_.reliability < 1


def test_runs_and_epochs_that_count_are_chosen() -> None:
    part = TABLE.filter(pl.col("run_id").is_in(["run-0", "run-2"]), pl.col("epoch").is_between(1, 3))
    d = _run("confidence", TABLE, runs=["run-2", "run-0"], first_epoch=1, last_epoch=3)
    assert d.table.drop("method").equals(_run("confidence", part).table.drop("method"))
    assert d.notes["epochs"] == "1 to 3, 3 different"
    assert d.notes["runs"] == 2


# --- threshold samples of AUM


def test_threshold_samples_are_as_many_as_a_class_and_depend_on_ids_alone() -> None:
    from gradatim.tasks.difficulty.aum import threshold_samples

    ids, labels = [f"q{i:04d}" for i in range(1000)], [i % 3 for i in range(1000)]
    first = threshold_samples(ids, labels, 7)
    assert first["threshold"].sum() == 250
    back = threshold_samples(ids[::-1], labels[::-1], 7)
    assert back.equals(first)
    second = threshold_samples(ids, labels, 7, part=1)
    assert second["threshold"].sum() == 250
    assert not (first["threshold"] & second["threshold"]).any()
    assert not threshold_samples(ids, labels, 8).equals(first)
    assert threshold_samples(["a"], ["x"], 0)["threshold"].to_list() == [True]
    with pytest.raises(UsageError, match="part 4"):
        threshold_samples(ids, labels, 7, part=4)
    with pytest.raises(UsageError, match="unique ids"):
        threshold_samples(["a", "a"], [0, 1], 7)


def test_a_class_that_there_is_not_finds_the_mislabelled() -> None:
    random = np.random.default_rng(0)
    names = [f"q{i:03d}" for i in range(300)]
    # 30 threshold samples, 20 mislabelled, 250 right: means -3, -4, 3
    centre = np.repeat([-3.0, -4.0, 3.0], [30, 20, 250])
    rows = [
        pl.DataFrame(
            {
                "run_id": "run",
                "example_id": names,
                "epoch": epoch,
                "margin": centre + random.normal(0, 0.2, 300),
            }
        )
        for epoch in range(5)
    ]
    examples = pl.DataFrame({"example_id": names, "fake": [i < 30 for i in range(300)]})
    d = _run("aum", pl.concat(rows), examples, threshold="fake")
    flagged = d.table.filter(pl.col("flag") == "likely mislabelled (AUM)")["example_id"].to_list()
    assert flagged == names[30:50]
    assert d.excluded["example_id"].to_list() == names[:30]
    assert d.excluded["reason"].unique().to_list() == [
        "threshold sample: trained with the label of a class that there is not"
    ]
    assert d.statistics is not None
    cut = d.statistics.filter(metric="AUM cut-off")["value"][0]
    of_fakes = pl.concat(rows).filter(pl.col("example_id") < "q030").group_by("example_id").agg(pl.col("margin").mean())
    assert cut == pytest.approx(np.quantile(of_fakes["margin"], 0.99), abs=1e-9)
    assert d.notes["likely mislabelled"] == 20


def test_two_runs_with_other_threshold_samples_judge_every_example() -> None:
    names = ["a", "b", "c", "d"]
    frame = pl.DataFrame(
        {
            "run_id": ["one"] * 4 + ["two"] * 4,
            "example_id": names * 2,
            "epoch": 0,
            "margin": [-2.0, 1.0, -3.0, 2.0, 4.0, -2.0, -5.0, 4.0],
        }
    )
    examples = pl.DataFrame({"example_id": names, "x": [True, False, False, False], "y": [False, True, False, False]})
    d = _run("aum", frame, examples, threshold=["x", "y"])
    assert _raw(d) == {"a": 4.0, "b": 1.0, "c": -4.0, "d": 3.0}
    assert d.table.filter(pl.col("flag").is_not_null())["example_id"].to_list() == ["c"]
    assert d.excluded.is_empty()
    swapped = _run("aum", frame, examples, threshold=["y", "x"], runs=["two", "one"])
    assert _raw(swapped) == _raw(d)


def test_wrong_threshold_columns_are_named() -> None:
    frame = TABLE.select("run_id", "example_id", "epoch", "margin")
    examples = TABLE.select("example_id").unique().with_columns(fake=pl.lit(False), level=pl.lit(1))
    for given_, error, said in (
        ({"threshold": "fakes"}, UsageError, "did you mean 'fake'"),
        ({"threshold": "level"}, UsageError, "type Int32"),
        ({"threshold": "fake"}, DataRefused, "no example of the run 'run-0'"),
        ({"threshold": ["fake", "fake"]}, UsageError, "2 columns"),
    ):
        with pytest.raises(error, match=said):
            _run("aum", frame, examples, **given_)  # type: ignore[arg-type]


# --- prequential


def _probes() -> pl.DataFrame:
    rows = [
        (f"{model}/{prompt}/{seed}", f"q{i}", n, p)
        for model, shift in (("m1", 0.0), ("m2", 0.1))
        for prompt in ("p1", "p2")
        for seed in (0, 1)
        for n in (5, 10, 20)
        for i, p in enumerate(np.clip(np.linspace(0.9, 0.2, 10) - shift + 0.001 * n, 0, 1))
    ]
    return pl.DataFrame(rows, schema=["run_id", "example_id", "epoch", "gold_probability"], orient="row")


def test_prequential_hardness_is_one_minus_the_mean_over_models_of_nan_means() -> None:
    frame = _probes().with_columns(
        gold_probability=pl.when((pl.col("example_id") == "q3") & (pl.col("epoch") == 5) & (pl.col("run_id") < "m2"))
        .then(float("nan"))
        .otherwise("gold_probability")
    )
    d = _run("prequential", frame)
    values = frame.with_columns(model=pl.col("run_id").str.head(2)).filter(pl.col("gold_probability").is_not_nan())
    expected = (
        values.group_by("example_id", "model")
        .agg(pl.col("gold_probability").mean())
        .group_by("example_id")
        .agg(1 - pl.col("gold_probability").mean())
    )
    assert _value(d) == pytest.approx(dict(expected.iter_rows()), abs=1e-9)
    details = d.table["details"].str.json_decode(pl.Struct({"min_max": pl.Float64, "level": pl.String})).struct.unnest()
    assert (details["min_max"].min(), details["min_max"].max()) == (0.0, 1.0)
    assert details["level"].value_counts().sort("level").rows() == [("easy", 3), ("hard", 3), ("medium", 4)]
    assert (d.notes["models"], d.notes["runs"]) == (2, 8)
    assert "rows beyond one an example and epoch" not in d.notes
    assert d.table["flag"].to_list()[3] == "values left out"


def test_codelengths_of_an_online_run_are_the_sum_of_its_losses() -> None:
    p = np.linspace(0.1, 0.9, 15)
    size = np.repeat([5, 10], [5, 10])  # trained on 5: codes examples 6 to 10; on 10: codes 11 to 20
    frame = pl.DataFrame(
        {"run_id": "m/p/0", "example_id": [f"q{i:02d}" for i in range(15)], "epoch": size, "gold_probability": p}
    )
    d = _run("prequential", frame, classes=4)
    assert d.statistics is not None
    told = d.statistics.filter(metric="codelength (nats)").row(0, named=True)
    assert told["value"] == pytest.approx(5 * np.log(4) - np.log(p).sum(), abs=1e-8)
    assert told["n"] == 20
    assert told["ci_low"] == told["ci_high"] == told["value"]
    without = _run("prequential", frame).statistics
    assert without is not None
    assert without.filter(metric="codelength (nats)")["value"][0] == pytest.approx(-np.log(p).sum(), abs=1e-8)


def test_codelengths_of_pooled_probes_estimate_each_block_by_its_mean_loss() -> None:
    d = _run("prequential", _probes())
    assert d.statistics is not None
    told = d.statistics.filter(subset="run=m1/p1/0", metric="codelength (nats)").row(0, named=True)
    mean = _probes().filter(run_id="m1/p1/0").group_by("epoch").agg((-pl.col("gold_probability").log()).mean())
    losses = dict(mean.iter_rows())
    assert told["value"] == pytest.approx(5 * losses[5] + 10 * losses[10], abs=1e-8)
    assert told["n"] == 15
    assert told["ci_low"] < told["value"] < told["ci_high"]


def test_a_model_is_found_by_a_pattern() -> None:
    frame = _probes().with_columns(run_id=pl.col("run_id").str.replace_all("/", "-"))
    assert _run("prequential", frame, model=r"^(m\d)").notes["models"] == 2
    with pytest.raises(UsageError, match="names no model in the run 'm1-p1-0'"):
        _run("prequential", frame, model=r"^(x\d)")
    with pytest.raises(UsageError, match="no group"):
        _run("prequential", frame, model="m")


# --- bad and degenerate input


def test_values_that_are_no_numbers_are_left_out_flagged_and_counted() -> None:
    frame = pl.DataFrame(
        {
            "example_id": ["a", "a", "b", "b", "c", "d"],
            "epoch": [0, 1, 0, 1, 0, 0],
            "margin": [1.0, 3.0, float("inf"), 2.0, float("nan"), 1e6],
        }
    )
    d = _run("aum", frame, pl.DataFrame({"example_id": ["a", "b", "c", "d", "e"]}))
    assert _raw(d) == {"a": 2.0, "b": 2.0}
    assert d.table["flag"].to_list() == [None, "values left out"]
    assert d.excluded.rows() == [
        ("c", "no finite margin"),
        ("d", "no finite margin"),
        ("e", "no row in the dynamics"),
    ]
    assert d.notes["rows left out: value null, not finite or beyond 65,536"] == 3


def test_epochs_missing_and_runs_missing_are_flagged() -> None:
    frame = TABLE.filter(~((pl.col("example_id") == "q001") & (pl.col("run_id") == "run-1")))
    frame = frame.filter(~((pl.col("example_id") == "q002") & (pl.col("epoch") == 4)))
    d = _run("confidence", frame)
    flags = dict(d.table.select("example_id", "flag").drop_nulls().iter_rows())
    assert flags == {"q001": "not in every run", "q002": "epochs missing"}
    assert d.notes["examples with epochs missing"] == 1


@pytest.mark.parametrize(
    ("method", "frame", "error", "said"),
    [
        ("confidence", TABLE.head(0), DataRefused, "no row"),
        ("confidence", TABLE.drop("epoch"), UsageError, "no column 'epoch'"),
        ("confidence", TABLE.rename({"gold_probability": "gold_prob"}), UsageError, "did you mean 'gold_prob'"),
        ("loss", TABLE.with_columns(loss=pl.lit(None, pl.Float32)), DataRefused, "no row has a finite loss"),
        ("confidence", TABLE.with_columns(gold_probability="margin"), DataRefused, "are these logits"),
        ("el2n", TABLE.with_columns(error_norm=pl.lit(1.5)), DataRefused, "out of bounds"),
        ("grand", TABLE.drop("hidden_norm"), UsageError, "hidden_norm"),
        ("grand", TABLE.with_columns(hidden_norm=pl.lit(None, pl.Float32)), UsageError, "use el2n"),
        ("aum", TABLE.with_columns(epoch=pl.lit(None, pl.Int32)), UsageError, "range of epochs"),
    ],
)
def test_what_cannot_be_measured_is_refused_with_a_remedy(
    method: str, frame: pl.DataFrame, error: type[Exception], said: str
) -> None:
    with pytest.raises(error) as caught:
        _run(method, frame)
    assert said in str(caught.value)


def test_wrong_settings_are_named() -> None:
    for given_, said in (
        ({"runs": ["run-7"]}, "there is no run 'run-7'"),
        ({"first_epoch": 9}, "epochs from 0 to 5"),
        ({"first_epoch": 3, "last_epoch": 2}, "comes after"),
        ({"runs": ["run-1", "run-1"]}, "named twice"),
        ({"share": 0}, "share"),
    ):
        with pytest.raises(UsageError, match=said):
            _run("confidence", TABLE, **given_)


def test_one_row_and_equal_values_give_one_finite_difficulty() -> None:
    one = TABLE.head(1)
    for method in FAMILY:
        d = _run(method, one)
        assert d.table["value"].is_finite().all()
        assert (len(d.table), d.bins) == (1, 1)
        d.summary()
    flat = TABLE.with_columns(gold_probability=pl.lit(0.25, pl.Float32))
    assert _run("confidence", flat).bins == 1
    assert _run("confidence", flat).reliability is None


def test_float32_dust_beyond_a_bound_is_moved_to_it() -> None:
    frame = pl.DataFrame(
        {"example_id": ["a"], "epoch": [0], "gold_probability": [1.0000004], "error_norm": [1.4142139]}
    )
    assert _value(_run("confidence", frame)) == {"a": 0.0}
    assert _value(_run("el2n", frame))["a"] == pytest.approx(2**0.5, abs=1e-9)


def test_rows_without_an_epoch_are_counted_and_epochs_may_be_any_numbers() -> None:
    frame = pl.DataFrame(
        {"example_id": ["a"] * 4, "epoch": [5, 1000, 20, None], "gold_probability": [0.0, 1.0, 0.5, 1.0]}
    )
    d = _run("confidence", frame)
    assert _value(d) == {"a": 0.5}
    assert d.notes["rows without an epoch, left out"] == 1
    assert d.notes["epochs"] == "5 to 1000, 3 different"


# --- regions and map


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 0.5)), min_size=1, max_size=40), st.floats(0.01, 1))
@settings(deadline=None, max_examples=30)
def test_regions_hold_at_least_their_share(pairs: list[tuple[float, float]], share: float) -> None:
    c, v = np.array(pairs).T
    found = regions(c, v, share)
    assert found.rows == max(1, int(share * len(c)))
    assert (np.sort(c)[found.rows - 1], np.sort(c)[-found.rows], np.sort(v)[-found.rows]) == (
        found.hard,
        found.easy,
        found.ambiguous,
    )
    assert min(found.is_hard.sum(), found.is_easy.sum(), found.is_ambiguous.sum()) >= found.rows


def test_regions_of_nothing_or_of_no_numbers_are_refused() -> None:
    for c, v, share, said in (
        ([], [], 0.5, "no example"),
        ([np.nan], [0.1], 0.5, "not finite"),
        ([0.1], [0.1, 0.2], 0.5, "equal length"),
        ([0.1], [0.1], 0.0, "share"),
    ):
        with pytest.raises((DataRefused, UsageError)) as caught:
            regions(c, v, share)
        assert said in str(caught.value)


def test_the_map_keeps_every_example_in_a_few_hundred_cells() -> None:
    from gradatim.tasks.core.charts_data_map import map_cells

    random = np.random.default_rng(0)
    c = random.random(50_000)
    v = np.sqrt(c * (1 - c)) * random.random(50_000)
    cells = map_cells(np.append(c, [0.0, 1.0, 0.5]), np.append(v, [0.0, 0.0, 0.5]), np.append(c, [0, 1, 0.5]))
    assert cells["n"].sum() == 50_003
    assert len(cells) < 750
    assert cells["x"].is_between(0, 0.5).all()
    assert cells["y"].is_between(0, 1).all()
    assert (cells["right"] - cells["y"]).abs().max() < 0.05  # type: ignore[operator]
    assert len(str(_run("confidence", TABLE).plot("data_map").to_dict())) < 100_000
    plain = _run("confidence", TABLE.drop("correct")).plot("data_map").to_dict()
    assert "shape" not in plain["layer"][0]["encoding"]


def _few() -> pl.DataFrame:
    return pl.DataFrame(
        {
            "run_id": ["r", "r", "r", "r"],
            "example_id": ["a", "b", "a", "b"],
            "epoch": [0, 0, 1, 1],
            "position": [0, 1, 2, 3],
            "gold_probability": [0.1, 0.9, 0.2, 0.8],
            "correct": [False, True, False, True],
            "loss": [2.3, 0.1, 1.6, 0.2],
            "margin": [-2.0, 2.0, -1.0, 1.0],
            "error_norm": [1.2, 0.1, 1.1, 0.2],
            "hidden_norm": [3.0, 4.0, 3.0, 4.0],
        }
    )


EVERY = ("confidence", "variability", "threshold_closeness", "correctness", "forgetting", "el2n", "grand", "aum")
EVERY = (*EVERY, "margin", "loss", "prequential", "momentum")


@pytest.mark.parametrize("method", EVERY)
@pytest.mark.parametrize("column", ["run_id", "example_id"])
def test_a_row_that_names_no_run_or_example_is_refused_and_never_lost(method: str, column: str) -> None:
    frame = _few().with_columns(pl.when(pl.col("example_id") == "b").then(pl.col(column)).alias(column))
    with pytest.raises(DataRefused, match=f"2 of 4 rows have no {column}"):
        gd.difficulty(method, dynamics=frame)


@pytest.mark.parametrize("method", EVERY)
def test_columns_of_text_or_lists_are_answered_with_their_type(method: str) -> None:
    with pytest.raises(UsageError, match="'epoch' is of type String"):
        gd.difficulty(method, dynamics=_few().with_columns(pl.col("epoch").cast(pl.String)))
    figures = ("gold_probability", "correct", "loss", "margin", "error_norm", "hidden_norm")
    with pytest.raises(UsageError, match="is of type List"):
        gd.difficulty(method, dynamics=_few().with_columns(pl.concat_list(name).alias(name) for name in figures))


@pytest.mark.parametrize("method", ["confidence", "margin"])
def test_an_epoch_between_two_is_refused_and_a_whole_number_of_any_type_taken(method: str) -> None:
    with pytest.raises(DataRefused, match=r"the epoch 0\.5 is no whole number"):
        gd.difficulty(method, dynamics=_few().with_columns(epoch=pl.col("epoch") + 0.5))
    plain = gd.difficulty(method, dynamics=_few())
    assert gd.difficulty(method, dynamics=_few().with_columns(pl.col("epoch").cast(pl.Float64))).table.equals(
        plain.table
    )


def test_a_right_or_wrong_of_text_beside_probabilities_is_answered_with_its_type() -> None:
    with pytest.raises(UsageError, match="'correct' is of type String"):
        gd.difficulty("confidence", dynamics=_few().with_columns(pl.col("correct").cast(pl.String)))


def test_two_rows_at_one_position_are_forgotten_alike_in_any_order() -> None:
    frame = pl.DataFrame(
        {"example_id": ["a"] * 4, "epoch": [0, 0, 1, 1], "position": [0, 0, 1, 1], "correct": [True, False] * 2}
    )
    found = [
        gd.difficulty("forgetting", dynamics=frame[order]).table["raw"][0] for order in ([0, 1, 2, 3], [1, 0, 3, 2])
    ]
    assert found[0] == found[1]


def test_thresholds_that_doubt_most_labels_are_doubted_themselves() -> None:
    ids = [f"q{i}" for i in range(20)]
    dynamics = pl.DataFrame({"example_id": ids, "epoch": 0, "margin": [float(i) for i in range(20)]})
    examples = pl.DataFrame({"example_id": ids, "fake": [i == 19 for i in range(20)]})
    found = gd.difficulty("aum", dynamics=dynamics, examples=examples, threshold="fake")
    assert any("more than half of the labels are doubted" in warning for warning in found.warnings)
    assert found.notes["threshold samples"] == 1


@pytest.mark.parametrize("method", ["confidence", "momentum"])
def test_epochs_that_no_table_holds_are_refused(method: str) -> None:
    for epoch in (pl.lit(2**63, pl.UInt64), pl.lit(0.5)):
        with pytest.raises(DataRefused, match=r"the epoch .* is no whole number"):
            gd.difficulty(method, dynamics=_few().with_columns(epoch=epoch))


@pytest.mark.parametrize("method", ["correctness", "forgetting"])
def test_half_right_is_neither_right_nor_wrong(method: str) -> None:
    with pytest.raises(DataRefused, match="correct is out of bounds in 1 row, first of the example 'a'") as error:
        gd.difficulty(method, dynamics=_few().with_columns(correct=pl.Series([0.5, 1, 0, 1])))
    assert "0 or 1" in str(error.value)


def test_a_norm_below_nought_is_refused() -> None:
    with pytest.raises(DataRefused, match="gradient norm is out of bounds in 4 rows"):
        gd.difficulty("grand", dynamics=_few().with_columns(hidden_norm=pl.lit(-1.0)))


@pytest.mark.parametrize("method", ["confidence", "momentum"])
def test_one_run_may_be_named_by_itself(method: str) -> None:
    two = pl.concat([_few(), _few().with_columns(run_id=pl.lit("other"))])
    found = gd.difficulty(method, dynamics=two, runs="other")
    assert found.notes["runs"] == 1
    assert found.table["value"].equals(gd.difficulty(method, dynamics=_few()).table["value"])


def test_where_all_are_threshold_samples_nothing_is_left_to_judge() -> None:
    examples = pl.DataFrame({"example_id": ["a", "b"], "fake": [True, True]})
    with pytest.raises(DataRefused, match="every example is a threshold sample"):
        gd.difficulty("aum", dynamics=_few(), examples=examples, threshold="fake")


@pytest.mark.parametrize(("method", "settings"), [("margin", {}), ("aum", {"first_epoch": 1}), ("aum", {"runs": "r"})])
def test_an_example_outside_of_the_rows_that_count_is_listed_with_or_without_the_examples(
    method: str, settings: dict[str, Any]
) -> None:
    other = _few().head(1).with_columns(example_id=pl.lit("c"), run_id=pl.lit("s"))
    frame = pl.concat([_few(), other])
    if method == "margin":  # each run has an end of its own
        frame = frame.with_columns(run_id=pl.lit("r"))
    outside = ("c", "no row in the runs and epochs that count")
    assert gd.difficulty(method, dynamics=frame, **settings).excluded.rows() == [outside]
    examples = pl.DataFrame({"example_id": ["a", "b", "c", "d"]})
    found = gd.difficulty(method, dynamics=frame, examples=examples, **settings)
    assert found.excluded.rows() == [outside, ("d", "no row in the dynamics")]


def test_threshold_samples_take_numbers_for_ids() -> None:
    from gradatim.tasks.difficulty.aum import threshold_samples

    assert threshold_samples([1, 2, 3], [0, 1, 0]).equals(threshold_samples(["1", "2", "3"], [0, 1, 0]))  # type: ignore[list-item]


def test_epochs_taken_for_sizes_of_training_sets_are_a_warning() -> None:
    epochs = pl.concat([_few().with_columns(epoch=pl.col("epoch") + 2 * k, position=pl.lit(k)) for k in range(2)])
    assert any("follow one another" in warning for warning in gd.difficulty("prequential", dynamics=epochs).warnings)
    sizes = epochs.with_columns(epoch=5 * 2 ** pl.col("epoch").cast(pl.Int64))
    assert not gd.difficulty("prequential", dynamics=sizes).warnings
    online = pl.DataFrame({"example_id": list("abcd"), "epoch": [0, 1, 2, 3], "gold_probability": [0.5] * 4})
    assert not gd.difficulty("prequential", dynamics=online).warnings


@pytest.mark.parametrize("method", EVERY[:-1])
def test_a_run_that_ends_before_the_epochs_that_count_is_left_out_and_counted(method: str) -> None:
    short = _few().head(2).with_columns(run_id=pl.lit("s"))
    both = pl.concat([_few(), short])
    found = gd.difficulty(method, dynamics=both, first_epoch=1)
    assert found.table["value"].equals(gd.difficulty(method, dynamics=_few(), first_epoch=1).table["value"])
    assert found.notes["runs"] == 1
    assert found.notes["runs without a row in these epochs, left out"] == 1
    assert found.table["flag"].str.contains("not in every run").sum() == 0
    with pytest.raises(UsageError, match="the run 's' has no row in this range"):
        gd.difficulty(method, dynamics=both, first_epoch=1, runs=["r", "s"])
