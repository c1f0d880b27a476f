"""The parent's side: start a run's workers, follow them, and say what went wrong. Never imports torch."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import polars as pl
from gradatim.schemas import errors
from gradatim.schemas.errors import GradatimError, TryAgain, UsageError
from gradatim.tasks.training import attempts, dynamics, lifeline, predictions, records
from gradatim.tasks.training.folder import Run, open_run
from gradatim.tasks.training.order import accumulation

_MODULE = "gradatim.tasks.training.worker"
_GRACE = 5.0


@dataclass(frozen=True)
class Progress:
    """How far an attempt is: `kind` is started, progress or predicting; `loss` in nats, null before the first step."""

    kind: str
    step: int
    steps: int
    loss: float | None
    steps_per_second: float
    time: float


@dataclass
class Attempt:
    """Workers at work on a run.

    Attributes
    ----------
    run : Run
    number : int
        The fencing token; 0 for answering the evaluation rows only.
    folder : Path
        Logs, progress and exit codes of each rank.
    ranks : int
    command : str
        What starts these workers by hand.
    """

    run: Run
    number: int
    folder: Path
    ranks: int
    command: str
    _processes: list[subprocess.Popen[bytes]] = field(default_factory=list, repr=False)
    _lifeline: int = field(default=-1, repr=False)

    def stop(self) -> None:
        """End the workers: asked first, then killed; safe to call twice. Only processes of this attempt are touched."""
        if self._lifeline >= 0:
            os.close(self._lifeline)  # each worker exits as its parent's end of the pipe closes
            self._lifeline = -1
        for process in self._processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_GRACE)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # its loader processes, and itself if it hangs
            process.wait()


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
        start = {"step": there[-1].step, "record": there[-1].name} if there else {"step": 0, "record": ""}
        return {"start": start, "ranks": ranks, "launcher": run.train.launcher, "time": time.time()}

    number = attempts.claim(run.folder, describe)
    return _start(run, number, attempts.folder(run.folder, number), ranks, ["--attempt", str(number)])


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
    attempt = _start(replace(run, train=run.train.model_copy(update={"launcher": "local"})), 0, folder, ranks or 1, options)
    _follow(attempt, lambda _: None)
    return predictions.scan(run.folder, step)


def attach(run: Run) -> Attempt | None:
    """Return the newest attempt if its workers are alive, to wait for it after the parent that began it has died."""
    number = attempts.newest(run.folder)
    folder = attempts.folder(run.folder, number)
    if not number or not any(name.startswith("rank") for name in attempts.alive(folder)):
        return None
    facts = attempts.facts(run.folder, number)
    return Attempt(run, number, folder, facts["ranks"], _command(run, facts["ranks"], ["--attempt", str(number)]))


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
    _follow(attempt, on_progress)
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
    until = time.monotonic() + 2 * _GRACE
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


def _command(run: Run, ranks: int, options: list[str]) -> str:
    parts = ["torchrun", f"--nproc-per-node={ranks}", "-m", _MODULE, str(run.folder), *options]
    return shlex.join(parts)


def _start(run: Run, number: int, folder: Path, ranks: int, options: list[str]) -> Attempt:
    attempt = Attempt(run, number, folder, ranks, _command(run, ranks, options))
    (folder / "command.txt").write_text(attempt.command + "\n", encoding="utf-8")
    if run.train.launcher == "print":
        return attempt
    attempts.sign(folder, "parent", os.getpid())
    read, write = os.pipe()
    attempt._lifeline = write
    port = _free_port()
    try:
        for rank in range(ranks):
            environment = _environment(rank, ranks, port) | {lifeline.VARIABLE: str(read)}
            with (folder / f"rank{rank}.log").open("ab") as log:
                process = subprocess.Popen(
                    [sys.executable, "-m", _MODULE, str(run.folder), *options],
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    pass_fds=[read],
                    start_new_session=True,
                )
            attempt._processes.append(process)
            attempts.sign(folder, f"rank{rank}", process.pid)
    except BaseException:
        attempt.stop()
        raise
    finally:
        os.close(read)
    return attempt


def _environment(rank: int, ranks: int, port: int) -> dict[str, str]:
    threads = max((os.cpu_count() or 1) // ranks, 1)
    ours = {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(ranks),
        "LOCAL_WORLD_SIZE": str(ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "PYTHONUNBUFFERED": "1",
        "DO_NOT_TRACK": "1",
    }
    # threads that spin while they wait make a shared machine ten times slower
    return {"OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "PASSIVE", **os.environ, **ours}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _follow(attempt: Attempt, on_progress: Callable[[Progress], None]) -> None:
    """Pass on progress until every rank has ended; a rank that fails takes the others with it after a short grace."""
    read, failed_at = 0, 0.0
    try:
        while True:
            codes = _codes(attempt)
            read = _pass_on(attempt.folder / "events.jsonl", read, on_progress)
            if all(code is not None for code in codes):
                break
            if any(codes):
                failed_at = failed_at or time.monotonic()
                if time.monotonic() - failed_at > _GRACE and attempt._processes:
                    break
            time.sleep(0.05)
    finally:
        attempt.stop()
    codes = _codes(attempt)
    if any(codes):
        raise _explain(attempt, codes)


def _codes(attempt: Attempt) -> list[int | None]:
    """Return each rank's exit code, null while it runs; of workers that we did not start, from what they left."""
    if attempt._processes:
        return [process.poll() for process in attempt._processes]
    alive = attempts.alive(attempt.folder)
    codes: list[int | None] = []
    for rank in range(attempt.ranks):
        left = attempts.read_json(attempt.folder / f"rank{rank}.exit.json", {})
        codes.append(left["code"] if left else None if f"rank{rank}" in alive else attempts.ORPHANED)
    return codes


def _pass_on(path: Path, read: int, on_progress: Callable[[Progress], None]) -> int:
    if not path.is_file():
        return read
    with path.open("rb") as file:
        file.seek(read)
        new = file.read()
    whole = new[: new.rfind(b"\n") + 1]
    for line in whole.splitlines():
        on_progress(Progress(**json.loads(line)))
    return read + len(whole)


def _explain(attempt: Attempt, codes: list[int | None]) -> GradatimError:
    """Turn exit codes into one error: the worker's own where it said one, else the first rank that was killed."""
    tails = "\n".join(
        f"  rank {rank} ({_code_name(code)}): {_tail(attempt.folder / f'rank{rank}.log')}"
        for rank, code in enumerate(codes)
    )
    where = str(attempt.folder)
    told = [attempts.read_json(attempt.folder / f"rank{rank}.exit.json", {}) for rank in range(attempt.ranks)]
    # a rank that was killed, or that saw the cause itself, comes before those that only lost their peer
    killed = [rank for rank, code in enumerate(codes) if code is not None and code < 0 and not told[rank]]
    for left in told:
        error = left.get("error") or {}
        kind = {"Fenced": attempts.Fenced}.get(error.get("kind", ""), getattr(errors, error.get("kind", ""), None))
        if kind is not None and (kind is not GradatimError or not killed):
            return kind(
                error["what"],
                where=error.get("where") or where,
                expected=error.get("expected", ""),
                remedy="\n".join(filter(None, [error.get("remedy", ""), f"logs in {where}:\n{tails}"])),
            )
    if killed:
        number = -(codes[killed[0]] or 0)
        return TryAgain(
            f"rank {killed[0]} was killed by signal {number} ({signal.Signals(number).name}), perhaps for memory",
            where=where,
            remedy=f"resume the run; logs:\n{tails}",
        )
    if attempts.ORPHANED in codes:
        return TryAgain("the workers ended because their parent was gone", where=where, remedy=f"resume the run\n{tails}")
    return GradatimError("the workers failed", where=where, remedy=f"read the logs:\n{tails}")


def _code_name(code: int | None) -> str:
    if code is None:
        return "running"
    names = {attempts.FENCED: "fenced", attempts.ORPHANED: "parent gone"}
    return signal.Signals(-code).name if code < 0 else names.get(code, f"exit {code}")


def _tail(log: Path, lines: int = 3) -> str:
    if not log.is_file():
        return "no log"
    with log.open("rb") as file:
        file.seek(max(log.stat().st_size - 4096, 0))
        text = file.read().decode("utf-8", "replace").strip().splitlines()
    return "\n    ".join(["", *text[-lines:]]) if text else "said nothing"


def resume(run_dir: Path, on_progress: Callable[[Progress], None] = lambda _: None, ranks: int | None = None) -> Outcome:
    """Open a run's folder and train it to its end from the newest checkpoint; as `train_run`."""
    return train_run(open_run(run_dir), on_progress, resume=True, ranks=ranks)
