"""Attempts at a run, and the fence between them.

Each start of a run's workers is an attempt: a folder ``attempts/000001`` that is created exclusively, whose number is
the fencing token. Whoever saves or publishes holds the run's lock while it makes sure that its number is the newest,
and claiming a number takes the same lock, so that an attempt that was given up for dead can finish a write of its own
but never publish it.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gradatim.schemas.errors import GradatimError

FENCED = 73
"""Exit code of a worker whose attempt is no longer the newest."""
ORPHANED = 74
"""Exit code of a worker whose parent is gone."""


class Fenced(GradatimError):
    """A newer attempt of this run exists; this one may not save or publish."""


def folder(run_dir: Path, attempt: int) -> Path:
    """Return an attempt's folder."""
    return run_dir / "attempts" / f"{attempt:06d}"


def numbers(run_dir: Path) -> list[int]:
    """Return the attempts so far, in order."""
    root = run_dir / "attempts"
    return sorted(int(p.name) for p in root.iterdir() if p.name.isdigit()) if root.is_dir() else []


def newest(run_dir: Path) -> int:
    """Return the newest attempt's number, or 0."""
    return max(numbers(run_dir), default=0)


@contextmanager
def _locked(run_dir: Path) -> Iterator[None]:
    with (run_dir / ".lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def claim(run_dir: Path, describe: Callable[[], dict[str, Any]]) -> int:
    """Create the next attempt, which fences all before it; what `describe` returns is kept as its ``attempt.json``.

    `describe` is called inside the lock: where the attempt starts from cannot change between the look and the claim.
    """
    with _locked(run_dir):
        attempt = newest(run_dir) + 1
        facts = {**describe(), "attempt": attempt}
        path = folder(run_dir, attempt)
        path.mkdir(parents=True)
        write_json(path / "attempt.json", facts)
    return attempt


@contextmanager
def holding(run_dir: Path, attempt: int) -> Iterator[None]:
    """Hold the run's lock as its newest attempt; raises `Fenced` if it is not."""
    with _locked(run_dir):
        check(run_dir, attempt)
        yield


def check(run_dir: Path, attempt: int) -> None:
    """Raise `Fenced` if a newer attempt exists."""
    if (now := newest(run_dir)) != attempt:
        raise Fenced(
            f"attempt {attempt} is fenced: attempt {now} has begun", where=str(run_dir), expected="the newest attempt"
        )


def facts(run_dir: Path, attempt: int) -> dict[str, Any]:
    """Return what was written when an attempt was claimed."""
    found: dict[str, Any] = read_json(folder(run_dir, attempt) / "attempt.json")
    return found


def started(pid: int) -> str:
    """Return a mark of when a process began (its pid may be used again), or an empty string if there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        try:
            os.kill(pid, 0)
        except OSError:
            return ""
        return "alive" if not Path("/proc/self/stat").exists() else ""
    fields = stat.rpartition(")")[2].split()
    return "" if fields[0] == "Z" else fields[19]


def sign(path: Path, name: str, pid: int) -> None:
    """Note in an attempt's folder which process is its `name` (``parent``, ``rank0``, ...)."""
    write_json(path / f"{name}.lease.json", {"pid": pid, "started": started(pid)})


def alive(path: Path) -> dict[str, int]:
    """Return the processes that signed an attempt's folder and still run, by name."""
    leases = {file.name.split(".")[0]: read_json(file) for file in sorted(path.glob("*.lease.json"))}
    return {
        name: lease["pid"]
        for name, lease in leases.items()
        if lease["started"] and started(lease["pid"]) == lease["started"]
    }


def write_json(path: Path, value: Any) -> None:
    """Write JSON, whole or not at all."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    temporary.write_text(json.dumps(value, indent=1, ensure_ascii=False), encoding="utf-8")
    temporary.replace(path)


def read_json(path: Path, default: Any = None) -> Any:
    """Read JSON; the default where the file is absent and there is one."""
    if default is not None and not path.is_file():
        return default
    return json.loads(path.read_text(encoding="utf-8"))
