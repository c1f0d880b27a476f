"""Whether sources' ids are those of the examples: counted over every format, against the readers themselves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from small_recipe import write_jsonl

from gradatim.schemas.errors import DataRefused
from gradatim.schemas.recipe import Dynamics, Examples, Features, Options, Responses
from gradatim.tasks.ingest.examples import read_examples
from gradatim.tasks.ingest.features import read_features
from gradatim.tasks.ingest.joining import join_examples
from gradatim.tasks.ingest.meeting import Meeting, demand, known_ids, meet

IDS = [f"q{i:04d}" for i in range(300)]
KNOWN = IDS[:200]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = [{"id": name, "question": f"what is {i}?", "answer": i} for i, name in enumerate(KNOWN)]
    (tmp_path / "items").mkdir()
    write_jsonl(tmp_path / "items" / "a.jsonl", rows[:90])
    pl.DataFrame(rows[90:]).write_parquet(tmp_path / "items" / "b.parquet")
    return tmp_path


def examples(**more: Any) -> Examples:
    return Examples.model_validate({"from": "items/", "id": "id", "input": "question", **more})


def met(folder: Path, section: Any, **more: Any) -> Meeting:
    described = examples(**more)
    return meet(section, known_ids(described, base=folder), described, base=folder)


@pytest.mark.parametrize("ending", ["parquet", "jsonl", "csv", "arrow"])
def test_a_table_of_any_format_is_counted_as_its_reader_joins_it(folder: Path, ending: str) -> None:
    frame = pl.DataFrame({"name": IDS[150:], "v": [[1.0, 2.0]] * 150})
    flat = frame.with_columns(a=pl.lit(1.0), b=pl.lit(2.0)).drop("v")
    path = folder / f"vectors.{ending}"
    {
        "parquet": frame.write_parquet, "jsonl": frame.write_ndjson, "csv": flat.write_csv, "arrow": frame.write_ipc,
    }[ending](path)  # fmt: skip
    columns = ["a", "b"] if ending == "csv" else ["v"]
    section = Features.model_validate({"from": path.name, "example": "name", "columns": columns})
    found = met(folder, section)
    assert (found.rows, found.joined, found.examples) == (150, 50, 50)
    assert found.unknown == ("q0200", "q0201", "q0202")
    ids = read_examples(examples(), base=folder).table["example_id"]
    joined = join_examples(read_features(section, base=folder), ids, 0.1, where="")
    assert (len(joined.rows), joined.rows_in) == (found.joined, found.rows)
    assert found.note() == "50 of 150 rows, of 50 examples; without an example e.g. 'q0200', 'q0201', 'q0202'"
    with pytest.raises(DataRefused, match=r"50 of 150 rows.*q0200(.|\n)*at least 98"):
        demand(found, 0.98, where="here")
    demand(found, 0.33, where="here")


def test_numpy_files_options_and_dynamics_are_counted(folder: Path) -> None:
    np.save(folder / "v.npy", np.ones((100, 3), dtype=np.float32))
    (folder / "ids.txt").write_text("\n".join(IDS[120:220]) + "\n", encoding="utf-8")
    found = met(folder, Features.model_validate({"from": "v.npy", "ids": "ids.txt"}))
    assert (found.rows, found.joined) == (100, 80)
    np.savez(folder / "w.npz", ids=np.array(IDS[:10]), matrix=np.ones((10, 3)))
    assert met(folder, Features.model_validate({"from": "w.npz"})).note() == "10 of 10 rows, of 10 examples"
    write_jsonl(folder / "o.jsonl", [{"m": "x", "q": name, "probabilities": [0.5, 0.5]} for name in IDS[190:210] * 2])
    options = met(folder, Options.model_validate({"from": "o.jsonl", "respondent": "m", "example": "q"}))
    assert (options.rows, options.joined, options.examples) == (40, 20, 10)
    for epoch in (0, 1):
        lines = [{"guid": name, f"logits_epoch_{epoch}": [1.0, 2.0], "gold": 0} for name in IDS[:30]]
        write_jsonl(folder / f"dynamics_epoch_{epoch}.jsonl", lines)
    assert met(folder, Dynamics.model_validate({"from": "dynamics_epoch_*.jsonl"})).note().startswith("60 of 60")


def test_responses_are_counted_long_wide_and_turned(folder: Path) -> None:
    long = pl.DataFrame([(f"r{r}", name, 1.0) for r in range(3) for name in IDS[180:210]], orient="row")
    long.rename(dict(zip(long.columns, ("who", "what", "score"), strict=True))).write_csv(folder / "long.csv")
    found = met(folder, Responses.model_validate({"from": "long.csv", "respondent": "who", "example": "what"}))
    assert (found.rows, found.joined, found.examples) == (90, 60, 20)
    wide = pl.DataFrame({"who": ["r0", "r1"], **{name: [1, None] for name in IDS[195:205]}})
    wide.write_csv(folder / "wide.csv")
    found = met(folder, Responses.model_validate({"from": "wide.csv", "respondent": "who"}))
    assert (found.rows, found.joined, found.examples) == (10, 5, 5)
    turned = pl.DataFrame({"example_id": IDS[195:205], "r0": [1] * 10, "r1": [0, *[None] * 9]})
    turned.write_csv(folder / "turned.csv")
    found = met(folder, Responses.model_validate({"from": "turned.csv"}))
    assert (found.rows, found.joined, found.examples) == (11, 6, 5)
    assert found.unknown == ("q0200", "q0201", "q0202")


def test_logs_are_counted_by_id_and_by_input(folder: Path) -> None:
    (folder / "logs" / "m").mkdir(parents=True)
    lines = [
        {"doc": {"id": name, "question": f"what is {i}?"}, "filter": "none", "exact_match": 1.0}
        for i, name in enumerate(IDS[:250])
    ]
    path = folder / "logs" / "m" / "samples_task_2026-01-01T00-00-00.000000.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    section = {"from": "logs/", "format": "lm-eval"}
    for join in ("doc.id", "input"):
        found = met(folder, Responses.model_validate({**section, "join": join}))
        assert (found.rows, found.joined, found.examples) == (250, 200, 200), join
        assert len(found.unknown) == 3
    found = met(folder, Responses.model_validate({**section, "join": "input"}), id=None)
    assert (found.rows, found.joined) == (250, 200)


def test_ids_that_hash_the_input_and_those_of_a_data_set_are_known(folder: Path) -> None:
    by_input = examples(id=None)
    ids = read_examples(by_input, base=folder).table["example_id"]
    write_jsonl(folder / "v.jsonl", [{"example_id": name, "embedding": [1.0]} for name in ids])
    section = Features.model_validate({"from": "v.jsonl"})
    assert met(folder, section, id=None).note() == "200 of 200 rows, of 200 examples"
    made = Examples.model_validate({"generate": "scan"})
    known = known_ids(made)
    assert len(known) > 1000
    assert meet(section, known, made, base=folder).joined == 0
    with pytest.raises(DataRefused, match="0 of 200"):
        demand(meet(section, known, made, base=folder), 0.0, where="")
    none = Features.model_validate({"from": "v.jsonl"})
    assert meet(none, known[:0], made, base=folder) == Meeting(200, 0, 0, tuple(ids[:3]))
