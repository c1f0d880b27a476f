"""Whether a run trained exactly its order: its chain beside the one computed from the manifest."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

import numpy as np

from gradatim.schemas.errors import UsageError
from gradatim.schemas.summary import Fact, Summary
from gradatim.tasks.training import attempts, records
from gradatim.tasks.training.chain import Link, expected_chain, place, read_links, step_digest
from gradatim.tasks.training.folder import open_run
from gradatim.tasks.training.manifest import Manifest, load
from gradatim.tasks.training.order import Plan


@dataclass(frozen=True)
class AuditResult:
    """What an audit found.

    Attributes
    ----------
    run : str
        The run's folder.
    verdict : "holds", "incomplete" or "differs"
        Incomplete: every step that was trained is right, but the run has not reached its end.
    steps, audited : int
        Steps of the whole run, and those that were compared.
    first : int or None
        First step that differs, from 0.
    reason : str
        What differs there.
    expected, found : str
        The chain's last digest as computed and as recorded; at the first step that differs, if there is one.
    attempts : tuple of (attempt, begin, end)
        Which attempt's work counts for which steps.
    """

    run: str
    verdict: str
    steps: int
    audited: int
    first: int | None
    reason: str
    expected: str
    found: str
    attempts: tuple[tuple[int, int, int], ...] = ()

    @property
    def holds(self) -> bool:
        """Whether the whole run trained exactly its order."""
        return self.verdict == "holds"

    def __str__(self) -> str:
        if self.verdict == "differs":
            return f"{self.run}: the order does not hold: step {self.first}: {self.reason}"
        done = "all" if self.holds else f"the first {self.audited:,} of"
        return f"{self.run}: {done} {self.steps:,} steps trained exactly the manifest's order (chain {self.found})"

    def summary(self) -> Summary:
        """Return what people read."""
        facts = [Fact("verdict", self.verdict), Fact("steps", self.audited, note=f"of {self.steps:,}")]
        if self.first is not None:
            facts.append(Fact("first step that differs", self.first, note=self.reason))
        facts += [Fact("chain expected", self.expected), Fact("chain found", self.found)]
        facts += [Fact(f"attempt {n}", f"steps {begin:,} to {end:,}") for n, begin, end in self.attempts]
        return Summary(step="audit", headline=str(self), facts=tuple(facts))


def audit(run_dir: Path) -> AuditResult:
    """Compare a run's recorded chain with the one that its manifest demands.

    Works on the folder of a run of ours, at work or ended, and on one that `gradatim.torch.OrderAudit` wrote for a
    trainer of your own. Cost: one pass over the order.

    Raises
    ------
    UsageError
        If the folder holds neither.
    DataRefused
        If the order's file was changed.
    """
    run_dir = Path(run_dir)
    if (run_dir / "audit.json").is_file():
        return _own_trainer(run_dir)
    run = open_run(run_dir)
    found: list[Link] = []
    counted = []
    for stretch in records.stretches(run.folder):
        links = read_links(attempts.folder(run.folder, stretch.attempt) / "chain.jsonl")
        part = [link for link in links if stretch.end is None or link.step < stretch.end]
        found += part
        counted.append((stretch.attempt, stretch.begin, stretch.begin + len(part)))
    return compare(str(run_dir), run.manifest(), run.plan, found, tuple(counted))


def compare(
    name: str,
    manifest: Manifest,
    plan: Plan,
    found: Iterable[Link],
    counted: tuple[tuple[int, int, int], ...] = (),
) -> AuditResult:
    """Compare a recorded chain with the manifest's, step by step."""
    audited, last = 0, manifest.hash
    for right, link in zip_longest(expected_chain(manifest, plan), found):
        if link is None:
            return AuditResult(name, "incomplete", plan.steps, audited, None, "", last, last, counted)
        if right is None:
            reason = f"the run went on after its last step, {plan.steps - 1}"
        elif link.step != right.step:
            reason = f"the record has step {link.step} where step {right.step} belongs"
        elif link.n != right.n:
            reason = f"{link.n:,} examples were trained, the manifest has {right.n:,}"
        elif link.digest != right.digest:
            first, end = plan.span(right.step)
            reason = f"other examples were trained than those at positions {first:,} to {end - 1:,}"
        else:
            audited, last = audited + 1, right.digest
            continue
        expected = right.digest if right else last
        step = right.step if right else plan.steps
        return AuditResult(name, "differs", plan.steps, audited, step, reason, expected, link.digest, counted)
    return AuditResult(name, "holds", plan.steps, audited, None, "", last, last, counted)


def _own_trainer(folder: Path) -> AuditResult:
    """Audit what another trainer logged: each rank's ids of each step."""
    facts = attempts.read_json(folder / "audit.json")
    manifest = load(folder / "order.arrow")
    if manifest.hash != facts["manifest"]:
        raise UsageError("the order is not the one that was logged against", where=str(folder / "order.arrow"))
    plan = Plan(len(manifest), facts["global_batch"], facts["global_batch"], facts["max_steps"])
    return compare(str(folder), manifest, plan, logged_chain(manifest, plan, read_logs(folder)))


def read_logs(folder: Path) -> dict[int, np.ndarray]:
    """Read the ids' hashes (uint64, shape (n, 2)) that all ranks logged, by step. A step logged twice (after a restart)
    counts as it was logged last."""
    steps: dict[int, list[np.ndarray]] = {}
    for path in sorted(folder.glob("delivered-rank*.txt")):
        mine: dict[int, np.ndarray] = {}
        for line in path.read_text(encoding="utf-8").split("\n")[:-1]:
            step, _, digests = line.partition(" ")
            mine[int(step)] = np.frombuffer(bytes.fromhex(digests), dtype="<u8").reshape(-1, 2)
        for number, hashes in mine.items():
            steps.setdefault(number, []).append(hashes)
    return {step: np.concatenate(parts) for step, parts in sorted(steps.items())}


def logged_chain(manifest: Manifest, plan: Plan, steps: dict[int, np.ndarray]) -> list[Link]:
    """Chain what another trainer delivered; examples get the positions of their step that hold them."""
    digest, links = manifest.hash, []
    for step, hashes in steps.items():
        first, last = plan.span(step)
        positions = place(hashes, manifest.hashes[first:last], first)
        digest = step_digest(digest, step, positions, hashes)
        links.append(Link(step, len(hashes), digest))
    return links
