"""Contamination: copies and edits that were put there are found, named and measured as brute force measures them."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.schemas.tables import spec
from gradatim.tasks.core.registry import configure, get
from gradatim.tasks.diversity import contamination_retrieval as retrieval
from gradatim.tasks.diversity.contamination import ContaminationConfig, contamination
from gradatim.tasks.diversity.contamination_retrieval import (
    build,
    gram_lengths,
    length_used,
    merge,
    partial,
    word_starts,
)
from gradatim.tasks.diversity.contamination_scores import scores_without_flagged
from gradatim.tasks.diversity.contamination_search import find_contamination
from gradatim.tasks.diversity.contamination_surface import LONG, surface_similarity
from gradatim.tasks.diversity.result import Diversity

QUESTION = "A baker fills 12 trays with 9 rolls each and sells 70 of them before noon. How many rolls are left?"
OTHER = "The river rose by three metres in one night, and nobody in the valley below had been told that it would."
WORDS = [f"w{i}" for i in range(400)]


def side(prefix: str, *texts: str | None) -> pl.DataFrame:
    ids = [f"{prefix}{i:04d}" for i in range(len(texts))]
    return pl.DataFrame({"example_id": ids, "text": texts}, schema={"example_id": pl.String, "text": pl.String})


def examples(train: list[str | None], test: list[str | None]) -> pl.DataFrame:
    frame = pl.concat([side("r", *train), side("t", *test)]).rename({"text": "input"})
    return frame.with_columns(split=pl.Series(["train"] * len(train) + ["test"] * len(test)))


def run(
    frame: pl.DataFrame, seed: int = 0, more: dict[str, pl.DataFrame] | None = None, **options: object
) -> Diversity:
    return contamination({"examples": frame} | (more or {}), ContaminationConfig.model_validate(options), 0)


def edited(text: str, share: float, rng: random.Random) -> str:
    return " ".join(rng.choice(WORDS) if rng.random() < share else word for word in text.split())


def noise(rng: random.Random, words: int) -> str:
    return " ".join(rng.choice(WORDS) for _ in range(words))


def test_the_edit_similarity_is_that_of_insertions_and_deletions() -> None:
    # 10 characters; one replaced is one deletion and one insertion of 20
    assert surface_similarity("abcdefghij", ["abcdefghiX"], whole=True).tolist() == [90.0]
    assert surface_similarity("abcdefghij", ["abcdefghij", "abcdeghij", "klmnopqrst"]).tolist() == pytest.approx(
        [100.0, 100 * (1 - 1 / 19), 0.0]
    )
    with pytest.raises(UsageError, match="empty"):
        surface_similarity("", ["a"])


def test_a_copy_is_found_wherever_it_stands_and_a_part_of_it_is_no_copy() -> None:
    text = QUESTION.lower()
    for before in (0, 1, 2, 3, 7, 50, 333):
        assert surface_similarity(text, ["x" * before + text + "y" * 40])[0] == 100
    assert surface_similarity(text, [text[:20]])[0] < 50
    assert surface_similarity(text, ["", OTHER.lower()]).max() < 60


@settings(max_examples=25, deadline=None)
@given(st.integers(6, 60), st.integers(0, 40), st.integers(0, 40), st.integers(0, 10**6))
def test_a_text_of_any_length_inside_another_is_found(words: int, before: int, after: int, seed: int) -> None:
    rng = random.Random(seed)
    text = noise(rng, words)
    train = side("r", noise(rng, 30), f"{noise(rng, before)} {text} {noise(rng, after)}")
    found = find_contamination(train, side("t", text))
    assert found.evaluation.row(0) == ("t0000", "r0001", 100.0, 100.0, None)


def test_shorter_texts_use_shorter_ngrams_by_the_stated_rule() -> None:
    assert gram_lengths(12) == [12, 6, 4]
    assert gram_lengths(13) == [13, 6, 4]
    assert gram_lengths(3) == [3]
    words = np.array([0, 1, 5, 6, 95, 96, 191, 192, 1000])
    assert length_used(words, 12).tolist() == [0, 1, 5, 4, 4, 6, 6, 12, 12]


def test_every_decision_names_its_partner_its_similarity_and_its_threshold() -> None:
    frame = examples([OTHER, QUESTION.replace("baker", "cook"), f"{OTHER} {QUESTION} {OTHER}"], [QUESTION, OTHER[:40]])
    found = run(frame)
    pairs = found.pairs
    assert pairs is not None
    assert pairs.to_arrow().schema.names == spec("pairs").schema.names
    assert pairs.select("left_id", "right_id", "kind", "threshold").rows() == [
        ("t0000", "r0001", "contamination", 0.7),
        ("t0000", "r0002", "contamination", 0.7),
        ("t0001", "r0000", "contamination", 0.7),
        ("t0001", "r0002", "contamination", 0.7),
    ]
    assert pairs["similarity"].to_list()[1:] == [1.0, 1.0, 1.0]
    assert 0.9 < pairs["similarity"][0] < 1
    assert found.table.to_arrow().schema.names == spec("diversity").schema.names
    assert found.table.select("example_id", "value", "nearest_id").rows() == [
        ("t0000", 1.0, "r0002"),
        ("t0001", 1.0, "r0000"),
    ]
    assert found.value("contamination_100") == 1
    assert found.statistics.to_arrow().schema.names == spec("statistics").schema.names
    shown = found.summary()
    assert shown.tables[1].rows[0][:2] == ("t0000", "r0002")
    assert QUESTION not in str(shown.to_dict())
    assert found.plot("similarity").to_dict()


def test_case_white_space_and_unicode_forms_hide_no_copy() -> None:
    text = "Café number twelve on the corner sells nine kinds of bread"
    disguised = text.upper().replace(" ", " \n\t").replace("É", "E\u0301")
    assert run(examples([disguised, OTHER], [text])).value("contamination_100") == 1


def test_a_copy_in_a_script_without_spaces_is_found_too() -> None:
    text = "一个面包师烤了十二盘面包，每盘九个，中午前卖掉了七十个。"
    train: list[str | None] = [
        f"请回答下面的问题：{text.replace('九', '八')}谢谢！",
        "北方的河流在春天上涨得很快，谁也没有想到。",
    ]
    found = run(examples(train, [text]))
    assert found.pairs is not None
    assert found.pairs["right_id"].to_list() == ["r0000"]
    assert found.value("contamination_90") == 1
    assert word_starts("a 我们 b").tolist() == [0, 2, 3, 5]


def test_a_text_of_a_few_words_is_a_copy_of_equal_texts_only() -> None:
    found = run(examples(["How many are left?", f"{QUESTION} how many are left?"], ["how many are left?", "yes"]))
    assert found.pairs is not None
    assert found.pairs["right_id"].to_list() == ["r0000"]
    assert found.table["value"].to_list() == [1.0, 0.0]
    assert any("only whole equal ones" in warning for warning in found.warnings)


def test_levels_nest_and_their_intervals_hold_the_share() -> None:
    rng = random.Random(1)
    texts = [noise(rng, 40) for _ in range(60)]
    train = [edited(text, i / 150, rng) for i, text in enumerate(texts)]
    found = run(examples([*train], [*texts]))
    shares = [found.value(f"contamination_{level}") for level in (100, 90, 80, 70)]
    assert shares == sorted(shares)
    assert shares[0] > 0
    assert shares[-1] - shares[0] > 0.3
    rows = found.statistics.filter(pl.col("metric") == "contamination_90").row(0, named=True)
    assert rows["ci_low"] < rows["value"] < rows["ci_high"]
    assert rows["n"] == 60


def test_subsets_are_told_apart() -> None:
    frame = examples([QUESTION], [QUESTION, OTHER, OTHER]).with_columns(domain=pl.Series(["x", "x", "y", None]))
    found = run(frame, by="domain")
    assert found.value("contamination_70", "domain=x") == 1
    assert found.value("contamination_70", "domain=y") == 0
    assert found.value("contamination_70") == pytest.approx(1 / 3)


def shards(rng: random.Random) -> tuple[pl.DataFrame, pl.DataFrame]:
    texts = [noise(rng, 30) for _ in range(40)]
    train = [edited(rng.choice(texts), 0.3, rng) for _ in range(300)]
    return side("r", *train), side("t", *texts)


def test_parts_merge_to_the_same_candidates_in_any_order_and_grouping() -> None:
    rng = random.Random(2)
    train, evaluation = shards(rng)
    train = train.rename({"example_id": "train_id"})
    index = build(retrieval.normalised(evaluation["text"]), 12)
    whole = merge([partial(index, train, 3)], 3)
    for _ in range(5):
        shuffled = train.sample(fraction=1, shuffle=True, seed=rng.randrange(100))
        cuts = sorted(rng.sample(range(1, 300), 4))
        parts = [shuffled[a:b] for a, b in zip([0, *cuts], [*cuts, 300], strict=True)]
        partials = [partial(index, part, 3) for part in parts]
        grouped = [merge(partials[:2], 3), merge(partials[2:], 3)]
        assert merge(grouped[::-1], 3).equals(whole)


def test_order_batches_and_a_lazy_file_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train, evaluation = shards(random.Random(3))
    found = find_contamination(train, evaluation)
    train.write_parquet(tmp_path / "train.parquet")
    lazy = find_contamination(pl.scan_parquet(tmp_path / "train.parquet"), evaluation[::-1])
    assert lazy.pairs.equals(found.pairs)
    parts = find_contamination([train[60:].lazy(), train[:60].lazy(), train[:0].lazy()], evaluation)
    assert parts.pairs.equals(found.pairs)
    monkeypatch.setattr(retrieval, "ROWS", 7)
    cut = find_contamination(train.sample(fraction=1, shuffle=True, seed=1), evaluation)
    assert cut.pairs.equals(found.pairs)
    assert cut.evaluation.equals(found.evaluation)


def test_equal_evaluation_texts_get_equal_answers_and_boilerplate_does_not_hide_a_copy() -> None:
    rng = random.Random(4)
    head = "answer the following question with a whole number and nothing else please now"
    texts = [f"{head} {noise(rng, 12)}" for _ in range(150)]
    train = [f"{head} {noise(rng, 12)}" for _ in range(50)] + [texts[7]]
    found = find_contamination(side("r", *train), side("t", *texts, texts[7]))
    assert found.passed_over >= 10
    full = found.evaluation.filter(pl.col("aggregate") == 100)
    assert full.select("example_id", "train_id").rows() == [("t0007", "r0050"), ("t0150", "r0050")]
    same = find_contamination(side("r", OTHER, head), side("t", *[head] * 150))
    assert same.evaluation["aggregate"].to_list() == [100.0] * 150


def test_all_evaluation_ngrams_common_still_leaves_each_text_one() -> None:
    rng = random.Random(5)
    halves = [f"{noise(rng, 6)} " for _ in range(2)]
    # each text is a doubled half: its n-grams are those of all others
    texts = [halves[i % 2] * (2 + i // 2) for i in range(240)]
    found = find_contamination(side("r", halves[0] * 3), side("t", *texts))
    assert "t0002" in found.evaluation.filter(pl.col("aggregate") == 100)["example_id"].to_list()


def test_a_text_of_ten_megabytes_is_searched_around_what_it_shares() -> None:
    rng = random.Random(6)
    filler = " ".join(rng.choices(WORDS, k=2_300_000))
    assert len(filler) > 10_000_000 > LONG
    text = "the lighthouse keeper counted forty ships on the longest day of a very long year and wrote it down twice"
    long = filler[:4_000_001] + " " + text.replace("forty", "fifty") + " " + filler[4_000_001:]
    found = find_contamination(side("r", long, OTHER), side("t", text))
    assert found.pairs["train_id"].to_list() == ["r0000"]
    assert 95 < found.pairs["aggregate"][0] < 100
    assert found.pairs["surface"][0] == surface_similarity(text, [long[3_990_000:4_010_000]])[0]


def test_a_long_evaluation_text_is_measured_too() -> None:
    rng = random.Random(7)
    text = noise(rng, 30_000)
    assert len(text) > LONG
    found = find_contamination(side("r", f"{noise(rng, 50)} {text}", OTHER), side("t", text))
    assert found.evaluation.row(0)[:3] == ("t0000", "r0000", 100.0)


def test_empty_texts_are_not_measured_and_counted() -> None:
    found = run(examples([QUESTION, "", None], [QUESTION, "", None, "???"]))
    assert found.table["value"].to_list() == [1.0, None, None, None]
    assert found.statistics["n"].unique().to_list() == [1]
    assert any("3 evaluation rows have no word" in warning for warning in found.warnings)
    with pytest.raises(DataRefused, match="none of 2 evaluation rows has a word"):
        run(examples([QUESTION], ["", None]))


def vectors(ids: list[str], rows: list[list[float]]) -> pl.DataFrame:
    return pl.DataFrame({"example_id": ids, "embedding": rows}, schema_overrides={"embedding": pl.Array(pl.Float32, 2)})


def test_vectors_find_what_shares_no_words_and_the_larger_similarity_counts() -> None:
    frame = examples([OTHER, QUESTION], ["In one night the stream climbed high, and no villager was warned at all."])
    features = vectors(["r0000", "r0001", "t0000"], [[3, 4], [1, 0], [6, 8]])
    found = run(frame, more={"features_f": features}, features="f")
    assert found.method == "contamination(f)"
    assert found.value("surface_70") == 0
    assert found.value("semantic_100") == found.value("contamination_100") == 1
    assert found.pairs is not None
    assert found.pairs.select("right_id", "similarity").row(0) == ("r0000", 1.0)
    assert run(frame, more={"features_f": features}).parameters["features"] == "f"
    assert run(frame).value("contamination_70") == 0


def test_rows_without_a_vector_are_counted_and_compared_by_their_letters() -> None:
    frame = examples([QUESTION], [QUESTION, OTHER])
    found = run(frame, more={"features_f": vectors(["r0000", "t0001"], [[1, 0], [0, 0]])}, features="f")
    assert found.table["value"].to_list() == [1.0, 0.0]
    assert any("1 rows have no vector" in warning for warning in found.warnings)
    with pytest.raises(DataRefused, match="NaN"):
        run(frame, more={"features_f": vectors(["r0000", "t0000"], [[1, float("nan")], [0, 1]])}, features="f")
    with pytest.raises(UsageError, match="no features 'g'"):
        run(frame, features="g")


def test_a_column_of_truths_and_named_values_say_which_side_a_row_is_on() -> None:
    frame = examples([QUESTION, OTHER], [QUESTION])
    truths = frame.with_columns(held=pl.col("split") == "test")
    assert run(truths, evaluation="held").value("contamination_100") == 1
    years = frame.with_columns(year=pl.Series([2019, 2020, 2021]))
    assert run(years, evaluation="year", values=["2021"]).value("contamination_100") == 1
    left = run(years, evaluation="year", values=["2021"], train=["2020"])
    assert left.value("contamination_100") == 0
    assert any("1 rows are neither" in warning for warning in left.warnings)


def test_wrong_use_is_answered_with_what_is_valid() -> None:
    frame = examples([QUESTION], [QUESTION])
    with pytest.raises(UsageError, match="did you mean 'split'"):
        run(frame, evaluation="splits")
    with pytest.raises(UsageError, match="did you mean 'input'"):
        run(frame, column="inputs")
    with pytest.raises(DataRefused, match="marks no row as evaluation; it holds test, train"):
        run(frame, values=["dev"])
    with pytest.raises(DataRefused, match="marks no row as training"):
        run(frame.filter(pl.col("split") == "test"))
    with pytest.raises(UsageError, match="text"):
        run(frame.with_columns(size=pl.lit(3)), column="size")
    with pytest.raises(UsageError, match="levels"):
        configure(get("diversity", "contamination"), {"levels": [20]})
    with pytest.raises(DataRefused, match="stands twice"):
        find_contamination(side("r", QUESTION), pl.concat([side("t", QUESTION)] * 2))
    with pytest.raises(DataRefused, match="training rows stands twice"):
        find_contamination(pl.concat([side("r", QUESTION)] * 2), side("t", QUESTION))
    with pytest.raises(DataRefused, match="no training row"):
        find_contamination(side("r"), side("t", QUESTION))
    with pytest.raises(UsageError, match="no column 'text'"):
        find_contamination(side("r", QUESTION), side("t", QUESTION).rename({"text": "texts"}))


def test_scores_are_told_with_and_without_the_flagged_rows() -> None:
    flags = pl.DataFrame({"example_id": list("abcdef"), "value": [1.0, 0.95, 0.6, 0.1, 0.0, None]})
    scores = pl.DataFrame(
        {"respondent_id": ["m"] * 7, "example_id": list("aabcdef"), "score": [1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 1.0]}
    )
    found = scores_without_flagged(flags, scores)
    assert found["level"].to_list() == [100.0, 90.0, 80.0, 70.0]
    top = found.row(0, named=True)
    assert (top["score"], top["score_without"], top["flagged"], top["n"]) == (0.5, 0.5, 1, 5)
    below = found.row(1, named=True)
    assert below["score_without"] == pytest.approx(1 / 3)
    assert below["difference"] == pytest.approx(1 / 3 - 1 / 2)
    assert below["ci_low"] < below["difference"] < below["ci_high"]
    clean = scores_without_flagged(flags.filter(pl.col("value") < 0.7), scores).row(0, named=True)
    assert (clean["difference"], clean["ci_low"], clean["flagged"]) == (0.0, None, 0)
    full = scores_without_flagged(flags.head(1), scores).row(0, named=True)
    assert (full["score_without"], full["flagged"], full["n"]) == (None, 1, 1)
    runs = scores_without_flagged(flags, scores.rename({"respondent_id": "run_id"}), levels=[90])
    assert runs.row(0) == found.row(1)
    assert scores_without_flagged(flags, scores.drop("respondent_id"), levels=[90]).row(0)[1:] == found.row(1)[1:]
    with pytest.raises(DataRefused, match=r"not in \[0, 1\]"):
        scores_without_flagged(flags, scores.with_columns(score=pl.lit(3.0)))
    with pytest.raises(UsageError, match="no column 'score'"):
        scores_without_flagged(flags, scores.rename({"score": "scores"}))


def test_a_model_that_only_solves_what_it_saw_is_caught_by_the_paired_interval() -> None:
    rng = np.random.default_rng(0)
    ids = [f"e{i:04d}" for i in range(400)]
    seen = np.arange(400) < 120
    flags = pl.DataFrame({"example_id": ids, "value": np.where(seen, 1.0, 0.2)})
    both = [
        pl.DataFrame({"respondent_id": name, "example_id": ids, "score": rng.random(400) < chance})
        for name, chance in (("honest", 0.5), ("memory", np.where(seen, 0.95, 0.4)))
    ]
    scores = pl.concat([frame.with_columns(pl.col("score").cast(pl.Float64)) for frame in both])
    found = {row["respondent_id"]: row for row in scores_without_flagged(flags, scores, levels=[100]).to_dicts()}
    assert found["memory"]["ci_high"] < -0.1
    assert found["honest"]["ci_low"] < 0 < found["honest"]["ci_high"]
    again = scores_without_flagged(flags, scores.sample(fraction=1, shuffle=True, seed=2), levels=[100])
    assert again.equals(scores_without_flagged(flags, scores, levels=[100]))


def test_responses_bring_the_report_of_scores_into_the_summary() -> None:
    frame = examples([QUESTION, OTHER], [QUESTION, noise(random.Random(8), 30)])
    responses = pl.DataFrame(
        {"respondent_id": "m", "example_id": ["t0000", "t0001", "r0000"], "score": [1.0, 0.0, 1.0]}
    )
    found = run(frame, more={"responses": responses})
    assert found.tables[1].rows[0][:5] == ("m", 100.0, 0.5, 0.0, -0.5)
    none = run(frame, more={"responses": responses.filter(pl.col("example_id") == "r0000")})
    assert any("none to an evaluation row" in warning for warning in none.warnings)


@pytest.mark.data
def test_on_real_questions_what_brute_force_finds_is_found_and_nothing_else(data: Path) -> None:
    with gzip.open(data / "gsm8k" / "train.jsonl.gz", "rt", encoding="utf-8") as file:
        real = [json.loads(line)["question"] for line in file][:1500]
    test = pl.read_ndjson(data / "gsm8k" / "test.jsonl")["question"].head(90).to_list()
    rng = random.Random(0)
    pool = [word for text in real[:300] for word in text.split()]
    copies = [
        f"{real[i]} {' '.join(rng.choice(pool) if rng.random() < (i % 6) / 15 else word for word in text.split())}"
        for i, text in enumerate(test[:60])
    ]
    train = side("r", *real, *copies)
    found = find_contamination(train, side("t", *test)).evaluation["aggregate"].to_numpy()
    texts = retrieval.normalised(train["text"]).to_list()
    brute = np.array([surface_similarity(text, texts).max() for text in retrieval.normalised(pl.Series(test))])
    assert (found <= brute + 1e-9).all()
    for level in (100, 90, 80, 70):
        reached = brute >= level
        assert reached.sum() >= 10
        assert (found[reached] >= level).mean() >= 0.98
