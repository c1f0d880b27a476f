"""Contamination: how much of an evaluation set stands, as it is or edited, in the training data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl
from pydantic import Field, field_validator

from gradatim.schemas.errors import DataRefused
from gradatim.schemas.summary import SummaryTable
from gradatim.tasks.core import charts
from gradatim.tasks.core.embeddings import Vectors
from gradatim.tasks.core.frames import conform
from gradatim.tasks.core.intervals import wilson
from gradatim.tasks.core.picture import Picture
from gradatim.tasks.core.registry import Config, Cost, register
from gradatim.tasks.core.statistics import Statistic, statistics_table
from gradatim.tasks.diversity.contamination_scores import scores_without_flagged
from gradatim.tasks.diversity.contamination_search import Found, find_contamination
from gradatim.tasks.diversity.contamination_sides import sides, vectors_of_sides
from gradatim.tasks.diversity.result import Diversity

SOURCE = (
    "M. Riddell, A. Ni, A. Cohan (2024). Quantifying contamination in evaluating code generation capabilities of "
    "language models"
)
EVALUATION = ("test", "test_ood", "validation", "validation_ood")
"""Values of a split column that mean evaluation, unless others are named."""
SHOWN = 20
"""Pairs in the summary."""


class ContaminationConfig(Config):
    """Settings of `contamination`."""

    column: str = Field("input", description="column of examples: the text")
    evaluation: str = Field(
        "split", description="column that says which rows are evaluation: truths, or a split's name"
    )
    values: tuple[str, ...] = Field(EVALUATION, description="values of that column that mean evaluation")
    train: tuple[str, ...] = Field((), description="values that mean training; by default train, else all other rows")
    by: str = Field("", description="column of examples: share of each of its values as well")
    levels: tuple[float, ...] = Field((100.0, 90.0, 80.0, 70.0), description="levels of similarity, 0 to 100")
    n: int = Field(12, ge=1, description="words of an n-gram; fewer for short texts")
    candidates: int = Field(20, ge=1, description="training rows compared with each evaluation row")
    features: str = Field("", description="features table whose vectors say what texts mean; none: surface only")
    neighbours: int = Field(5, ge=1, description="nearest training rows by these vectors that are compared as well")

    @field_validator("levels")
    @classmethod
    def _levels(cls, levels: tuple[float, ...]) -> tuple[float, ...]:
        if not levels or not all(50 <= level <= 100 for level in levels):
            raise ValueError("levels must be from 50 to 100, at least one")
        return tuple(sorted(set(levels), reverse=True))


def _cost(rows: int, width: int) -> Cost:
    return Cost(seconds=0.3 + rows * 4e-5, bytes=4e8 + rows * 1200)


@register(
    "diversity",
    "contamination",
    config=ContaminationConfig,
    needs=(
        "examples.{column}",
        "examples.{evaluation}",
        "examples.{by}",
        "features_{features}.embedding",
        "responses.respondent_id?",
        "responses.example_id?",
        "responses.score?",
    ),
    cost=_cost,
    source=SOURCE,
)
def contamination(tables: Mapping[str, pl.DataFrame], config: ContaminationConfig, seed: int) -> Diversity:
    """Share of the evaluation rows that stand in the training rows, at levels of similarity, and which row is where.

    Returns the statistics ``contamination_100`` ... (share of evaluation rows whose similarity reaches the level, with
    Wilson's interval), with features also ``surface_...`` and ``semantic_...``; `pairs` (left: evaluation, right:
    training; from the lowest level on); `table` with the similarity of each evaluation row to its likest training row.
    Where there are responses, each respondent's score with and without the flagged rows, whose intervals `seed` draws.
    """
    chosen = sides(
        tables["examples"], config.column, config.evaluation, config.by, values=config.values, train=config.train
    )
    evaluation, train = (chosen.filter(side).select("example_id", "text") for side in ("evaluation", "train"))
    features = config.features or _at_hand(tables)
    vectors = vectors_of_sides(tables, features, evaluation, train) if features else None
    found = find_contamination(
        train,
        evaluation,
        n=config.n,
        candidates=config.candidates,
        lowest=config.levels[-1],
        train_vectors=vectors[1] if vectors else None,
        evaluation_vectors=vectors[0] if vectors else None,
        neighbours=config.neighbours,
    )
    measured = found.evaluation.drop_nulls("aggregate")
    if measured.is_empty():
        raise DataRefused(
            f"none of {len(evaluation):,} evaluation rows has a word in {config.column!r}",
            where="diversity contamination",
            expected="at least one text",
        )
    method = "contamination" if not features else f"contamination({features})"
    parameters: dict[str, Any] = {**config.model_dump(mode="json"), "features": features}
    statistics = _shares("all", measured, config, bool(features))
    if config.by:
        grouped = measured.join(chosen.select("example_id", "by"), on="example_id").drop_nulls("by").sort("by")
        for part in grouped.partition_by("by", maintain_order=True):
            statistics += _shares(f"{config.by}={part['by'][0]}", part, config, bool(features))
    table = found.evaluation.select(
        "example_id",
        method=pl.lit(method),
        value=pl.col("aggregate") / 100,
        cluster=pl.lit(None, pl.Int64),
        nearest_id=pl.col("train_id"),
        nearest_similarity=pl.when(pl.col("train_id").is_not_null()).then(pl.col("aggregate") / 100),
    )
    further, notes = _scores(tables, table, config, seed)
    return Diversity(
        method=method,
        statistics=statistics_table(statistics, parameters),
        table=conform(table, "diversity"),
        main=_name("contamination", config.levels[-1]),
        parameters=parameters,
        source=SOURCE,
        warnings=(*_warnings(chosen, found, vectors), *notes),
        pairs=_pairs(found, method, config.levels[-1]),
        pictures={"similarity": _picture(measured)},
        tables=(_shown(found, config.levels[-1]), *further),
    )


def _at_hand(tables: Mapping[str, pl.DataFrame]) -> str:
    """The one features table that a notebook handed over; none where there are several, unless one is named."""
    known = [table.removeprefix("features_") for table in tables if table.startswith("features_")]
    return known[0] if len(known) == 1 else ""


def _name(metric: str, level: float) -> str:
    return f"{metric}_{level:g}"


def _shares(subset: str, rows: pl.DataFrame, config: ContaminationConfig, semantic: bool) -> list[Statistic]:
    n = len(rows)
    kinds = [("contamination", pl.col("aggregate"))]
    if semantic:
        kinds += [("surface", pl.col("surface")), ("semantic", 100 * pl.col("semantic").fill_null(0.0))]
    found = []
    for metric, similarity in kinds:
        for level in config.levels:
            share = wilson(int(rows.select((similarity >= level - 1e-6).sum()).item()), n)
            found.append(Statistic(subset, _name(metric, level), share.value, n, share.low, share.high))
    return found


def _pairs(found: Found, method: str, lowest: float) -> pl.DataFrame:
    kept = found.pairs.filter(pl.col("aggregate") >= lowest - 1e-6)
    frame = kept.select(
        left_id="evaluation_id",
        right_id="train_id",
        kind=pl.lit("contamination"),
        similarity=pl.col("aggregate") / 100,
        method=pl.lit(method),
        threshold=pl.lit(lowest / 100),
    )
    return conform(frame, "pairs")


def _shown(found: Found, lowest: float) -> SummaryTable:
    """The most alike pairs, by id: texts stay where they are."""
    kept = found.pairs.filter(pl.col("aggregate") >= lowest - 1e-6)
    first = kept.sort(["aggregate", "evaluation_id", "train_id"], descending=[True, False, False]).head(SHOWN)
    left = len(kept) - len(first)
    return SummaryTable(
        "Most alike pairs",
        ("evaluation", "training", "surface", "semantic", "shared n-grams", "aggregate"),
        tuple(first.select("evaluation_id", "train_id", "surface", "semantic", "ngram_hits", "aggregate").rows()),
        note=f"{left:,} more pairs in the table pairs" if left else "",
    )


def _picture(measured: pl.DataFrame) -> Picture:
    return Picture(
        "Similarity of each evaluation row to its likest training row (0: no candidate)",
        lambda: charts.histogram(measured["aggregate"], title="Contamination", x="similarity"),
    )


def _warnings(chosen: pl.DataFrame, found: Found, vectors: tuple[Vectors, Vectors, int] | None) -> list[str]:
    neither = int((~(chosen["evaluation"] | chosen["train"])).sum())
    wordless = found.evaluation["aggregate"].null_count()
    said = [
        (neither, f"{neither:,} rows are neither evaluation nor training and were left out"),
        (wordless, f"{wordless:,} evaluation rows have no word and were not measured"),
        (found.whole, f"{found.whole:,} evaluation texts are so short that only whole equal ones were looked for"),
        (
            found.passed_over,
            f"{found.passed_over:,} n-grams stand in too many evaluation texts and were passed over",
        ),
        (vectors and vectors[2], f"{vectors[2] if vectors else 0:,} rows have no vector: surface only"),
    ]
    return [text for count, text in said if count]


def _scores(
    tables: Mapping[str, pl.DataFrame], table: pl.DataFrame, config: ContaminationConfig, seed: int
) -> tuple[tuple[SummaryTable, ...], list[str]]:
    """The scores with and without flagged rows, where there are responses to evaluation rows."""
    responses = tables.get("responses")
    if responses is None or not {"respondent_id", "example_id", "score"} <= set(responses.columns):
        return (), []
    scores = scores_without_flagged(table, responses, levels=config.levels, seed=seed)
    if scores.is_empty():
        return (), ["there are responses, but none to an evaluation row"]
    shown = scores.head(SHOWN * len(config.levels))
    left = scores["respondent_id"].n_unique() - shown["respondent_id"].n_unique()
    note = f"{left:,} more respondents: scores_without_flagged(table, responses) gives all" if left else ""
    columns = ("respondent", "level", "score", "without flagged", "difference", "low", "high", "flagged", "rows")
    return (SummaryTable("Scores without the flagged rows", columns, tuple(shown.rows()), note=note),), []
