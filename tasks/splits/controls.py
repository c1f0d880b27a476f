"""Controls of a split: one of the same sizes drawn at random, one of the same difficulty inside the distribution."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from gradatim.schemas.errors import UsageError, nearest
from gradatim.schemas.hashing import uniform
from gradatim.schemas.tables import SPLITS
from gradatim.tasks.splits.config import Match, SplitConfig

_EXCLUDED = SPLITS.index("excluded")
_ORDER = [SPLITS.index(name) for name in ("test_ood", "test", "validation_ood", "validation", "train")]


def random_control(block: pl.DataFrame, names: pl.Series, code: np.ndarray, seed: int) -> pl.DataFrame:
    """Draw a split of the same sizes from the same rows.

    Components stay whole here too. Sizes are exact where rows stand alone; with groups a size is off by at most half of
    the group at each of its ends, and a split that would get none gets the nearest one. Adding rows can move rows of a
    control; nothing is frozen by it.

    Parameters
    ----------
    block : polars.DataFrame
        One (strategy, seed, fold) of a splits table.
    names : polars.Series of String, (components,)
    code : numpy.ndarray of int64, (rows,)
        Component of each row.
    seed : int

    Returns
    -------
    polars.DataFrame
        In the schema of `block`, with the strategy ``NAME.random``.
    """
    strategy = str(block["strategy"][0])
    split = _codes(block)
    used = split != _EXCLUDED
    size = np.bincount(code[used], minlength=len(names))
    draw = uniform(names, seed, f"split {strategy} random control")
    asked = np.bincount(split[used], minlength=len(SPLITS))[_ORDER]
    place = _exactly(draw, size, asked)
    if place is None:
        order = np.argsort(draw, kind="stable")
        middle = np.cumsum(size[order]) - size[order] / 2
        along = np.minimum(np.searchsorted(np.cumsum(asked), middle, side="right"), len(_ORDER) - 1)
        _fill(along, middle, size[order] > 0, asked)
        place = np.empty(len(names), np.int64)
        place[order] = along
    chosen = np.array(_ORDER, np.uint8)[place]
    drawn = np.where(used, chosen[code], _EXCLUDED)
    return block.with_columns(
        pl.lit(f"{strategy}.random").alias("strategy"),
        _names(drawn).alias("split"),
        pl.lit("none").alias("axis"),
        pl.lit(None, pl.String).alias("held_out"),
        pl.when(pl.Series(used)).then(pl.lit("random draw of the same sizes")).otherwise("reason").alias("reason"),
    )


def _exactly(draw: np.ndarray, size: np.ndarray, asked: np.ndarray) -> np.ndarray | None:
    """Place components of one row at most by the draws at which splits end; None where that does not settle it.

    The same places as in the order of the draws, without putting ten million of them in order.
    """
    if not len(size) or size.max() > 1:
        return None
    present = draw[size > 0]
    inner = np.cumsum(asked)[:-1]
    inside = np.unique(inner[(inner > 0) & (inner < len(present))])
    parted = np.partition(present, np.unique(np.concatenate([inside, inside - 1]))) if len(inside) else present
    if (parted[inside] == parted[inside - 1]).any():  # two draws alike: their order counts
        return None
    ends = [-np.inf if end == 0 else np.inf if end == len(present) else parted[end] for end in inner]
    return np.searchsorted(ends, draw, side="right")


def _fill(place: np.ndarray, middle: np.ndarray, real: np.ndarray, asked: np.ndarray) -> None:
    """Give each split that is asked for and got no component the nearest one of a split that keeps another.

    There is one: the strategy itself fills these splits with as many components.
    """
    centre = np.cumsum(asked) - asked / 2
    for index in np.flatnonzero(asked):
        held = np.bincount(place[real], minlength=len(asked))
        if not held[index]:
            spare = real & (held[place] > 1)
            if spare.any():
                place[np.argmin(np.where(spare, np.abs(middle - centre[index]), np.inf))] = index


def ways(examples: pl.DataFrame, config: SplitConfig) -> list[tuple[Match, ...]]:
    """Return what to match on, first choice first: the setting; else both where lengths are known, then difficulty."""
    if config.match is not None:
        return [config.match]
    both: list[tuple[Match, ...]] = [("difficulty", "length")] if "length_input" in examples.columns else []
    return [*both, ("difficulty",)]


def cells(examples: pl.DataFrame, difficulty: pl.DataFrame, match: tuple[Match, ...], method: str = "") -> pl.Series:
    """Name each row's cell of the matching histogram: ``bin 3``, ``length 2``, or both; null where unknown.

    `examples` are sorted by example_id. Length cells are at most ten, cut at quantiles of length_input, equal lengths
    in one cell. `method` is the difficulty whose bins count.
    """
    known = examples.select("example_id")
    parts: list[pl.Expr] = []
    if "difficulty" in match:
        one = one_method(difficulty, method).select("example_id", "bin")
        known = known.join(one, on="example_id", how="left", maintain_order="left")
        parts.append(pl.format("bin {}", pl.col("bin")))
    if "length" in match:
        if "length_input" not in examples.columns:
            raise UsageError("matching on length needs the column 'length_input'", where="table examples")
        length = examples["length_input"].cast(pl.Float64)
        values = length.drop_nulls().to_numpy()
        edges = np.unique(np.quantile(values, np.arange(1, 10) / 10)) if len(values) else np.empty(0)
        cell = np.searchsorted(edges, length.fill_null(np.nan).to_numpy(), side="left")
        known = known.with_columns(pl.Series("length", cell).set(length.is_null(), None))
        parts.append(pl.format("length {}", pl.col("length")))
    named = parts[0] if len(parts) == 1 else pl.concat_str(parts, separator=", ")
    return known.select(named.alias("cell"))["cell"]


def best_matched(block: pl.DataFrame, choices: Sequence[pl.Series], seed: int) -> pl.DataFrame:
    """Return the first matched control that half of test_ood is in, else the last of all; see `matched_control`."""
    outside = int((block["split"] == "test_ood").sum())
    for cell in choices[:-1]:
        found = matched_control(block, cell, seed)
        if 2 * int((found["split"] == "test_ood").sum()) >= outside:
            return found
    return matched_control(block, choices[-1], seed)


def one_method(difficulty: pl.DataFrame, method: str = "") -> pl.DataFrame:
    """Take one method's rows of a difficulty table: `method`, else the first by name."""
    methods = difficulty["method"].unique().sort().to_list() if "method" in difficulty.columns else []
    if method and method not in methods:
        raise UsageError(
            f"there is no difficulty {method!r}{nearest(method, methods)}", expected="one of " + ", ".join(methods)
        )
    return difficulty.filter(pl.col("method") == (method or methods[0])) if methods else difficulty


def matched_control(block: pl.DataFrame, cell: pl.Series, seed: int) -> pl.DataFrame:
    """Pick test and test_ood rows, one for one, so that both have the same histogram over cells.

    In each cell the smaller side stays whole and as many rows of the other are drawn; the rest is excluded, also what
    has no counterpart. Train and validation are the strategy's own, so that one trained model serves both. Empty where
    no row of test_ood has a counterpart, or where there is no test_ood.

    Source: Iacus, King & Porro (2012). Causal Inference without Balance Checking: Coarsened Exact Matching.
    """
    strategy = str(block["strategy"][0])
    draw = uniform(block["example_id"], seed, f"split {strategy} matched control")
    held = pl.col("split").is_in(["test", "test_ood"])
    side = pl.when(held & pl.col("cell").is_not_null()).then(pl.col("split"))
    marked = block.with_columns(cell.alias("cell"), pl.Series("draw", draw)).with_columns(side.alias("side"))
    few = (
        marked.drop_nulls("side").group_by("cell")
        .agg((pl.col("side") == "test").sum().alias("a"), (pl.col("side") == "test_ood").sum().alias("b"))
        .select("cell", pl.min_horizontal("a", "b").cast(pl.Int64).alias("few"))
    )  # fmt: skip
    place = pl.col("draw").rank("ordinal").over("cell", "side").cast(pl.Int64)
    marked = marked.join(few, on="cell", how="left", maintain_order="left")
    taken = (pl.col("side").is_not_null() & (place <= pl.col("few"))).fill_null(False)
    why = (
        pl.when(taken).then(pl.format("matched on {}", pl.col("cell")))
        .when(held & pl.col("cell").is_null()).then(pl.lit("its difficulty is not known"))
        .when(held & (pl.col("few") == 0)).then(pl.format("no counterpart in {}", pl.col("cell")))
        .when(held).then(pl.format("more rows than counterparts in {}", pl.col("cell")))
        .otherwise(pl.col("reason"))
    )  # fmt: skip
    result = marked.with_columns(
        pl.lit(f"{strategy}.matched").alias("strategy"),
        pl.when(held & ~taken).then(pl.lit("excluded")).otherwise(pl.col("split")).alias("split"),
        why.alias("reason"),
    ).select(block.columns)
    return result if result["split"].is_in(["test_ood"]).any() else result.clear()


def _codes(block: pl.DataFrame) -> np.ndarray:
    codes: np.ndarray = block["split"].cast(pl.Enum(SPLITS)).to_physical().cast(pl.UInt8).to_numpy()
    return codes


def _names(codes: np.ndarray) -> pl.Series:
    return pl.Series("split", list(SPLITS), dtype=pl.String).gather(pl.Series(codes.astype(np.uint32)))
