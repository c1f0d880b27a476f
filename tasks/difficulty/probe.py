"""Difficulty from a linear probe on a model's hidden states."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import Field, field_validator, model_validator

from gradatim.schemas.errors import UsageError
from gradatim.schemas.summary import Cell
from gradatim.tasks.core.embeddings import features_at_hand, vectors_of
from gradatim.tasks.core.picture import Picture
from gradatim.tasks.core.registry import Config, Cost, register
from gradatim.tasks.core.statistics import Statistic, statistics_table
from gradatim.tasks.difficulty.prediction.labelled import (
    Labels,
    conformal,
    families,
    labels_of,
    mean_square,
    pearson,
    spearman,
)
from gradatim.tasks.difficulty.prediction.predicted import left_out, with_own
from gradatim.tasks.difficulty.prediction.probe_baselines import baselines
from gradatim.tasks.difficulty.prediction.probe_choice import Tried, choose, cross_fitted, cut, places
from gradatim.tasks.difficulty.prediction.probe_fit import Linear, auc, platt
from gradatim.tasks.difficulty.result import Difficulty, build, method_name

SOURCE = (
    "W. Lugoloobi, C. Russell (2025). LLMs encode how difficult problems are; J. C. Platt (1999). Probabilistic "
    "outputs for support vector machines and comparisons to regularized likelihood methods"
)
NOTHING = ["nothing was left to predict: every example has a value of its own (keep_labelled: false predicts them)"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class ProbeConfig(Config):
    """Settings of `probe`."""

    of: str | None = Field(None, description="name of an earlier difficulty that the probe learns")
    column: str | None = Field(None, description="or a column of the examples with numbers for some of them")
    higher_is_harder: bool = Field(True, description="of the column; false where a higher number is easier")
    features: tuple[str, ...] = Field(
        (), description="names of the features to choose from, one a layer and position; in a notebook those given"
    )
    model: Literal["auto", "ridge", "logistic"] = Field(
        "auto", description="logistic where there are two different labels, else ridge"
    )
    alphas: tuple[float, ...] = Field((1.0, 10.0, 100.0, 1000.0, 10000.0), description="penalties to choose from")
    text: str = Field("input", description="column of the examples whose words and length the probe has to beat")
    keep_labelled: bool = Field(
        True, description="labelled examples keep their own value; false predicts them too, none by a fit that saw it"
    )
    bins: int | None = Field(None, ge=1, le=1000, description="as many as the test part supports")

    @field_validator("features", mode="before")
    @classmethod
    def _listed(cls, found: Any) -> Any:
        return (found,) if isinstance(found, str) else found

    @field_validator("alphas")
    @classmethod
    def _positive(cls, found: tuple[float, ...]) -> tuple[float, ...]:
        if not found or not all(0 < alpha < math.inf for alpha in found) or len(set(found)) != len(found):
            raise ValueError("alphas should be different numbers above 0")
        return tuple(sorted(found))

    @model_validator(mode="after")
    def _one_label(self) -> ProbeConfig:
        if (self.of is None) == (self.column is None):
            raise ValueError("give either 'of' (an earlier difficulty) or 'column' (of the examples)")
        if len(set(self.features)) != len(self.features):
            raise ValueError("a name stands twice in features")
        return self


def _cost(rows: int, width: int) -> Cost:
    width = max(width, 1)
    fits = 2e-11 * min(rows, 100_000) * width**2 + 2e-10 * width**3
    return Cost(seconds=2 + fits + 1e-9 * rows * width, bytes=4e8 + 24.0 * width**2 + rows * (4.0 * width + 600))


@register(
    "difficulty",
    "probe",
    config=ProbeConfig,
    needs=(
        "difficulty.value?",
        "difficulty.scale?",
        "examples.{column}",
        "examples.group?",
        "examples.{text}?",
        "features_{features}.embedding",
    ),
    cost=_cost,
    source=SOURCE,
    maturity="experimental",
)
def run(tables: Mapping[str, pl.DataFrame], config: ProbeConfig, seed: int = 0) -> Difficulty:
    """Predict difficulty by a linear probe on hidden states; layer, position and penalty are chosen on held-out rows.

    Parameters
    ----------
    tables : mapping
        ``features_NAME`` (example_id, embedding) for each of `features`; labels as for `knn`; ``examples.group``, where
        it is known, never crosses the parts; ``examples.input`` for the baselines.
    config : ProbeConfig
    seed : int
        Seed of the parts: about 60 % of the labelled examples fit, 20 % choose, 20 % test.

    Returns
    -------
    Difficulty
        value is the prediction of the fit that was tested, in the scale of the labels; with two different labels a < b
        it is a + (b - a) p, p being the probability of b. The test part takes no part in fit or choice; reliability is
        its squared correlation, `statistics` its rank correlation or AUC, beside those of the baselines.

    Raises
    ------
    UsageError
        No such difficulty, column or features; labels that are not two for `logistic`.
    DataRefused
        Too few labelled examples with all of the vectors.

    Notes
    -----
    A candidate costs O(n d²) and O(d³) a penalty; memory beside the vectors 24 d² bytes.
    """
    where = "difficulty probe"
    labels = labels_of(tables, config.of, config.column, config.higher_is_harder, where)
    ids = labels.table["example_id"]
    names = config.features or features_at_hand(tables, where)
    found = {name: vectors_of(tables, name, where) for name in names}
    for vectors in found.values():
        ids = ids.filter(ids.is_in(vectors.ids.implode()))
    y = labels.table.filter(pl.col("example_id").is_in(ids.implode()))["value"].to_numpy()
    together = families(tables, ids)
    parts = cut(ids, together, seed, where)
    two = len(np.unique(y)) == 2
    if config.model == "logistic" and not two:
        raise UsageError(f"{len(np.unique(y))} different labels", where=where, expected="two, or model: ridge")
    binary = two and config.model != "ridge"
    low, high = (float(y.min()), float(y.max())) if binary else (0.0, 1.0)
    truth = (y - low) / (high - low) if binary else y
    score = auc if binary else spearman
    tried, best, probe = choose(found, ids, truth, parts, config.alphas, binary)
    vectors = found[best.features]
    place = places(vectors, ids)
    scale = platt(probe.of(vectors.matrix, place[parts["validation"]]), truth[parts["validation"]]) if binary else None

    def predict(fitted: Linear, rows: Ints) -> Floats:
        raw = fitted.of(vectors.matrix, rows)
        return raw if scale is None else low + (high - low) * scale.of(raw)

    tested, exact = predict(probe, place[parts["test"]]), y[parts["test"]]
    figures = {"probe": score(tested, truth[parts["test"]])}
    if "examples" in tables and config.text in tables["examples"].columns:
        figures |= baselines(_texts(tables["examples"], config.text, ids), truth, parts, score)
    wanted = np.setdiff1d(np.arange(len(vectors.ids)), place)
    value = predict(probe, wanted)
    if not config.keep_labelled:
        inside = cross_fitted(vectors, place, truth, parts, together, best.alpha, binary, predict, seed)
        wanted, value = np.concatenate([wanted, place]), np.concatenate([value, inside])
    r = pearson(tested, exact)
    error = math.sqrt(mean_square(tested - exact))
    half, coverage = (math.nan, math.nan) if binary else conformal(np.abs(tested - exact))
    frame = _rows(labels, vectors.ids.gather(wanted), value, None if binary else error, half, config.keep_labelled)
    known = [labels.table["example_id"]]
    known += [part for other in found.values() for part in (other.ids, other.lacking)]
    metric = "AUC" if binary else "rank correlation"
    notes: dict[str, Cell] = {
        "labelled with all vectors": len(ids),
        "predicted": len(wanted),
        "features": best.features,
        "penalty": best.alpha,
        f"{metric}, validation part": _shown(best.score),
        **{f"{metric}, test part: {name}": _shown(value) for name, value in figures.items()},
        "mean squared error, test part": _shown(error**2),
    }
    if not binary:
        notes["interval holds a new value with"] = f"{100 * coverage:.4g} %"
    settings = config.model_dump(exclude={"bins"}, exclude_none=True)
    settings = {key: ",".join(map(str, item)) if isinstance(item, tuple) else item for key, item in settings.items()}
    defaults = {"alphas": "1.0,10.0,100.0,1000.0,10000.0", "model": "auto", "text": "input", "keep_labelled": True}
    sorted_values = frame["value"].to_numpy()
    return build(
        method=method_name("probe", settings, {**defaults, "higher_is_harder": True}),
        title=f"{'logistic' if binary else 'ridge'} probe of {labels.name} on {best.features}",
        ids=frame["example_id"].to_list(),
        value=sorted_values,
        raw=sorted_values * labels.sign + 0.0,
        scale=labels.scale,
        error=frame["standard_error"].fill_null(np.nan).to_numpy(),
        n=frame["n"].to_numpy(),
        flag=frame["flag"].to_list(),
        details=frame["details"].to_list(),
        bins=config.bins,
        reliability=None if not len(wanted) else 0.0 if math.isnan(r) or r < 0 else r * r,
        warnings=_warnings(figures, y, binary, parts, coverage) + NOTHING * (not len(wanted)),
        intervals=None if binary else frame.select("example_id", "low", "high"),
        excluded=left_out(tables, frame, known, f"no vector in features {best.features}"),
        notes=notes,
        source=SOURCE,
        statistics=_statistics(figures, metric, len(exact), {"method": "probe", **config.model_dump(mode="json")}),
        pictures=_pictures(tried, metric),
    )


def _texts(examples: pl.DataFrame, text: str, ids: pl.Series) -> pl.Series:
    known = examples.select(pl.col("example_id").cast(pl.String), pl.col(text).cast(pl.String).alias("text"))
    return pl.DataFrame({"example_id": ids}).join(known, on="example_id", how="left", maintain_order="left")["text"]


def _rows(labels: Labels, ids: pl.Series, value: Floats, error: float | None, half: float, keep: bool) -> pl.DataFrame:
    """Lay predicted rows and, if `keep`, the labelled ones' own together, sorted by id."""
    predicted = pl.DataFrame({"example_id": ids, "value": value}).with_columns(
        standard_error=pl.lit(error, pl.Float64),
        low=pl.col("value") - half,
        high=pl.col("value") + half,
        n=pl.lit(1, pl.Int64),
        flag=pl.lit(None, pl.String),
        details=pl.lit('{"origin":"predicted"}'),
    )
    return with_own(predicted, labels, keep)


def _warnings(
    figures: Mapping[str, float], y: Floats, binary: bool, parts: Mapping[str, Ints], coverage: float
) -> list[str]:
    found = []
    mine = figures["probe"]
    chance = 0.5 if binary else 0.0
    if (y == y[0]).all():
        found.append("all labels are equal: there is nothing to learn")
    elif not mine > chance:
        found.append("on the test part the probe is no better than chance")
    better = [name for name, value in figures.items() if name != "probe" and value >= mine]
    if better:
        found.append(f"on the test part {' and '.join(better)} did as well or better: look at the text alone first")
    if not binary and coverage < 0.95:
        found.append(f"{len(parts['test'])} test rows support intervals of {100 * coverage:.3g} %, not of 95 %")
    return found


def _statistics(figures: Mapping[str, float], metric: str, n: int, parameters: dict[str, Any]) -> pl.DataFrame:
    rows = []
    for name, value in figures.items():
        low = high = None
        if metric == "rank correlation" and abs(value) < 1 and n > 3:
            # D. G. Bonett, T. A. Wright (2000). Sample size requirements for estimating Pearson, Kendall and Spearman
            half = 1.96 * math.sqrt((1 + value**2 / 2) / (n - 3))
            low, high = math.tanh(math.atanh(value) - half), math.tanh(math.atanh(value) + half)
        rows.append(Statistic("test", f"{metric}: {name}", value, n, low, high))
    return statistics_table(rows, parameters)


def _pictures(tried: list[Tried], metric: str) -> dict[str, Picture]:
    if len(tried) < 2:
        return {}
    caption = f"{metric.capitalize()} on the validation part, by features and penalty; the largest was taken."
    return {"choice": Picture(caption, partial(draw, tried, metric))}


def draw(tried: list[Tried], metric: str) -> Any:
    """Draw the validation scores of all candidates."""
    from gradatim.tasks.core.charts import heatmap

    frame = pl.DataFrame(
        {
            "penalty": [f"{t.alpha:g}" for t in tried],
            "features": [t.features for t in tried],
            metric: [t.score for t in tried],
        }
    )
    return heatmap(frame, x="penalty", y="features", value=metric, title="Which layer and penalty")


def _shown(value: float) -> float | None:
    return None if math.isnan(value) else round(value, 6)
