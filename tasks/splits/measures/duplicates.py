"""What stands on both sides of a cut: equal inputs and near-duplicates."""

from __future__ import annotations

import polars as pl

from gradatim.tasks.core.components import grow
from gradatim.tasks.splits.measures.block import Block, Measured
from gradatim.tasks.splits.together import near_duplicates

_SIDES = ("left", "right")


def duplicates(block: Block) -> Measured:
    """Count repetition across splits.

    Returns
    -------
    dict
        ``duplicates_across``: distinct normalised inputs in more than one split. With near-duplicate pairs
        ``near_duplicates_across``, pairs in two splits, and ``near_duplicates_of_train``, rows of the tests with a
        near-duplicate in train.
    """
    found: Measured = {}
    if block.has("text"):
        found["duplicates_across"] = (float(duplicates_across(block.rows)), len(block.rows))
    if block.pairs is not None:
        both = across(block.rows, block.pairs)
        found["near_duplicates_across"] = (float(len(both)), len(block.rows))
        found["near_duplicates_of_train"] = (float(_of_train(block.rows, block.pairs)), len(block.rows))
    return found


def alike(pairs: pl.DataFrame) -> pl.DataFrame:
    """Take from pairs of near-duplicates what `across` reads, and say which rows are copies of each other.

    Copies are found as a star: each with the first of them, which alone is paired with others. Where the first is left
    out of a split, another copy has to stand for it.

    Returns
    -------
    polars.DataFrame
        left_id, right_id, left_text, right_text: the smallest id of the rows of the same text (of similarity 1).
    """
    tied = near_duplicates(pairs)
    known = pl.DataFrame(schema={"example_id": pl.String, "component": pl.String})
    if "similarity" in tied.columns:
        known = grow(known, tied.filter(pl.col("similarity") >= 1 - 1e-9).select("left_id", "right_id")).components
    for side in ("left", "right"):
        named = known.select(pl.col("example_id").alias(f"{side}_id"), pl.col("component").alias(f"{side}_text"))
        tied = tied.join(named, on=f"{side}_id", how="left", maintain_order="left")
    return tied.select(
        "left_id", "right_id", *(pl.coalesce(f"{side}_text", f"{side}_id").alias(f"{side}_text") for side in _SIDES)
    )


def across(rows: pl.DataFrame, pairs: pl.DataFrame) -> pl.DataFrame:
    """Return the pairs (from `alike`) whose ends are in two splits, with those splits as ``left`` and ``right``.

    For an end that is in no split stands the first of its copies that is in one.
    """
    place = rows.select("example_id", "split")
    stand_in = (
        _texts(pairs).join(place, on="example_id").group_by("text").agg(pl.col("example_id").min().alias("other"))
    )
    both = pairs
    for side in _SIDES:
        both = both.join(
            stand_in.rename({"text": f"{side}_text", "other": f"{side}_other"}), on=f"{side}_text", how="left"
        )
        here = pl.col(f"{side}_id").is_in(place["example_id"].implode())
        both = both.with_columns(pl.when(here).then(f"{side}_id").otherwise(f"{side}_other").alias(f"{side}_id"))
    ends = pl.min_horizontal("left_id", "right_id"), pl.max_horizontal("left_id", "right_id")
    both = both.drop_nulls(["left_id", "right_id"]).select(left_id=ends[0], right_id=ends[1]).unique()
    for side in _SIDES:
        of_side = place.rename({"example_id": f"{side}_id", "split": side})
        both = both.join(of_side, on=f"{side}_id")
    return both.filter(pl.col("left") != pl.col("right"))


def _of_train(rows: pl.DataFrame, pairs: pl.DataFrame) -> int:
    """Count the rows of the tests that have a near-duplicate in train, through any of their copies."""
    texts = _texts(pairs).join(rows.select("example_id", "split"), on="example_id")
    trained = texts.filter(pl.col("split") == "train").select("text").unique()
    ends = [("left_text", "right_text"), ("right_text", "left_text")]
    beside = pl.concat(pairs.select(pl.col(a).alias("text"), pl.col(b).alias("near")) for a, b in ends)
    near = beside.join(trained, left_on="near", right_on="text", how="semi").select("text")
    reached = pl.concat([trained, near]).unique()
    tests = texts.filter(pl.col("split").str.starts_with("test"))
    return len(tests.join(reached, on="text", how="semi"))


def _texts(pairs: pl.DataFrame) -> pl.DataFrame:
    """List the rows of pairs, each with its text."""
    return pl.concat(
        pairs.select(pl.col(f"{side}_id").alias("example_id"), pl.col(f"{side}_text").alias("text")) for side in _SIDES
    ).unique()


def normalised(text: pl.Series) -> pl.Series:
    """Number the distinct texts, white space and Unicode form apart: UInt32, null where there is no text."""
    plain = text.str.normalize("NFC").str.replace_all(r"\s+", " ").str.strip_chars()
    return plain.cast(pl.Categorical).to_physical()


def duplicates_across(rows: pl.DataFrame) -> int:
    """Count the distinct normalised inputs (column ``text``, as `normalised` numbers them) in more than one split."""
    per_text = rows.drop_nulls("text").group_by("text").agg(pl.col("split").n_unique().alias("places"))
    return int((per_text["places"] > 1).sum())
