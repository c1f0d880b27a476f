"""Which positions of the order are trained when and where: pure functions on numbers and arrays.

The contract. Step s of a run with global batch B takes the positions [sB, (s+1)B); where the order's length is not a
multiple of B, the last step is short and takes what is left, so that each position is consumed exactly once. A step's
positions are cut in order into cells of micro-batch size; cell ``k * world + rank`` is micro step k of that rank.
Nothing else enters: neither loader processes nor restarts nor the number of ranks move a position to another step.

Source: the idea of an elastic deterministic order as functions on arrays is MosaicML's (2022), Streaming.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from gradatim.schemas.errors import UsageError


@dataclass(frozen=True)
class World:
    """One rank's place among the ranks; the only thing that differs between them."""

    rank: int = 0
    size: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.size:
            raise UsageError(f"rank {self.rank} of {self.size}", expected="0 <= rank < size")


@dataclass(frozen=True)
class Plan:
    """The numbers of a run that fix its order: the length and the two batch sizes.

    Attributes
    ----------
    length : int
        Positions in the order.
    global_batch, micro_batch : int
        Positions an optimizer step, and a forward pass of one rank.
    max_steps : int, optional
        Optimizer steps after which the run ends early.
    """

    length: int
    global_batch: int
    micro_batch: int
    max_steps: int | None = None

    @property
    def steps(self) -> int:
        """Optimizer steps of the whole run."""
        full = math.ceil(self.length / self.global_batch)
        return full if self.max_steps is None else min(full, self.max_steps)

    @property
    def end(self) -> int:
        """Positions consumed when the run is over."""
        return min(self.steps * self.global_batch, self.length)

    def span(self, step: int) -> tuple[int, int]:
        """Return the first position of a step and the one behind its last."""
        return min(step * self.global_batch, self.length), min((step + 1) * self.global_batch, self.length)

    def step_at(self, position: int) -> int:
        """Return the step that begins at a position; raises `UsageError` inside a step."""
        if position >= self.length:
            return math.ceil(self.length / self.global_batch)
        if position % self.global_batch:
            raise UsageError(
                f"position {position} lies inside a step of {self.global_batch}",
                expected="a multiple of global_batch",
                remedy="resume with the global_batch that the run began with",
            )
        return position // self.global_batch


def accumulation(plan: Plan, size: int) -> int:
    """Return the micro steps of each rank in an optimizer step: global / (micro x ranks).

    Raises
    ------
    UsageError
        If that is not a whole number, with the numbers of ranks that would do.
    """
    steps, rest = divmod(plan.global_batch, plan.micro_batch * size)
    if rest or not steps:
        fits = [n for n in range(1, 65) if plan.global_batch % (plan.micro_batch * n) == 0]
        raise UsageError(
            f"global_batch {plan.global_batch} is not a multiple of micro_batch x ranks = {plan.micro_batch} x {size}",
            expected=f"ranks among {', '.join(map(str, fits))}" if fits else "a smaller micro_batch",
            remedy="change ranks, micro_batch or global_batch",
        )
    return steps


def positions(plan: Plan, step: int, world: World) -> list[np.ndarray]:
    """Return the positions that one rank takes in an optimizer step, an array a micro step.

    Parameters
    ----------
    plan : Plan
    step : int, from 0
    world : World

    Returns
    -------
    list of numpy.ndarray of int64
        As many as `accumulation` says; in a short last step some are shorter or empty.
    """
    first, last = plan.span(step)
    cells = [micro * world.size + world.rank for micro in range(accumulation(plan, world.size))]
    starts = [min(first + cell * plan.micro_batch, last) for cell in cells]
    return [np.arange(start, min(start + plan.micro_batch, last), dtype=np.int64) for start in starts]


def occurrences(rows: np.ndarray) -> np.ndarray:
    """Count for each place how often its value has come before: the epoch of an example in an order.

    Parameters
    ----------
    rows : numpy.ndarray of integers, shape (positions,)

    Returns
    -------
    numpy.ndarray of int32, shape (positions,)
        Cost: one stable sort.
    """
    by_row = np.argsort(rows, kind="stable")
    ordered = rows[by_row]
    begins = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]]) if len(rows) else np.zeros(0, np.int64)
    runs = np.diff(np.r_[begins, len(rows)])
    counts = np.empty(len(rows), dtype=np.int32)
    counts[by_row] = np.arange(len(rows)) - np.repeat(begins, runs)
    return counts


def learning_rate(step: int, steps: int, *, peak: float, warmup: float, schedule: str) -> float:
    """Return the learning rate of a step: a pure function, so that a resumed run needs no scheduler state.

    Parameters
    ----------
    step, steps : int
        Step from 0, and steps of the whole run.
    peak : float
    warmup : float in [0, 1]
        Share of the steps in which the rate rises linearly to `peak`.
    schedule : "constant", "linear" or "cosine"
        How it goes on; the last two end at zero behind the last step.
    """
    rising = round(warmup * steps)
    if step < rising:
        return peak * (step + 1) / rising
    left = 1 - (step - rising) / max(steps - rising, 1)
    if schedule == "linear":
        return peak * left
    if schedule == "cosine":
        return peak * (1 - math.cos(math.pi * left)) / 2
    return peak
