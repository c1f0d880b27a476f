"""n-LS split: hold out every example that has one of some local structures, none of which train then holds."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl
from pydantic import Field, field_validator, model_validator

from gradatim.schemas.errors import DataRefused, UsageError, nearest
from gradatim.schemas.hashing import uniform
from gradatim.tasks.core.distinct_trees import DistinctTrees, distinct
from gradatim.tasks.core.divergences import Bag
from gradatim.tasks.core.local_structures import LARGEST, local_structures
from gradatim.tasks.core.pieces import collect
from gradatim.tasks.core.registry import Cost, register
from gradatim.tasks.splits.config import SplitConfig
from gradatim.tasks.splits.engine import IN, NEITHER, OUT, Marks, build
from gradatim.tasks.splits.held_pieces import Contents, HeldPieces, told_of
from gradatim.tasks.splits.holdout_label_pairs import kept_in_train, pieces_of
from gradatim.tasks.splits.inputs import phrase, prepare
from gradatim.tasks.splits.result import Split
from gradatim.tasks.splits.values import standing

SOURCE = "Bogin, Gupta & Berant (2022). Unobserved Local Structures Make Compositional Generalization Hard."
_WHERE = "split n_ls"


class NLsConfig(SplitConfig):
    """Settings of held-out local structures."""

    of: str = Field("structure", min_length=1, description="column of trees")
    n: int = Field(2, ge=2, le=LARGEST, description="most symbols in a structure")
    structures: tuple[str, ...] = Field(
        (), description="structures that are held out, such as \"parent 'around', child 'right'\""
    )
    fraction: float | None = Field(
        None, gt=0, lt=1, description="in place of structures: the share of the rows that test_ood is to reach"
    )
    tolerance: float = Field(0.02, ge=0, lt=1, description="by how much test_ood may be larger than fraction")
    band: tuple[float, float] = Field(
        (0.0, 1.0), description="the drawn structures are held by a share of the rows in this range, ends included"
    )
    keep_symbols: int = Field(1, ge=1, description="training rows that each symbol keeps, or all if it has fewer")

    @field_validator("structures", mode="before")
    @classmethod
    def _one_or_more(cls, found: object) -> object:
        return (found,) if isinstance(found, str) else found

    @model_validator(mode="after")
    def _one_choice(self) -> NLsConfig:
        if bool(self.structures) == (self.fraction is not None):
            raise ValueError("name either the 'structures' that are held out, or the 'fraction' of rows to reach")
        if not 0 <= self.band[0] <= self.band[1] <= 1:
            raise ValueError(f"the band {self.band[0]:g} to {self.band[1]:g} is no range of shares")
        return self


@register(
    "split",
    "n_ls",
    config=NLsConfig,
    needs=("examples.{of}", "examples.{keep_together}", "examples.{stratify}"),
    cost=lambda rows, width: Cost(1.0 + 2e-5 * rows, 1e8 + 2_000 * rows),
    source=SOURCE,
)
def run(tables: Mapping[str, pl.DataFrame], config: NLsConfig, seed: int) -> Split:
    """Rows with a held-out local structure are test_ood; train has none of them, but every symbol."""
    examples = prepare(tables, "n_ls", config)
    trees = distinct(examples[config.of], examples["example_id"], where=config.of)
    contents, names = _contents(trees, config)
    bag = Bag(contents.line, *contents.labels, np.ones(len(contents.labels[1]), np.int64), contents.counts[0])
    return build(
        examples, lambda one: [_mark(examples, config, one, tables, contents, names)], config, seed, tables,
        method="n_ls", axis="local structures", source=SOURCE,
        cut=kept_in_train(examples, config, bag, config.keep_symbols),
    )  # fmt: skip


def _contents(trees: DistinctTrees, config: NLsConfig) -> tuple[Contents, pl.Series]:
    """Read the symbols and the local structures of rows."""
    if not len(trees):
        raise DataRefused("no row has a tree", where=f"{_WHERE}, column {config.of!r}")
    symbols, _ = collect(trees.tree, trees.forest.tree, trees.label, len(trees), len(trees.labels))
    found = local_structures(trees, config.n)
    # names are parted by semicolons in held_out
    names = found.names().str.replace_all(";", r"\u003b", literal=True)
    counts = (len(trees.labels), found.size)
    return Contents(trees.tree, (symbols.indptr, symbols.code), (found.indptr, found.code), counts), names


def _mark(
    examples: pl.DataFrame, config: NLsConfig, seed: int, tables: Mapping[str, pl.DataFrame], contents: Contents,
    names: pl.Series,
) -> Marks:  # fmt: skip
    pieces = HeldPieces(contents, examples, config, tables, config.keep_symbols)
    held, warnings = _choose(examples, config, seed, tables, contents, names, pieces)
    known = contents.line >= 0
    held_out = told_of(held, names, contents.pieces, contents.line)
    out = held_out.is_not_null()
    side = np.where(known, np.where(out.to_numpy(), OUT, IN), NEITHER).astype(np.int8)
    plain = pl.Series(["has no held-out structure"])
    reason = phrase("holds ", held_out, when=out, otherwise=plain)
    reason = phrase(f"{config.of} has no tree", when=pl.Series(~known), otherwise=reason)
    return Marks(side, reason, held_out, warnings=warnings)


def _choose(
    examples: pl.DataFrame, config: NLsConfig, seed: int, tables: Mapping[str, pl.DataFrame], contents: Contents,
    names: pl.Series, pieces: HeldPieces,
) -> tuple[np.ndarray, tuple[str, ...]]:  # fmt: skip
    """Choose the structures: those named or released, then others in the order of their draw, as far as asked."""
    fixed, barred = np.zeros((2, len(names)), np.bool_)
    if config.structures:
        known = set(names)
        for name in config.structures:
            if name not in known:
                raise UsageError(
                    f"no row has the structure {name!r}{nearest(name, known)}",
                    where=_WHERE,
                    expected="one of " + "; ".join(names.sort().head(10)),
                )
        fixed = names.is_in(list(config.structures)).to_numpy()
    else:
        released = standing(examples["example_id"], tables, seed)
        if released is not None:
            fixed = names.is_in(list(released.held)).to_numpy()
            barred = pieces_of(contents, released.inside) & ~fixed
    if not pieces.take(np.flatnonzero(fixed)):
        raise DataRefused(
            f"a symbol of the held-out structures would keep fewer than {config.keep_symbols:,} rows",
            where=_WHERE,
            expected="structures whose symbols are in other rows too",
            remedy="hold out others, or lower keep_symbols",
        )
    if config.fraction is None:
        return fixed, ()
    rows = int((contents.line >= 0).sum())
    quota, most = config.fraction * rows, (config.fraction + config.tolerance) * rows
    sizes = np.array(np.diff(pieces.starts))
    held, share = fixed.copy(), _holders(contents) / rows
    barred |= (share < config.band[0]) | (share > config.band[1]) | (share * rows > most) | (sizes == 0)
    drawn = uniform(names, seed, f"{_WHERE} structures")
    for piece in np.lexsort((np.arange(len(names)), drawn)):
        if pieces.rows >= quota:
            break
        if not fixed[piece] and not barred[piece] and pieces.fresh(int(piece)):
            held[piece] = pieces.take(np.array([piece]), most)
    if not held.any():
        raise DataRefused(
            f"none of the {len(names):,} structures can be held out",
            where=_WHERE,
            expected=f"structures in at most {most:,.0f} rows, within the band, whose symbols are in other rows too",
            remedy="raise fraction or tolerance, widen the band, or lower keep_symbols",
        )
    if pieces.rows < quota:
        return held, (f"test_ood reaches {pieces.rows / rows:.3f} of the rows; no other structure can be held out",)
    return held, ()


def _holders(contents: Contents) -> np.ndarray:
    """Count the rows that hold each structure."""
    starts, codes = contents.pieces
    rows = np.bincount(contents.line[contents.line >= 0], minlength=len(starts) - 1)
    return np.bincount(codes, np.repeat(rows, np.diff(starts)), minlength=contents.counts[1])
