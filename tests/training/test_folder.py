"""Run folders, settings, attempts and records: what the parent does without torch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import polars as pl
import pytest
from training_helpers import examples, make, order
from training_helpers import settings as recipe

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.schemas.recipe import Step
from gradatim.tasks.training import attempts, models, records
from gradatim.tasks.training.deepspeed_config import TEMPLATES, settings
from gradatim.tasks.training.folder import open_run, prepare
from gradatim.tasks.training.launch import launch, train_run
from gradatim.tasks.training.manifest import build
from gradatim.tasks.training.order import Plan
from gradatim.tasks.training.records import Record

DEPLOY = Path(__file__).parents[2] / "deploy" / "deepspeed"


def test_the_parents_side_imports_no_torch() -> None:
    code = "import sys, gradatim.tasks.training.launch, gradatim.tasks.training.audit\n"
    code += "from gradatim.tasks.core.registry import plugins; print(*plugins('model'))\n"
    code += "assert not {'torch', 'deepspeed', 'prefect'} & set(sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["mlp", "seq2seq"]


def test_the_deepspeed_files_in_deploy_are_the_templates() -> None:
    assert {path.stem: json.loads(path.read_text()) for path in DEPLOY.glob("*.json")} == TEMPLATES


@pytest.mark.parametrize(
    ("changes", "cuda", "stage", "bf16"),
    [
        ({}, False, 0, False),
        ({}, True, 2, True),
        ({"zero": 3}, True, 3, True),
        ({"zero": 1}, False, 1, False),
        ({"precision": "fp32", "zero": 0}, True, 0, False),
    ],
)
def test_device_and_recipe_decide_the_deepspeed_settings(changes: dict, cuda: bool, stage: int, bf16: bool) -> None:
    before = json.dumps(TEMPLATES)
    found = settings(recipe(**changes), Plan(300, 16, 8), world=1, cuda=cuda)
    assert found["zero_optimization"]["stage"] == stage
    assert ("bf16" in found) == bf16
    assert (found["train_batch_size"], found["train_micro_batch_size_per_gpu"]) == (16, 8)
    assert found["gradient_accumulation_steps"] == 2
    assert found["optimizer"]["params"]["lr"] == 0.01
    assert json.dumps(TEMPLATES) == before


def test_bf16_without_a_gpu_is_refused() -> None:
    with pytest.raises(UsageError, match="no GPU here"):
        settings(recipe(precision="bf16"), Plan(300, 16, 8), world=1, cuda=False)


def test_preparing_twice_gives_the_same_folder_and_another_run_is_refused(tmp_path: Path) -> None:
    run = make(tmp_path / "run")
    bytes_ = (run.folder / "order.arrow").read_bytes()
    assert make(tmp_path / "run") == run == open_run(tmp_path / "run")
    assert (run.folder / "order.arrow").read_bytes() == bytes_
    assert run.manifest().hash == run.manifest_hash
    assert run.config()["train"]["global_batch"] == 16
    assert run.evaluation()["split"].unique().to_list() == ["test"]
    with pytest.raises(UsageError, match="holds another run: steps, train: global_batch differ"):
        make(tmp_path / "run", global_batch=32)
    assert make(tmp_path / "run", ranks=2, workers=1).train.ranks == 2, "what changes no training may change"
    with pytest.raises(UsageError, match="no training run here"):
        open_run(tmp_path)


def test_an_order_that_was_changed_is_refused(tmp_path: Path) -> None:
    run = make(tmp_path / "run")
    other = run.manifest()
    build(other.row[::-1], other.hashes[::-1], other.weight).save(run.folder / "order.arrow")
    with pytest.raises(DataRefused, match="the order has hash"):
        run.manifest()


@pytest.mark.parametrize(
    ("positions", "message"), [([0, 1, 3], "position 2 is missing"), ([0, 1, 1], "position 2 is there twice")]
)
def test_an_order_with_gaps_is_refused(tmp_path: Path, positions: list[int], message: str) -> None:
    bad = pl.DataFrame({"position": positions, "example_id": ["e000", "e001", "e002"]})
    with pytest.raises(DataRefused, match=message):
        prepare(tmp_path / "run", train=recipe(), examples=examples(), order=bad)


def test_missing_columns_and_ids_are_refused_with_where(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no column 'output'"):
        prepare(tmp_path / "run", train=recipe(), examples=examples().drop("output"), order=order())
    with pytest.raises(DataRefused, match="evaluate: test: 1 ids are not among the examples, first 'zz'"):
        prepare(tmp_path / "run", train=recipe(), examples=examples(), order=order(), evaluate={"test": ["zz"]})
    with pytest.raises(UsageError, match="no column 'position'"):
        prepare(tmp_path / "run", train=recipe(), examples=examples(), order=order().drop("position"))


def test_the_columns_that_a_model_reads_are_known_without_torch() -> None:
    assert models.columns(Step.model_validate("seq2seq")) == ["input", "output"]
    mlp = {"mlp": {"columns": ["a", "b"], "target": "c"}}
    assert models.columns(Step.model_validate(mlp)) == ["a", "b", "c"]
    assert models.columns(Step.model_validate({"my.module:build": {"columns": "text"}})) == ["text"]
    with pytest.raises(UsageError, match="no model 'seq2sec' \\(did you mean 'seq2seq'"):
        models.columns(Step.model_validate("seq2sec"))
    with pytest.raises(UsageError, match="unknown key 'hiden'"):
        models.columns(Step.model_validate({"seq2seq": {"hiden": 3}}))


def test_the_print_launcher_starts_nothing_and_says_the_command(tmp_path: Path) -> None:
    outcome = train_run(make(tmp_path / "run", launcher="print", ranks=2))
    assert outcome.state == "printed"
    assert outcome.command.startswith("torchrun --nproc-per-node=2 -m gradatim.tasks.training.worker")
    assert outcome.command.endswith("--attempt 1")
    assert not attempts.alive(attempts.folder(outcome.run.folder, 1))


def test_ranks_that_do_not_fit_are_refused_before_anything_starts(tmp_path: Path) -> None:
    run = make(tmp_path / "run")
    with pytest.raises(UsageError, match="16 is not a multiple of micro_batch x ranks = 8 x 3"):
        launch(run, ranks=3)
    assert attempts.numbers(run.folder) == []


def test_attempts_are_numbered_and_the_newest_alone_may_publish(tmp_path: Path) -> None:
    assert attempts.newest(tmp_path) == 0
    assert [attempts.claim(tmp_path, dict) for _ in range(3)] == [1, 2, 3]
    with attempts.holding(tmp_path, 3):
        pass
    with (
        pytest.raises(attempts.Fenced, match="attempt 2 is fenced: attempt 3 has begun"),
        attempts.holding(tmp_path, 2),
    ):
        raise AssertionError("a fenced attempt got in")


def test_a_process_is_known_by_pid_and_start(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    attempts.sign(tmp_path, "rank0", child.pid)
    attempts.sign(tmp_path, "parent", os.getpid())
    assert attempts.alive(tmp_path) == {"rank0": child.pid, "parent": os.getpid()}
    lease = attempts.read_json(tmp_path / "parent.lease.json")
    attempts.write_json(tmp_path / "parent.lease.json", {**lease, "started": "1"})
    assert attempts.alive(tmp_path) == {"rank0": child.pid}, "another process with that pid is not ours"
    child.kill()
    child.wait()
    assert attempts.alive(tmp_path) == {}


def record(run_dir: Path, step: int, attempt: int, text: str = "x") -> Record:
    made = Record(step, step * 2, attempt, "m", "d", 1, 0, 0.0, (f"{attempt}-{step}.parquet",))
    folder = run_dir / "checkpoints" / made.name
    folder.mkdir(parents=True)
    (folder / "weights").write_text(text)
    whole = Record(**{**asdict(made), "files": records.digests(folder)})
    (run_dir / "records").mkdir(exist_ok=True)
    records.publish(run_dir, whole, keep=2)
    return whole


def claim(run_dir: Path, step: int) -> int:
    return attempts.claim(run_dir, lambda: {"start": {"step": step, "record": ""}})


def test_the_newest_checkpoints_are_kept_and_every_record_stays(tmp_path: Path) -> None:
    claim(tmp_path, 0)
    for step in (5, 10, 15):
        record(tmp_path, step, 1)
    assert [r.step for r in records.kept(tmp_path)] == [10, 15]
    assert [r.step for r in records.all_records(tmp_path)] == [5, 10, 15]
    assert records.find(tmp_path).step == 15
    assert records.find(tmp_path, 10).step == 10
    with pytest.raises(UsageError, match="no checkpoint after step 5"):
        records.find(tmp_path, 5)


def test_what_a_dead_attempt_was_saving_is_swept_and_what_is_at_work_is_not(tmp_path: Path) -> None:
    claim(tmp_path, 0)
    record(tmp_path, 5, 1)
    claim(tmp_path, 5)
    half = [tmp_path / "checkpoints" / f"step-0000000010-attempt-{n:06d}" for n in (1, 2)]
    for folder in half:
        folder.mkdir()
    record(tmp_path, 8, 2)
    assert [folder.exists() for folder in half] == [False, True]
    assert [r.step for r in records.kept(tmp_path)] == [5, 8]


@pytest.mark.parametrize("harm", ["changed", "added", "missing"])
def test_a_checkpoint_must_be_exactly_its_record(tmp_path: Path, harm: str) -> None:
    claim(tmp_path, 0)
    made = record(tmp_path, 5, 1)
    folder = records.verify(tmp_path, made)
    if harm == "changed":
        (folder / "weights").write_text("y")
    elif harm == "added":
        (folder / "more").write_text("y")
    else:
        (folder / "weights").unlink()
    with pytest.raises(DataRefused, match=f"(weights|more) (was|is) {harm} since"):
        records.verify(tmp_path, made)


def test_only_the_attempt_that_reached_the_next_checkpoint_counts(tmp_path: Path) -> None:
    def stretches() -> list[tuple[int, int, int | None]]:
        return [(s.attempt, s.begin, s.end) for s in records.stretches(tmp_path)]

    claim(tmp_path, 0)
    record(tmp_path, 5, 1)
    record(tmp_path, 10, 1)
    claim(tmp_path, 10)  # dies before it saves
    claim(tmp_path, 10)
    record(tmp_path, 15, 3)
    assert stretches() == [(1, 0, 10), (3, 10, None)]
    assert [p.name for p in records.dynamics_parts(tmp_path)] == ["1-5.parquet", "1-10.parquet", "3-15.parquet"]
    claim(tmp_path, 5)  # somebody removed the later checkpoints
    record(tmp_path, 10, 4)
    assert stretches() == [(1, 0, 5), (4, 5, None)]
    assert [p.name for p in records.dynamics_parts(tmp_path)] == ["1-5.parquet", "4-10.parquet"]
