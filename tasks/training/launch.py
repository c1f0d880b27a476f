"""The parent's side: start a run's workers, follow them, and say what went wrong. Never imports torch."""

from __future__ import annotations

import shutil
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import polars as pl

from gradatim.schemas.errors import TryAgain, UsageError
from gradatim.tasks.training import attempts, dynamics, predictions, records
from gradatim.tasks.training.folder import Run, open_run
from gradatim.tasks.training.order import accumulation
from gradatim.tasks.training.workers import GRACE, Attempt, Progress, command, follow, start

__all__ = ["Attempt", "Outcome", "Progress", "attach", "finished", "launch", "predict", "resume", "train_run", "wait"]


@dataclass(frozen=True)
class Outcome:
    """What a run left.

    Attributes
    ----------
    run : Run
    state : "finished" or "printed"
    figures : mapping
        ``attempt, steps, positions, manifest, chain, loss, seconds, ranks, zero, device``; empty if printed.
    command : str
        What starts the workers by hand (launcher `print`).
    """

    run: Run
    state: Literal["finished", "printed"]
    figures: Mapping[str, Any]
    command: str = ""

    def predictions(self, step: int | None = None) -> pl.LazyFrame:
        """Return the answers to the evaluation rows, in the schema of the table `predictions`."""
        return predictions.scan(self.run.folder, int(self.figures["steps"]) if step is None else step)

    def dynamics(self) -> pl.LazyFrame:
        """Return the training dynamics that count, in the schema of the table `dynamics`."""
        return dynamics.scan(records.dynamics_parts(self.run.folder))

    @property
    def weights(self) -> Path:
        """The trained weights as safetensors."""
        return self.run.folder / "model.safetensors"


def launch(run: Run, *, resume: bool = False, ranks: int | None = None) -> Attempt:
    """Start a new attempt at a run.

    Parameters
    ----------
    run : Run
    resume : bool
        Go on from the newest checkpoint, if there is one.
    ranks : int, optional
        Worker processes; the recipe's by default. Another number than before is fine.

    Raises
    ------
    UsageError
        If the run has checkpoints and `resume` is false, or the ranks do not fit the batch sizes.
    TryAgain
        If workers of an earlier attempt are alive.
    """
    ranks = ranks or run.train.ranks
    accumulation(run.plan, ranks)
    _await_earlier(run)

    def describe() -> dict[str, Any]:
        there = records.kept(run.folder)
        if there and not resume:
            raise UsageError(
                f"this run has a checkpoint after step {there[-1].step}",
                where=str(run.folder),
                remedy="resume it, or give the new run a folder of its own",
            )
        begin = {"step": there[-1].step, "record": there[-1].name} if there else {"step": 0, "record": ""}
        return {"start": begin, "ranks": ranks, "launcher": run.train.launcher, "time": time.time()}

    number = attempts.claim(run.folder, describe)
    return start(run, number, attempts.folder(run.folder, number), ranks, ["--attempt", str(number)])


def predict(run: Run, step: int, *, ranks: int | None = None) -> pl.LazyFrame:
    """Answer the evaluation rows with a retained checkpoint; returns the table `predictions` of it.

    Raises
    ------
    UsageError
        If there is no such checkpoint.
    DataRefused
        If its files are not those that were recorded.
    """
    records.find(run.folder, step)
    folder = run.folder / "jobs" / f"predict-{step:010d}-{uuid.uuid4().hex[:8]}"
    folder.mkdir(parents=True)
    options = ["--predict", str(step), "--folder", str(folder)]
    attempt = start(
        replace(run, train=run.train.model_copy(update={"launcher": "local"})), 0, folder, ranks or 1, options
    )
    follow(attempt, lambda _: None)
    shutil.rmtree(folder)
    return predictions.scan(run.folder, step)


def attach(run: Run) -> Attempt | None:
    """Return the newest attempt if its workers are alive, to wait for it after the parent that began it has died."""
    number = attempts.newest(run.folder)
    folder = attempts.folder(run.folder, number)
    if not number or not any(name.startswith("rank") for name in attempts.alive(folder)):
        return None
    facts = attempts.facts(run.folder, number)
    return Attempt(run, number, folder, facts["ranks"], command(run, facts["ranks"], ["--attempt", str(number)]))


def wait(attempt: Attempt, on_progress: Callable[[Progress], None] = lambda _: None) -> Outcome:
    """Follow an attempt to its end.

    Parameters
    ----------
    attempt : Attempt
    on_progress : callable
        Called with each new `Progress`, about twice a second at most.

    Raises
    ------
    GradatimError
        What ended the workers, with the last lines of every rank. `TryAgain` where a rank was killed from outside.
    """
    follow(attempt, on_progress)
    return finished(attempt.run)


def finished(run: Run) -> Outcome:
    """Return a finished run's outcome; raises `UsageError` if it has not finished."""
    figures = run.outcome()
    if not figures:
        raise UsageError("this run has not finished", where=str(run.folder), remedy="resume it")
    return Outcome(run, "finished", figures)


def train_run(
    run: Run,
    on_progress: Callable[[Progress], None] = lambda _: None,
    *,
    resume: bool = True,
    ranks: int | None = None,
) -> Outcome:
    """Train a run to its end: launch, follow, return the outcome; a finished run is not trained again.

    Arguments and errors as of `launch` and `wait`. With the launcher `print` nothing is started: the outcome holds the
    command.
    """
    if run.outcome():
        return finished(run)
    attempt = launch(run, resume=resume, ranks=ranks)
    if run.train.launcher == "print":
        return Outcome(run, "printed", {}, attempt.command)
    return wait(attempt, on_progress)


def _await_earlier(run: Run) -> None:
    """Give workers that lost their parent the time to notice it."""
    number = attempts.newest(run.folder)
    if not number:
        return
    until = time.monotonic() + 2 * GRACE
    while still := attempts.alive(attempts.folder(run.folder, number)):
        workers = {name: pid for name, pid in still.items() if name.startswith("rank")}
        if not workers:
            return
        if "parent" in still or time.monotonic() > until:
            told = ", ".join(f"{name} pid {pid}" for name, pid in workers.items())
            raise TryAgain(
                f"attempt {number} is at work: {told}", where=str(run.folder), remedy="wait for it, or stop it first"
            )
        time.sleep(0.1)


def resume(
    run_dir: Path, on_progress: Callable[[Progress], None] = lambda _: None, ranks: int | None = None
) -> Outcome:
    """Open a run's folder and train it to its end from the newest checkpoint; as `train_run`."""
    return train_run(open_run(run_dir), on_progress, resume=True, ranks=ranks)
