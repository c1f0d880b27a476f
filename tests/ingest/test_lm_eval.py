"""Sample logs of the evaluation harness, as it writes them."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.schemas.recipe import Responses
from gradatim.tasks.ingest.lm_eval import read_lm_eval
from gradatim.tasks.ingest.responses import read_responses

FILTERS = {"strict-match": 0, "flexible-extract": 1}


def right(model: str, item: int, shift: int = 0) -> float:
    return float(int(hashlib.sha256(f"{model}/{item}/{shift}".encode()).hexdigest(), 16) % 3 > 0)


def write_logs(
    folder: Path,
    model: str,
    items: range,
    *,
    time: str = "2026-01-02T03-04-05.678901",
    results: bool = True,
    old: bool = False,
    task: str = "arith",
) -> None:
    """Write samples_<task>_<time>.jsonl and results_<time>.json as the harness does, documents in another order."""
    below = folder / model.replace("/", "__")
    below.mkdir(parents=True, exist_ok=True)
    lines: list[dict[str, Any]] = []
    for name, shift in FILTERS.items():
        for position, item in enumerate(reversed(items)):
            question = f"What is  {item} plus 1?"
            line = {
                "doc_id": position,
                "doc": {"id": f"q{item}", "question": question, "answer": str(item + 1), "meta": {"n": item}},
                "target": str(item + 1),
                "arguments": {"gen_args_0": {"arg_0": f"Question: {question}\nAnswer:", "arg_1": {"until": ["\n"]}}},
                "resps": [["…"]],
                "filtered_resps": ["…"],
                "filter": name,
                "metrics": ["exact_match"],
                "doc_hash": "0" * 64,
                "prompt_hash": "0" * 64,
                "target_hash": "0" * 64,
                "exact_match": right(model, item, shift),
            }
            if old:
                del line["filter"], line["metrics"]
            if not old or shift == 0:
                lines.append(line)
    (below / f"samples_{task}_{time}.jsonl").write_text(
        "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    )
    if results:
        (below / f"results_{time}.json").write_text(json.dumps({"results": {}, "model_name": model}))


EXAMPLES = pl.DataFrame(
    {"example_id": [f"q{i}" for i in range(20)], "input": [f" What is {i}  plus 1?" for i in range(20)]}
)


def expected(model: str, items: range, shift: int) -> dict[str, float]:
    return {f"q{i}": right(model, i, shift) for i in items}


def scores(found: pl.DataFrame, model: str) -> dict[str, float]:
    mine = found.filter(pl.col("respondent_id") == model)
    return dict(mine.select("example_id", "score").iter_rows())


@pytest.mark.parametrize("join", ["doc.id", "input"])
@pytest.mark.parametrize("filter", list(FILTERS))
def test_models_are_respondents_and_documents_are_joined_by_field_or_input(
    tmp_path: Path, join: str, filter: str
) -> None:
    for model in ("org/one", "org/two"):
        write_logs(tmp_path, model, range(20))
    found = read_lm_eval(tmp_path, filter=filter, join=join, examples=EXAMPLES)
    assert found.respondents.select("respondent_id", "n").rows() == [("org/one", 20), ("org/two", 20)]
    for model in ("org/one", "org/two"):
        assert scores(found.responses, model) == expected(model, range(20), FILTERS[filter])
    assert found.joined == 1.0


def test_without_examples_the_field_is_the_id(tmp_path: Path) -> None:
    write_logs(tmp_path, "m", range(3))
    found = read_lm_eval(tmp_path, metric="exact_match", filter="strict-match")
    assert found.responses["example_id"].to_list() == ["q0", "q1", "q2"]
    nested = read_lm_eval(tmp_path, filter="strict-match", join="doc.meta.n")
    assert nested.responses["example_id"].to_list() == ["0", "1", "2"]


def test_the_recipe_s_section_comes_through_the_same_door(tmp_path: Path) -> None:
    write_logs(tmp_path / "logs", "m", range(20))
    section = Responses.model_validate(
        {"from": "logs", "format": "lm-eval", "metric": "exact_match", "filter": "strict-match", "join": "doc.id"}
    )
    assert len(read_responses(section, base=tmp_path, examples=EXAMPLES).responses) == 20


def test_the_folder_names_the_model_where_no_results_lie_beside(tmp_path: Path) -> None:
    write_logs(tmp_path, "org/one", range(2), results=False)
    assert read_lm_eval(tmp_path, filter="strict-match").respondents["respondent_id"].to_list() == ["org__one"]


def test_a_model_that_ran_again_has_attempts_oldest_first(tmp_path: Path) -> None:
    write_logs(tmp_path / "b", "m", range(4), time="2026-01-01T00-00-00.000000")
    write_logs(tmp_path / "a", "m", range(2), time="2026-02-01T00-00-00.000000", old=True)
    found = read_lm_eval(tmp_path / "b", filter="strict-match")
    assert found.responses["attempt"].to_list() == [0] * 4
    write_logs(tmp_path / "a", "m", range(2), time="2026-02-01T00-00-00.000000")
    lines = (tmp_path / "a" / "m" / "samples_arith_2026-02-01T00-00-00.000000.jsonl").read_text()
    (tmp_path / "a" / "m" / "samples_arith_2026-02-01T00-00-00.000000.jsonl").write_text(
        lines.replace('"exact_match": 0.0', '"exact_match": 0.5').replace('"exact_match": 1.0', '"exact_match": 0.5')
    )
    both = read_lm_eval(tmp_path, filter="strict-match").responses
    assert both.select("example_id", "attempt").rows() == [
        ("q0", 0),
        ("q0", 1),
        ("q1", 0),
        ("q1", 1),
        ("q2", 0),
        ("q3", 0),
    ]
    # the later run is the later attempt, although its folder sorts first
    assert both.filter(pl.col("attempt") == 1)["score"].to_list() == [0.5, 0.5]


def test_logs_of_older_versions_have_one_filter_and_their_numbers_are_metrics(tmp_path: Path) -> None:
    write_logs(tmp_path, "m", range(5), old=True)
    assert scores(read_lm_eval(tmp_path).responses, "m") == expected("m", range(5), 0)


def test_more_than_one_filter_or_a_wrong_one_is_answered_with_those_there_are(tmp_path: Path) -> None:
    write_logs(tmp_path, "m", range(3))
    with pytest.raises(UsageError, match="more than one filter") as error:
        read_lm_eval(tmp_path)
    assert error.value.expected == "one of flexible-extract, strict-match"
    with pytest.raises(UsageError, match="did you mean 'strict-match'"):
        read_lm_eval(tmp_path, filter="strict_match")
    with pytest.raises(UsageError, match="there is no metric 'acc'") as error:
        read_lm_eval(tmp_path, filter="strict-match", metric="acc")
    assert error.value.expected == "one of exact_match"


def test_the_position_is_never_a_join(tmp_path: Path) -> None:
    write_logs(tmp_path, "m", range(3))
    with pytest.raises(UsageError, match="position"):
        read_lm_eval(tmp_path, filter="strict-match", join="doc_id")
    with pytest.raises(UsageError, match="needs the examples"):
        read_lm_eval(tmp_path, filter="strict-match", join="input")


@pytest.mark.parametrize("join", ["doc.id", "input"])
def test_below_the_share_joined_it_is_refused_and_above_the_rest_is_listed(tmp_path: Path, join: str) -> None:
    write_logs(tmp_path, "m", range(20))
    with pytest.raises(DataRefused, match=r"95\.0% of the responses match"):
        read_lm_eval(tmp_path, filter="strict-match", join=join, examples=EXAMPLES[:19])
    found = read_lm_eval(tmp_path, filter="strict-match", join=join, examples=EXAMPLES[:19], joined=0.9)
    name = "q19" if join == "doc.id" else "What is 19 plus 1?"
    assert found.unjoined.rows() == [(name, 1)]
    assert len(found.responses) == 19


def test_bad_lines_scores_and_fields_are_rejected(tmp_path: Path) -> None:
    write_logs(tmp_path, "m", range(4))
    path = next(tmp_path.rglob("samples_*.jsonl"))
    lines = path.read_text().splitlines()
    lines[0] = lines[0].replace('"exact_match": ', '"exact_match": 7')
    lines[1] = lines[1].replace('"id": "q2", ', "")
    lines[2] = lines[2][:50]
    path.write_text("\n".join(lines))
    found = read_lm_eval(tmp_path, filter="strict-match")
    assert found.responses["example_id"].to_list() == ["q0"]
    assert [reason.split(":")[0] for reason in found.rejects["reason"]] == [
        "the score is outside [0, 1]",
        "the document has no field doc.id",
        "not JSON",
    ]


def test_not_a_number_elsewhere_in_a_line_does_no_harm(tmp_path: Path) -> None:
    write_logs(tmp_path, "m", range(3))
    path = next(tmp_path.rglob("samples_*.jsonl"))
    path.write_text(path.read_text().replace('"resps": [["…"]]', '"resps": [[NaN, -Infinity]]'))
    found = read_lm_eval(tmp_path, filter="strict-match")
    assert scores(found.responses, "m") == expected("m", range(3), 0)
    path.write_text(
        path.read_text()
        .replace('"exact_match": 0.0', '"exact_match": NaN')
        .replace('"exact_match": 1.0', '"exact_match": NaN')
    )
    with pytest.raises(DataRefused, match="no usable response"):
        read_lm_eval(tmp_path, filter="strict-match")


def test_a_folder_without_logs_says_what_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no sample logs") as error:
        read_lm_eval(tmp_path)
    assert "samples_<task>_<time>.jsonl" in error.value.expected


def test_no_text_that_matches_names_the_fields(tmp_path: Path) -> None:
    write_logs(tmp_path, "m", range(3))
    other = pl.DataFrame({"example_id": ["a"], "input": ["something else"]})
    with pytest.raises(DataRefused, match="no document's text") as error:
        read_lm_eval(tmp_path, filter="strict-match", join="input", examples=other)
    assert "doc.question" in error.value.expected


def test_an_input_that_several_examples_share_joins_to_none_of_them(tmp_path: Path) -> None:
    write_logs(tmp_path, "m", range(20))
    shared = pl.concat([EXAMPLES, pl.DataFrame({"example_id": ["twin"], "input": ["What is 3 plus 1?"]})])
    with pytest.raises(DataRefused, match=r"95\.0% of the responses match an example"):
        read_lm_eval(tmp_path, filter="strict-match", join="input", examples=shared)
    found = read_lm_eval(tmp_path, filter="strict-match", join="input", examples=shared, joined=0.9)
    assert found.unjoined.rows() == [("What is 3 plus 1?", 1)]
    assert not {"q3", "twin"} & set(found.responses["example_id"])


def test_a_document_without_the_text_does_not_join_to_an_example_without_input(tmp_path: Path) -> None:
    write_logs(tmp_path, "m", range(20))
    path = next(tmp_path.rglob("samples_*.jsonl"))
    path.write_text(path.read_text().replace('"question": "What is  3 plus 1?", ', ""))
    blank = pl.concat([EXAMPLES, pl.DataFrame({"example_id": ["blank"], "input": [None]}, schema=EXAMPLES.schema)])
    found = read_lm_eval(tmp_path, filter="strict-match", join="input", examples=blank, joined=0.9)
    assert "blank" not in found.responses["example_id"].to_list()
    assert len(found.responses) == 19
