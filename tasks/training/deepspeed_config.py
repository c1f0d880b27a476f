"""DeepSpeed's settings: a template for each kind of device, and the batch numbers that follow from the run.

`deploy/deepspeed/` holds the templates as files for people to read; a test keeps them equal to these.
"""

from __future__ import annotations

import copy
from typing import Any

from gradatim.schemas.errors import UsageError
from gradatim.schemas.recipe import Train
from gradatim.tasks.training.order import Plan, accumulation

_COMMON: dict[str, Any] = {
    "optimizer": {"type": "AdamW", "params": {"betas": [0.9, 0.999], "eps": 1e-8, "torch_adam": True}},
    "steps_per_print": 1_000_000_000,
    "wall_clock_breakdown": False,
}

TEMPLATES: dict[str, dict[str, Any]] = {
    "cpu": {**_COMMON, "zero_optimization": {"stage": 0}},
    "cuda_zero2": {
        **_COMMON,
        "bf16": {"enabled": True},
        "zero_optimization": {
            "stage": 2,
            "overlap_comm": True,
            "contiguous_gradients": True,
            "reduce_bucket_size": 200_000_000,
            "allgather_bucket_size": 200_000_000,
        },
    },
    "cuda_zero3": {
        **_COMMON,
        "bf16": {"enabled": True},
        "zero_optimization": {
            "stage": 3,
            "overlap_comm": True,
            "contiguous_gradients": True,
            "stage3_max_live_parameters": 1_000_000_000,
            "stage3_prefetch_bucket_size": 50_000_000,
            "stage3_param_persistence_threshold": 100_000,
        },
    },
}
"""By device and ZeRO stage; what a run decides is added by `settings`."""


def settings(train: Train, plan: Plan, *, world: int, cuda: bool) -> dict[str, Any]:
    """Fill a template for one attempt.

    Parameters
    ----------
    train : Train
        The recipe's section; `zero` null means 0 on CPU and 2 on a GPU, `precision` auto means fp32 and bf16.
    plan : Plan
    world : int
        Ranks.
    cuda : bool
        Whether there is a GPU: found, not configured.
    """
    stage = train.zero if train.zero is not None else (2 if cuda else 0)
    precision = train.precision if train.precision != "auto" else ("bf16" if cuda else "fp32")
    if precision == "bf16" and not cuda:
        raise UsageError(
            "bf16 was asked for, but there is no GPU here", where="train: precision", expected="auto or fp32"
        )
    found = copy.deepcopy(TEMPLATES[f"cuda_zero{3 if stage == 3 else 2}" if cuda else "cpu"])
    found["zero_optimization"]["stage"] = stage
    if precision == "fp32":
        found.pop("bf16", None)
    found["optimizer"]["params"] |= {"lr": train.optimizer.lr, "weight_decay": train.optimizer.weight_decay}
    return found | {
        "train_batch_size": plan.global_batch,
        "train_micro_batch_size_per_gpu": plan.micro_batch,
        "gradient_accumulation_steps": accumulation(plan, world),
        "gradient_clipping": train.optimizer.clip,
    }
