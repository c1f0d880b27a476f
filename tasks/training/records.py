"""The run's record of its checkpoints, and which attempt's work counts for which steps. Imports no torch."""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.tasks.training import attempts


@dataclass(frozen=True)
class Record:
    """One published checkpoint.

    Attributes
    ----------
    step, position : int
        Optimizer steps done and positions consumed.
    attempt : int
        Attempt that saved it.
    manifest, digest : str
        Hash of the order, and the audit chain's digest after `step` steps.
    world, zero : int
        Ranks and ZeRO stage that saved it.
    loss : float
        Weighted mean loss of the last step (nats).
    dynamics : tuple of str
        Files of training dynamics of the interval that it closes.
    files : dict of str to str
        SHA-256 of each of its files, by path inside its folder.
    """

    step: int
    position: int
    attempt: int
    manifest: str
    digest: str
    world: int
    zero: int
    loss: float
    dynamics: tuple[str, ...] = ()
    files: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Name of its folder under ``checkpoints`` and of its record under ``records``."""
        return f"step-{self.step:010d}-attempt-{self.attempt:06d}"


def publish(run_dir: Path, record: Record, *, keep: int) -> None:
    """Make a checkpoint one of the run's, under the fence, and remove the files of all but the newest `keep`."""
    with attempts.holding(run_dir, record.attempt):
        attempts.write_json(run_dir / "records" / f"{record.name}.json", asdict(record))
        published = kept(run_dir)
        for old in published[:-keep]:
            shutil.rmtree(run_dir / "checkpoints" / old.name)
        # what earlier attempts were saving when they died; they are fenced, so nobody will publish it
        for half in set((run_dir / "checkpoints").iterdir()) - {run_dir / "checkpoints" / r.name for r in published}:
            if int(half.name.rpartition("-")[2]) < record.attempt:
                shutil.rmtree(half, ignore_errors=True)


def all_records(run_dir: Path) -> list[Record]:
    """Return every checkpoint that was ever published, sorted by step and attempt."""
    found = (attempts.read_json(path) for path in (run_dir / "records").glob("*.json"))
    records = [Record(**{**item, "dynamics": tuple(item["dynamics"])}) for item in found]
    return sorted(records, key=lambda record: (record.step, record.attempt))


def kept(run_dir: Path) -> list[Record]:
    """Return the published checkpoints whose files are still there."""
    return [record for record in all_records(run_dir) if (run_dir / "checkpoints" / record.name).is_dir()]


def find(run_dir: Path, step: int | None = None) -> Record:
    """Return the newest checkpoint, or the one after `step` steps; raises `UsageError` with what there is."""
    there = kept(run_dir)
    chosen = [record for record in there if step is None or record.step == step]
    if not chosen:
        raise UsageError(
            f"there is no checkpoint after step {step}" if step is not None else "there is no checkpoint",
            where=str(run_dir),
            expected="one of " + ", ".join(str(record.step) for record in there) if there else "a published checkpoint",
        )
    return chosen[-1]


def digests(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of every file under a folder, by relative path."""
    found = {}
    for path in sorted(p for p in folder.rglob("*") if p.is_file() or p.is_symlink()):
        with path.open("rb") as file:
            found[path.relative_to(folder).as_posix()] = hashlib.file_digest(file, "sha256").hexdigest()
    return found


def verify(run_dir: Path, record: Record) -> Path:
    """Return a checkpoint's folder if its files are exactly those of the record.

    Raises
    ------
    DataRefused
        That names the first file that differs, is missing or was added. Loading unpickles: what we did not write is
        never loaded.
    """
    folder = run_dir / "checkpoints" / record.name
    there = digests(folder)
    wrong = sorted(name for name in there.keys() | record.files.keys() if there.get(name) != record.files.get(name))
    if wrong:
        name = wrong[0]
        what = "is missing" if name not in there else "was added" if name not in record.files else "was changed"
        raise DataRefused(
            f"{name} {what} since the checkpoint was saved; it is not loaded",
            where=str(folder),
            expected=f"the files of records/{record.name}.json",
            remedy="restore the files, or remove this folder to resume from an earlier checkpoint",
        )
    return folder


@dataclass(frozen=True)
class Stretch:
    """The steps [begin, end) of a run for which one attempt's work counts; `end` is None for the newest attempt."""

    attempt: int
    begin: int
    end: int | None


def stretches(run_dir: Path) -> list[Stretch]:
    """Return which attempt counts for which steps: each from its start to where the next one that ran started."""
    starts = [(number, int(attempts.facts(run_dir, number)["start"]["step"])) for number in attempts.numbers(run_dir)]
    found: list[Stretch] = []
    for number, begin in starts:
        # an attempt that starts earlier than the last one did takes over from there
        while found and found[-1].begin >= begin:
            found.pop()
        if found:
            found[-1] = Stretch(found[-1].attempt, found[-1].begin, begin)
        found.append(Stretch(number, begin, None))
    return found


def dynamics_parts(run_dir: Path) -> list[Path]:
    """Return the files of training dynamics that count: of attempts that reached the checkpoint behind them."""
    counted = stretches(run_dir)
    parts = []
    for record in all_records(run_dir):
        for stretch in counted:
            inside = stretch.begin < record.step and (stretch.end is None or record.step <= stretch.end)
            if record.attempt == stretch.attempt and inside:
                parts += [run_dir / "dynamics" / name for name in record.dynamics]
    return parts
