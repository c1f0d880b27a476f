"""`import gradatim as gd`: the notebook of the documentation, step by step, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
from small_recipe import items, write_jsonl

import gradatim as gd
from gradatim.inputs import as_responses
from gradatim.schemas.errors import DataRefused, UsageError


@pytest.fixture
def answers() -> pl.DataFrame:
    """Twelve respondents of growing ability to 300 items."""
    rng = np.random.default_rng(0)
    ability, location = np.linspace(-1.5, 1.5, 12), rng.normal(size=300)
    solved = rng.random((12, 300)) < 1 / (1 + np.exp(location[None, :] - ability[:, None]))
    return pl.DataFrame(
        [
            {"respondent_id": f"model-{w:02d}", "example_id": f"q{i:04d}", "score": float(solved[w, i])}
            for w in range(12)
            for i in range(300)
        ]
    )


def test_a_notebook_goes_from_a_file_to_an_evaluation(tmp_path: Path, answers: pl.DataFrame) -> None:
    path = write_jsonl(tmp_path / "items.jsonl", items(0, 300))
    examples = gd.read(path, id="id", input="question", output="answer", template="kind")
    assert len(examples) == 300
    d = gd.irt(answers)
    assert "12 respondents" in repr(d)
    assert d.table.columns[:3] == ["example_id", "method", "value"]
    without = d.leave_out("model-03")
    assert "model-03" not in without.respondents["respondent_id"].to_list()
    assert "q0017" in d.explain("q0017")
    assert "Bock" in d.cite()
    s = gd.split(examples, "length", column="n_steps", train="<= 6", difficulty=d)
    assert sum(s.counts.values()) == 300
    assert s.why("q0008") == "test_ood: n_steps 9 > 6"
    c = s.certify(examples, difficulty=d, responses=answers)
    assert c.holds
    assert gd.certify(s, examples, d, answers).table.equals(c.table)
    assert r"\begin{tabular}" in c.to_latex()
    o = gd.curriculum(s.train, by=d, pacing="competence", arms=["curriculum", "random"], seed=0)
    order = o.order("curriculum")
    assert sorted(order) == sorted(s.train)
    one = answers.filter(pl.col("respondent_id") == "model-05")
    e = gd.evaluate(s, one, difficulty=d, resamples=200)
    assert "without model-05" in e.difficulty  # the evaluated model does not grade its own difficulty
    expected = one.filter(pl.col("example_id").is_in(s.ids("test").implode()))["score"].mean()
    assert e.cell("split", "test").value == pytest.approx(expected)
    assert e.gap.low <= e.gap.value <= e.gap.high
    assert e.matrix("bin").plot().to_dict()
    other = gd.evaluate(s, answers.filter(pl.col("respondent_id") == "model-11"), name="the other", resamples=200)
    assert gd.compare({"one": e, "other": other}, "one").difference("other", "test").n == s.counts["test"]


def test_irt_takes_frames_of_any_library_and_matrices_alike(answers: pl.DataFrame) -> None:
    long = gd.irt(answers).table["value"]
    wide = answers.pivot("example_id", index="respondent_id", values="score").sort("respondent_id")
    matrix = wide.drop("respondent_id").to_numpy()
    names = wide.columns[1:]
    for found in (answers.lazy(), answers.to_pandas(), answers.to_arrow(), answers.sample(fraction=1.0, shuffle=True)):
        assert np.allclose(gd.irt(found).table["value"], long)
    assert np.allclose(gd.irt(matrix).table["value"], long)
    frame = gd.irt(pd.DataFrame(matrix, columns=names)).table
    assert frame["example_id"].to_list() == sorted(names)
    holed = matrix.copy()
    holed[0, :5] = np.nan
    assert gd.irt(holed).table["n"].to_list()[:6] == [11] * 5 + [12]


NAMED = pl.DataFrame(
    {"model": ["zeta", "alpha", "mid"], "a": [1, 0, 1], "b": [True, False, False], "c": [0.5, None, 1.0]}
)
SCORES = [
    ("alpha", "a", 0.0),
    ("alpha", "b", 0.0),
    ("mid", "a", 1.0),
    ("mid", "b", 0.0),
    ("mid", "c", 1.0),
    ("zeta", "a", 1.0),
    ("zeta", "b", 1.0),
    ("zeta", "c", 0.5),
]


@pytest.mark.parametrize(
    "wide",
    [
        NAMED,
        NAMED.select("a", "b", "c", "model"),
        NAMED.rename({"model": "respondent_id"}),
        NAMED.with_columns(pl.col("model").cast(pl.Categorical), pl.col("a").cast(pl.String)),
        NAMED.to_arrow(),
        NAMED.to_pandas(),
        NAMED.to_pandas().set_index("model"),
        NAMED.to_pandas().set_index("model").rename_axis(None),
        NAMED.to_pandas().rename(columns={"model": "respondent_id"}).set_index("respondent_id"),
    ],
)
def test_a_matrix_keeps_the_names_of_its_respondents(wide: object) -> None:
    found = as_responses(wide)["responses"].sort("respondent_id", "example_id")
    assert found.select("respondent_id", "example_id", "score").rows() == SCORES


def test_an_index_of_numbers_or_of_a_long_table_is_kept() -> None:
    some = NAMED.to_pandas().drop(columns="model").loc[[2, 0]]
    assert set(as_responses(some)["responses"]["respondent_id"]) == {"0", "2"}
    long = pd.DataFrame(SCORES, columns=["respondent_id", "example_id", "score"])
    for keys in (["respondent_id"], ["respondent_id", "example_id"]):
        found = as_responses(long.set_index(keys))["responses"].select(long.columns.to_list())
        assert found.rows() == SCORES
    masked = np.ma.MaskedArray([[1.0, 0.0], [0.0, 1.0]], mask=[[False, True], [False, False]])
    assert len(as_responses(masked)["responses"]) == 3


@pytest.mark.parametrize(
    ("found", "where", "what"),
    [
        (NAMED.with_columns(c=pl.Series(["1", "x", "0"])), "column 'model'", "'zeta'"),
        (NAMED.select("a", c=pl.Series(["1", "x", "0"])), "column 'c'", "'x'"),
        (NAMED.rename({"model": "respondent_id"}).with_columns(c=pl.Series(["1", "", "0"])), "column 'c'", "''"),
        (NAMED.with_columns(model=pl.Series(["m", "m", "n"])), "column 'model'", "'m' twice"),
        (NAMED.with_columns(model=pl.Series(["m", None, "n"])), "column 'model'", "without a name"),
        (NAMED.with_columns(when=pl.date(2024, 1, 1)), "column 'when'", "Date"),
        (pd.DataFrame({"a": [1, "x"], "b": [0, 1]}), "responses", ""),
        (NAMED.to_pandas().set_index(["model", "a"]), "responses", "2 levels"),
        ([[1, 0], [1]], "responses", "no matrix"),
        ([["m", 1], ["n", 0]], "responses", "no matrix"),
        (np.array([["x", "y"]]), "responses", "no matrix"),
    ],
)
def test_a_matrix_with_what_is_no_score_is_refused_by_column_and_value(found: object, where: str, what: str) -> None:
    with pytest.raises(UsageError) as refused:
        as_responses(found)
    assert where in refused.value.where
    assert what in refused.value.what


@pytest.mark.parametrize("seed", ["a", 2**70, 2**63, -1, 1.5, None, True])
def test_a_seed_is_checked_as_a_recipe_does(seed: object) -> None:
    examples = pl.DataFrame({"example_id": ["a", "b"], "input": ["x", "y z"]})
    hard = pl.DataFrame({"example_id": ["a", "b"], "value": [1.0, 2.0]})
    places = pl.DataFrame({"example_id": ["a", "b"], "split": ["test", "test_ood"]})
    right = pl.DataFrame({"example_id": ["a", "b"], "score": [1.0, 0.0]})
    for call in (
        lambda: gd.split(examples, "random", seed=seed),
        lambda: gd.difficulty("length", examples=examples, seed=seed),
        lambda: gd.curriculum(["a", "b"], by=hard, seed=seed),
        lambda: gd.evaluate(places, right, seed=seed),
        lambda: gd.compare({}, seed=seed),
    ):
        with pytest.raises(UsageError, match="found the seed"):
            call()
    assert gd.curriculum(["a", "b"], by=hard, seed=np.int64(2**63 - 1)).seed == 2**63 - 1


def test_one_arm_may_be_named_by_itself() -> None:
    hard = pl.DataFrame({"example_id": ["a", "b", "c"], "value": [3.0, 1.0, 2.0]})
    assert list(gd.curriculum(["a", "b", "c"], by=hard, arms="anti").arms) == ["anti"]
    with pytest.raises(UsageError, match="did you mean 'curriculum'"):
        gd.curriculum(["a"], by=hard, arms="curiculum")


@pytest.mark.parametrize(
    ("settings", "called"), [({}, "model"), ({"name": "mine"}, "mine"), ({"name": "mine", "model": "m1"}, "m1")]
)
def test_predictions_that_name_no_model_are_one_models(settings: dict[str, str], called: str) -> None:
    places = pl.DataFrame({"example_id": ["a", "b", "c"], "split": ["test", "test", "test_ood"]})
    answers = pl.DataFrame({"example_id": ["a", "b", "c"], "correct": [True, False, True]})
    e = gd.evaluate(places, answers, resamples=100, **settings)
    assert e.cell("split", "test").value == 0.5
    assert set(e.table["run_id"]) == {called}


def test_a_family_is_left_out_as_a_whole(answers: pl.DataFrame) -> None:
    family = pl.when(pl.col("respondent_id") < "model-04").then(pl.lit("small")).otherwise(pl.lit("large"))
    d = gd.pass_rate(answers.with_columns(family=family)).leave_out("small")
    assert set(d.table["n"]) == {8}


def test_a_procedural_data_set_is_read_like_a_file() -> None:
    scan = gd.read("generate:scan")
    assert len(scan) == 20_910
    assert gd.diversity(scan, "hill", column="template").value("hill_D0") == scan["template"].n_unique()


def test_rejected_rows_are_told(tmp_path: Path) -> None:
    path = tmp_path / "items.jsonl"
    path.write_text('{"id": "a", "q": "x"}\n{broken\n', encoding="utf-8")
    with pytest.warns(UserWarning, match="1 of 2 rows rejected"):
        assert len(gd.read(path, id="id", input="q")) == 1


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: gd.read("nowhere.jsonl"), "nowhere"),
        (lambda: gd.read("x.jsonl", idd="a"), "did you mean 'id'"),
        (lambda: gd.irt(pl.DataFrame({"respondent_id": ["a"], "example": ["b"], "score": [1.0]})), "example_id"),
        (lambda: gd.irt(np.zeros(5)), "1 dimensions"),
        (lambda: gd.irt("text"), "found str"),
        (lambda: gd.split(pl.DataFrame({"example_id": ["a"]}), "lenght"), "did you mean 'length'"),
        (lambda: gd.difficulty("irt"), "irt needs responses"),
        (lambda: gd.open_store("nowhere-at-all"), "which dataset"),
    ],
)
def test_what_cannot_work_is_answered_with_what_would(
    call: object, match: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises((UsageError, DataRefused), match=match):
        call()  # type: ignore[operator]


def test_every_public_name_is_there_and_nothing_else_answers() -> None:
    for name in gd.__all__:
        assert callable(getattr(gd, name))
    assert set(gd.__all__) <= set(dir(gd))
    with pytest.raises(AttributeError, match="nothing_of_ours"):
        _ = gd.nothing_of_ours


@pytest.mark.parametrize("vectors", [[["a", "b"]] * 3, [[1.0, 2.0], [1.0], [2.0]]])
def test_vectors_that_are_no_matrix_of_numbers_are_refused(vectors: list[list[object]]) -> None:
    examples = pl.DataFrame({"example_id": ["a", "b", "c"]})
    with pytest.raises(UsageError, match="found no matrix of numbers"):
        gd.difficulty("knn", examples=examples, features={"text": vectors}, column="level")
    with pytest.raises(UsageError, match="there is no column 'embedding'"):
        gd.difficulty("knn", features={"text": examples}, column="level")


def test_measures_take_responses_and_vectors_as_difficulties_do(answers: pl.DataFrame) -> None:
    ids = answers["example_id"].unique().sort()
    examples = pl.DataFrame({"example_id": ids, "domain": ["a", "b", "c"] * 100, "input": ids})
    found = gd.diversity(examples, "domain_agreement", responses=answers)
    assert found.statistics.filter(pl.col("metric") == "kappa_mean")["subset"].n_unique() >= 3
    vectors = np.random.default_rng(0).normal(size=(300, 4))
    assert 1 < gd.diversity(examples, "vendi", features={"v": vectors}, orders=[1.0]).value() < 4.01
    with pytest.raises(UsageError, match=r"needs responses.*\n.*give responses="):
        gd.diversity(examples, "domain_agreement")
