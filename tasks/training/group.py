"""The ranks as a group: what they tell each other besides gradients. Always over the CPU."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np

from gradatim.schemas.errors import GradatimError
from gradatim.tasks.training.order import World


class Group:
    """This process's place among the ranks; made from the environment (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT)."""

    def __init__(self, *, cuda: bool) -> None:
        import torch.distributed as dist

        dist.init_process_group("nccl" if cuda else "gloo", init_method="env://")
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self._dist = dist
        self._cpu = dist.new_group(backend="gloo") if cuda else dist.group.WORLD
        self.local = int(os.environ.get("LOCAL_RANK", self.rank))

    @property
    def world(self) -> World:
        """The rank and size as the sampler takes them."""
        return World(self.rank, self.size)

    def barrier(self) -> None:
        """Wait for all ranks."""
        if self.size > 1:
            self._dist.barrier(group=self._cpu)

    def together(self, act: Callable[[], None]) -> None:
        """Let rank 0 act while the others wait; if it raises, all ranks raise."""
        trouble: list[GradatimError | None] = [None]
        if self.rank == 0:
            try:
                act()
            except GradatimError as error:
                trouble = [error]
            except Exception as error:  # the others would wait forever
                trouble = [GradatimError(f"{type(error).__name__}: {error}")]
        if self.size > 1:
            self._dist.broadcast_object_list(trouble, src=0, group=self._cpu)
        if trouble[0] is not None:
            raise trouble[0]

    def gather(self, values: np.ndarray, capacity: int) -> np.ndarray | None:
        """Collect int64 rows of shape (n <= capacity, width) from all ranks on rank 0; None elsewhere."""
        import torch

        if self.size == 1:
            return values
        mine = torch.full((capacity + 1, values.shape[1]), len(values), dtype=torch.int64)
        mine[1 : len(values) + 1] = torch.from_numpy(values)
        parts = [torch.empty_like(mine) for _ in range(self.size)] if self.rank == 0 else None
        self._dist.gather(mine, parts, dst=0, group=self._cpu)
        if parts is None:
            return None
        return np.concatenate([part[1 : int(part[0, 0]) + 1].numpy() for part in parts])

    def mean(self, value: float) -> float:
        """Average a number over the ranks."""
        import torch

        if self.size == 1:
            return value
        total = torch.tensor([value], dtype=torch.float64)
        self._dist.all_reduce(total, group=self._cpu)
        mean: float = total.item() / self.size
        return mean

    def close(self) -> None:
        """Leave the group."""
        self._dist.destroy_process_group()


def device(group: Group, *, cuda: bool) -> Any:
    """Return this rank's device, and make it the current one."""
    import torch

    if not cuda:
        return torch.device("cpu")
    torch.cuda.set_device(group.local)
    return torch.device("cuda", group.local)
