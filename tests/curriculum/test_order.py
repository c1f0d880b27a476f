"""Pacing, the order and its arms: published numbers, laws, and what is refused."""

from __future__ import annotations

import itertools
import json
import math
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.schemas.hashing import content_hash, random_bits
from gradatim.schemas.tables import spec
from gradatim.tasks.core.registry import configure, get
from gradatim.tasks.curriculum.build import build_curriculum, easiest_first
from gradatim.tasks.curriculum.competence import CompetenceConfig, competence, run
from gradatim.tasks.curriculum.order import Plan, check_pacing, curriculum_blocks, mix, positions_of, recut
from gradatim.tasks.curriculum.result import ARMS, CurriculumOrder, curriculum_batches

GOLDEN = Path(__file__).parents[1] / "golden" / "curriculum_arms.json"


def difficulty(n: int, ties: int = 1) -> pl.DataFrame:
    value = (np.arange(n) * 7919 % n) // ties / 7
    ids = [f"q{i:05d}" for i in range(n)]
    return pl.DataFrame({"example_id": ids, "method": ["length"] * n, "value": value})


def order(n: int, **setting: Any) -> CurriculumOrder:
    table = difficulty(n)
    return build_curriculum(table["example_id"], table, **setting)


def ranks(made: CurriculumOrder, arm: str = "curriculum") -> np.ndarray:
    place = {one: rank for rank, one in enumerate(made.ids)}
    return np.array([place[one] for one in made.order(arm)])


def test_linear_competence_has_the_published_values() -> None:
    config = CompetenceConfig(kind="linear", initial=0.01)
    found = competence(np.array([0, 100, 250, 500, 1000]) / 1000, config)
    assert np.round(found, 4).tolist() == [0.01, 0.109, 0.2575, 0.505, 1.0]


def test_root_competence_has_the_published_values() -> None:
    config = CompetenceConfig(kind="root", initial=0.01, power=2)
    found = competence(np.array([0, 100, 250, 500, 1000]) / 1000, config)
    assert np.round(found, 4).tolist() == [0.01, 0.3164, 0.5001, 0.7071, 1.0]
    cube = competence(np.array([0.5]), CompetenceConfig(kind="root", initial=0.01, power=3))
    assert cube[0] == pytest.approx((0.5 * (1 - 1e-6) + 1e-6) ** (1 / 3), abs=1e-15)


def test_competence_is_one_from_the_chosen_share_of_the_run_on() -> None:
    for kind in ("linear", "root"):
        config = configure(get("pacing", "competence"), {"kind": kind, "until": 0.25})
        share = run(np.array([0.0, 0.2499, 0.25, 0.7, 1.0]), config)  # type: ignore[arg-type]
        assert share[1] < 1
        assert share[2:].tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("rows", "passes", "positions"), [(10, 1.1, 11), (3, 0.5, 2), (7, 1, 7), (1, 0.01, 1), (100, 2.345, 235)]
)
def test_the_number_of_positions_is_the_ceiling_of_passes_times_rows(rows: int, passes: float, positions: int) -> None:
    assert positions_of(rows, passes) == positions
    assert len(order(rows, passes=passes).order("curriculum")) == positions


arms_setting = st.fixed_dictionaries(
    {
        "passes": st.floats(0.1, 12),
        "seed": st.integers(0, 2**40),
        "stages": st.integers(1, 12),
        "settings": st.fixed_dictionaries(
            {
                "kind": st.sampled_from(["linear", "root"]),
                "initial": st.floats(0.001, 1),
                "until": st.floats(0.05, 1),
            }
        ),
    }
)


@given(st.integers(1, 150), arms_setting)
@settings(max_examples=80, deadline=None)
def test_the_curriculum_draws_available_rows_without_replacement_inside_a_pass(n: int, setting: dict[str, Any]) -> None:
    made = order(n, **setting)
    drawn = ranks(made)
    config = CompetenceConfig(**setting["settings"])
    share = run(np.arange(len(drawn)) / len(drawn), config)
    available = np.maximum(1, np.floor(np.round(share * n, 9))).astype(int)
    assert len(drawn) == math.ceil(round(setting["passes"] * n, 9))
    assert (drawn < available).all()
    come: set[int] = set()
    for rank, size in zip(drawn.tolist(), available.tolist(), strict=True):
        if rank in come:  # a row comes again only when every available row has come in this pass
            assert come == set(range(size))
            come = set()
        come.add(rank)


@given(st.integers(1, 150), arms_setting)
@settings(max_examples=60, deadline=None)
def test_all_arms_hold_exactly_the_same_rows_as_often(n: int, setting: dict[str, Any]) -> None:
    made = order(n, **setting)
    expected = np.sort(ranks(made))
    assert np.bincount(expected, minlength=n).tolist() == made.exposures["exposures"].to_list()
    for arm in ARMS[1:]:
        assert np.sort(ranks(made, arm)).tolist() == expected.tolist(), arm


@given(
    st.integers(1, 400), st.floats(1, 8), st.floats(0.01, 1), st.floats(0.01, 1), st.sampled_from(["linear", "root"])
)
@settings(max_examples=70, deadline=None)
def test_every_row_is_seen_where_a_whole_pass_is_left_when_all_are_available(
    n: int, passes: float, initial: float, until: float, kind: str
) -> None:
    made = order(n, passes=passes, settings={"kind": kind, "initial": initial, "until": until})
    counts = made.exposures["exposures"].to_numpy()
    if (1 - until) * passes >= 1 + 1 / n:
        assert counts.min() >= 1


@pytest.mark.parametrize("kind", ["linear", "root"])
@pytest.mark.parametrize("passes", [1, 1.3, 1.9, 2, 3, 10])
def test_with_the_default_share_every_row_is_seen_from_one_pass_on(kind: str, passes: float) -> None:
    for n in (100, 101, 250, 1000):
        assert order(n, passes=passes, settings={"kind": kind}).exposures["exposures"].min() >= 1
    assert set(order(1000, settings={"kind": kind}).exposures["exposures"]) == {1}


def test_the_next_row_is_uniform_among_the_available_ones_that_have_not_come() -> None:
    # of 4 rows 2, 2, 3, 3 are available at the four positions
    config = CompetenceConfig(kind="linear", initial=0.5, until=1.0)
    seen = np.zeros((4, 4))
    for seed in range(2000):
        plan = Plan(random_bits("abcd", seed, "curriculum"), 4, 1, partial(run, config=config))
        drawn = np.concatenate(list(curriculum_blocks(plan)))
        seen[np.arange(4), drawn] += 1
    assert seen[0, 2:].tolist() == [0, 0]
    assert abs(seen[0, 0] - 1000) < 110  # 5 standard deviations of 22
    # both available rows have come by then, so that the third has to be the one that joins
    assert seen[2].tolist() == [0, 0, 2000, 0]
    # the pass has ended: any of the three that are available, for which 667 is the mean
    assert seen[3, 3] == 0
    assert np.abs(seen[3, :3] - 2000 / 3).max() < 5 * 21.1


def test_rows_that_join_late_are_not_preferred_to_those_that_wait() -> None:
    n, early = 3000, []
    for seed in range(5):
        drawn = ranks(order(n, seed=seed, settings={"kind": "linear", "initial": 0.5, "until": 0.5}))
        # at position 1000 (progress 1/3) 2500 rows are available, 1000 of them have come
        coming = drawn[1000:1050]
        early.append((coming < 1500).mean())
    # waiting among the first 1500: simulated by a slow exact sampler below
    generator, simulated = np.random.default_rng(0), []
    for _ in range(20):
        come = np.zeros(n, bool)
        share = 0.0
        for position in range(1050):
            size = int(min(1, position / n / 0.5 * 0.5 + 0.5) * n)
            waiting = np.flatnonzero(~come[:size])
            rank = generator.choice(waiting)
            come[rank] = True
            share += (rank < 1500) and position >= 1000
        simulated.append(share / 50)
    assert np.mean(early) == pytest.approx(np.mean(simulated), abs=0.12)


def test_the_random_arm_is_one_order_after_another_where_rows_come_equally_often() -> None:
    made = order(200, passes=3, settings={"initial": 1.0})
    assert set(made.exposures["exposures"]) == {3}
    drawn = ranks(made, "random")
    for start in (0, 200, 400):
        assert sorted(drawn[start : start + 200]) == list(range(200))
    assert abs(np.corrcoef(drawn, np.arange(600))[0, 1]) < 0.2
    assert not np.array_equal(drawn[:200], drawn[200:400])


def test_the_anti_arm_mirrors_the_curriculum() -> None:
    made = order(500)
    assert ranks(made, "anti").tolist() == (499 - ranks(made)).tolist()
    many = order(300, passes=6)
    easy, hard = ranks(many), ranks(many, "anti")
    ordered = np.sort(easy)
    assert sorted(hard) == ordered.tolist()
    first = slice(0, 150)
    assert easy[first].mean() < 100
    assert hard[first].mean() > 200
    # the k-th easiest of all positions' rows gives way to the k-th hardest
    copy = {int(rank): 0 for rank in range(300)}
    for position, rank in enumerate(easy.tolist()):
        index = int(np.searchsorted(ordered, rank)) + copy[rank]
        copy[rank] += 1
        assert hard[position] == ordered[len(ordered) - 1 - index]


def test_the_shuffled_arm_keeps_each_stage_and_loses_the_order_inside() -> None:
    made = order(700, passes=2.5, stages=7)
    easy, mixed = ranks(made), ranks(made, "shuffled")
    starts = made.plan.stage_starts()
    assert starts.tolist() == [0, 250, 500, 750, 1000, 1250, 1500, 1750]
    for low, high in itertools.pairwise(starts):
        assert sorted(easy[low:high]) == sorted(mixed[low:high])
        assert not np.array_equal(easy[low:high], mixed[low:high])
    first = mixed[:250]
    assert abs(np.corrcoef(np.arange(250), first)[0, 1]) < 0.25 < np.corrcoef(np.arange(250), easy[:250])[0, 1]


def test_rows_are_ranked_by_value_then_id_after_rounding() -> None:
    table = pl.DataFrame({"example_id": ["d", "c", "b", "a"], "value": [1.0, 0.0, 1.0 + 1e-12, float("-inf")]})
    ids, missing = easiest_first(["a", "b", "c", "d"], table)
    assert ids.to_list() == ["a", "c", "b", "d"]
    assert missing.is_empty()


@given(st.integers(1, 60), st.randoms())
@settings(max_examples=10, deadline=None)
def test_neither_the_order_of_rows_nor_other_rows_of_the_table_matter(n: int, random: Any) -> None:
    table = difficulty(n, ties=3)
    train = table["example_id"].to_list()
    expected = build_curriculum(train, table, passes=2.5).table
    random.shuffle(train)
    more = pl.concat([table.sample(fraction=1, shuffle=True, seed=n), difficulty(n + 9)[n:]])
    assert build_curriculum(train, more, passes=2.5).table.equals(expected)


def test_the_content_of_every_arm_is_the_golden_one() -> None:
    found = {}
    for kind in ("linear", "root"):
        made = order(1500, passes=3.5, seed=11, settings={"kind": kind})
        for arm in ARMS:
            found[f"{kind} {arm}"] = content_hash(list(curriculum_batches(made, [arm])))
    golden = json.loads(GOLDEN.read_text())
    assert golden == {"revision": get("pacing", "competence").revision, **found}, "raise the revision first"


@pytest.mark.parametrize("size", [1, 7, 1000, 131_072])
def test_the_stream_is_the_table_in_batches_of_the_asked_size(size: int) -> None:
    made = order(60, passes=3, stages=4)
    batches = list(curriculum_batches(made, size=size))
    contract = spec("curriculum")
    assert all(batch.schema.equals(contract.schema) for batch in batches)
    assert max(len(batch) for batch in batches) == min(size, 180)
    whole = pl.from_arrow(pa.Table.from_batches(batches))
    assert isinstance(whole, pl.DataFrame)
    assert whole.equals(made.table)
    assert whole.equals(whole.sort(contract.key))
    assert whole["arm"].unique().sort().to_list() == sorted(ARMS)
    assert whole["weight"].unique().to_list() == [1.0]
    one = whole.filter(pl.col("arm") == "random")
    assert one["position"].to_list() == list(range(180))
    assert one["stage"].to_list() == [4 * position // 180 for position in range(180)]
    assert one["example_id"].equals(made.order("random"))


def test_stages_can_be_more_than_positions() -> None:
    made = order(3, stages=10)
    assert made.table.filter(pl.col("arm") == "shuffled").height == 3
    assert sorted(made.order("shuffled")) == sorted(made.ids)


def test_many_positions_cross_the_buckets_of_the_random_arm(monkeypatch: pytest.MonkeyPatch) -> None:
    made = order(300, passes=9.5)
    whole = ranks(made, "random")
    monkeypatch.setattr("gradatim.tasks.curriculum.order._BUCKET", 100)
    assert ranks(made, "random").tolist() == whole.tolist()


def test_half_a_million_positions_take_seconds() -> None:
    n = 100_000
    table = pl.DataFrame({"example_id": [f"q{i:06d}" for i in range(n)], "value": np.arange(n) % 1000 / 10})
    made = build_curriculum(table["example_id"], table, passes=5)
    start = time.process_time()
    assert sum(len(batch) for batch in curriculum_batches(made, ["curriculum"])) == 500_000
    assert time.process_time() - start < 5


def test_training_rows_without_a_difficulty_are_listed_and_come_in_no_arm() -> None:
    table = difficulty(50).with_columns(
        pl.when(pl.col("example_id") == "q00003").then(None)
        .when(pl.col("example_id") == "q00004").then(float("nan")).otherwise("value").alias("value")
    )  # fmt: skip
    made = build_curriculum([*table["example_id"], "unknown"], table)
    assert made.without_difficulty.to_list() == ["q00003", "q00004", "unknown"]
    assert made.positions == 48
    assert not set(made.without_difficulty) & set(made.table["example_id"])
    summary = made.summary()
    assert "3 training rows have no difficulty length" in summary.warnings[0]
    assert ("unknown",) in summary.tables[0].rows


def test_rows_that_never_come_are_said() -> None:
    made = order(100, passes=0.3)
    assert any("70 of 100 rows never come" in warning for warning in made.summary().warnings)


def test_the_result_explains_itself() -> None:
    made = order(400, passes=2, arms=["curriculum", "random"])
    summary = made.summary()
    facts = {fact.name: fact.value for fact in summary.facts}
    assert facts["positions"] == 800
    assert facts["different rows seen"] == 400
    assert facts["rows available at the start"] == 4
    assert facts["every row available from position"] == 400
    assert made.plan.available(400) == 400 > made.plan.available(399)
    assert len(summary.charts) == 1
    profile = made.profile(4)
    assert profile["arm"].unique().sort().to_list() == ["curriculum", "random"]
    easy = profile.filter(pl.col("arm") == "curriculum")["percentile"]
    drawn = (ranks(made) + 1) / 400
    assert easy.to_list() == pytest.approx([drawn[i : i + 200].mean() for i in (0, 200, 400, 600)])
    assert made.plot().to_dict()
    assert "Platanios" in made.cite()
    assert "800 positions" in repr(made)
    with pytest.raises(UsageError, match="no arm 'anti'"):
        made.order("anti")
    with pytest.raises(UsageError, match="did you mean 'random'"):
        list(curriculum_batches(made, ["randm"]))


def test_a_run_that_ends_before_every_row_is_available_says_never() -> None:
    made = order(100, settings={"until": 1.0, "kind": "linear"})
    assert made.summary().facts[6].name == "every row available from position"
    assert made.summary().facts[6].value == "never"


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"by": "lenght"}, "did you mean 'length'"),
        ({"pacing": "competense"}, "did you mean 'competence'"),
        ({"settings": {"knd": "root"}}, "did you mean 'kind'"),
        ({"settings": {"initial": 0}}, "initial"),
        ({"arms": ["curriculm"]}, "did you mean 'curriculum'"),
        ({"arms": []}, "one or more different"),
        ({"arms": ["random", "random"]}, "one or more different"),
        ({"passes": 0}, "above 0"),
        ({"passes": float("inf")}, "above 0"),
        ({"stages": 0}, "1 or more"),
    ],
)
def test_wrong_use_is_answered_with_what_is_valid(setting: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError) as error:
        order(20, **setting)
    assert words in str(error.value)


def test_several_difficulties_need_a_name() -> None:
    table = pl.concat([difficulty(20), difficulty(20).with_columns(method=pl.lit("irt"), value=-pl.col("value"))])
    with pytest.raises(UsageError, match="2 difficulties"):
        build_curriculum(table["example_id"].unique(), table)
    up = build_curriculum(table["example_id"].unique(), table, by="length")
    assert up.ids.to_list() == build_curriculum(table["example_id"].unique(), table, by="irt").ids.to_list()[::-1]


def test_no_difficulty_at_all_double_ids_and_other_things_are_refused() -> None:
    table = difficulty(20)
    with pytest.raises(DataRefused, match="none of 1 training rows"):
        build_curriculum(["other"], table)
    with pytest.raises(DataRefused, match="more than once in train"):
        build_curriculum(["q00001", "q00001"], table)
    with pytest.raises(DataRefused, match="no id"):
        build_curriculum(["q00001", None], table)  # type: ignore[list-item]
    with pytest.raises(DataRefused, match="more than once in the difficulty"):
        build_curriculum(["q00001"], pl.concat([table, table]))
    with pytest.raises(UsageError, match="no column 'value'"):
        build_curriculum(["q00001"], table.drop("value"))
    with pytest.raises(UsageError, match="dict"):
        build_curriculum(["q00001"], {})


def test_a_pacing_that_shrinks_or_leaves_the_unit_interval_is_refused() -> None:
    for wrong in (
        lambda p: 1 - p,
        lambda p: p * 2,
        lambda p: p - 0.5,
        lambda p: np.full_like(p, np.nan),
        lambda p: 0.5,
    ):
        with pytest.raises(UsageError, match="not a share that grows"):
            check_pacing(wrong, "mine")
    check_pacing(lambda p: np.floor(p * 4) / 4, "steps")


def test_mixing_is_splitmix64() -> None:
    # the first outputs of splitmix64 from the state 0
    state = np.arange(1, 4, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    assert [hex(value) for value in mix(state)] == ["0xe220a8397b1dcdaf", "0x6e789e6aa1b965f4", "0x6c45d188009454f"]


@given(st.lists(st.integers(1, 9), max_size=12), st.integers(1, 20))
def test_a_stream_cut_anew_keeps_its_content(sizes: list[int], size: int) -> None:
    blocks = [np.arange(n) + 100 * i for i, n in enumerate(sizes)]
    cut = list(recut(iter(blocks), size))
    assert [value for block in cut for value in block] == [value for block in blocks for value in block]
    assert all(len(block) == size for block in cut[:-1])
    again = list(recut(iter(cut), sizes))
    assert [len(block) for block in again] == sizes
