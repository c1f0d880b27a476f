"""The order contract for trainers of one's own."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest

from gradatim.schemas.errors import UsageError
from gradatim.torch import AuditCallback, Order, OrderAudit, OrderSampler, verdict

IDS = [f"e{i}" for i in range(10)]
ORDER = [*IDS, *IDS[::-1], "e3"]


def test_ranks_of_an_own_trainer_are_audited_like_ours(tmp_path: Path) -> None:
    order = Order(ORDER, IDS)
    for rank in (0, 1):
        sampler = OrderSampler(order, global_batch=4, micro_batch=1, rank=rank, world=2)
        batches = [[IDS[row] for row in rows] for rows in sampler]
        assert len(sampler) == len(batches) == (11 if rank == 0 else 10)
        log = OrderAudit(tmp_path, order, global_batch=4, rank=rank)
        for step in range(6):
            log.log(step, [name for part in batches[2 * step : 2 * step + 2] for name in part])
    assert verdict(tmp_path).holds, str(verdict(tmp_path))
    assert verdict(tmp_path).steps == 6


def test_one_wrong_example_of_an_own_trainer_is_named(tmp_path: Path) -> None:
    order = Order(ORDER, IDS)
    log = OrderAudit(tmp_path, order, global_batch=4)
    log.log(0, ORDER[0:4])
    assert verdict(tmp_path).verdict == "incomplete"
    log.log(1, [*ORDER[4:7], "e0"])
    assert (verdict(tmp_path).verdict, verdict(tmp_path).first) == ("differs", 1)
    log.log(1, ORDER[4:8])  # the trainer was restarted and did it again
    assert verdict(tmp_path).verdict == "incomplete"


def test_a_sampler_resumes_from_its_state_and_refuses_another_orders() -> None:
    order = Order(ORDER, IDS)
    sampler = OrderSampler(order, global_batch=4, micro_batch=4)
    whole = list(sampler)
    again = OrderSampler(order, global_batch=4, micro_batch=4)
    again.load_state_dict(sampler.state_dict(3))
    assert list(again) == whole[3:]
    other = OrderSampler(Order(ORDER[::-1], IDS), global_batch=4, micro_batch=4)
    with pytest.raises(UsageError, match="the state belongs to the order"):
        other.load_state_dict(sampler.state_dict(3))


def test_a_curriculum_frame_is_an_order_and_strangers_are_refused() -> None:
    frame = pl.DataFrame({"position": [1, 0], "example_id": ["e1", "e5"], "weight": [0.5, 1.0]})
    order = Order(frame, IDS)
    assert order.rows.tolist() == [5, 1]
    assert order.manifest.weight.tolist() == [1.0, 0.5]
    with pytest.raises(UsageError, match="1 ids of the order are not in the data set, first 'e77'"):
        Order(["e1", "e77"], IDS)
    with pytest.raises(UsageError, match="'e1' stands twice"):
        Order(["e1"], ["e1", "e1"])


@pytest.mark.train
def test_the_sampler_feeds_a_torch_loader() -> None:
    from torch.utils.data import DataLoader

    sampler = OrderSampler(Order(ORDER, IDS), global_batch=4, micro_batch=2)
    loader = DataLoader(IDS, batch_sampler=sampler, collate_fn=list, num_workers=2)
    assert [name for batch in loader for name in batch] == ORDER


def trainer(callback: AuditCallback, batches: list[list[int]], accumulate: int) -> None:
    """What Hugging Face's Trainer does, with one batch fetched ahead."""
    args = SimpleNamespace(
        dataloader_num_workers=0, gradient_accumulation_steps=accumulate, remove_unused_columns=False
    )
    state = SimpleNamespace(global_step=0)
    callback.on_train_begin(args, state, None)
    callback.on_epoch_begin(args, state, None)
    fetched = (callback.collate([{"example_id": IDS[row], "x": row} for row in rows]) for rows in batches)
    ahead: Any = next(fetched)
    for done in range(1, len(batches) + 1):
        batch, ahead = ahead, next(fetched, None)
        assert all(set(feature) == {"x"} for feature in batch)
        if done % accumulate == 0 or ahead is None:
            state.global_step += 1
            callback.on_step_end(args, state, None)


def test_the_callback_audits_a_trainer_that_fetches_ahead(tmp_path: Path) -> None:
    order = Order(ORDER, IDS)
    batches = list(OrderSampler(order, global_batch=4, micro_batch=2))
    trainer(AuditCallback(OrderAudit(tmp_path / "right", order, global_batch=4), list), batches, 2)
    assert verdict(tmp_path / "right").holds, str(verdict(tmp_path / "right"))
    batches[1], batches[4] = batches[4], batches[1]
    trainer(AuditCallback(OrderAudit(tmp_path / "wrong", order, global_batch=4), list), batches, 2)
    assert verdict(tmp_path / "wrong").first == 0


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"dataloader_num_workers": 2}, "dataloader_num_workers is 2"),
        ({"remove_unused_columns": True}, "would drop the column 'example_id'"),
        ({"group_by_length": True}, "would reorder"),
    ],
)
def test_the_callback_refuses_what_would_hide_the_order(tmp_path: Path, setting: dict[str, Any], message: str) -> None:
    callback = AuditCallback(OrderAudit(tmp_path, Order(ORDER, IDS), global_batch=4), list)
    args = SimpleNamespace(**{"dataloader_num_workers": 0, "remove_unused_columns": False, **setting})
    with pytest.raises(UsageError, match=message):
        callback.on_train_begin(args, None, None)
