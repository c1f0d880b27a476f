"""The order contract for trainers of your own: a sampler, an audit, and a callback for Hugging Face's Trainer.

order = gd.torch.Order(curriculum_frame, ids_of_my_rows)
sampler = gd.torch.OrderSampler(order, global_batch=64, micro_batch=32, rank=rank, world=world)
audit = gd.torch.OrderAudit("runs/mine", order, global_batch=64, rank=rank)
...
audit.log(step, ids)          # after each optimizer step, the ids that this rank trained
gd.torch.verdict("runs/mine")  # or:  gradatim audit runs/mine
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from gradatim.schemas.errors import UsageError
from gradatim.tasks.training import attempts
from gradatim.tasks.training.audit import AuditResult, audit
from gradatim.tasks.training.loader import keys
from gradatim.tasks.training.manifest import Manifest, build, id_hashes
from gradatim.tasks.training.order import Plan, World, accumulation

__all__ = ["AuditCallback", "Order", "OrderAudit", "OrderSampler", "verdict"]


class Order:
    """An order over a data set: which of its rows stands at each position.

    Parameters
    ----------
    order : sequence of str or polars.DataFrame
        Example ids in training order, or a curriculum frame (`position`, `example_id`, optionally `weight`) of one arm.
    ids : sequence of str
        The id of each row of your data set, in its own order.

    Attributes
    ----------
    manifest : Manifest
    rows : numpy.ndarray of int64, shape (positions,)
        Row of your data set at each position.
    """

    def __init__(self, order: Sequence[str] | pl.DataFrame, ids: Sequence[str]) -> None:
        if isinstance(order, pl.DataFrame):
            frame = order.sort("position")
            names = frame["example_id"]
            weight = frame["weight"].to_numpy() if "weight" in frame.columns else np.ones(len(frame))
        else:
            names, weight = pl.Series(list(order), dtype=pl.String), np.ones(len(order))
        index = pl.DataFrame({"id": pl.Series(list(ids), dtype=pl.String)}).with_row_index("row")
        if index["id"].is_duplicated().any():
            twice = index["id"].filter(index["id"].is_duplicated())[0]
            raise UsageError(f"the id {twice!r} stands twice", where="ids", expected="unique ids")
        joined = pl.DataFrame({"id": names}).join(index, on="id", how="left", maintain_order="left")["row"]
        if joined.null_count():
            raise UsageError(
                f"{joined.null_count()} ids of the order are not in the data set, first "
                f"{names.filter(joined.is_null())[0]!r}",
                where="order",
                expected="ids of your data set",
            )
        self.rows = joined.to_numpy().astype(np.int64)
        self.manifest: Manifest = build(self.rows, id_hashes(names.to_arrow()), weight)

    def __len__(self) -> int:
        return len(self.rows)


class OrderSampler:
    """A batch sampler (`DataLoader(..., batch_sampler=sampler)`): yields the row numbers of each micro batch.

    A pure function of (order, position, world, rank): pass `start` to resume; nothing else is state.

    Parameters
    ----------
    order : Order
    global_batch, micro_batch : int
    rank, world : int
    start : int
        Position to resume at: a multiple of `global_batch`.
    """

    def __init__(
        self, order: Order, *, global_batch: int, micro_batch: int, rank: int = 0, world: int = 1, start: int = 0
    ) -> None:
        self.order = order
        self.plan = Plan(len(order), global_batch, micro_batch)
        self.world = World(rank, world)
        self.accumulation = accumulation(self.plan, world)
        self.start = self.plan.step_at(start)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __iter__(self) -> Iterator[list[int]]:
        # an empty share of a short last step is left out: trainers of your own skip it
        for _, _, positions, _ in keys(self.plan, self.world, self.start):
            if len(positions):
                yield self.order.rows[positions].tolist()

    def state_dict(self, step: int) -> dict[str, Any]:
        """Return the sampler's whole state after `step` optimizer steps."""
        return {"manifest": self.order.manifest.hash, "position": self.plan.span(step)[0]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on at a saved position; raises `UsageError` if it belongs to another order."""
        if state["manifest"] != self.order.manifest.hash:
            raise UsageError(
                f"the state belongs to the order {state['manifest']}", expected=f"the order {self.order.manifest.hash}"
            )
        self.start = self.plan.step_at(state["position"])


class OrderAudit:
    """Logs what a trainer of your own consumed, so that `gradatim audit FOLDER` can prove its order.

    Parameters
    ----------
    folder : Path or str
        Shared by all ranks.
    order : Order
    global_batch : int
    rank : int
    max_steps : int, optional
        Where training ends before the order does.
    """

    def __init__(
        self, folder: Path | str, order: Order, *, global_batch: int, rank: int = 0, max_steps: int | None = None
    ) -> None:
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.path = self.folder / f"delivered-rank{rank}.txt"
        if rank == 0:
            order.manifest.save(self.folder / "order.arrow")
            facts = {"manifest": order.manifest.hash, "global_batch": global_batch, "max_steps": max_steps}
            attempts.write_json(self.folder / "audit.json", facts)

    def log(self, step: int, ids: Iterable[str]) -> None:
        """Note the ids that this rank trained in an optimizer step (from 0), over all its micro steps."""
        digests = np.ascontiguousarray(id_hashes(list(ids)), dtype="<u8").tobytes().hex()
        with self.path.open("a", encoding="utf-8") as file:
            file.write(f"{step} {digests}\n")


class AuditCallback:
    """A callback for Hugging Face's `Trainer` (and TRL) that audits the order; needs no transformers here.

    Use its `collate` as the trainer's collator, and `OrderSampler` for the order::

        callback = AuditCallback(audit, inner=default_data_collator)
        Trainer(..., data_collator=callback.collate, callbacks=[callback])

    Parameters
    ----------
    audit : OrderAudit
    inner : callable
        The collator that makes the batch.
    column : str
        Key of each feature that holds the example's id; taken out before `inner` sees it.
    """

    def __init__(self, audit: OrderAudit, inner: Callable[[list[Any]], Any], column: str = "example_id") -> None:
        self.audit, self.inner, self.column = audit, inner, column
        self._waiting: list[list[str]] = []

    def collate(self, features: list[dict[str, Any]]) -> Any:
        """Make a batch and remember whose it is."""
        self._waiting.append([str(feature[self.column]) for feature in features])
        return self.inner([{k: v for k, v in feature.items() if k != self.column} for feature in features])

    def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Log the micro batches of the step that has just ended; later ones were only fetched ahead."""
        micro = self._waiting[: args.gradient_accumulation_steps]
        del self._waiting[: args.gradient_accumulation_steps]
        self.audit.log(state.global_step - 1, [name for ids in micro for name in ids])

    def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Refuse what would hide or change the order."""
        if args.dataloader_num_workers:
            raise UsageError(
                f"dataloader_num_workers is {args.dataloader_num_workers}, and other processes cannot be audited",
                expected="dataloader_num_workers=0",
            )
        if getattr(args, "remove_unused_columns", False):
            raise UsageError(
                f"the trainer would drop the column {self.column!r}", expected="remove_unused_columns=False"
            )
        if getattr(args, "group_by_length", False):
            raise UsageError("group_by_length would reorder the examples", expected="group_by_length=False")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("on_"):  # the trainer calls every event
            return _nothing
        raise AttributeError(name)


def _nothing(*args: Any, **more: Any) -> None:
    return None


def verdict(folder: Path | str) -> AuditResult:
    """Compare what was logged with the order; the same as ``gradatim audit FOLDER``."""
    return audit(Path(folder))
