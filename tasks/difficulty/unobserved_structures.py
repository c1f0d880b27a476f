"""Unobserved local structures (n-LS): what the tree of an example holds that no training example does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
import polars as pl
from pydantic import Field

from gradatim.tasks.core.local_structures import LARGEST, LocalStructures, local_structures
from gradatim.tasks.core.registry import Config, Cost, register
from gradatim.tasks.difficulty.result import Difficulty, build, method_name
from gradatim.tasks.difficulty.structure.easiness import Unseen, score_unseen
from gradatim.tasks.difficulty.structure.structures import Structures, read_structures
from gradatim.tasks.difficulty.structure.symbol_similarity import NOBODY

SOURCE = (
    "B. Bogin, S. Gupta, J. Berant (2022). Unobserved local structures make compositional generalization hard. EMNLP"
)
NAMED = 20
"""Unobserved structures that the details of an example name."""


class UnobservedStructuresConfig(Config):
    """Settings of `unobserved_structures`."""

    of: str = Field("structure", min_length=1, description="column of trees")
    n: int = Field(2, ge=2, le=LARGEST, description="most symbols in a structure")
    reference: str | None = Field(None, description="column that names the training rows; without it all rows are")
    reference_value: str | int | bool | None = Field(
        None, description="its value there; by default true, or train where the column is no truth"
    )
    score: Literal["soft", "hard"] = Field(
        "soft", description="1 - easiness, which asks how near a seen structure comes; or 1 and 0"
    )
    bins: int | None = Field(None, ge=1, le=1000, description="10, or fewer where there are fewer different values")


@register(
    "difficulty",
    "unobserved_structures",
    config=UnobservedStructuresConfig,
    needs=("examples.{of}", "examples.{reference}"),
    cost=lambda rows, width: Cost(seconds=0.3 + 1.2e-5 * rows, bytes=1e8 + 2.1e3 * rows),
    source=SOURCE,
)
def run(tables: Mapping[str, pl.DataFrame], config: UnobservedStructuresConfig, seed: int = 0) -> Difficulty:
    """Local structures of an example's tree that no other training example holds, and how near a seen one comes.

    Parameters
    ----------
    tables : mapping
        ``examples`` with example_id, the column of trees `config.of` and, where it is given, `config.reference`.
    config : UnobservedStructuresConfig
    seed : int
        Without effect.

    Returns
    -------
    Difficulty
        value is 1 - easiness in [0, 1] (soft), or 1 where a structure is unobserved and 0 elsewhere (hard); raw the
        easiness, or the number of unobserved structures; n the different structures of the tree. `details` names the
        unobserved ones and the nearest seen structure of each. Rows without a tree are excluded.

    Raises
    ------
    UsageError
        If a column is missing or holds no trees, no row is a training row, or there are too many replacements to try.
    DataRefused
        For what is no tree; names the examples.

    Notes
    -----
    A structure is unobserved where no training row *other than the example itself* holds it: for a training row that is
    leave-one-out, exact by counting. Easiness is the least over the unobserved structures of the greatest similarity
    over all replacements of one symbol that give a seen structure of the same kind; 1 where nothing is unobserved, 0
    where no replacement does. The similarity of two symbols is the mean over kinds (parent and child, adjacent
    siblings) of the mean over sides of the Jaccard overlap of their neighbours among the seen pairs.
    """
    where = f"difficulty unobserved_structures: of: {config.of}"
    read = read_structures(tables, config.of, where, config.reference, config.reference_value)
    found = local_structures(read.trees, config.n)
    own = found.rows(read.reference)
    holders = found.examples(read.reference)
    # a structure that one training row alone holds is unobserved for that row, and for it only
    line = found.line
    unseen = (holders[found.code] == 0) | ((holders[found.code] == 1) & (own[line] == 1))
    owner = np.full(found.size, NOBODY, dtype=np.int64)
    owned = unseen & (holders[found.code] == 1)
    owner[found.code[owned]] = line[owned]
    hard = (np.bincount(line[unseen], minlength=len(own)) > 0)[found.tree] & (read.reference | (own[found.tree] == 0))
    scores = Unseen(np.unique(found.code[unseen]), np.zeros(0), np.zeros(0))
    easiness = np.ones(len(own))
    if config.score == "soft":
        scores = score_unseen(found, scores.code, holders > 0, owner)
        np.minimum.at(easiness, line[unseen], scores.easiness[np.searchsorted(scores.code, found.code[unseen])])
    number = np.bincount(line[unseen], minlength=len(own))[found.tree] * hard
    soft = np.where(hard, easiness[found.tree], 1.0)
    told = _told(found, scores, unseen)
    settings = config.model_dump(exclude={"bins"}, exclude_none=True)
    return build(
        method=method_name("unobserved_structures", settings, UnobservedStructuresConfig().model_dump()),
        title=f"unobserved {config.n}-LS of {config.of}" + (", hard" if config.score == "hard" else ""),
        ids=read.ids,  # type: ignore[arg-type]
        value=hard.astype(np.float64) if config.score == "hard" else 1.0 - soft,
        raw=number.astype(np.float64) if config.score == "hard" else soft,
        scale="unobserved" if config.score == "hard" else "1 - easiness",
        n=np.diff(found.indptr)[found.tree],
        details=pl.DataFrame({"line": found.tree, "hard": hard})  # type: ignore[arg-type]
        .join(told, on="line", how="left", maintain_order="left")
        .select(pl.when("hard").then("details"))
        .to_series(),
        bins=config.bins,
        excluded=read.excluded,
        notes=_notes(read, hard, holders, len(scores.code)),
        source=SOURCE,
    )


def _notes(read: Structures, hard: np.ndarray, holders: np.ndarray, scored: int) -> dict[str, int | float]:
    outside = ~read.reference
    notes: dict[str, int | float] = {
        "training rows": int(read.reference.sum()),
        "structures in training": int((holders > 0).sum()),
        "unobserved structures": scored,
        "share of training rows with one": round(float(hard[read.reference].mean()), 6),
    }
    if outside.any():
        notes["share of other rows with one"] = round(float(hard[outside].mean()), 6)
    return notes


def _told(found: LocalStructures, scores: Unseen, unseen: np.ndarray) -> pl.DataFrame:
    """Name the unobserved structures of each line (at most `NAMED`, hardest first) as JSON."""
    line, code = found.line[unseen], found.code[unseen]
    entry = np.searchsorted(scores.code, code)
    soft = len(scores.easiness) > 0
    easiness = scores.easiness[entry] if soft else np.zeros(len(code))
    order = np.lexsort((code, easiness, line))
    line, code, entry, easiness = line[order], code[order], entry[order], easiness[order]
    starts = np.flatnonzero(np.diff(line, prepend=-1))
    rank = np.arange(len(line)) - np.repeat(starts, np.diff(np.append(starts, len(line))))
    shown = rank < NAMED
    frame = pl.DataFrame({"line": line[shown], "structures": found.names(code[shown])})
    pieces: list[pl.Expr] = [pl.col("structures")]
    if soft:
        nearest = scores.nearest[entry[shown]]
        near = pl.Series("nearest", [None], dtype=pl.String).new_from_index(0, len(nearest))
        there = np.flatnonzero(nearest >= 0)
        near = near.scatter(there, found.names(nearest[there])) if len(there) else near
        frame = frame.with_columns(near, easiness=pl.Series(easiness[shown]).round(6))
        pieces += [pl.col("easiness"), pl.col("nearest")]
    total = pl.DataFrame({"line": line[starts], "unobserved": np.diff(np.append(starts, len(line)))})
    grouped = frame.group_by("line", maintain_order=True).agg(pieces).join(total, on="line")
    facts = ["unobserved", *(piece.meta.output_name() for piece in pieces)]
    return grouped.select("line", pl.struct(facts).struct.json_encode().alias("details"))
