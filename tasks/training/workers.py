"""The processes of an attempt: started, followed, ended, and their failure explained. Never imports torch."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from gradatim.schemas import errors
from gradatim.schemas.errors import GradatimError, TryAgain
from gradatim.tasks.training import attempts, lifeline
from gradatim.tasks.training.folder import Run

_MODULE = "gradatim.tasks.training.worker"
GRACE = 5.0
"""Seconds that workers have to end when one of them failed or they are told to stop."""


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
            try:
                process.wait(GRACE)
            except subprocess.TimeoutExpired:
                # it hangs; it has not been waited for, so its number cannot be another process's by now
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def command(run: Run, ranks: int, options: list[str]) -> str:
    """Return what starts the workers by hand."""
    parts = ["torchrun", f"--nproc-per-node={ranks}", "-m", _MODULE, str(run.folder), *options]
    return shlex.join(parts)


def start(run: Run, number: int, folder: Path, ranks: int, options: list[str]) -> Attempt:
    """Start workers on this host, each holding the read end of our pipe; `print` only notes the command."""
    attempt = Attempt(run, number, folder, ranks, command(run, ranks, options))
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
    defaults = {"OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "PASSIVE"}
    if Path("/sys/class/net/lo").exists():  # ranks of one host need no name server to find each other
        defaults["GLOO_SOCKET_IFNAME"] = "lo"
    return {**defaults, **os.environ, **ours}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def follow(attempt: Attempt, on_progress: Callable[[Progress], None]) -> None:
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
                if time.monotonic() - failed_at > GRACE and attempt._processes:
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
        if not (attempt.folder / f"rank{rank}.lease.json").is_file():
            codes.append(None)  # printed, and not started yet
            continue
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
        return TryAgain(
            "the workers ended because their parent was gone", where=where, remedy=f"resume the run\n{tails}"
        )
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
