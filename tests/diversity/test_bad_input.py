"""Bad input to every measure and every embedder: one clear error, or a defined value that is told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import polars as pl
import pytest
from every_measure import EMBEDDERS, ROWS, WIDTH, healthy, measured, vectors_of

import gradatim as gd
from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.schemas.tables import spec
from gradatim.tasks.core.registry import plugins

DIVERSITY = sorted(plugins("diversity"))
ON_VECTORS = [name for name in DIVERSITY if any("features_" in need for need in plugins("diversity")[name].needs)]


def with_vectors(change: Callable[[np.ndarray], None]) -> Callable[[], tuple[pl.DataFrame, pl.DataFrame]]:
    def make() -> tuple[pl.DataFrame, pl.DataFrame]:
        frame = healthy()
        matrix = vectors_of(frame)["embedding"].to_numpy().copy()
        change(matrix)
        column = pl.Series(matrix, dtype=pl.Array(pl.Float32, WIDTH))
        return frame, frame.select("example_id", embedding=column)

    return make


def changed(*columns: pl.Expr, rows: int = ROWS) -> Callable[[], tuple[pl.DataFrame, pl.DataFrame]]:
    def make() -> tuple[pl.DataFrame, pl.DataFrame]:
        frame = healthy().with_columns(*columns).head(rows)
        return frame, vectors_of(frame)

    return make


def ragged() -> tuple[pl.DataFrame, pl.DataFrame]:
    frame = healthy()
    lists = [[1.0] * (WIDTH - i % 2) for i in range(ROWS)]
    return frame, frame.select("example_id", embedding=pl.Series(lists, dtype=pl.List(pl.Float32)))


def all_equal() -> tuple[pl.DataFrame, pl.DataFrame]:
    first = healthy().row(0, named=True)
    frame = healthy().with_columns(*(pl.lit(first[name]).alias(name) for name in ("input", "output", "template")))
    one = pl.Series(np.ones((ROWS, WIDTH)), dtype=pl.Array(pl.Float32, WIDTH))
    return frame, frame.select("example_id", embedding=one)


number = pl.int_range(pl.len())
CASES: dict[str, Callable[[], tuple[pl.DataFrame, pl.DataFrame]]] = {
    "nothing wrong": changed(),
    "every text empty": changed(pl.lit("").alias("input")),
    "some texts empty": changed(pl.when(number < 9).then(pl.lit("")).otherwise("input").alias("input")),
    "some texts null": changed(pl.when(number < 9).then(None).otherwise("input").alias("input")),
    "no row": changed(rows=0),
    "one row": changed(rows=1),
    "two rows": changed(rows=2),
    "all rows equal": all_equal,
    "every row equal, one domain too": lambda: tuple(  # type: ignore[return-value]
        part.with_columns(domain=pl.lit("a"), label=pl.lit("u")) if "domain" in part.columns else part
        for part in all_equal()
    ),
    "every vector zero": with_vectors(lambda m: m.fill(0)),
    "some vectors zero": with_vectors(lambda m: m[:5].fill(0)),
    "NaN in a vector": with_vectors(lambda m: m.__setitem__((7, 2), np.nan)),
    "infinity in a vector": with_vectors(lambda m: m.__setitem__((7, 2), np.inf)),
    "huge and tiny vectors": with_vectors(lambda m: m.__setitem__(slice(0, 60), np.where(m[:60] > 0, 3e38, 1e-38))),
    "vectors of different lengths": ragged,
    "vectors for half of the rows": lambda: (healthy(), vectors_of(healthy()).head(ROWS // 2)),
    "one label only": changed(pl.lit("u").alias("label")),
    "a label on one side only": changed(
        pl.when(pl.col("domain") == "a").then(pl.lit("w")).otherwise("label").alias("label")
    ),
    "no label in common": changed(pl.col("domain").alias("label")),
    "every label null": changed(pl.lit(None, pl.String).alias("label")),
    "an environment of two rows": changed(pl.when(number < 2).then(pl.lit("b")).otherwise(pl.lit("a")).alias("domain")),
    "one environment only": changed(pl.lit("a").alias("domain")),
    "some environments null": changed(pl.when(number < 9).then(None).otherwise("domain").alias("domain")),
    "every template its own": changed(pl.format("t{}", number).alias("template")),
    "every row in training": changed(pl.lit("train").alias("split")),
    "an id twice": changed(pl.when(number < 2).then(pl.lit("e0000")).otherwise("example_id").alias("example_id")),
    "an id null": changed(pl.when(number < 1).then(None).otherwise("example_id").alias("example_id")),
    "names that mislead": changed(
        pl.when(pl.col("domain") == "a").then(pl.lit("all")).otherwise(pl.lit("x & y=\x00")).alias("domain")
    ),
}  # fmt: skip
TEXT_ONLY = ("every text empty", "some texts empty", "some texts null")
ANY = ("nothing wrong", "no row", "one row", "all rows equal")
VECTORS_ONLY = [case for case in CASES if "vector" in case]


def answers(name: str, *, on_vectors: bool) -> list[str]:
    """Run every case; return what went wrong."""
    problems = []
    for case, make in CASES.items():
        if case in (TEXT_ONLY if on_vectors else VECTORS_ONLY):
            continue
        if name in ON_VECTORS and not on_vectors and case not in (*TEXT_ONLY, *ANY):
            continue  # the vectors are all that differs
        frame, vectors = make()
        try:
            found = measured(name, frame, vectors if on_vectors else None)
        except (UsageError, DataRefused) as error:
            if case == "nothing wrong" or not error.what or not (error.expected or error.remedy or error.where):
                problems.append(f"{case}: {error}")
        except Exception as error:
            problems.append(f"{case}: {error!r}")
        else:
            problems += [f"{case}: {problem}" for problem in told(found)]
    return problems


@pytest.fixture(autouse=True, scope="module")
def unchecked_charts() -> Iterator[None]:
    """Draw without a check of each part against the schema, which takes longer than all else; other tests make it."""
    from altair.utils import schemapi

    with schemapi.debug_mode(False):
        yield


def told(found: Any) -> list[str]:
    """Say what a result hides: a value that is missing without a warning, or that is not a number."""
    problems = []
    lacking = found.statistics.filter((pl.col("subset") == "all") & pl.col("value").is_null())["metric"].to_list()
    if lacking and not found.warnings:
        problems.append(f"no warning says why there is no {lacking}")
    if not found.statistics["value"].drop_nulls().is_finite().all():
        problems.append("a statistic is not finite")
    if not found.table["value"].drop_nulls().is_finite().all():
        problems.append("the value of a row is not finite")
    if found.statistics.is_empty() or found.statistics.select(spec("statistics").key).is_duplicated().any():
        problems.append("no statistic, or one stands twice")
    if not (repr(found) and found.summary().headline):
        problems.append("it does not say what it is")
    return problems


@pytest.mark.parametrize("name", DIVERSITY)
def test_a_measure_answers_bad_input(name: str) -> None:
    assert answers(name, on_vectors=False) == []


@pytest.mark.parametrize("name", ON_VECTORS)
def test_a_measure_of_vectors_answers_bad_input(name: str) -> None:
    assert answers(name, on_vectors=True) == []


@pytest.mark.parametrize("name", ["coverage", "near_duplicates", "contamination", "hill"])
def test_a_text_of_ten_megabytes_is_measured(name: str) -> None:
    # one measure for each way that texts are read; those that count words have tests of their own
    long = pl.when(number == 3).then(pl.lit("long word " * 1_050_000)).otherwise("input").alias("input")
    found = measured(name, healthy().with_columns(long), None)
    assert told(found) == []


def test_a_text_of_ten_megabytes_is_embedded() -> None:
    long = pl.when(number == 3).then(pl.lit("long word " * 1_050_000)).otherwise("input").alias("input")
    found = gd.embed(healthy().with_columns(long), width=4, rarest=1)
    assert np.isfinite(found.matrix).all()


@pytest.mark.parametrize("column", ["input", "domain", "label"])
def test_lone_surrogates_are_refused(column: str) -> None:
    broken = healthy().to_pandas().astype(object)
    broken.loc[3, column] = "half \ud83d of a pair"
    with pytest.raises(UsageError, match="surrogate"):
        gd.diversity(broken, "hill", column="template")
    with pytest.raises(UsageError, match="surrogate"):
        gd.embed(broken)


@pytest.mark.parametrize("name", sorted(EMBEDDERS))
def test_an_embedder_answers_bad_input(name: str) -> None:
    problems = []
    for case, make in CASES.items():
        if case in VECTORS_ONLY:
            continue
        frame, _ = make()
        try:
            found = gd.embed(frame, name, **EMBEDDERS[name])
        except (UsageError, DataRefused) as error:
            if case == "nothing wrong" or not error.what or not (error.expected or error.remedy or error.where):
                problems.append(f"{case}: {error}")
            continue
        except Exception as error:
            problems.append(f"{case}: {error!r}")
            continue
        if not np.isfinite(found.matrix).all() or not (found.matrix.any() or found.summary().warnings):
            problems.append(f"{case}: not finite, or zeros of which no warning tells")
        if found.table["example_id"].to_list() != sorted(frame["example_id"].to_list()):
            problems.append(f"{case}: ids are lost")
    assert problems == []
