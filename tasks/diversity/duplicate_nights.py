"""Near-duplicates night after night: what of an earlier comparison still stands, and what the new one adds to it.

Signatures are kept in the table `signatures`, part by part of the examples; only rows that are new, or whose text has
changed, are compared again. What comes out is what a comparison of all rows at once finds: exact copies make a star
around the one of the smallest id, which alone has further partners, whichever night brought it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from gradatim.schemas.hashing import value_hash
from gradatim.tasks.core.components import components
from gradatim.tasks.core.frames import conform
from gradatim.tasks.core.near_duplicates import KIND, Scheme

ENDS = ["left_id", "right_id"]


@dataclass(frozen=True)
class Comparison:
    """How the texts of a column are compared.

    Attributes
    ----------
    column : str
    scheme : Scheme
    banded : bool
        Without bands only exact copies are found.
    """

    column: str
    scheme: Scheme
    banded: bool

    @property
    def signed(self) -> str:
        """Hash of all that kept signatures depend on, beside the texts."""
        return value_hash({"column": self.column, "scheme": self.scheme.name, "banded": self.banded})

    @property
    def settings(self) -> str:
        """Hash of all that pairs depend on, beside the texts; pairs of other settings are not carried on."""
        return value_hash({"signed": self.signed, "threshold": self.scheme.threshold})


def stored(signed: pl.DataFrame, method: str) -> pl.DataFrame:
    """Put what `signatures` gives in the schema of the table `signatures`; Delta tables have no unsigned numbers."""
    width = signed.schema["bands"].size  # type: ignore[attr-defined]
    known = signed.drop_nulls("bands")
    bands = known["bands"].explode().reinterpret(signed=True).reshape((-1, width)).arr.to_list() if len(known) else None
    frame = pl.concat(
        [
            known.with_columns(pl.Series("bands", bands, dtype=pl.List(pl.Int64)))
            if bands is not None
            else _bare(known),
            _bare(signed.filter(pl.col("bands").is_null())),
        ]
    )
    return conform(frame.with_columns(method=pl.lit(method)), "signatures")


def _bare(signed: pl.DataFrame) -> pl.DataFrame:
    return signed.with_columns(bands=pl.lit(None, pl.List(pl.Int64)))


def restored(rows: pl.DataFrame, scheme: Scheme) -> pl.DataFrame:
    """Return rows of the table `signatures` as `compare` takes them."""
    kind = pl.Array(pl.UInt64, scheme.bands.bands)
    rows = rows.select("example_id", "scheme", "digest", "bands")
    known = rows.drop_nulls("bands")
    if known.is_empty():
        return rows.with_columns(bands=pl.lit(None, kind)).sort("example_id")
    bands = known["bands"].explode().reinterpret(signed=False).reshape((-1, scheme.bands.bands))
    none = rows.filter(pl.col("bands").is_null()).with_columns(bands=pl.lit(None, kind))
    return pl.concat([known.with_columns(bands.alias("bands").cast(kind)), none]).sort("example_id")


def changes(before: pl.DataFrame, now: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Compare the signatures of parts that only one of two versions has.

    Parameters
    ----------
    before, now : polars.DataFrame
        example_id and digest, and what else `now` has.

    Returns
    -------
    (polars.DataFrame, polars.DataFrame)
        The rows of `now` that are new or have another text; those of `before` that are gone or have another text.
    """
    on = ["example_id", "digest"]
    new = now.join(before, on=on, how="anti", nulls_equal=True, maintain_order="left")
    gone = before.join(now, on=on, how="anti", nulls_equal=True, maintain_order="left")
    return new, gone


def carried(before: pl.DataFrame, found: pl.DataFrame, gone: pl.Series, threshold: float) -> pl.DataFrame:
    """Join the pairs that stand to those found now.

    Parameters
    ----------
    before : polars.DataFrame
        Table `pairs` of one measure, as this function or a first comparison gave it, whatever threshold it was cut at.
    found : polars.DataFrame
        Pairs of new rows.
    gone : polars.Series of String
        Ids of `before` that are gone or have another text: their pairs go. What they stood for stays: of copies whose
        first one went the next one is the first, with the partners that it had.
    threshold : float
        Of pairs that are not exact.

    Returns
    -------
    polars.DataFrame
        In the schema of the table `pairs`, without versions.
    """
    exact, near = (before.filter((pl.col("method") == "exact") == which) for which in (True, False))
    copies = pl.concat([exact.select(first="left_id", id="right_id"), exact.select(first="left_id", id="left_id")])
    staying = copies.unique().filter(~pl.col("id").is_in(gone.implode()))
    staying = staying.with_columns(now=pl.col("id").min().over("first"))
    firsts = (
        copies.select(id="first").unique().join(staying.select(id="first", now="now").unique(), on="id", how="left")
    )  # null where no copy is left
    lone = (
        pl.concat([near["left_id"], near["right_id"]]).unique().alias("id").to_frame().join(firsts, on="id", how="anti")
    )
    lone = lone.with_columns(now=pl.when(~pl.col("id").is_in(gone.implode())).then("id"))
    near = _renamed(near, pl.concat([firsts, lone])).drop_nulls(ENDS)
    new_exact, new_near = (found.filter((pl.col("method") == "exact") == which) for which in (True, False))
    ties = pl.concat([staying.select(left_id="now", right_id="id"), new_exact.select(ENDS)])
    group = _firsts(ties)
    star = group.filter(pl.col("id") != pl.col("now")).select(left_id="now", right_id="id")
    star = star.with_columns(similarity=pl.lit(1.0), method=pl.lit("exact"), threshold=pl.lit(1.0))
    columns = [*ENDS, "similarity", "method"]
    both = pl.concat([near.select(columns), new_near.select(columns)])
    both = _renamed(both, group).filter(pl.col("left_id") != pl.col("right_id")).unique(ENDS, keep="first")
    both = both.with_columns(threshold=pl.lit(threshold))
    every = pl.concat([star.select(both.columns), both]).with_columns(kind=pl.lit(KIND))
    return conform(every, "pairs")


def _firsts(ties: pl.DataFrame) -> pl.DataFrame:
    """Return id and now, the smallest id of those that it is tied to, of all ids of `ties`."""
    ids = pl.concat([ties["left_id"], ties["right_id"]]).unique().sort()
    index = pl.DataFrame({"id": ids}).with_row_index("row")
    ends = ties.join(index.rename({"row": "left"}), left_on="left_id", right_on="id").join(
        index.rename({"row": "right"}), left_on="right_id", right_on="id"
    )
    label = components(len(ids), ends.select("left", "right").to_numpy().astype(np.int64))
    return pl.DataFrame({"id": ids, "label": label}).select("id", now=pl.col("id").first().over("label"))


def _renamed(pairs: pl.DataFrame, names: pl.DataFrame) -> pl.DataFrame:
    """Put `now` in the place of each id that `names` lists, and the smaller id on the left; null where it is null."""
    for end in ENDS:
        listed = names.rename({"id": end}).with_columns(is_listed=True)
        pairs = pairs.join(listed, on=end, how="left", maintain_order="left")
        pairs = pairs.with_columns(pl.when("is_listed").then("now").otherwise(end).alias(end)).drop("now", "is_listed")
    whole = pl.all_horizontal(pl.col(ENDS).is_not_null())
    low, high = pl.min_horizontal(ENDS), pl.max_horizontal(ENDS)
    return pairs.with_columns(left_id=pl.when(whole).then(low), right_id=pl.when(whole).then(high))


def versioned(pairs: pl.DataFrame, examples: pl.DataFrame) -> pl.DataFrame:
    """Say of which version each row of a pair is.

    Parameters
    ----------
    pairs : polars.DataFrame
        In the schema of the table `pairs`.
    examples : polars.DataFrame
        example_id and changed_version, of these rows at least.
    """
    for end in ("left", "right"):
        told = examples.select(
            pl.col("example_id").alias(f"{end}_id"), pl.col("changed_version").alias(f"{end}_version")
        )
        pairs = pairs.drop(f"{end}_version", strict=False).join(told, on=f"{end}_id", how="left", maintain_order="left")
    return conform(pairs, "pairs")
