"""Near-duplicates of texts: signatures that are kept, and the comparison of new rows with themselves and with old.

A row is compared by its signature, but no pair is believed before the Jaccard similarity of both texts' shingles was
counted. Exact copies (one normalised text) are found first; their first row alone is compared further.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

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
from gradatim.tasks.core.signature_files import (
    ROWS,
    SignatureFiles,
    Signatures,
    by_range,
    first_of_equal,
    halves,
    in_blocks,
    in_parts,
    keys_of,
    spilled,
)

REVISION = 1
"""Raised whenever signatures change, so that kept ones are not compared with them."""
KIND = "near_duplicate"
_BLANK = digests(pl.Series([""]))[0]
_VERIFIED = 2**16  # pairs whose texts are asked for, and held, together
_CROWDED = 2**21  # pairs of crowds between two looks at what they tie together
_WAITING = 2**20  # candidates of bands that wait, at least, to be sorted among the others

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


@dataclass(frozen=True)
class _Measured:
    """Pairs of rows that reach the threshold: shape (n, 2), and their similarity."""

    pairs: Ints
    similarity: NDArray[np.float64]


def compare(new: Signatures, texts: Texts, scheme: Scheme, kept: Signatures = ()) -> Compared:
    """Compare new rows with one another and with all that are kept; kept rows are not compared with one another.

    Parameters
    ----------
    new : polars.DataFrame, polars.LazyFrame or iterable of polars.DataFrame
        As from `signatures`, whole or part by part; read once. Best in the order of ids.
    texts : callable
        Given ids, each once, returns their example_id and text: of candidates alone, new and old, some 2^16 pairs at a
        time.
    scheme : Scheme
    kept : polars.DataFrame, polars.LazyFrame or iterable of polars.DataFrame
        Signatures of old rows, whole or part by part; read once. Rows whose id is also new are passed over.

    Raises
    ------
    UsageError
        If signatures were made with other settings.
    DataRefused
        If an id is new twice.

    Notes
    -----
    O(new) beyond one pass over what is kept; 1M new rows: some 4 s. New signatures are spilled to a temporary folder
    (`tempfile`: ``TMPDIR`` says where), 180 bytes a row with 18 bands, and looked at band by band, a million rows at a
    time. Held are 2 bytes a row, 8 a candidate, and the pairs that are returned.

    Source: A. Z. Broder (1997). On the resemblance and containment of documents; A. Gionis, P. Indyk, R. Motwani
    (1999). Similarity search in high dimensions via hashing.
    """

    def checked(parts: Iterator[pl.DataFrame]) -> Iterator[pl.DataFrame]:
        for part in parts:
            _same_scheme(part, scheme)
            yield part

    with tempfile.TemporaryDirectory(prefix="gradatim-") as folder:
        rows = spilled(checked(in_parts(new)), Path(folder))
        first, copies = first_of_equal(rows.digests)
        old = [_beside(rows, first, block, texts, scheme) for block in checked(in_blocks(kept))]
        held = pl.concat([_Beside.none(), *(part.copies for part in old)])
        held = held.group_by("row").agg(pl.col("old").min()).sort("row")
        first[held["row"].to_numpy()] = False  # only rows of which no copy is kept are compared further
        near = _within(rows, first, texts, scheme)
        found = [
            _exact(rows, copies, held),
            *(part.pairs for part in old),
            _named(rows.names(near.pairs[:, 0]), rows.names(near.pairs[:, 1]), near.similarity),
        ]
        return Compared(
            _table(found, scheme.threshold),
            near.candidates + sum(part.candidates for part in old),
            near.left_out + sum(part.left_out for part in old),
            near.untied + sum(part.left_out for part in old),
        )


@dataclass(frozen=True)
class _Beside:
    """What a block of kept rows is to the new ones: copies (row, old: an id), pairs, and what was counted."""

    copies: pl.DataFrame
    pairs: pl.DataFrame
    candidates: int
    left_out: int

    @staticmethod
    def none() -> pl.DataFrame:
        return pl.DataFrame(schema={"row": pl.Int64, "old": pl.String})


def _beside(
    new: SignatureFiles, first: NDArray[np.bool_], block: pl.DataFrame, texts: Texts, scheme: Scheme
) -> _Beside:
    """Compare the new rows, a million at a time, with a block of kept ones."""
    if new.keys and block["bands"].null_count() > block["digest"].null_count():
        raise UsageError("old signatures have no bands", where="compare", remedy="make them anew with bands")
    runs = [slice(start, start + ROWS) for start in range(0, len(new), ROWS)]
    old = block.with_row_index("place").select("place", "example_id", "digest").drop_nulls("digest")
    for run in runs:
        old = old.join(new.ids[run].to_frame(), on="example_id", how="anti")
    old = old.sort("example_id").unique("digest", keep="first", maintain_order=True)
    high, low = halves(old["digest"]).T
    ids = old["example_id"]
    digests = pl.DataFrame({"high": high, "low": low, "old": ids})
    keys = keys_of(block["bands"].gather(old["place"])) if new.keys else None
    copies, pairs, candidates, left_out = [_Beside.none()], [_named(ids[:0], ids[:0], np.empty(0))], 0, 0
    for run in runs:
        rows = np.flatnonzero(first[run]) + run.start
        high, low = new.digests[rows].T
        same = pl.DataFrame({"row": rows, "high": high, "low": low}).join(digests, on=["high", "low"])
        copies.append(same.select("row", "old"))
        rows = np.setdiff1d(rows, same["row"].to_numpy(), assume_unique=True)
        if keys is None or not len(rows) or not len(keys):
            continue
        found, beyond = pairs_between((band[rows] for band in new.keys), keys)
        used = unique(found[:, 0])
        both = pl.concat([new.names(rows[used]), ids])
        found = np.stack([np.searchsorted(used, found[:, 0]), len(used) + found[:, 1]], axis=1)
        near = _verified(found, both, texts, scheme)
        pairs.append(_named(both.gather(near.pairs[:, 0]), both.gather(near.pairs[:, 1]), near.similarity))
        candidates, left_out = candidates + len(found), left_out + beyond
    return _Beside(pl.concat(copies), pl.concat(pairs), candidates, left_out)


def _exact(rows: SignatureFiles, copies: Ints, held: pl.DataFrame) -> pl.DataFrame:
    """Pair each row with the first row of its text: an old one where there is one."""
    old, names = held["row"].to_numpy(), held["old"]
    place = np.minimum(np.searchsorted(old, copies[:, 1]), max(0, len(old) - 1))
    kept = old[place] == copies[:, 1] if len(old) else np.zeros(len(copies), dtype=bool)
    one = pl.concat([rows.names(side) for side in (copies[kept, 0], copies[~kept, 0], old)])
    other = pl.concat([names.gather(place[kept]), rows.names(copies[~kept, 1]), names])
    return _named(one, other, np.ones(len(one)), "exact")


@dataclass(frozen=True)
class _Near(_Measured):
    candidates: int
    left_out: int
    untied: int


def _within(new: SignatureFiles, among: NDArray[np.bool_], texts: Texts, scheme: Scheme) -> _Near:
    """Compare some rows with one another."""
    total = len(new)
    every, left_out, waiting, crowds = np.empty(0, np.int64), 0, [], []
    for band, key in enumerate(new.keys):
        for rows in by_range(key, among):
            coded, crowded, beyond = band_pairs(rows, key[rows], _following(new, band), total)
            waiting.append(coded)
            left_out += beyond
            if len(crowded) and band not in crowds:
                crowds.append(band)
        if sum(map(len, waiting)) > max(_WAITING, len(every)) or band == len(new.keys) - 1:
            every, waiting = unique(np.concatenate([every, *waiting])), []
    found = [_verified_codes(every, new, texts, scheme)]
    measured = len(every)
    least = min(2, len(new.keys))
    for band in crowds:
        key = new.keys[band]
        for rows in by_range(key, among):
            crowded = unique(band_pairs(rows, key[rows], _following(new, band), total)[1])
            place = np.minimum(np.searchsorted(every, crowded), max(0, len(every) - 1))
            crowded = crowded[every[place] != crowded] if len(every) else crowded
            for start in range(0, len(crowded), _CROWDED):
                codes = crowded[start : start + _CROWDED]
                pairs = decoded(codes, total)
                label = _labels(found, pairs.ravel()).reshape(-1, 2)
                apart = label[:, 0] != label[:, 1]  # those that are tied already tie nothing new
                apart[apart] = (
                    shared_bands(new.keys, pairs[apart]) >= least
                )  # what is no more than of one kind shares few
                left_out += int((~apart).sum())
                measured += int(apart.sum())
                found.append(_verified_codes(codes[apart], new, texts, scheme))
                every = np.sort(np.concatenate([every, codes[apart]]))
    pairs, similarity = _joined(found)
    untied = 0
    for band in crowds:
        for rows in by_range(new.keys[band], among):
            untied += crowded_apart(new.keys[band][rows], _labels(found, rows))
    untied = max(0, untied - (measured - len(pairs))) if crowds else 0
    return _Near(pairs, similarity, measured, left_out, untied)


def _following(new: SignatureFiles, band: int) -> Hashes:
    return new.keys[(band + 1) % len(new.keys)]


def _joined(found: list[_Measured]) -> tuple[Ints, NDArray[np.float64]]:
    return np.concatenate([part.pairs for part in found]), np.concatenate([part.similarity for part in found])


def _labels(found: list[_Measured], rows: Ints) -> Ints:
    """Return a number for the component of each row that pairs tie; a row without a pair has its own."""
    ends = np.concatenate([part.pairs for part in found]).ravel()
    tied = unique(ends)
    if not len(tied):
        return rows
    label = components(len(tied), np.searchsorted(tied, ends).reshape(-1, 2))
    place = np.minimum(np.searchsorted(tied, rows), len(tied) - 1)
    return np.where(tied[place] == rows, label[place], len(tied) + rows)


def _verified_codes(coded: Ints, new: SignatureFiles, texts: Texts, scheme: Scheme) -> _Measured:
    parts = [
        _verified(decoded(coded[start : start + _VERIFIED], len(new)), new.ids, texts, scheme)
        for start in range(0, max(1, len(coded)), _VERIFIED)
    ]
    return _Measured(*_joined(parts))


def _verified(pairs: Ints, ids: pl.Series, texts: Texts, scheme: Scheme) -> _Measured:
    """Measure candidates, and return those that reach the threshold."""
    out = [_Measured(np.empty((0, 2), np.int64), np.empty(0))]
    for start in range(0, len(pairs), _VERIFIED):
        some = pairs[start : start + _VERIFIED]
        rows = unique(some.ravel())
        wanted = ids.gather(rows).alias("example_id").to_frame()
        told = texts(wanted["example_id"].sort()).select(pl.col("example_id").cast(pl.String), "text")
        have = wanted.join(told, on="example_id", how="left", maintain_order="left")
        if have["text"].null_count():
            missing = have.filter(pl.col("text").is_null())["example_id"][0]
            raise UsageError(
                f"there is no text of {missing!r}, which is to be compared", where="compare", expected="texts"
            )
        place = np.searchsorted(rows, some)
        similarity = jaccard(have["text"], place, scheme.shingle, scheme.unit, lowercase=scheme.lowercase)
        similarity = np.round(similarity, 9)
        reached = similarity >= scheme.threshold - 1e-9
        out.append(_Measured(some[reached], similarity[reached]))
    return _Measured(*_joined(out))


def _named(one: pl.Series, other: pl.Series, similarity: NDArray[np.float64], method: str = "minhash") -> pl.DataFrame:
    return pl.DataFrame(
        {"one": one, "other": other, "similarity": similarity},
        schema={"one": pl.String, "other": pl.String, "similarity": pl.Float64},
    ).with_columns(method=pl.lit(method))


def _table(found: list[pl.DataFrame], threshold: float) -> pl.DataFrame:
    """Put pairs in the schema of the table `pairs`."""
    frame = pl.concat(found).select(
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
