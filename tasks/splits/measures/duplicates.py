"""What stands on both sides of a cut: equal inputs and near-duplicates."""

from __future__ import annotations

import polars as pl

from gradatim.tasks.splits.measures.block import Block, Measured


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
        tests = pl.concat(
            both.filter(pl.col(train) == "train").select(pl.col(id_).alias("id"), pl.col(split).alias("split"))
            for train, id_, split in (("left", "right_id", "right"), ("right", "left_id", "left"))
        ).filter(pl.col("split").str.starts_with("test"))
        found["near_duplicates_of_train"] = (float(tests["id"].n_unique()), len(block.rows))
    return found


def across(rows: pl.DataFrame, pairs: pl.DataFrame) -> pl.DataFrame:
    """Return the pairs whose ends are in two splits, with those splits as ``left`` and ``right``."""
    place = rows.select("example_id", "split")
    both = pairs.unique(["left_id", "right_id"]).join(place.rename({"split": "left"}), left_on="left_id",
                                                      right_on="example_id")  # fmt: skip
    both = both.join(place.rename({"split": "right"}), left_on="right_id", right_on="example_id")
    return both.filter(pl.col("left") != pl.col("right"))


def normalised(text: pl.Series) -> pl.Series:
    """Number the distinct texts, white space and Unicode form apart: UInt32, null where there is no text."""
    plain = text.str.normalize("NFC").str.replace_all(r"\s+", " ").str.strip_chars()
    return plain.cast(pl.Categorical).to_physical()


def duplicates_across(rows: pl.DataFrame) -> int:
    """Count the distinct normalised inputs (column ``text``, as `normalised` numbers them) in more than one split."""
    per_text = rows.drop_nulls("text").group_by("text").agg(pl.col("split").n_unique().alias("places"))
    return int((per_text["places"] > 1).sum())
