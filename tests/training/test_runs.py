"""Real workers, one and two, that are killed, resumed, fenced and lied to."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from training_helpers import HELD_OUT, PASSES, TRAINED, assert_trained_in_order, make, order, until

from gradatim.schemas.errors import DataRefused, GradatimError, TryAgain, UsageError
from gradatim.schemas.tables import spec
from gradatim.tasks.training import attempts, records
from gradatim.tasks.training.audit import audit
from gradatim.tasks.training.folder import Run, open_run
from gradatim.tasks.training.launch import Outcome, Progress, attach, launch, predict, resume, train_run, wait

pytestmark = pytest.mark.train
SLOW = {"own_models:slow": {"seconds": 0.06}}


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """One rank, two micro steps a step, never interrupted."""
    heard: list[Progress] = []
    outcome = train_run(make(tmp_path_factory.mktemp("straight") / "run"), heard.append)
    assert [heard[0].kind, heard[-1].kind] == ["started", "predicting"]
    assert heard[-1].step == heard[-1].steps == 19
    return outcome


def losses(run: Run) -> pl.Series:
    frame = Outcome(run, "finished", {}).dynamics().collect()
    assert frame["position"].to_list() == list(range(len(order())))
    return frame["loss"]


def assert_same_training(run: Run, straight: Outcome) -> None:
    """Every example's loss at every position is that of the uninterrupted run, to single precision."""
    difference = (losses(run) - losses(straight.run)).abs().max()
    assert difference < 2e-4, difference


def test_an_uninterrupted_run_trains_the_manifest_and_leaves_its_tables(straight: Outcome) -> None:
    assert_trained_in_order(straight.run)
    dynamics = straight.dynamics().collect()
    assert dynamics.to_arrow().schema.names == spec("dynamics").schema.names
    assert dynamics["example_id"].to_list() == order()["example_id"].to_list()
    assert dynamics.group_by("example_id").agg(pl.col("epoch").sort())["epoch"].to_list() == [[0, 1, 2]] * TRAINED
    assert dynamics["loss"][:20].mean() > dynamics["loss"][-20:].mean()
    answers = straight.predictions().collect()
    assert answers.to_arrow().schema.names == spec("predictions").schema.names
    assert answers["example_id"].n_unique() == len(answers) == HELD_OUT
    assert answers["checkpoint"].unique().to_list() == [19]
    assert straight.weights.stat().st_size > 1000
    assert [record.step for record in records.kept(straight.run.folder)] == [15, 19]
    assert [record.step for record in records.all_records(straight.run.folder)] == [5, 10, 15, 19]
    assert train_run(straight.run).figures == straight.figures, "a finished run is not trained again"


def test_a_killed_rank_is_reported_and_one_rank_goes_on_where_two_were(tmp_path: Path, straight: Outcome) -> None:
    run = make(tmp_path / "run", ranks=2, workers=2, model=SLOW)
    attempt = launch(run)
    until(lambda: records.kept(run.folder))
    os.kill(attempts.alive(attempt.folder)["rank1"], signal.SIGKILL)
    with pytest.raises(TryAgain, match="rank 1 was killed by signal 9") as caught:
        wait(attempt)
    assert "rank 0" in str(caught.value), "the last lines of every rank are shown"
    assert not attempts.alive(attempt.folder).keys() & {"rank0", "rank1"}
    assert audit(run.folder).verdict == "incomplete"
    with pytest.raises(UsageError, match="has a checkpoint after step 5"):
        launch(run)
    outcome = resume(run.folder, ranks=1)
    assert outcome.figures["attempt"] == 2
    assert outcome.figures["chain"] == straight.figures["chain"]
    assert_trained_in_order(run)
    assert_same_training(run, straight)


PARENT = """
import sys, time
from pathlib import Path
from gradatim.tasks.training.folder import open_run
from gradatim.tasks.training.launch import launch
launch(open_run(Path(sys.argv[1])))
time.sleep(600)
"""


def test_workers_end_with_their_parent_and_two_ranks_go_on_where_one_was(tmp_path: Path, straight: Outcome) -> None:
    run = make(tmp_path / "run", model=SLOW)
    parent = subprocess.Popen([sys.executable, "-c", PARENT, str(run.folder)])
    until(lambda: records.kept(run.folder))
    attached = attach(run)
    assert attached is not None
    assert attached.number == 1
    with pytest.raises(TryAgain, match="attempt 1 is at work"):
        launch(run, resume=True)
    parent.kill()
    parent.wait()
    until(lambda: not attempts.alive(attached.folder), seconds=3)
    with pytest.raises(TryAgain, match="parent was gone"):
        wait(attached)
    assert attach(run) is None
    outcome = resume(run.folder, ranks=2)
    assert outcome.figures["chain"] == straight.figures["chain"]
    assert_trained_in_order(run)
    assert_same_training(run, straight)


def test_a_sampler_altered_by_one_swap_is_caught(tmp_path: Path) -> None:
    # positions 20 and 70 belong to steps 1 and 4 of 16 positions each
    run = make(tmp_path / "run", model={"own_models:swapped": {"swap": [20, 70]}})
    train_run(run)
    with pytest.raises(AssertionError, match="step 1: other examples were trained than those at positions 16 to 31"):
        assert_trained_in_order(run)
    found = audit(run.folder)
    assert (found.verdict, found.first, found.audited) == ("differs", 1, 1)


def test_a_stale_attempt_saves_nothing_after_a_newer_one_has_begun(tmp_path: Path) -> None:
    run = make(tmp_path / "run", model=SLOW)
    attempt = launch(run)
    until(lambda: records.kept(run.folder))
    before = [record.name for record in records.all_records(run.folder)]
    attempts.claim(run.folder, lambda: {"start": {"step": 5, "record": before[0]}, "ranks": 1})
    with pytest.raises(attempts.Fenced, match="attempt 1 is fenced: attempt 2 has begun"):
        wait(attempt)
    assert [record.name for record in records.all_records(run.folder)] == before
    assert not (run.folder / "outcome.json").exists()


def test_a_checkpoint_that_was_tampered_with_is_not_loaded(tmp_path: Path, straight: Outcome) -> None:
    shutil.copytree(straight.run.folder.parent, tmp_path / "copy")
    folder = tmp_path / "copy" / "run"
    (folder / "outcome.json").unlink()
    weights = next((folder / "checkpoints").glob("*19-*/state/*.pt"))
    content = bytearray(weights.read_bytes())
    content[len(content) // 2] ^= 1
    weights.write_bytes(content)
    with pytest.raises(DataRefused, match=r"state/.*\.pt was changed since the checkpoint was saved"):
        train_run(open_run(folder))


def test_a_loss_that_is_no_number_ends_the_run_and_is_not_saved(tmp_path: Path) -> None:
    run = make(tmp_path / "run", model="own_models:broken")
    with pytest.raises(GradatimError, match="the loss is nan in step 9"):
        train_run(run)
    assert [record.step for record in records.all_records(run.folder)] == [5]


def test_a_retained_checkpoint_answers_the_evaluation_rows_later(straight: Outcome) -> None:
    answers = predict(straight.run, 15, ranks=2).collect()
    assert answers["checkpoint"].unique().to_list() == [15]
    assert answers["example_id"].n_unique() == len(answers) == HELD_OUT
    with pytest.raises(UsageError, match="no checkpoint after step 5"):
        predict(straight.run, 5)


def test_zero_1_goes_on_at_another_number_of_ranks(tmp_path: Path, straight: Outcome) -> None:
    run = make(tmp_path / "run", ranks=2, zero=1, model=SLOW)
    attempt = launch(run)
    until(lambda: records.kept(run.folder))
    attempt.stop()
    outcome = resume(run.folder, ranks=1)
    assert outcome.figures["zero"] == 1
    assert_trained_in_order(run)
    assert_same_training(run, straight)
    assert outcome.figures["positions"] == PASSES * TRAINED
