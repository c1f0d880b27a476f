"""Near-duplicates of texts: signatures that are kept, and the comparison of new rows with themselves and with old.

A row is compared by its signature, but no pair is believed before the Jaccard similarity of both texts' shingles was
counted. Exact copies (one normalised text) are found first; their first row alone is compared further.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass

import numpy as np
import polars as pl

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.schemas.hashing import value_hash
from gradatim.tasks.core.components import components
from gradatim.tasks.core.frames import conform
from gradatim.tasks.core.jaccard import jaccard
from gradatim.tasks.core.minhash import (
    PERMUTATIONS,
    RECALL,
    Bands,
    band_keys,
    band_pairs,
    choose_bands,
    crowded_apart,
    decoded,
    pairs_between,
    shared_bands,
)
from gradatim.tasks.core.shingles import Hashes, Ints, Unit, chunks, digests, shingles, unique

REVISION = 1
"""Raised whenever signatures change, so that kept ones are not compared with them."""
KIND = "near_duplicate"
_BLANK = digests(pl.Series([""]))[0]
_VERIFIED = 2**21  # pairs of crowds between two looks at what they tie together

Texts = Callable[[pl.Series], pl.DataFrame]
"""Gives example_id and text of some ids."""


@dataclass(frozen=True)
class Scheme:
    """How texts are compared.

    Attributes
    ----------
    threshold : float in (0, 1]
        Jaccard similarity from which a pair counts.
    shingle : int
        Units of a shingle.
    unit : "words" or "characters"
    lowercase : bool
    permutations : int
        Most permutations of a signature.
    recall : float
        Least chance that a pair at the threshold is found.
    """

    threshold: float = 0.8
    shingle: int = 5
    unit: Unit = "words"
    lowercase: bool = True
    permutations: int = PERMUTATIONS
    recall: float = RECALL

    @property
    def bands(self) -> Bands:
        """Bands of its signatures."""
        return choose_bands(self.threshold, self.permutations, self.recall)

    @property
    def name(self) -> str:
        """Hash of all that signatures depend on; those of one name compare."""
        settings = asdict(self)
        return value_hash({**{k: settings[k] for k in ("shingle", "unit", "lowercase")}, "bands": asdict(self.bands),
                           "revision": REVISION})  # fmt: skip


@dataclass(frozen=True)
class Compared:
    """What a comparison found.

    Attributes
    ----------
    pairs : polars.DataFrame
        In the schema of the table `pairs`; of exact copies each with the first, so k copies make k - 1 pairs.
    candidates : int
        Pairs that were measured.
    left_out : int
        Pairs of crowds that were not measured, counted in each band that they share.
    untied : int
        Of these about how many are not tied through other pairs either: those of which components might know more.
    """

    pairs: pl.DataFrame
    candidates: int
    left_out: int
    untied: int


def signatures(examples: pl.DataFrame, scheme: Scheme, *, banded: bool = True) -> pl.DataFrame:
    """Return what is kept of rows to compare them later.

    Parameters
    ----------
    examples : polars.DataFrame
        example_id (unique) and text.
    scheme : Scheme
    banded : bool
        Without bands only exact copies are found.

    Returns
    -------
    polars.DataFrame
        example_id, scheme (`Scheme.name`), digest (32 hex digits) and bands (an array of uint64), sorted by example_id.
        Digest and bands are null of a text that is null or has no word: it is like nothing.

    Notes
    -----
    Row by row: signatures of parts are those of the whole. 1M short texts in 10 s; about 250 bytes a row are kept.
    """
    frame = examples.select(pl.col("example_id").cast(pl.String), "text").sort("example_id")
    if frame["example_id"].null_count() or frame["example_id"].is_duplicated().any():
        raise DataRefused("an example_id is null or stands twice", where="signatures", expected="one row an id")
    text, kind = frame["text"], pl.Array(pl.UInt64, scheme.bands.bands)
    bands = pl.Series([None], dtype=kind).new_from_index(0, len(frame))
    if banded:
        keys = np.empty((len(frame), scheme.bands.bands), dtype=np.uint64)
        for row, part in chunks(text):
            found = shingles(part, scheme.shingle, scheme.unit, lowercase=scheme.lowercase)
            keys[row : row + len(part)] = band_keys(found, scheme.bands)
        bands = pl.Series(keys, dtype=kind)
    named = frame.select("example_id", pl.lit(scheme.name).alias("scheme"))
    named = named.with_columns(digests(text), bands.alias("bands"))
    return named.with_columns(pl.when(pl.col("digest") != _BLANK).then(pl.col("digest", "bands")).name.keep())


def compare(
    new: pl.DataFrame, texts: Texts, scheme: Scheme, kept: pl.DataFrame | Iterable[pl.DataFrame] = ()
) -> Compared:
    """Compare new rows with one another and with all that are kept; kept rows are not compared with one another.

    Parameters
    ----------
    new : polars.DataFrame
        As from `signatures`.
    texts : callable
        Given ids, sorted, returns their example_id and text: of candidates alone, new and old.
    scheme : Scheme
    kept : polars.DataFrame or iterable of them
        Signatures of old rows, whole or part by part; rows whose id is also new are passed over.

    Raises
    ------
    UsageError
        If signatures were made with other settings.

    Notes
    -----
    O(new) beyond one pass over what is kept; 1M new rows: 10 s.

    Source: A. Z. Broder (1997). On the resemblance and containment of documents; A. Gionis, P. Indyk, R. Motwani
    (1999). Similarity search in high dimensions via hashing.
    """
    parts = [kept] if isinstance(kept, pl.DataFrame) else kept
    _same_scheme(new, scheme)
    rows = _light(new)
    firsts = rows.unique("digest", keep="first", maintain_order=True)
    banded = new["bands"].null_count() < len(new)
    old_pairs: list[pl.DataFrame] = []
    copies: list[pl.DataFrame] = []
    candidates = left_out = 0
    for part in parts:
        _same_scheme(part, scheme)
        if banded and part["bands"].null_count() > part["digest"].null_count():
            raise UsageError("old signatures have no bands", where="compare", remedy="make them anew with bands")
        old = _light(part).join(new, on="example_id", how="anti", maintain_order="left")
        old = old.unique("digest", keep="first", maintain_order=True)
        copies.append(rows.select("digest").unique().join(old.select("digest", "example_id"), on="digest"))
        fresh = firsts.join(old.select("digest"), on="digest", how="anti", maintain_order="left")
        if banded and len(fresh) and len(old):
            found, beyond = pairs_between(_keys(new, fresh), _keys(part, old))
            candidates, left_out = candidates + len(found), left_out + beyond
            ids = pl.concat([fresh["example_id"], old["example_id"]])
            old_pairs.append(_verified(found + np.array([0, len(fresh)]), ids, texts, scheme))
    held = pl.concat(copies).group_by("digest").agg(pl.col("example_id").min()) if copies else _no_copies()
    found_exact = _exact(rows, held)
    untied = left_out
    if banded:
        fresh = firsts.join(held, on="digest", how="anti", maintain_order="left").select("example_id", "row")
        near = _within(_keys(new, fresh), fresh["example_id"], texts, scheme)
        old_pairs.append(near.pairs)
        candidates, left_out, untied = (
            candidates + near.candidates,
            left_out + near.left_out,
            untied + near.untied,
        )
    return Compared(_table([found_exact, *old_pairs], scheme.threshold), candidates, left_out, untied)


def _light(frame: pl.DataFrame) -> pl.DataFrame:
    """Return example_id, digest and row (the place in `frame`) of what can be compared, sorted by id."""
    rows = frame.select("example_id", "digest").with_row_index("row")
    return rows.drop_nulls("digest").sort("example_id")


def _keys(frame: pl.DataFrame, rows: pl.DataFrame) -> Hashes:
    bands = frame["bands"]
    if len(rows) < len(frame) or not (rows["row"] == pl.int_range(len(frame), eager=True)).all():
        bands = bands.gather(rows["row"])
    width = bands.dtype.size  # type: ignore[attr-defined]
    return np.ascontiguousarray(bands.explode().to_numpy().reshape(-1, width)) if len(rows) else np.empty(
        (0, width), dtype=np.uint64
    )  # fmt: skip


def _no_copies() -> pl.DataFrame:
    return pl.DataFrame(schema={"digest": pl.String, "example_id": pl.String})


def _exact(rows: pl.DataFrame, held: pl.DataFrame) -> pl.DataFrame:
    """Pair each row with the first row of its text: an old one where there is one."""
    first = rows.group_by("digest").agg(pl.col("example_id").min())
    first = first.join(held.rename({"example_id": "old"}), on="digest", how="left")
    first = first.select("digest", other=pl.coalesce("old", "example_id"))
    both = rows.select("digest", one="example_id").join(first, on="digest").filter(pl.col("one") != pl.col("other"))
    return both.select("one", "other", similarity=pl.lit(1.0), method=pl.lit("exact"))


def _within(keys: Hashes, ids: pl.Series, texts: Texts, scheme: Scheme) -> Compared:
    """Compare rows with one another; the pairs are not in the schema yet."""
    rows = len(ids)
    every, left_out, waiting, crowds = np.empty(0, np.int64), 0, [], []
    for band in range(keys.shape[1]):
        coded, crowded, beyond = band_pairs(keys, band)
        waiting.append(coded)
        left_out += beyond
        if len(crowded):
            crowds.append(band)
        if sum(map(len, waiting)) > 2**24 or band == keys.shape[1] - 1:
            every, waiting = unique(np.concatenate([every, *waiting])), []
    found = [_verified(decoded(every, rows), ids, texts, scheme)]
    measured = len(every)
    least = min(2, keys.shape[1])
    for band in crowds:
        crowded = unique(band_pairs(keys, band)[1])
        place = np.minimum(np.searchsorted(every, crowded), max(0, len(every) - 1))
        crowded = crowded[every[place] != crowded] if len(every) else crowded
        every = np.sort(np.concatenate([every, crowded]))
        for start in range(0, len(crowded), _VERIFIED):
            pairs = decoded(crowded[start : start + _VERIFIED], rows)
            label = components(rows, _places(pl.concat(found), ids))
            apart = label[pairs[:, 0]] != label[pairs[:, 1]]  # those that are tied already tie nothing new
            apart[apart] = shared_bands(keys, pairs[apart]) >= least  # what is no more than of one kind shares few
            left_out += int((~apart).sum())
            measured += int(apart.sum())
            found.append(_verified(pairs[apart], ids, texts, scheme))
    untied = 0
    if crowds:
        label = components(rows, _places(pl.concat(found), ids))
        untied = max(0, sum(crowded_apart(keys, band, label) for band in crowds) - (measured - sum(map(len, found))))
    return Compared(pl.concat(found), measured, left_out, untied)


def _places(pairs: pl.DataFrame, ids: pl.Series) -> Ints:
    index = pl.DataFrame({"id": ids}).with_row_index("row")
    joined = pairs.join(index.rename({"row": "a"}), left_on="one", right_on="id").join(
        index.rename({"row": "b"}), left_on="other", right_on="id"
    )
    return np.asarray(joined.select("a", "b").to_numpy(), dtype=np.int64).reshape(-1, 2)


def _verified(pairs: Ints, ids: pl.Series, texts: Texts, scheme: Scheme) -> pl.DataFrame:
    """Measure candidates, and return those that reach the threshold: one, other, similarity, method."""
    rows, place = np.unique(pairs, return_inverse=True)
    wanted = ids.gather(rows).alias("example_id").to_frame()
    if len(rows):
        told = texts(wanted["example_id"].sort()).select(pl.col("example_id").cast(pl.String), "text")
        have = wanted.join(told, on="example_id", how="left", maintain_order="left")
    else:
        have = wanted.with_columns(text=pl.lit(None, pl.String))
    if have["text"].null_count():
        missing = have.filter(pl.col("text").is_null())["example_id"][0]
        raise UsageError(f"there is no text of {missing!r}, which is to be compared", where="compare", expected="texts")
    similarity = jaccard(have["text"], place.reshape(-1, 2), scheme.shingle, scheme.unit, lowercase=scheme.lowercase)
    similarity = np.round(similarity, 9)
    kept = similarity >= scheme.threshold - 1e-9
    one, other = (ids.gather(pairs[kept, side]) for side in (0, 1))
    return pl.DataFrame({"one": one, "other": other, "similarity": similarity[kept]}).with_columns(
        method=pl.lit("minhash")
    )


def _table(found: Iterable[pl.DataFrame], threshold: float) -> pl.DataFrame:
    """Put pairs in the schema of the table `pairs`."""
    frame = pl.concat(list(found)).select(
        left_id=pl.min_horizontal("one", "other"),
        right_id=pl.max_horizontal("one", "other"),
        kind=pl.lit(KIND),
        similarity="similarity",
        method="method",
        threshold=pl.when(pl.col("method") == "exact").then(1.0).otherwise(threshold),
    )
    return conform(frame.unique(["left_id", "right_id"], keep="first", maintain_order=True), "pairs")


def _same_scheme(frame: pl.DataFrame, scheme: Scheme) -> None:
    if (frame["scheme"] != scheme.name).any():
        raise UsageError(
            "these signatures were made with other settings",
            where="compare",
            expected=f"the scheme {scheme.name}",
            remedy="make the signatures of all rows anew",
        )
