"""From two frames, training and evaluation, to the pairs of texts that are alike."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from gradatim.schemas.errors import DataRefused, UsageError, nearest
from gradatim.tasks.core.embeddings import Vectors
from gradatim.tasks.core.neighbours import NearestNeighbours
from gradatim.tasks.diversity.contamination_retrieval import HITS, ROWS, build, merge, normalised, partial
from gradatim.tasks.diversity.contamination_surface import surface_similarity

_WHERE = "contamination"
_PAIRS = {
    "evaluation_id": pl.String,
    "train_id": pl.String,
    "ngram_hits": pl.UInt32,
    "surface": pl.Float64,
    "semantic": pl.Float64,
    "aggregate": pl.Float64,
}


@dataclass(frozen=True)
class Found:
    """What was found.

    Attributes
    ----------
    pairs : polars.DataFrame
        Every candidate that was compared: evaluation_id, train_id, ngram_hits (0 where only vectors brought them
        together), surface (0 to 100), semantic (cosine, or null), aggregate (the larger of surface and 100 times
        semantic), sorted by evaluation_id, then most alike first, then train_id.
    evaluation : polars.DataFrame
        example_id, train_id (the most alike, or null), aggregate, surface and semantic (the largest each; 0 where there
        is no candidate, null where the text has no word), sorted by id.
    passed_over : int
        n-grams that too many evaluation texts share to tell them apart.
    whole : int
        Evaluation texts of so few words that they were compared as wholes.
    """

    pairs: pl.DataFrame
    evaluation: pl.DataFrame
    passed_over: int
    whole: int


def find_contamination(
    train: pl.DataFrame | pl.LazyFrame | Sequence[pl.LazyFrame],
    evaluation: pl.DataFrame,
    *,
    n: int = 12,
    candidates: int = 20,
    lowest: float = 70.0,
    train_vectors: Vectors | None = None,
    evaluation_vectors: Vectors | None = None,
    neighbours: int = 5,
) -> Found:
    """Find for each evaluation text the training texts that hold it or much of it.

    Parameters
    ----------
    train : polars.DataFrame, LazyFrame or sequence of LazyFrame
        example_id and text. A lazy one (``pl.scan_parquet``) is read twice, in batches: all, then the candidates. Many
        files are best given one by one: a scan of several reads ahead in all of them.
    evaluation : polars.DataFrame
        example_id and text.
    n : int
        Words of an n-gram; shorter for short texts: see `contamination_retrieval.length_used`.
    candidates : int
        Training texts that are compared with each evaluation text: those that share most n-grams, ties by id.
    lowest : float
        The lowest level that matters, 0 to 100.
    train_vectors, evaluation_vectors : Vectors, optional
        Embeddings of both sides; each evaluation row's `neighbours` nearest training rows become candidates too.
    neighbours : int

    Returns
    -------
    Found

    Raises
    ------
    DataRefused
        An id stands twice or is null, or one side is empty.

    Notes
    -----
    One pass hashes every n-gram of the training texts; only candidates are compared letter by letter. Memory: the
    evaluation's n-grams, a batch, and the candidates' texts.
    """
    kept = _checked(evaluation, "evaluation")
    rows = kept.with_columns(norm=normalised(kept["text"]))
    different = rows["norm"].unique().sort()
    index = build(different, n)
    codes = pl.DataFrame({"norm": different, "text": np.arange(len(different), dtype=np.uint32)})
    rows = rows.select("example_id", "norm").join(codes, on="norm", how="left")
    named = (pl.col("example_id").cast(pl.String).alias("train_id"), pl.col("text").cast(pl.String))
    given = [train.lazy()] if isinstance(train, pl.DataFrame | pl.LazyFrame) else train
    lazy = [part.select(named) for part in given]
    hits = pl.DataFrame(schema=HITS)
    for batch in _batches(lazy):  # merged at once: what is held does not grow with the batches
        hits = merge([hits, partial(index, batch, candidates)], candidates)
    wanted = rows.select("example_id", "text").join(hits, on="text").select("example_id", "train_id", "text", "hits")
    if train_vectors is not None and evaluation_vectors is not None:
        near = _neighbours(train_vectors, evaluation_vectors, neighbours).join(rows, on="example_id")
        near = near.select("example_id", "train_id", "text").join(wanted, on=["example_id", "train_id"], how="anti")
        wanted = pl.concat([wanted, near.with_columns(hits=pl.lit(0, pl.UInt32)).select(wanted.columns)])
    measurable = pl.Series(index.measurable)
    wanted = wanted.filter(measurable.gather(wanted["text"]))
    alike = _surface(lazy, wanted, different, index.whole, n, lowest)
    pairs = wanted.join(alike, on=["text", "train_id"], how="inner")
    pairs = pairs.with_columns(semantic=_cosines(pairs, train_vectors, evaluation_vectors))
    pairs = pairs.with_columns(aggregate=pl.max_horizontal("surface", (100 * pl.col("semantic")).round(7)))
    pairs = pairs.select(
        pl.col({"evaluation_id": "example_id", "ngram_hits": "hits"}.get(name, name)).cast(kind).alias(name)
        for name, kind in _PAIRS.items()
    ).sort(["evaluation_id", "aggregate", "train_id"], descending=[False, True, False])
    texts = measurable.gather(rows["text"])
    return Found(pairs, _best(rows, pairs, texts), index.passed_over, int((index.whole & index.measurable).sum()))


def _checked(frame: pl.DataFrame, side: str) -> pl.DataFrame:
    for column in ("example_id", "text"):
        if column not in frame.columns:
            raise UsageError(
                f"the {side} rows have no column {column!r}{nearest(column, frame.columns)}",
                where=_WHERE,
                expected="example_id and text",
            )
    kept = frame.select(pl.col("example_id").cast(pl.String), pl.col("text").cast(pl.String)).sort("example_id")
    if kept.is_empty():
        raise DataRefused(f"there is no {side} row", where=_WHERE, expected="rows on both sides")
    if kept["example_id"].null_count() or kept["example_id"].is_duplicated().any():
        raise DataRefused(
            f"an id of the {side} rows is null or stands twice", where=_WHERE, expected="a different id for each row"
        )
    return kept


def _batches(lazy: Sequence[pl.LazyFrame]) -> Iterator[pl.DataFrame]:
    empty = True
    for part in lazy:
        for batch in part.collect_batches(chunk_size=ROWS):
            empty = empty and batch.is_empty()
            yield batch
    if empty:
        raise DataRefused("there is no training row", where=_WHERE, expected="rows on both sides")


def _neighbours(train: Vectors, evaluation: Vectors, k: int) -> pl.DataFrame:
    """Nearest training rows of each evaluation row: example_id, train_id."""
    if not len(train.ids) or not len(evaluation.ids):
        return pl.DataFrame(schema={"example_id": pl.String, "train_id": pl.String})
    index = NearestNeighbours(train.matrix, train.ids, where=_WHERE).search(evaluation.matrix, k).index
    row, _ = np.nonzero(index >= 0)
    return pl.DataFrame({"example_id": evaluation.ids.gather(row), "train_id": train.ids.gather(index[index >= 0])})


def _surface(
    lazy: Sequence[pl.LazyFrame], wanted: pl.DataFrame, different: pl.Series, whole: np.ndarray, n: int, lowest: float
) -> pl.DataFrame:
    """Edit similarity of each pair of a text and a training row: text, train_id, surface."""
    pairs = wanted.select("text", "train_id").unique().sort("text", "train_id")
    named = pairs.select("train_id").unique().lazy()
    # streaming, or a whole file would be held
    texts = pl.concat([part.join(named, on="train_id", how="semi").collect(engine="streaming") for part in lazy])
    texts = texts.sort("train_id")
    if texts["train_id"].is_duplicated().any():
        raise DataRefused("an id of the training rows stands twice", where=_WHERE, expected="a different id for each")
    texts = texts.with_columns(norm=normalised(texts["text"])).drop("text")
    joined = pairs.join(texts, on="train_id", how="inner", maintain_order="left")
    parts = [
        surface_similarity(different[code], part["norm"].to_list(), lowest=lowest, n=n, whole=bool(whole[code]))
        for (code,), part in joined.group_by("text", maintain_order=True)
    ]
    return joined.select("text", "train_id").with_columns(surface=pl.Series(np.concatenate([np.zeros(0), *parts])))


def _cosines(pairs: pl.DataFrame, train: Vectors | None, evaluation: Vectors | None) -> pl.Series:
    """Cosine of each pair's vectors, rounded to 1e-9; null where one has no vector or a vector of zeros."""
    if train is None or evaluation is None:
        return pl.Series("semantic", [None], dtype=pl.Float64).new_from_index(0, len(pairs))
    sides = [(evaluation, pairs["example_id"]), (train, pairs["train_id"])]
    places = [_places(side, ids) for side, ids in sides]
    found = np.full(len(pairs), np.nan)
    known = np.flatnonzero((places[0] >= 0) & (places[1] >= 0))
    for start in range(0, len(known), ROWS):
        some = known[start : start + ROWS]
        left, right = (
            side.matrix[place[some]].astype(np.float64) for (side, _), place in zip(sides, places, strict=True)
        )
        norms = np.sqrt((left * left).sum(axis=1) * (right * right).sum(axis=1))
        product = (left * right).sum(axis=1)
        found[some] = np.divide(product, norms, out=np.full(len(some), np.nan), where=norms > 0)
    return pl.Series("semantic", np.round(np.clip(found, -1, 1), 9)).fill_nan(None)


def _places(side: Vectors, ids: pl.Series) -> np.ndarray:
    """Row of each id among the vectors; -1 for none."""
    at = pl.DataFrame({"id": side.ids, "place": np.arange(len(side.ids))})
    joined = pl.DataFrame({"id": ids}).join(at, on="id", how="left", maintain_order="left")
    return joined["place"].fill_null(-1).to_numpy()


def _best(rows: pl.DataFrame, pairs: pl.DataFrame, measurable: pl.Series) -> pl.DataFrame:
    first = pairs.group_by("evaluation_id", maintain_order=True).agg(
        pl.col("train_id").first(), pl.col("aggregate", "surface", "semantic").max()
    )
    frame = rows.select("example_id", measurable=measurable).join(
        first, left_on="example_id", right_on="evaluation_id", how="left"
    )
    found = pl.col("aggregate", "surface").fill_null(0.0)
    return (
        frame.with_columns(found)
        .with_columns(pl.when("measurable").then(pl.col("aggregate", "surface")))
        .drop("measurable")
        .sort("example_id")
    )
