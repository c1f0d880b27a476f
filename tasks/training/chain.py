"""The audit chain: one digest an optimizer step, over what was really trained, linked to the digest before it.

A step's digest is xxh3-128 of (digest before, step, and each position with its example id's hash, in position order),
so that it depends on the multiset that all ranks consumed and on nothing else. The first link is the manifest's hash.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xxhash

from gradatim.tasks.training.manifest import Manifest
from gradatim.tasks.training.order import Plan


@dataclass(frozen=True)
class Link:
    """One step of a chain: the step from 0, how many positions it consumed, the digest (32 hex digits)."""

    step: int
    n: int
    digest: str


def step_digest(before: str, step: int, positions: np.ndarray, hashes: np.ndarray) -> str:
    """Hash one step's multiset.

    Parameters
    ----------
    before : str
        Digest of the step before, or the manifest's hash for step 0.
    step : int
    positions : numpy.ndarray of int64, shape (n,)
        Consumed positions of all ranks, in any order.
    hashes : numpy.ndarray of uint64, shape (n, 2)
        Hash of the example id that was delivered for each.
    """
    order = np.lexsort((hashes[:, 1], hashes[:, 0], positions))
    packed = np.empty((len(positions), 3), dtype="<u8")
    packed[:, 0] = positions.astype(np.int64).view(np.uint64)[order]
    packed[:, 1:] = hashes[order]
    return xxhash.xxh3_128_hexdigest(bytes.fromhex(before) + step.to_bytes(8, "little") + packed.tobytes())


def expected_chain(manifest: Manifest, plan: Plan, *, start: int = 0, before: str = "") -> Iterator[Link]:
    """Compute the chain that a run over the manifest must have; no run, rank or device enters.

    Parameters
    ----------
    manifest, plan
    start, before : int, str
        Where to begin; from step 0 by default.
    """
    digest = before or manifest.hash
    for step in range(start, plan.steps):
        first, last = plan.span(step)
        digest = step_digest(digest, step, np.arange(first, last), manifest.hashes[first:last])
        yield Link(step, last - first, digest)


def place(delivered: np.ndarray, expected: np.ndarray, first: int) -> np.ndarray:
    """Give delivered examples the positions of a step that expects them, for trainers that report only ids.

    Parameters
    ----------
    delivered, expected : numpy.ndarray of uint64, shapes (n, 2) and (m, 2)
        Id hashes in the order of delivery and of the manifest.
    first : int
        First position of the step.

    Returns
    -------
    numpy.ndarray of int64, shape (n,)
        Each expected position at most once; -1 for what the step does not hold.
    """
    waiting: dict[bytes, list[int]] = {}
    for place_, key in reversed(list(enumerate(map(bytes, np.ascontiguousarray(expected))))):
        waiting.setdefault(key, []).append(first + place_)
    return np.array(
        [spots.pop() if (spots := waiting.get(bytes(key))) else -1 for key in np.ascontiguousarray(delivered)],
        dtype=np.int64,
    )


def write_links(path: Path, links: Iterable[Link]) -> None:
    """Append links to a chain file (JSON lines)."""
    with path.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps({"step": k.step, "n": k.n, "digest": k.digest}) + "\n" for k in links)


def read_links(path: Path) -> list[Link]:
    """Read a chain file; a last line that a kill cut short is left out."""
    if not path.is_file():
        return []
    lines = path.read_text(encoding="utf-8").split("\n")
    return [Link(**json.loads(line)) for line in lines[:-1]]
