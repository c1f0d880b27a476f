"""Saving and loading a DeepSpeed engine, on the workers' side."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradatim.schemas.errors import DataRefused, GradatimError
from gradatim.tasks.training import attempts, records
from gradatim.tasks.training.group import Group
from gradatim.tasks.training.records import Record

if TYPE_CHECKING:
    from torch import nn

TAG = "state"
WEIGHTS = "weights.safetensors"


def save(engine: Any, group: Group, run_dir: Path, record: Record, *, pattern: str, keep: int) -> None:
    """Save a checkpoint: called by all ranks; it counts once rank 0 has published its record.

    Raises
    ------
    Fenced
        On every rank, if a newer attempt exists; nothing was published then.
    """
    group.together(lambda: attempts.check(run_dir, record.attempt))
    folder = run_dir / "checkpoints" / record.name
    # DeepSpeed pickles this beside the weights; our own record stays the authority
    state = {"manifest": record.manifest, "position": record.position, "attempt": record.attempt}
    engine.save_checkpoint(str(folder), tag=TAG, client_state={"gradatim": state}, save_latest=False)
    export(engine, group, folder / WEIGHTS, zero=record.zero)
    group.barrier()

    def publish() -> None:
        parts = sorted(path.name for path in (run_dir / "dynamics").glob(f"{pattern}-*.parquet"))
        whole = Record(**{**record.__dict__, "dynamics": tuple(parts), "files": records.digests(folder)})
        records.publish(run_dir, whole, keep=keep)

    group.together(publish)


def export(engine: Any, group: Group, path: Path, *, zero: int) -> None:
    """Write the weights as safetensors from rank 0; all ranks call it, because ZeRO 3 spreads each tensor over them."""
    import deepspeed
    from safetensors.torch import save_file

    weights, kept = {}, engine.module.state_dict().keys()
    for name, parameter in engine.module.named_parameters(remove_duplicate=False):
        with deepspeed.zero.GatheredParameters([parameter], enabled=zero == 3):
            if group.rank == 0:
                weights[name] = parameter.detach().cpu().clone().contiguous()
    if group.rank == 0:
        weights |= {name: value.detach().cpu().clone() for name, value in engine.module.named_buffers() if name in kept}
        path.parent.mkdir(parents=True, exist_ok=True)
        save_file(weights, str(path))


def load(engine: Any, group: Group, run_dir: Path, record: Record, scratch: Path, *, zero: int) -> None:
    """Load a checkpoint of any number of ranks into an engine; all ranks call it.

    ZeRO 0 loads as it is. A checkpoint of ZeRO 1 to 3 goes through DeepSpeed's universal form if the ranks or the stage
    differ; `scratch` is a folder of this attempt for it.

    Raises
    ------
    DataRefused
        If a file is not the one that was recorded, or the checkpoint belongs to another order.
    """
    group.together(lambda: verify(run_dir, record))
    folder = run_dir / "checkpoints" / record.name
    if (record.zero == 0) != (zero == 0):
        raise GradatimError(
            f"this checkpoint was saved with ZeRO {record.zero} and cannot be resumed with ZeRO {zero}",
            where=str(folder),
            remedy=f"set  train: zero: {record.zero}",
        )
    if is_universal(record, world=group.size, zero=zero):
        group.together(lambda: _convert(folder / TAG, scratch / TAG))
        folder = scratch
    path, _ = engine.load_checkpoint(str(folder), tag=TAG)
    if path is None:
        raise DataRefused("DeepSpeed found no checkpoint to load", where=str(folder))
    group.barrier()
    if group.rank == 0:
        shutil.rmtree(scratch, ignore_errors=True)  # as large as the checkpoint itself


def is_universal(record: Record | None, *, world: int, zero: int) -> bool:
    """Whether a start from this record needs DeepSpeed's universal form (a setting of the engine)."""
    return record is not None and record.zero > 0 and zero > 0 and (record.zero, record.world) != (zero, world)


def verify(run_dir: Path, record: Record) -> None:
    """Raise `DataRefused` unless a checkpoint's files are those that were recorded."""
    records.verify(run_dir, record)


def _convert(source: Path, target: Path) -> None:
    command = [sys.executable, "-m", "deepspeed.checkpoint.ds_to_universal", "--inject_missing_state"]
    command += ["--input_folder", str(source), "--output_folder", str(target)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise GradatimError(
            "the checkpoint could not be converted for another number of ranks: " + done.stderr.strip()[-500:],
            where=str(source),
        )


def load_weights(module: nn.Module, path: Path) -> None:
    """Load exported weights into a plain module."""
    from safetensors.torch import load_file

    module.load_state_dict(load_file(str(path)))
