"""Linking of two calibrations: printed constants of textbook programs, exact recovery, drift, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gradatim as gd
from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.tasks.difficulty.item_response.curves import Curves
from gradatim.tasks.difficulty.item_response.linking import METHODS, Method, link, linked
from gradatim.tasks.difficulty.item_response.linking_curves import Abilities, left_out, minimise, sums
from gradatim.tasks.difficulty.responses import from_matrix

# The twelve common items of M. J. Kolen and R. L. Brennan's worked example (3PL, D = 1.7) and the constants that their
# program STUIRT prints for it, as recorded in the tests of J. P. Meyer's jMetrik: a, b, c of form X, then of form Y.
KOLEN_BRENNAN = """
.4551 -.7101 .2087  .4416 -1.3349 .1559
.5839 -.8567 .2038  .5730 -1.3210 .1913
.7544 .0212 .1600  .5987 -.7098 .1177
.6633 .0506 .1240  .6041 -.3539 .0818
1.0690 .9610 .2986  .9902 .5320 .3024
.9672 .1950 .0535  .8081 -.1156 .0648
.3479 2.2768 .1489  .4140 2.5538 .2410
1.4579 1.0241 .2453  1.3554 .5811 .2243
1.8811 1.4062 .1992  1.0417 .9392 .1651
.7020 2.2401 .0853  .6336 1.8960 .0794
1.4080 1.5556 .0789  1.1347 1.0790 .0630
1.2993 2.1589 .1075  .9255 2.1337 .1259"""
POINTS = np.array([-4.0, -3.111, -2.222, -1.333, -0.4444, 0.4444, 1.333, 2.222, 3.111, 4.0])
DENSITY_X = np.array([0.0001008, 0.00276, 0.03021, 0.142, 0.3149, 0.3158, 0.1542, 0.03596, 0.003925, 0.0001862])
DENSITY_Y = np.array([0.0001173, 0.003242, 0.03449, 0.1471, 0.3148, 0.311, 0.1526, 0.03406, 0.00251, 0.0001116])
STUIRT = Abilities.of(POINTS, DENSITY_Y, DENSITY_X)

RASCH_X = [-3.188047976, 1.031760328, 0.819040914, -2.70694736, -0.094527077, 0.689697135, -0.551837153, -0.359559276]
RASCH_Y = [-3.074599226, 1.01282435, 0.868538408, -2.404483603, 0.037402866, 0.70074742, -0.602555046, -0.350426446]


def frame(a: np.ndarray, b: np.ndarray, g: np.ndarray | float = 0.0, u: np.ndarray | float = 1.0) -> pl.DataFrame:
    """Lay item parameters out as the table does."""
    a, b, g, u = (np.asarray(v, dtype=float) + np.zeros(len(b)) for v in (a, b, g, u))
    ids = [f"q{j:04d}" for j in range(len(b))]
    return pl.DataFrame({"example_id": ids, "discrimination": a, "location": b, "lower": g, "upper": u})


def textbook() -> tuple[pl.DataFrame, pl.DataFrame]:
    """Form X, the new one, and form Y, the old one."""
    rows = np.array([[float(c) for c in line.split()] for line in KOLEN_BRENNAN.strip().split("\n")])
    x, y = (frame(1.7 * rows[:, k], rows[:, k + 1], rows[:, k + 2]) for k in (0, 3))
    return x, y


def moved(items: pl.DataFrame, slope: float, intercept: float) -> pl.DataFrame:
    """Return the calibration whose line to `items` is (slope, intercept)."""
    return items.with_columns((pl.col("location") - intercept) / slope, discrimination=pl.col("discrimination") * slope)


def bank(count: int, seed: int = 0, guess: float = 0.2) -> pl.DataFrame:
    """Draw items of a 3PL."""
    random = np.random.default_rng(seed)
    return frame(np.exp(0.3 * random.normal(size=count)), random.normal(size=count), guess * random.random(count), 1.0)


def curves(items: pl.DataFrame) -> Curves:
    """Return the items' curves."""
    a, b, g, u = (items[c].to_numpy() for c in ("discrimination", "location", "lower", "upper"))
    return Curves(a, -a * b, g, u)


# --- printed constants


@pytest.mark.parametrize(
    ("method", "slope", "intercept"),
    [
        ("mean_sigma", 1.168891, -0.515543),
        ("mean_mean", 1.217266, -0.557156),
        ("haebara", 1.067800, -0.471281),
        ("stocking_lord", 1.083417, -0.487619),
    ],
)
def test_the_textbook_example_gives_the_constants_of_its_authors_program(
    method: Method, slope: float, intercept: float
) -> None:
    x, y = textbook()
    found = link(x, y, method, drift="keep", abilities=STUIRT)
    close = 2e-6 if method == "haebara" else 6e-7  # the program stops that far from its minimum
    assert found.slope == pytest.approx(slope, abs=close)
    assert found.intercept == pytest.approx(intercept, abs=close)
    assert (found.common, found.used) == (12, 12)


def test_the_textbook_criteria_have_the_printed_values() -> None:
    x, y = textbook()
    assert link(x, y, "stocking_lord", drift="keep", abilities=STUIRT).criterion == pytest.approx(0.009666, abs=6e-7)
    assert link(x, y, "haebara", drift="keep", abilities=STUIRT).criterion == pytest.approx(12 * 0.001506, abs=1e-5)


@pytest.mark.parametrize(
    ("method", "intercept"),
    [("mean_mean", 0.068484), ("mean_sigma", 0.068484), ("haebara", 0.06468396), ("stocking_lord", 0.05736233)],
)
def test_rasch_calibrations_are_shifted_by_what_the_r_package_sirt_prints(method: Method, intercept: float) -> None:
    uniform = Abilities.of(np.arange(-80, 81) / 20, np.zeros(161), np.ones(161))  # sirt compares on the scale of X
    found = link(frame(1.0, RASCH_X), frame(1.0, RASCH_Y), method, drift="keep", abilities=uniform)
    assert found.slope == 1.0
    assert found.intercept == pytest.approx(intercept, abs=3e-6)
    assert "the slope of the link is 1: both calibrations have the same fixed discrimination" in found.notes
    assert found.slope_error == 0.0


# --- laws


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(METHODS), st.floats(0.3, 3.0), st.floats(-3.0, 3.0), st.integers(2, 40), st.integers(0, 2**16))
def test_a_known_line_is_recovered_exactly(
    method: Method, slope: float, intercept: float, count: int, seed: int
) -> None:
    old = bank(count, seed)
    new = moved(old, slope, intercept)
    found = link(new.sample(fraction=1.0, shuffle=True, seed=seed), old, method)
    assert found.slope == pytest.approx(slope, rel=1e-5)
    assert found.intercept == pytest.approx(intercept, abs=1e-5)
    assert not found.drifted
    back = found.apply(new)
    for column in ("location", "discrimination", "lower", "upper"):
        assert back[column].to_numpy() == pytest.approx(old[column].to_numpy(), abs=2e-4)


@pytest.mark.parametrize("method", ["stocking_lord", "haebara"])
@pytest.mark.parametrize("symmetric", [True, False])
def test_the_minimum_is_that_of_a_search_over_a_grid(method: Method, symmetric: bool) -> None:
    x, y = textbook()
    abilities = Abilities.normal(symmetric=symmetric)
    found = link(x, y, method, drift="keep", abilities=abilities)

    def loss(slope: float, intercept: float) -> float:
        """The criterion from its definition, a scale at a time."""
        total = 0.0
        frames = [
            (y, found_frame(x, slope, intercept), abilities.old),
            (x, found_frame(y, 1 / slope, -intercept / slope), abilities.new),
        ]
        for left, right, weights in frames:
            gap = chance(left, abilities.nodes) - chance(right, abilities.nodes)
            total += float(weights @ (gap.sum(axis=0) ** 2 if method == "stocking_lord" else (gap**2).sum(axis=0)))
        return total

    grid = [(s, i) for s in np.arange(0.95, 1.2, 0.01) for i in np.arange(-0.6, -0.4, 0.01)]
    best = grid[int(np.argmin([loss(*point) for point in grid]))]
    assert (found.slope, found.intercept) == pytest.approx(best, abs=0.01)
    assert loss(found.slope, found.intercept) == pytest.approx(found.criterion, rel=1e-9)
    assert loss(found.slope, found.intercept) <= loss(*best)


def found_frame(items: pl.DataFrame, slope: float, intercept: float) -> pl.DataFrame:
    """Move items by a line, independently of the code under test."""
    return items.with_columns(pl.col("location") * slope + intercept, discrimination=pl.col("discrimination") / slope)


def chance(items: pl.DataFrame, theta: np.ndarray) -> np.ndarray:
    a, b, g, u = (items[c].to_numpy()[:, None] for c in ("discrimination", "location", "lower", "upper"))
    return g + (u - g) / (1 + np.exp(-a * (theta - b)))


def test_the_gradient_of_both_criteria_is_that_of_differences() -> None:
    x, y = textbook()
    new, old = curves(x), curves(y)
    for kind in ("stocking_lord", "haebara"):
        at = np.array([1.1, -0.4])
        _, gradient, _ = sums(kind, new, old, *at, STUIRT, 3).total()
        for k in range(2):
            step = np.eye(2)[k] * 1e-6
            up, down = (sums(kind, new, old, *(at + sign * step), STUIRT).total()[0] for sign in (1, -1))
            assert 2 * gradient[k] == pytest.approx((up - down) / 2e-6, rel=1e-5)


def test_leaving_a_part_out_at_the_minimum_is_a_fit_without_it() -> None:
    x, y = bank(200, 1), bank(200, 1)
    noise = np.random.default_rng(2).normal(size=200) * 0.1
    new, old = curves(x), curves(y)
    new = Curves(new.a, new.d - new.a * noise, new.g, new.u)
    for kind in METHODS[2:]:
        found = link(x.with_columns(location=pl.col("location") + noise), y, kind, drift="keep")
        keep = np.arange(200) % 20 != 3
        refit = minimise(kind, new.part(keep), old.part(keep), (1.0, 0.0), Abilities.normal())
        slope, intercept, _, here = minimise(kind, new, old, (1.0, 0.0), Abilities.normal(), groups=20)
        assert left_out(here, slope, intercept, free_slope=True)[3] == pytest.approx(refit[:2], abs=2e-4)
        assert found.intercept_error is not None
        assert 0.003 < found.intercept_error < 0.02  # .1 / sqrt(200) = .007


def test_the_errors_of_a_line_are_its_spread_over_samples_of_items() -> None:
    random = np.random.default_rng(0)
    for method in METHODS:
        found, errors = [], []
        for _ in range(25):
            old = bank(60, int(random.integers(2**30)))
            new = moved(old, 1.3, 0.5).with_columns(
                pl.col("location") + 0.2 * random.normal(size=60),
                discrimination=pl.col("discrimination") * np.exp(0.1 * random.normal(size=60)),
            )
            line = link(new, old, method, drift="keep")
            found.append((line.slope, line.intercept))
            errors.append((line.slope_error, line.intercept_error))
        assert np.mean(found, axis=0) == pytest.approx([1.3, 0.5], abs=0.04)
        assert np.median(errors, axis=0) == pytest.approx(np.std(found, axis=0), rel=0.4)


# --- drift


def test_items_that_moved_alone_are_named_and_left_out() -> None:
    random = np.random.default_rng(4)
    old = bank(40, 3)  # seed of the noise: none of 38 is beyond three spreads by chance
    noise = 0.03 * random.normal(size=40)
    shift = np.zeros(40)
    shift[[4, 17]] = 1.5, -1.2
    new = moved(old, 1.2, -0.3).with_columns(pl.col("location") + noise + shift)
    kept = link(new, old, "mean_sigma", drift="keep")
    dropped = link(new, old, "mean_sigma")
    assert dropped.drifted == kept.drifted == ("q0004", "q0017")
    assert (dropped.used, kept.used) == (38, 40)
    assert abs(dropped.slope - 1.2) < 0.02 < abs(kept.slope - 1.2)
    assert dropped.rmse < 0.05 < kept.rmse
    listed = dropped.items.filter(~pl.col("used"))
    assert listed["reason"].to_list() == ["drifted"] * 2
    assert (listed["z"].abs() > 3).all()
    with_errors = new.with_columns(location_error=pl.lit(2.0))  # so noisy that nothing can be called drift
    assert link(with_errors, old.with_columns(location_error=pl.lit(2.0))).drifted == ()


def test_many_drifting_items_are_a_warning() -> None:
    old = bank(40, 3)
    shift = np.where(np.arange(40) % 4 == 0, np.where(np.arange(40) % 8 == 0, 2.0, -2.0), 0.0)
    found = link(moved(old, 1.0, 0.2).with_columns(pl.col("location") + shift), old)
    assert len(found.drifted) == 10
    assert found.intercept == pytest.approx(0.2, abs=1e-6)
    assert any("more than a fifth" in note for note in found.notes)


# --- what cannot be used


def test_items_that_say_nothing_of_the_scale_are_left_out_with_the_reason() -> None:
    old = bank(20, 5)
    a, b = old["discrimination"].to_numpy().copy(), old["location"].to_numpy().copy()
    a[0], a[1], b[2] = -a[0], 30.0, np.nan
    broken = frame(a, b + 0.7).with_columns(
        flag=pl.Series([None] * 3 + ["none right"] + [None] * 16),
        fit=pl.Series([1.0] * 4 + [None] + [1.0] * 15, dtype=pl.Float64),
    )
    old = old.with_columns(lower=pl.lit(0.0))
    found = link(broken, old, leave=["q0005"])
    reasons = dict(found.items.select("example_id", "reason").drop_nulls().iter_rows())
    assert reasons == {
        "q0000": "with negative discrimination",
        "q0001": "with discrimination at its bound",
        "q0002": "without finite parameters",
        "q0003": "flagged",
        "q0004": "placed without a fit",
        "q0005": "left out by request",
    }
    assert (found.common, found.used) == (20, 14)
    assert found.intercept == pytest.approx(-0.7, abs=1e-9)


def test_too_few_common_items_are_refused_or_warned_of() -> None:
    old = bank(20, 5)
    with pytest.raises(DataRefused, match="1 of 1 common items can be used"):
        link(old.head(1), old)
    with pytest.raises(DataRefused, match="0 of 0 common items"):
        link(old.with_columns(pl.col("example_id") + "x"), old)
    with pytest.raises(DataRefused, match="0 of 20 common items can be used; 20 flagged"):
        link(old.with_columns(flag=pl.lit("all right")), old)
    few = link(old.head(3), old)
    assert any("rests on 3 common items" in note for note in few.notes)
    assert not any("rests on" in note for note in link(old, old).notes)
    two = link(old.head(2), old)
    assert two.slope == pytest.approx(1.0)
    assert two.slope_error is None


def test_common_items_without_spread_leave_mean_sigma_undetermined() -> None:
    flat = bank(6, 1).with_columns(location=pl.lit(0.5), lower=pl.lit(0.0))
    with pytest.raises(DataRefused, match="all equally hard") as refused:
        link(moved(flat, 2.0, 0.1), flat)
    assert "mean_mean" in refused.value.remedy
    assert link(moved(flat, 2.0, 0.1), flat, "mean_mean").slope == pytest.approx(2.0)
    assert link(moved(flat, 2.0, 0.1), flat, "stocking_lord").slope == pytest.approx(2.0, rel=1e-4)


def test_wrong_use_says_what_is_valid() -> None:
    old = bank(6, 1)
    with pytest.raises(UsageError, match="no linking method 'meansigma'"):
        link(old, old, "meansigma")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="no choice 'omit'"):
        link(old, old, drift="omit")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="new calibration has no column 'location'"):
        link(old.drop("location"), old)
    with pytest.raises(UsageError, match="stands twice in the old calibration"):
        link(old, pl.concat([old, old]))


def test_linking_changes_neither_frame_and_ignores_their_order() -> None:
    old, new = bank(30, 7), moved(bank(30, 7), 1.4, 0.2)
    before = old.clone(), new.clone()
    first = link(new, old, "stocking_lord")
    second = link(new.reverse(), old.sample(fraction=1.0, shuffle=True, seed=1), "stocking_lord")
    assert (old.equals(before[0]), new.equals(before[1])) == (True, True)
    assert (first.slope, first.intercept) == (second.slope, second.intercept)
    assert first.items.equals(second.items)


def test_different_orders_of_the_common_items_are_a_warning() -> None:
    random = np.random.default_rng(0)
    found = link(frame(1.0, random.normal(size=50)), frame(1.3, random.normal(size=50)), drift="keep")
    assert any("order the common items differently" in note for note in found.notes)


# --- two groups of respondents, and the notebook


def answers(theta: np.ndarray, items: pl.DataFrame, seed: int) -> pl.DataFrame:
    """Draw responses to items."""
    random = np.random.default_rng(seed)
    p = chance(items, theta).T
    return from_matrix((random.random(p.shape) < p).astype(float), examples=items["example_id"].to_list())


@pytest.fixture(scope="module")
def two_groups() -> tuple[gd.Difficulty, gd.Difficulty]:
    """Calibrations of 60 and 60 items, 40 in common, by respondents N(0, 1) and N(.8, .7^2)."""
    random = np.random.default_rng(11)
    items = bank(80, 4, guess=0.0)
    old = gd.difficulty("irt", responses=answers(random.normal(size=600), items.head(60), 1), model="2pl", splits=0)
    able = 0.8 + 0.7 * random.normal(size=600)
    new = gd.difficulty("irt", responses=answers(able, items.tail(60), 2), model="2pl", splits=0)
    return new, old


@pytest.mark.parametrize("method", METHODS)
def test_two_groups_of_different_ability_are_linked_by_their_means_and_spreads(
    two_groups: tuple[gd.Difficulty, gd.Difficulty], method: Method
) -> None:
    new, old = two_groups
    both = linked(new, old, method)
    assert new.item_parameters is not None
    assert old.item_parameters is not None
    line = link(new.item_parameters, old.item_parameters, method)
    assert line.slope == pytest.approx(0.751, abs=0.1)  # the new respondents' spread over the old ones'
    assert line.intercept == pytest.approx(0.819, abs=0.1)  # and their mean on the old scale
    truth = bank(80, 4).tail(60)["location"].to_numpy()
    assert np.sqrt(np.mean((both.table["value"].to_numpy() - truth) ** 2)) < 0.3
    assert np.sqrt(np.mean((new.table["value"].to_numpy() - truth) ** 2)) > 0.8


def test_a_linked_difficulty_keeps_its_order_and_says_what_was_done(
    two_groups: tuple[gd.Difficulty, gd.Difficulty],
) -> None:
    new, old = two_groups
    both = linked(new, old, "stocking_lord")
    assert both.table.select("example_id", "percentile", "bin", "n", "flag").equals(
        new.table.select("example_id", "percentile", "bin", "n", "flag")
    )
    assert new.respondents is not None
    assert both.respondents is not None
    assert both.respondents["ability"].mean() == pytest.approx(0.8, abs=0.15)
    ratio = (both.table["standard_error"] / new.table["standard_error"]).to_numpy()
    assert ratio == pytest.approx(ratio[0])
    assert both.notes["linked to"] == "irt 2pl, stocking_lord"
    assert both.notes["common items, used"].startswith("40, ")  # type: ignore[union-attr]
    assert "linked to" not in new.notes
    assert both.table.columns == new.table.columns


def test_bins_can_be_cut_where_the_old_ones_were(two_groups: tuple[gd.Difficulty, gd.Difficulty]) -> None:
    new, old = two_groups
    both = linked(new, old, bins="old")
    ends = old.table.group_by("bin").agg(pl.col("value").max()).sort("bin")["value"].to_numpy()
    value, found = both.table["value"].to_numpy(), both.table["bin"].to_numpy()
    for k, end in enumerate(ends[:-1]):
        assert (value[found <= k] <= end + 1).all()
        assert (value[found > k] > end - 1e-12).all()
    same = linked(old, old, bins="old")
    assert same.table["bin"].to_list() == old.table["bin"].to_list()


def test_only_calibrations_in_logits_can_be_linked() -> None:
    table = pl.DataFrame({"respondent_id": list("aabb"), "example_id": list("xyxy"), "score": [1.0, 0.0, 1.0, 1.0]})
    rate = gd.difficulty("pass_rate", responses=table)
    with pytest.raises(UsageError, match="pass_rate has no item parameters in logits"):
        linked(rate, rate)


def test_many_common_items_are_linked_without_a_loop_over_them() -> None:
    old = bank(300_000, 9)
    found = link(moved(old, 1.1, 0.4), old, "mean_sigma")
    assert (found.slope, found.intercept) == pytest.approx((1.1, 0.4))


@pytest.mark.data
@pytest.mark.parametrize("method", METHODS)
def test_early_and_late_agents_of_swe_bench_are_linked_as_one_calibration_says(data: Path, method: Method) -> None:
    table = pl.read_parquet(data / "agentbench/swebench_verified_responses.parquet")
    table = table.select(respondent_id="submission", example_id="instance_id", score="resolved")
    names = table["respondent_id"].unique().sort()  # begin with the date
    early = pl.col("respondent_id").is_in(names.head(67).implode())
    old, new, whole = (
        gd.difficulty("irt", responses=t, splits=0) for t in (table.filter(early), table.filter(~early), table)
    )
    assert whole.respondents is not None
    before, after = (whole.respondents.filter(e)["ability"].to_numpy() for e in (early, ~early))
    line = link(
        new.item_parameters.join(new.table.select("example_id", "flag"), on="example_id"), old.item_parameters, method
    )  # type: ignore[union-attr, arg-type]
    assert line.slope == pytest.approx(after.std() / before.std(), abs=0.03)
    assert line.intercept == pytest.approx((after.mean() - before.mean()) / before.std(), abs=0.06)
    assert linked(new, old, method).respondents["ability"].mean() == pytest.approx(line.intercept, abs=0.05)  # type: ignore[index]
