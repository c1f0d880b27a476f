"""Splits by domain, data set and task: what is left out, by brute force; numbers of folds; what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from brute_force import cross_dataset, leave_one_domain_out, task_holdout
from hypothesis import given, settings
from hypothesis import strategies as st
from split_rows import difficulty, examples, make

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.schemas.hashing import content_hash
from gradatim.tasks.core.registry import configure, get
from gradatim.tasks.splits.certificate import certify
from gradatim.tasks.splits.numbering import numbered

GOLDEN = Path(__file__).parents[1] / "golden" / "splits_domains.json"
SIDE = {"train": "in", "validation": "in", "test": "in", "test_ood": "out", "excluded": "neither"}


def frame(n: int = 1200) -> pl.DataFrame:
    number = pl.int_range(n)
    return examples(n).with_columns(
        task=pl.col("template"),
        category="c" + (number * 7919 % 211 // 9).cast(pl.String),
        source_dataset="s" + (number * 7919 % 211 % 70).cast(pl.String),
        dataset="domain",
        site="domain",
        patient="p" + (number // 7).cast(pl.String),
        created_at=pl.datetime(2024, 1, 1, time_zone="UTC") + number * pl.duration(hours=7),
    )


SETTINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "leave_one_domain_out.pairs": ("leave_one_domain_out", {"cross_validation": True, "validation_ood": 0.2}),
    "site": ("site", {}),
    "task_holdout": ("task_holdout", {"fraction": 0.2}),
    "task_holdout.tasks": ("task_holdout", {"tasks": ["t3", "t77"], "closure": "fixed_point", "source": None}),
    "cross_dataset": ("cross_dataset", {}),
    "time": ("time", {}),
    "time.windows": ("time", {"share": 0.5, "windows": 3, "gap": "3d", "validation_ood": 0.3}),
    "time.patients": ("time", {"before": "2024-09-01", "until": "2024-10-15", "keep_together": "patient"}),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_the_content_is_the_golden_one_and_neither_row_order_nor_other_columns_change_it(name: str) -> None:
    method, setting = SETTINGS[name]
    rows = frame()
    tables = {"examples": rows, "difficulty": difficulty(rows)}
    split = make(method, tables, **setting)
    found = content_hash(split.table.to_arrow())
    mixed = {
        "examples": rows.sample(fraction=1, shuffle=True, seed=3).with_columns(more=pl.lit(1)),
        "difficulty": difficulty(rows).sample(fraction=1, shuffle=True, seed=4),
    }
    assert content_hash(make(method, mixed, **setting).table.to_arrow()) == found
    golden = json.loads(GOLDEN.read_text())
    revision = get("split", method).revision
    assert golden[name] == {"revision": revision, "content": found}, "raise the revision, then the golden hash"


@pytest.mark.parametrize("name", SETTINGS)
def test_each_id_comes_once_in_each_fold_the_certificate_holds_and_a_row_moved_breaks_it(name: str) -> None:
    method, setting = SETTINGS[name]
    rows = frame().drop("input")
    split = make(method, rows, **setting, seeds=2)
    for _, part in split.table.group_by("strategy", "seed", "fold"):
        assert part["example_id"].to_list() == rows["example_id"].to_list()
    one = split.select(seed=1, fold=0)
    assert one.certify(rows).holds
    for here, there in (("test_ood", "train"), ("train", "test_ood")):
        moved = one.main.filter(pl.col("split") == here)["example_id"][0]
        label = one.main["held_out"].drop_nulls()[0]
        wrong = one.table.with_columns(
            pl.when(pl.col("example_id") == moved).then(pl.lit(there)).otherwise("split").alias("split"),
            pl.when(pl.col("example_id") == moved).then(pl.lit(label)).otherwise("held_out").alias("held_out"),
        )
        object.__setattr__(broken := one.select(), "table", wrong)
        failed = certify(broken, rows).failures["check"].to_list()
        assert any(check.startswith("constraint:") for check in failed), (here, there, failed)


@given(
    st.integers(0, 10_000),
    st.sampled_from(["leave_one_domain_out.pairs", "cross_dataset", "task_holdout", "time.patients"]),
)
@settings(max_examples=12, deadline=None)
def test_adding_rows_moves_nobody(seed: int, name: str) -> None:
    method, setting = SETTINGS[name]
    # every task, data set and patient is there before, so that nothing new is linked or straddles
    setting = {**setting, "keep_together": [], "controls": False, "seeds": 1}
    every = frame()
    few = every.sample(fraction=0.7, seed=seed)
    if method == "task_holdout":
        setting |= {"source": None}
        few = pl.concat([few, every.unique(["task", "category"], keep="first", maintain_order=True)]).unique(
            "example_id"
        )
    before, after = (make(method, rows, seed=seed, **setting) for rows in (few, every))
    both = before.main.join(after.main, on=["fold", "example_id"])
    assert len(both) == len(before.main)
    assert (both["split"] == both["split_right"]).all()


# --- domains


@given(
    domains=st.lists(st.sampled_from(["a", "b", "c; domain=d", "c"]) | st.none(), min_size=60, max_size=120),
    folds=st.sampled_from([1, 2]),
    seed=st.integers(0, 99),
)
@settings(max_examples=15, deadline=None)
def test_each_domain_and_each_pair_is_out_alone_as_brute_force_says(
    domains: list[str | None], folds: int, seed: int
) -> None:
    names = [f"r{i:03d}" for i in range(len(domains))]
    rows = pl.DataFrame({"example_id": names, "domain": domains}, schema={"example_id": pl.String, "domain": pl.String})
    known = sorted({name for name in domains if name is not None})
    setting = {"cross_validation": True, "controls": False, "test": 0.3, "folds": folds}
    if len(known) < 3:
        with pytest.raises(DataRefused, match="takes three or more"):
            make("leave_one_domain_out", rows, **setting)
        return
    try:
        split = make("leave_one_domain_out", rows, seed=seed, **setting)
    except DataRefused:  # a split would be empty
        return
    held = [{name} for name in known] + [{a, b} for i, a in enumerate(known) for b in known[i + 1 :]]
    assert len(held) == len(known) + len(known) * (len(known) - 1) // 2
    assert split.main["fold"].n_unique() == folds * len(held)
    for number, names_out in enumerate(held):
        for turn in range(folds):
            block = split.main.filter(pl.col("fold") == number * folds + turn)
            found = {i: SIDE[s] for i, s in block.select("example_id", "split").iter_rows()}
            assert found == leave_one_domain_out.sides(rows.to_dicts(), "domain", names_out)
            assert split.select(seed=seed, fold=number * folds + turn).certify(rows).holds


def test_pairs_are_named_both_and_do_not_renumber_the_folds_of_one() -> None:
    one = make("leave_one_domain_out", examples(), controls=False)
    both = make("leave_one_domain_out", examples(), controls=False, cross_validation=True)
    assert both.table.filter(pl.col("fold") < 4).equals(one.table)
    named = both.main.drop_nulls("held_out").select("fold", "held_out").unique().sort("fold")["held_out"].to_list()
    assert named[4:] == [
        "domain=astronomy; domain=biology", "domain=astronomy; domain=chemistry", "domain=astronomy; domain=dance",
        "domain=biology; domain=chemistry", "domain=biology; domain=dance", "domain=chemistry; domain=dance",
    ]  # fmt: skip
    some = make("leave_one_domain_out", examples(), controls=False, cross_validation=True, domains=["dance"])
    assert some.sizes["held_out"].to_list() == [
        "domain=dance",
        *(f"domain={name}; domain=dance" for name in ("astronomy", "biology", "chemistry")),
    ]


@pytest.mark.parametrize("folds", [1, 3])
def test_a_new_domain_follows_and_pairs_asked_for_later_follow_too(folds: int) -> None:
    rows = examples().filter(pl.col("domain") != "biology")
    first = make("leave_one_domain_out", rows, folds=folds)
    tables = {"examples": examples(), "frozen": first.main}
    later = make("leave_one_domain_out", tables, folds=folds, cross_validation=True)
    numbers = later.main.drop_nulls("held_out").select(pl.col("fold") // folds, "held_out").unique().sort("fold")
    assert numbers["held_out"].to_list()[:4] == [f"domain={d}" for d in ("astronomy", "chemistry", "dance", "biology")]
    assert len(numbers) == 10
    kept = first.main.filter(pl.col("split").is_in(["test", "test_ood"])).drop("reason")
    assert kept.join(later.main, on=["fold", "example_id", "split", "held_out"], nulls_equal=True).height == len(kept)


def test_numbers_of_a_release_stay_and_new_ones_follow() -> None:
    frozen = pl.DataFrame({"fold": [0, 1, 2, 3, 3], "held_out": [None, None, "b", "a", None]})
    assert numbered(["a", "b", "new", ""], frozen, 1) == [(0, ""), (2, "b"), (3, "a"), (4, "new")]
    assert numbered(["a", "b"], frozen, 2) == [(1, "b"), (2, "a")] or numbered(["a", "b"], frozen, 2)[0][0] == 1
    assert numbered(["x", "y"], None, 3) == [(0, "x"), (1, "y")]


def test_the_states_of_real_communities_get_a_fold_each_also_those_with_one_row(data: Path) -> None:
    rows = pl.read_csv(data / "tabular_domains" / "communities_crime.csv.gz", null_values="?")
    rows = rows.select(
        pl.format("c{}", pl.int_range(pl.len()).cast(pl.String).str.zfill(4)).alias("example_id"), "state"
    )
    split = make("leave_one_domain_out", rows, column="state", controls=False)
    sizes = dict(rows["state"].cast(pl.String).value_counts().iter_rows())
    assert len(sizes) == 46
    assert min(sizes.values()) == 1
    found = {held.removeprefix("state="): n for held, n in split.sizes.select("held_out", "test_ood").iter_rows()}
    assert found == sizes
    few = [warning for warning in split.warnings if "too few to see a gap" in warning]
    assert len(few) == sum(size < 30 for size in sizes.values())
    large = make("leave_one_domain_out", rows, column="state", controls=False, min_rows=30, cross_validation=True)
    count = sum(size >= 30 for size in sizes.values())
    assert large.sizes.height == count + count * (count - 1) // 2


def test_the_test_domain_keeps_a_fifth_of_its_own_for_the_oracle() -> None:
    split = make("leave_one_domain_out", examples(4000), validation_ood=0.2, validation=0.2, controls=False)
    for row in split.sizes.iter_rows(named=True):
        assert row["validation_ood"] + row["test_ood"] == 1000
        assert abs(row["validation_ood"] - 200) < 4 * np.sqrt(1000 * 0.2 * 0.8)


def test_domains_that_cannot_be_left_out_are_refused_or_told() -> None:
    rows = examples()
    with pytest.raises(DataRefused, match="holds 1 domains"):
        make("leave_one_domain_out", rows.with_columns(domain=pl.lit("same")))
    two = rows.with_columns(domain=pl.col("domain").replace({"astronomy": "biology", "dance": "chemistry"}))
    with pytest.raises(DataRefused, match="to leave two out takes three") as error:
        make("leave_one_domain_out", two, cross_validation=True)
    assert "cross_validation: false" in error.value.remedy
    with pytest.raises(DataRefused, match="no domain has 400 rows"):
        make("leave_one_domain_out", rows, min_rows=400)
    with pytest.raises(UsageError, match="did you mean 'dance'"):
        make("leave_one_domain_out", rows, domains=["dances"])
    odd = rows.with_columns(domain=pl.col("domain").replace({"dance": "astronomy; domain=biology"}))
    with pytest.raises(DataRefused, match="names both one domain and two"):
        make("leave_one_domain_out", odd, cross_validation=True)
    lone = rows.with_columns(
        domain=pl.when(pl.col("example_id") == "q00003").then(pl.lit("lone"))
        .when(pl.col("example_id") == "q00004").then(None).otherwise("domain")
    )  # fmt: skip
    split = make("leave_one_domain_out", lone)
    assert "domain lone has 1 rows: too few to see a gap" in split.warnings
    assert split.select(fold=4).counts["test_ood"] == 1
    assert split.why("q00004").splitlines()[0] == "seed 0 fold 0  excluded: domain is null"
    one_class = rows.with_columns(label=pl.lit("yes"))
    assert make("leave_one_domain_out", one_class, stratify="label").certify(one_class.drop("input")).holds
    with pytest.raises(UsageError, match="no column 'site'"):
        make("site", rows)


def test_a_site_split_is_leave_one_domain_out_by_site_with_each_site_in_validation() -> None:
    rows = frame()
    split = make("site", rows, stratify="site", controls=False)
    assert split.sizes["held_out"].to_list() == [f"site={name}" for name in sorted(rows["site"].unique())]
    inside = split.main.filter(pl.col("split") == "validation").join(rows, on="example_id")
    per_site = inside.group_by("fold", "site").len()
    assert per_site["len"].to_list() == [30] * 12


# --- data sets


@given(
    datasets=st.lists(st.sampled_from(["a", "b", "c", "all"]) | st.none(), min_size=60, max_size=120),
    plans=st.lists(st.sampled_from(["single", "leave_one_out", "union"]), min_size=1, unique=True),
    seed=st.integers(0, 99),
)
@settings(max_examples=30, deadline=None)
def test_each_plan_trains_where_brute_force_says_and_cuts_rows_alike_in_all_folds(
    datasets: list[str | None], plans: list[str], seed: int
) -> None:
    names = [f"r{i:03d}" for i in range(len(datasets))]
    rows = pl.DataFrame(
        {"example_id": names, "dataset": datasets}, schema={"example_id": pl.String, "dataset": pl.String}
    )
    known = sorted({name for name in datasets if name is not None})
    try:
        split = make("cross_dataset", rows, seed=seed, plans=plans, min_rows=1, test=0.3, controls=False)
    except DataRefused:  # one data set, or a split would be empty
        return
    expected = cross_dataset.plans(known, plans)
    assert split.main["fold"].n_unique() == len(expected)
    for number, (trained, label) in enumerate(expected):
        block = split.main.filter(pl.col("fold") == number)
        assert {i: SIDE[s] for i, s in block.select("example_id", "split").iter_rows()} == cross_dataset.sides(
            rows.to_dicts(), trained
        )
        assert set(block["held_out"].drop_nulls()) == ({label} if label else set())
        assert split.select(fold=number).certify(rows).holds
    inside = split.main.filter(pl.col("split").is_in(["train", "validation", "test"]))
    assert (inside.group_by("example_id").agg(pl.col("split").n_unique())["split"] == 1).all()


def test_a_new_data_set_joins_the_evaluated_ones_and_gets_the_next_folds() -> None:
    old = frame().filter(pl.col("dataset") != "biology")
    first = make("cross_dataset", old)
    later = make("cross_dataset", {"examples": frame(), "frozen": first.main})
    labels = later.main.group_by("fold").agg(pl.col("held_out").drop_nulls().min()).sort("fold")["held_out"].to_list()
    assert labels == [
        "dataset other than astronomy", "dataset other than chemistry", "dataset other than dance",
        "dataset=astronomy", "dataset=chemistry", "dataset=dance", None,
        "dataset other than biology", "dataset=biology",
    ]  # fmt: skip
    assert sum(outcome.moved + outcome.left for outcome in later.frozen) == 0
    assert later.certify(frame().drop("input")).holds


def test_data_sets_that_are_too_small_are_evaluated_but_not_trained_on_alone() -> None:
    rows = frame().with_columns(dataset=pl.when(pl.int_range(1200) < 1).then(pl.lit("tiny")).otherwise("dataset"))
    split = make("cross_dataset", rows, plans="single")
    assert split.sizes.filter(pl.col("strategy") == "cross_dataset").height == 4
    every = make("cross_dataset", rows.with_columns(dataset=pl.col("dataset").replace({"tiny": "a few"})))
    assert every.main["fold"].unique().sort().to_list() == [1, 2, 3, 4, 6, 7, 8, 9, 10]
    assert split.warnings == ("dataset tiny has 1 rows, fewer than min_rows: no fold of its own",)
    with pytest.raises(DataRefused, match="no data set has 2000 rows"):
        make("cross_dataset", rows, plans=["single"], min_rows=2000)
    with pytest.raises(DataRefused, match="holds 1 data sets"):
        make("cross_dataset", rows.with_columns(dataset=pl.lit("x")))
    with pytest.raises(DataRefused, match=r"fold 4 .* held out"):
        make("cross_dataset", rows, plans=["single"], min_rows=1)
    with pytest.raises(UsageError, match="plans"):
        configure(get("split", "cross_dataset"), {"plans": ["double"]})


# --- tasks


@given(
    rows=st.lists(
        st.tuples(
            st.sampled_from("abcdefghij") | st.none(),
            st.sampled_from("uvwxyz") | st.none(),
            st.integers(0, 9).map(str) | st.none(),
        ),
        min_size=30,
        max_size=60,
    ),
    tasks=st.sets(st.sampled_from("abcdefghij"), max_size=2),
    categories=st.sets(st.sampled_from("uvwxyz"), max_size=1),
    links=st.sets(st.sampled_from(["category", "source_dataset"])),
    fixed_point=st.booleans(),
)  # fmt: skip
@settings(max_examples=50, deadline=None)
def test_what_is_held_out_and_what_must_leave_train_is_that_of_brute_force(
    rows: list[tuple[str | None, str | None, str | None]],
    tasks: set[str],
    categories: set[str],
    links: set[str],
    fixed_point: bool,
) -> None:
    schema = {"task": pl.String, "category": pl.String, "source_dataset": pl.String}
    # one source for most tasks, so that not everything is linked with everything
    data = pl.DataFrame(rows, schema=schema, orient="row").with_columns(
        pl.Series("example_id", [f"r{i:03d}" for i in range(len(rows))]),
        pl.when(pl.col("source_dataset").is_in(["0", "1"])).then("source_dataset").alias("source_dataset"),
        pl.when(pl.int_range(len(rows)) % 4 == 0).then("category").alias("category"),
    )
    tasks &= set(data["task"].drop_nulls())
    categories = categories & set(data["category"].drop_nulls()) if "category" in links else set()
    if not tasks and not categories:
        return
    setting: dict[str, Any] = {
        "tasks": sorted(tasks), "categories": sorted(categories), "controls": False, "test": 0.3, "validation": 0.0,
        "category": "category" if "category" in links else None,
        "source": "source_dataset" if "source_dataset" in links else None,
        "closure": "fixed_point" if fixed_point else "once",
    }  # fmt: skip
    expected = task_holdout.sides(data.to_dicts(), tasks, categories, sorted(links), fixed_point=fixed_point)
    try:
        split = make("task_holdout", data, **setting)
    except DataRefused:
        assert "in" not in expected.values() or list(expected.values()).count("in") < 20
        return
    assert {i: SIDE[s] for i, s in split.main.select("example_id", "split").iter_rows()} == expected
    assert split.certify(data).holds


def tied() -> pl.DataFrame:
    """Ten tasks of 40 rows: c1 = {t0, t1}, c2 = {t2, t3}, ...; t1 and t2 share a source, t3 and t4 another one."""
    number = np.arange(400)
    task = number // 40
    source = {0: "s0", 1: "shared", 2: "shared", 3: "other", 4: "other"}
    return pl.DataFrame(
        {
            "example_id": [f"r{i:03d}" for i in number],
            "task": [f"t{i}" for i in task],
            "category": [f"c{i // 2 + 1}" for i in task],
            "source_dataset": [source.get(i, f"s{i}") for i in task.tolist()],
        }
    )


def test_reasons_name_the_category_the_source_and_the_task() -> None:
    split = make("task_holdout", tied(), tasks="t1")
    assert split.why("r040") == "test_ood: task t1 is held out"
    assert split.why("r000") == "excluded: task t0 shares category c1 with the held-out task t1"
    assert split.why("r080") == "excluded: task t2 shares source_dataset shared with the held-out task t1"
    assert split.why("r120").endswith("task t3 is not held out")
    assert split.warnings == ("2 tasks (80 rows) share a category or a source with held-out ones and are in no split",)
    deep = make("task_holdout", tied(), tasks="t1", closure="fixed_point")
    assert deep.why("r120") == "excluded: task t3 shares category c2 with a task left out, t2"
    assert deep.why("r160") == "excluded: task t4 shares source_dataset other with a task left out, t3"
    assert deep.why("r200") == "excluded: task t5 shares category c3 with a task left out, t4"
    assert deep.why("r240").endswith("task t6 is not held out")
    whole = make("task_holdout", tied(), categories="c1", source=None)
    assert whole.why("r000") == "test_ood: category c1 is held out"
    assert whole.counts["test_ood"] == 80
    assert "excluded" not in whole.counts


def test_a_fraction_draws_categories_and_a_release_keeps_them_out() -> None:
    rows = frame()
    split = make("task_holdout", rows, fraction=0.3, source=None)
    drawn = {label.removeprefix("category=") for label in split.main["held_out"].drop_nulls().unique()}
    out = split.main.filter(pl.col("split") == "test_ood").join(rows, on="example_id")
    assert set(out["category"]) == drawn
    more = pl.concat([rows, rows.with_columns(example_id="x" + pl.col("example_id"))])
    grown = make("task_holdout", more, fraction=0.3, source=None)
    assert {label.removeprefix("category=") for label in grown.main["held_out"].drop_nulls().unique()} == drawn
    assert split.certify(rows.drop("input")).holds
    fewer = make("task_holdout", {"examples": rows, "frozen": split.main}, fraction=0.05, source=None)
    assert fewer.ids("test_ood").equals(split.ids("test_ood"))
    assert any("since a release holds them out" in warning for warning in fewer.warnings)
    other = make("task_holdout", {"examples": rows, "frozen": split.main}, categories=sorted(drawn)[:1], source=None)
    assert other.ids("test_ood").equals(split.ids("test_ood"))


def test_task_hold_outs_that_cannot_be_are_refused() -> None:
    rows = tied()
    with pytest.raises(UsageError, match="either tasks and categories, or a fraction"):
        make("task_holdout", rows)
    with pytest.raises(UsageError, match="either tasks and categories, or a fraction"):
        make("task_holdout", rows, tasks=["t1"], fraction=0.5)
    with pytest.raises(UsageError, match="need the setting 'category'"):
        make("task_holdout", rows, categories=["c1"], category=None)
    with pytest.raises(UsageError, match="no category 'c9'"):
        make("task_holdout", rows, categories=["c9"])
    with pytest.raises(UsageError, match="no column 'category'"):
        make("task_holdout", rows.drop("category"), tasks=["t1"])
    with pytest.raises(DataRefused, match="holds 1 tasks"):
        make("task_holdout", rows.with_columns(task=pl.lit("one")), tasks=["one"])
    with pytest.raises(DataRefused, match="no task is left to train on"):
        make("task_holdout", rows.with_columns(source_dataset=pl.lit("one")), tasks=["t1"])
    with pytest.raises(DataRefused, match="holds out none of 5") as error:
        make("task_holdout", rows, fraction=0.001)
    enough = float(error.value.remedy.split("above ")[1].split(",")[0])
    assert make("task_holdout", rows, fraction=min(enough + 0.001, 0.99)).counts["test_ood"] > 0
    null = rows.with_columns(pl.when(pl.col("example_id") != "r399").then("task").alias("task"), category=pl.lit(None))
    split = make("task_holdout", null, tasks=["t1"])
    assert split.why("r399") == "excluded: task is null"
    assert "10 tasks have no category: it cannot keep them apart" in split.warnings
