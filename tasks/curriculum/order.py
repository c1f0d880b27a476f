"""Orders as pure functions: blocks of ranks (0 is the easiest row) in position order, for each arm.

Nothing here knows ids or tables: 64 random bits a row come in, ranks come out, and memory is bounded by the number of
rows, not of positions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from gradatim.schemas.errors import UsageError

Pacing = Callable[[np.ndarray], np.ndarray]
"""Share of the easiest rows available at each progress in [0, 1]."""

REFRESH = 32
"""The pool is looked at anew whenever it would have grown by 1/32."""

_BUCKET = 1 << 23
_ALL = (1 << 64) - 1
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class Plan:
    """What an order is made from.

    Attributes
    ----------
    bits : numpy.ndarray of uint64, (rows,)
        Random bits of each row, rows by rank.
    positions : int
        Length of the order.
    stages : int
        Equal parts into which positions are cut.
    pacing : callable
    """

    bits: np.ndarray
    positions: int
    stages: int
    pacing: Pacing

    @property
    def rows(self) -> int:
        """Number of rows, N."""
        return len(self.bits)

    def available(self, position: int) -> int:
        """Rows available at a position: floor(max(1, c N)), at most N."""
        share = float(self.pacing(np.array([position / self.positions]))[0])
        return min(self.rows, max(1, math.floor(round(share * self.rows, 9))))

    def stage_starts(self) -> np.ndarray:
        """First position of each stage, and the number of positions; (stages + 1,), int64."""
        return np.array([stage * self.positions // self.stages for stage in range(self.stages + 1)], np.int64)


def positions_of(rows: int, passes: float) -> int:
    """Return the exact number of positions: ceil(passes x rows)."""
    return math.ceil(round(passes * rows, 9))


def check_pacing(pacing: Pacing, name: str) -> None:
    """Raise `UsageError` where a pacing leaves [0, 1] or ever shrinks (a third party's may)."""
    share = np.asarray(pacing(np.linspace(0.0, 1.0, 10_001)))
    wrong = share.shape != (10_001,) or not np.isfinite(share).all() or (share < 0).any() or (share > 1 + 1e-12).any()
    if wrong or (np.diff(share) < -1e-12).any():
        raise UsageError(
            f"the pacing {name!r} is not a share that grows",
            expected="one number in [0, 1] for each progress, never smaller than the one before",
        )


def curriculum_blocks(plan: Plan) -> Iterator[np.ndarray]:
    """Draw among the available rows without replacement inside a pass.

    A pass ends when every available row has come in it; rows that become available join the pass under way. Within a
    block the pool is constant: it is looked at anew whenever it would have grown by 1/32 (or one row), and always
    before a pass ends, so that no row comes again while an available one has not come.

    Yields
    ------
    numpy.ndarray of uint32
        Ranks of consecutive positions; no rank twice in one block.

    Notes
    -----
    Rows are re-keyed in every block: rows that have not come are exchangeable, so each next one is uniform among them.
    Time O(positions log + sum of pools over some 150 looks); memory some 24 bytes a row.
    """
    width = max(1, (plan.rows - 1).bit_length())
    low = np.uint64((1 << width) - 1)
    position, pool, block = 0, 0, 0
    left = np.empty(0, np.uint32)  # available rows that have not come in this pass
    while position < plan.positions:
        size = plan.available(position)
        if size > pool:
            left = np.concatenate([left, np.arange(pool, size, dtype=np.uint32)])
            pool = size
        if not len(left):
            left = np.arange(pool, dtype=np.uint32)
        take = min(len(left), _constant_for(plan, position, pool))
        # the low bits hold the rank: keys are unique, and the order of equal random bits is settled
        keys = (mix(plan.bits[left] ^ _salt(block)) & ~low) | left
        if take < len(keys):
            keys.partition(take - 1)
            left = (keys[take:] & low).astype(np.uint32)
            keys = keys[:take]
        else:
            left = np.empty(0, np.uint32)
        keys.sort()
        yield (keys & low).astype(np.uint32)
        position += take
        block += 1


def _constant_for(plan: Plan, position: int, pool: int) -> int:
    """Return for how many positions the pool may be taken as constant: until it grew by 1/32, at least by one row."""
    if pool == plan.rows:
        return plan.positions - position
    limit = min(plan.rows, pool + max(1, pool // REFRESH))
    first, last = position, plan.positions  # the pool at first is below the limit
    while last - first > 1:
        middle = (first + last) // 2
        if plan.available(middle) >= limit:
            last = middle
        else:
            first = middle
    return last - position


def exposures(plan: Plan) -> np.ndarray:
    """Count how often each row comes in the curriculum, and so in every arm; (rows,), int64."""
    counts = np.zeros(plan.rows, np.int64)
    for ranks in curriculum_blocks(plan):
        counts[ranks] += 1  # no rank stands twice in a block
    return counts


def random_blocks(plan: Plan, counts: np.ndarray) -> Iterator[np.ndarray]:
    """Lay the same rows, as often, in random order, a row's copies spread evenly.

    Copy i of a row that comes c times falls at a uniform place of the i-th c-th of the run: with equal counts this is
    one random order after another, without replacement inside each.
    """
    width = max(1, (plan.rows - 1).bit_length())
    scale = 2.0 ** min(52, 64 - width)
    buckets = -(-plan.positions // _BUCKET)
    for bucket in range(buckets):
        found = []
        for occurrence in range(int(counts.max())):
            rank = np.flatnonzero(counts > occurrence)
            place = (occurrence + _unit(plan.bits[rank], occurrence + 1)) / counts[rank]
            place = np.minimum(place, 1 - 2.0**-53)  # the division may round up to 1
            if buckets > 1:
                inside = (place >= bucket / buckets) & (place < (bucket + 1) / buckets)
                rank, place = rank[inside], place[inside]
            top = np.minimum(place * scale, scale - 1).astype(np.uint64)
            found.append((top << np.uint64(width)) | rank.astype(np.uint64))
        keys = np.concatenate(found)
        keys.sort()
        yield (keys & np.uint64((1 << width) - 1)).astype(np.uint32)


def anti_blocks(plan: Plan, counts: np.ndarray) -> Iterator[np.ndarray]:
    """Mirror the curriculum: where it takes the k-th easiest of all positions' rows, take the k-th hardest.

    Hard rows come first, at the same pace; where every row comes equally often this is the curriculum of the negated
    difficulty. Rows come as often as in the curriculum.
    """
    ends = np.cumsum(counts)
    seen = np.zeros(plan.rows, np.int64)
    for ranks in curriculum_blocks(plan):
        index = ends[ranks] - counts[ranks] + seen[ranks]
        seen[ranks] += 1
        yield np.searchsorted(ends, plan.positions - 1 - index, side="right").astype(np.uint32)


def shuffled_blocks(plan: Plan) -> Iterator[np.ndarray]:
    """Shuffle the curriculum within each stage: the stages keep their rows, the order inside one is random."""
    width = max(1, (plan.rows - 1).bit_length())
    low = np.uint64((1 << width) - 1)
    starts = plan.stage_starts()
    stream = recut(curriculum_blocks(plan), [int(size) for size in np.diff(starts) if size])
    position = 0
    for ranks in stream:
        place = np.arange(position, position + len(ranks), dtype=np.uint64)
        keys = (mix(plan.bits[ranks] ^ mix((place + np.uint64(1)) * _GOLDEN)) & ~low) | ranks
        keys.sort()
        yield (keys & low).astype(np.uint32)
        position += len(ranks)


def arm_blocks(plan: Plan, arm: str, counts: np.ndarray | None = None) -> Iterator[np.ndarray]:
    """Yield an arm's ranks in position order; `counts` (from `exposures`) saves a run where it is known."""
    if arm == "curriculum":
        return curriculum_blocks(plan)
    if arm == "shuffled":
        return shuffled_blocks(plan)
    known = exposures(plan) if counts is None else counts
    return random_blocks(plan, known) if arm == "random" else anti_blocks(plan, known)


def recut(blocks: Iterator[np.ndarray], sizes: list[int] | int) -> Iterator[np.ndarray]:
    """Cut a stream of blocks anew: into these sizes, or into equal ones with a shorter last."""
    wanted = iter([] if isinstance(sizes, int) else sizes)
    need = sizes if isinstance(sizes, int) else next(wanted, 0)
    held: list[np.ndarray] = []
    have = 0
    for block in blocks:
        while need and have + len(block) >= need:
            cut = need - have
            yield np.concatenate([*held, block[:cut]])
            block, held, have = block[cut:], [], 0
            need = sizes if isinstance(sizes, int) else next(wanted, 0)
        if len(block):
            held.append(block)
            have += len(block)
    if have:
        yield np.concatenate(held)


def mix(values: np.ndarray) -> np.ndarray:
    """Mix 64 bits to 64 bits, one to one; any shape, uint64.

    The finaliser of splitmix64: Steele, Lea & Flood (2014). Fast Splittable Pseudorandom Number Generators.
    """
    z: np.ndarray = values ^ (values >> np.uint64(30))
    z *= np.uint64(0xBF58476D1CE4E5B9)
    z ^= z >> np.uint64(27)
    z *= np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return z


def _unit(bits: np.ndarray, salt: int) -> np.ndarray:
    """Turn bits into numbers in [0, 1), independent for each salt."""
    salted = mix(bits ^ _salt(~salt))
    unit: np.ndarray = (salted >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return unit


def _salt(number: int) -> np.ndarray:
    """Spread a whole number over 64 bits; blocks count up from 0, copies of the random arm down from -2."""
    return mix(np.array([number & _ALL], np.uint64) * _GOLDEN)
