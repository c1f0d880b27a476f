"""Difficulty of unlabelled examples from their nearest labelled neighbours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import Field, field_validator, model_validator

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.schemas.summary import Cell
from gradatim.tasks.core.embeddings import Vectors, features_at_hand, vectors_of
from gradatim.tasks.core.picture import Picture
from gradatim.tasks.core.registry import Config, Cost, register
from gradatim.tasks.core.statistics import Statistic, statistics_table
from gradatim.tasks.difficulty.prediction.knn_choice import (
    Choice,
    Made,
    choose_k,
    joined,
    out_of_fold,
    predict,
)
from gradatim.tasks.difficulty.prediction.knn_pictures import draw_choice, draw_locality
from gradatim.tasks.difficulty.prediction.labelled import Labels, families, folds_of, labels_of
from gradatim.tasks.difficulty.prediction.predicted import left_out, with_own
from gradatim.tasks.difficulty.result import Difficulty, build, method_name

SOURCE = (
    "Y. Li (2025). Rethinking predictive modeling for LLM routing: when simple kNN beats complex learned routers "
    "(arXiv 2505.12601); J. Lei et al. (2018). Distribution-free predictive inference for regression"
)
FAR = "farther from the labelled examples than any of these from the others"


class KnnConfig(Config):
    """Settings of `knn`."""

    of: str | None = Field(None, description="name of an earlier difficulty whose missing values are predicted")
    column: str | None = Field(None, description="or a column of the examples with numbers for some of them")
    higher_is_harder: bool = Field(True, description="of the column; false where a higher number is easier")
    features: str = Field(
        "", description="name of the features whose cosine says what is near; in a notebook those given"
    )
    k: int | None = Field(None, ge=1, le=1000, description="number of neighbours; chosen among `candidates` by default")
    candidates: tuple[int, ...] = Field((5, 10, 20, 50, 100), description="numbers of neighbours to choose from")
    weighting: Literal["uniform", "similarity"] = Field(
        "uniform", description="how the neighbours' values are averaged"
    )
    keep_labelled: bool = Field(
        True, description="labelled examples keep their own value; false predicts them too, each from other folds"
    )
    folds: int = Field(5, ge=2, le=50, description="parts of the labelled examples that are held out in turn")
    sample: int = Field(5000, ge=20, description="most labelled examples whose held-out prediction chooses k")
    lists_probed: int | None = Field(
        None, ge=1, description="search approximately, in so many clusters of the labelled vectors"
    )
    bins: int | None = Field(None, ge=1, le=1000, description="as many as the held-out prediction supports")

    @field_validator("candidates")
    @classmethod
    def _whole(cls, found: tuple[int, ...]) -> tuple[int, ...]:
        if not found or min(found) < 1 or max(found) > 1000 or len(set(found)) != len(found):
            raise ValueError("candidates should be different numbers from 1 to 1000")
        return tuple(sorted(found))

    @model_validator(mode="after")
    def _one_label(self) -> KnnConfig:
        if (self.of is None) == (self.column is None):
            raise ValueError("give either 'of' (an earlier difficulty) or 'column' (of the examples)")
        return self


@register(
    "difficulty",
    "knn",
    config=KnnConfig,
    needs=(
        "difficulty.value?",
        "difficulty.scale?",
        "examples.{column}",
        "examples.group?",
        "features_{features}.embedding",
    ),
    cost=lambda rows, width: Cost(
        seconds=2 + 1.3e-11 * rows * min(rows, 50_000) * max(width, 1), bytes=4e8 + rows * (8.0 * max(width, 1) + 700)
    ),
    source=SOURCE,
)
def run(tables: Mapping[str, pl.DataFrame], config: KnnConfig, seed: int = 0) -> Difficulty:
    """Predict the difficulty of unlabelled examples as the mean of their nearest labelled neighbours, with an interval.

    Parameters
    ----------
    tables : mapping
        ``features_NAME`` (example_id, embedding); ``difficulty`` (example_id, method, value) for `of`, or ``examples``
        with the column `column`; ``examples.group``, where it is known, is never on both sides when rows are held out.
    config : KnnConfig
    seed : int
        Seed of folds and samples.

    Returns
    -------
    Difficulty
        value in the scale of the labels. `details` say of each row whether the value is its ``own`` or ``predicted``,
        with the nearest labelled example; n is the number of neighbours. reliability is the squared correlation of
        held-out predictions with the values; `intervals` hold a new value with 95 %.

    Raises
    ------
    UsageError
        No such difficulty, column or features.
    DataRefused
        No labelled example has a vector with a direction, or a vector holds NaN.

    Notes
    -----
    O(rows labelled d); memory beside the vectors: two copies of the labelled ones and a few hundred bytes a row.
    """
    where = "difficulty knn"
    labels = labels_of(tables, config.of, config.column, config.higher_is_harder, where)
    features = config.features or _only(features_at_hand(tables, where), where)
    vectors = vectors_of(tables, features, where)
    zero = np.asarray(~vectors.matrix.any(axis=1))
    mine = pl.DataFrame({"example_id": vectors.ids}).join(
        labels.table, on="example_id", how="left", maintain_order="left"
    )
    value = mine["value"].fill_null(np.nan).to_numpy().copy()
    learn = np.flatnonzero(np.isfinite(value) & ~zero)
    if not len(learn):
        raise DataRefused(
            f"none of {len(labels.table):,} examples with a value of {labels.name} has a vector with a direction",
            where=where,
            expected=f"the same ids in {labels.name} and in features {features}",
        )
    ids, known, matrix = vectors.ids.gather(learn), value[learn], vectors.matrix[learn]
    fold = folds_of(families(tables, ids), config.folds, seed, "knn/fold")
    choice = choose_k(matrix, ids, known, fold, config, seed)
    made = predict(matrix, ids, known, vectors.matrix, np.flatnonzero(~zero & ~np.isfinite(value)), choice, config)
    if not config.keep_labelled:
        held = out_of_fold(matrix, ids, known, fold, choice, config)
        made = joined(made, replace(held, rows=learn))
    frame = _rows(made, vectors.ids, ids, choice, labels, config.keep_labelled)
    predicted = len(made.rows)
    warnings = list(choice.warnings)
    if predicted and len(frame) > predicted:
        warnings.append(
            "predictions are drawn towards the mean, own values are not: in one ranking predicted examples crowd the "
            "middle (keep_labelled: false predicts all of them)"
        )
    if not predicted:
        warnings.append("nothing was left to predict: every example has a value of its own")
    notes: dict[str, Cell] = {
        "labelled": len(labels.table),
        "labelled with a vector": len(learn),
        "predicted": predicted,
        **choice.notes(),
    }
    value, sign = frame["value"].to_numpy(), labels.sign
    return build(
        method=method_name("knn", _named(config), _named(KnnConfig(of=""))),
        title=f"knn of {labels.name} by {features}, k = {choice.k}",
        ids=frame["example_id"].to_list(),
        value=value,
        raw=value * sign + 0.0,
        scale=labels.scale,
        error=frame["standard_error"].fill_null(np.nan).to_numpy(),
        n=frame["n"].to_numpy(),
        flag=frame["flag"].to_list(),
        details=frame["details"].to_list(),
        bins=config.bins,
        reliability=choice.reliability if predicted else None,  # it is that of predictions
        warnings=warnings,
        intervals=frame.select("example_id", "low", "high") if choice.heldout else None,
        excluded=_without(tables, frame, vectors, labels, zero, features),
        notes=notes,
        source=SOURCE,
        statistics=_statistics(choice, config),
        pictures=_pictures(choice, labels.scale),
    )


def _only(names: list[str], where: str) -> str:
    if len(names) > 1:
        raise UsageError(
            f"there are several features: {', '.join(names)}",
            where=where,
            expected="one",
            remedy="give one of them only",
        )
    return names[0]


def _named(config: KnnConfig) -> dict[str, object]:
    return config.model_dump(exclude={"bins"}, exclude_none=True)


def _rows(made: Made, names: pl.Series, learned: pl.Series, choice: Choice, labels: Labels, keep: bool) -> pl.DataFrame:
    """Lay predicted rows and, if `keep`, the labelled ones' own together, sorted by id."""
    spread = choice.spread(made.variance, made.n)
    half = choice.interval_factor * spread
    predicted = pl.DataFrame(
        {
            "example_id": names.gather(made.rows),
            "value": made.value,
            "standard_error": choice.error_factor * spread,
            "low": made.value - half,
            "high": made.value + half,
            "n": made.n.astype(np.int64),
            "flag": pl.select(
                pl.when(pl.lit(pl.Series(made.similarity < choice.least_similar))).then(pl.lit(FAR))
            ).to_series(),
            "details": pl.DataFrame(
                {"nearest": learned.gather(made.nearest), "similarity": np.round(made.similarity, 6)}
            ).select(pl.struct(pl.lit("predicted").alias("origin"), "nearest", "similarity").struct.json_encode())
            if len(made.rows)
            else pl.Series([], dtype=pl.String),
        }
    )
    return with_own(predicted, labels, keep)


def _without(
    tables: Mapping[str, pl.DataFrame],
    frame: pl.DataFrame,
    vectors: Vectors,
    labels: Labels,
    zero: NDArray[np.bool_],
    features: str,
) -> pl.DataFrame:
    """List the examples that got no difficulty, with the reason."""
    known = [vectors.ids, vectors.lacking, labels.table["example_id"]]
    gone = left_out(tables, frame, known, f"no vector in features {features}")
    flat = pl.col("example_id").is_in(vectors.ids.filter(pl.Series(zero)).implode())
    zeros = pl.lit(f"a vector of zeros in features {features}")
    return gone.with_columns(reason=pl.when(flat).then(zeros).otherwise(pl.col("reason")))


def _statistics(choice: Choice, config: KnnConfig) -> pl.DataFrame | None:
    if not choice.heldout:
        return None
    figures = {
        "held-out spearman": choice.spearman,
        "held-out r2": choice.r2,
        "held-out mse": choice.mse,
        "held-out mse of the mean": choice.mse_of_mean,
    }
    rows = [Statistic("all", name, value, choice.heldout) for name, value in figures.items()]
    return statistics_table(rows, {"method": "knn", **config.model_dump(mode="json"), "chosen_k": choice.k})


def _pictures(choice: Choice, scale: str) -> dict[str, Picture]:
    if not choice.heldout:
        return {}
    found = {
        "locality": Picture(
            "Difference of difficulties over distance of vectors: neighbours (mean, quartiles) differ less than random "
            "pairs where difficulty is local.",
            partial(draw_locality, choice.pairs, scale),
        )
    }
    if len(choice.tried) > 1:
        caption = f"Held-out rank correlation by number of neighbours; {choice.k} was taken."
        found["neighbours"] = Picture(caption, partial(draw_choice, choice.tried))
    return found
