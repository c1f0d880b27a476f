"""Near-duplicates: which examples are copies or nearly so, each with its partner, and the components that they form."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import polars as pl
from pydantic import Field, model_validator

from gradatim.schemas.errors import DataRefused, UsageError, nearest
from gradatim.tasks.core.embeddings import features_at_hand
from gradatim.tasks.core.mapped import taken
from gradatim.tasks.core.near_duplicates import Compared, Scheme, compare, signatures
from gradatim.tasks.core.registry import Config, Cost, register
from gradatim.tasks.core.row_numbers import twice
from gradatim.tasks.diversity.duplicate_nights import Comparison
from gradatim.tasks.diversity.duplicate_result import Facts, result
from gradatim.tasks.diversity.duplicate_vectors import alike_vectors
from gradatim.tasks.diversity.result import Diversity

SOURCE = (
    "A. Z. Broder (1997). On the resemblance and containment of documents; A. Gionis, P. Indyk, R. Motwani (1999). "
    "Similarity search in high dimensions via hashing"
)
WHERE = "diversity near_duplicates"
PART = 2**17
"""Rows that are signed together."""
Using = Literal["exact", "minhash", "embedding"]
THRESHOLDS: dict[str, float] = {"exact": 1.0, "minhash": 0.8, "embedding": 0.9}


class NearDuplicatesConfig(Config):
    """Settings of `near_duplicates`."""

    using: Using | None = Field(
        None,
        description="exact (normalised text), minhash (shared shingles) or embedding (cosine); by default embedding "
        "where features are named, else minhash",
    )
    column: str = Field("input", description="column of text that is compared (exact, minhash)")
    features: str = Field("", description="name of a features table (embedding)")
    threshold: float | None = Field(
        None, gt=0, le=1, description="similarity from which a pair counts: by default .8 (minhash), .9 (embedding)"
    )
    shingle: int = Field(5, ge=1, description="words or characters of a shingle")
    unit: Literal["words", "characters"] = Field("words", description="what shingles are made of")
    lowercase: bool = Field(True, description="minhash takes capitals and small letters for the same")
    permutations: int = Field(128, ge=1, le=4096, description="most permutations of a MinHash signature")
    recall: float = Field(0.999, gt=0, lt=1, description="least chance that a pair at the threshold is found")
    lists_probed: int | None = Field(
        None,
        ge=0,
        description="embedding: 0 looks at all pairs, k into k lists; by default 0 up to 50,000 rows, else 8",
    )
    giant: float = Field(0.5, gt=0, le=1, description="share of the rows above which a component is cut")
    step: float = Field(0.02, gt=0, le=1, description="by how much the threshold rises at a time where one is cut")

    @model_validator(mode="after")
    def _fitting(self) -> NearDuplicatesConfig:
        if self.using in ("exact", "minhash") and self.features:
            raise ValueError(f"using: {self.using} compares texts, so features has no part in it")
        if self.using == "exact" and self.threshold is not None:
            raise ValueError("using: exact has no threshold")
        return self


def _cost(rows: int, width: int) -> Cost:
    return Cost(seconds=1 + rows * 1.5e-5, bytes=3e8 + rows * 900)


@register(
    "diversity",
    "near_duplicates",
    config=NearDuplicatesConfig,
    needs=("examples.{column}?", "features_{features}.embedding"),
    revision=2,
    cost=_cost,
    source=SOURCE,
)
def near_duplicates(tables: Mapping[str, pl.DataFrame], config: NearDuplicatesConfig, seed: int) -> Diversity:
    """Near-duplicates by exact hash, MinHash or embedding radius, every pair verified, and their components.

    Returns ``near_duplicates_share``, the share of rows that a set without near-duplicates would lose, and what else is
    counted; `pairs`, all that was decided: each pair's similarity, and the threshold from which it counts; for each row
    its nearest partner, the similarity to it (null where no partner reaches the threshold) and its component, numbered
    in the order of the components' smallest ids. A component of more than `giant` of the rows is cut: the threshold
    rises by `step` inside it until no piece is. Rows without a word, or without a vector that is not zero, are left out
    and counted. `seed` is not used.
    """
    examples = tables["examples"]
    ids = examples["example_id"]
    if ids.null_count() or (twice(ids) is not None if ids.is_sorted() else ids.is_duplicated().any()):
        raise DataRefused("an example_id is null or stands twice", where=WHERE, expected="one row an example")
    way, features = _way(tables, config)
    if way == "embedding":
        found = alike_vectors(tables, features, _threshold(config, way), config.lists_probed)
    else:
        found = _alike_texts(examples, comparison(config))
    return told(found, config, len(examples), features)


def comparison(config: NearDuplicatesConfig) -> Comparison:
    """Return how texts are compared."""
    way: Using = "exact" if config.using == "exact" else "minhash"
    scheme = Scheme(
        _threshold(config, way), config.shingle, config.unit, config.lowercase,
        permutations=config.permutations, recall=config.recall,
    )  # fmt: skip
    return Comparison(config.column, scheme, banded=way == "minhash")


def by_text(config: NearDuplicatesConfig) -> bool:
    """Whether a recipe's step compares texts, which are signed night after night, and not vectors."""
    return config.using != "embedding" and not config.features


def _threshold(config: NearDuplicatesConfig, way: Using) -> float:
    return THRESHOLDS[way] if config.threshold is None else config.threshold


def told(found: Facts, config: NearDuplicatesConfig, rows: int, features: str = "") -> Diversity:
    """Form the components of what was found among `rows` examples and say what there is; refused where nothing can be.

    `features` names the vectors that were compared; without, texts were.
    """
    if found.ids.is_empty():
        raise DataRefused(
            f"none of {rows:,} examples can be compared: {found.why}",
            where=WHERE,
            expected="at least one row with words, or with a vector that is not zero",
            remedy="name another column or features table, or drop this measure (checks: {near_duplicates: off})",
        )
    compared = comparison(config)
    way: Using = "embedding" if features else "minhash" if compared.banded else "exact"
    label = features or ("" if config.column == "input" else config.column)
    threshold = _threshold(config, way)
    parameters: dict[str, Any] = {"using": way, "threshold": threshold, "giant": config.giant, "step": config.step}
    if way == "embedding":
        parameters |= {"features": features, "lists_probed": config.lists_probed}
    else:
        parameters["column"] = config.column
    if way == "minhash":
        scheme = compared.scheme
        parameters |= {"shingle": scheme.shingle, "unit": scheme.unit, "lowercase": scheme.lowercase}
        parameters |= {"bands": scheme.bands.bands, "rows_of_a_band": scheme.bands.rows}
    return result(
        found,
        rows=rows,
        name=f"near_duplicates({label})" if label else "near_duplicates",
        threshold=threshold,
        giant=config.giant,
        step=config.step,
        parameters=parameters,
        source=SOURCE,
    )


def _way(tables: Mapping[str, pl.DataFrame], config: NearDuplicatesConfig) -> tuple[Using, str]:
    """Return how rows are compared, and by which features: in a notebook those at hand need no name."""
    if config.using in ("exact", "minhash"):
        return config.using, ""
    at_hand = any(table.startswith("features_") for table in tables)
    if config.features or not (at_hand or config.using):
        return ("embedding", config.features) if config.features else ("minhash", "")
    names = features_at_hand(tables, WHERE)
    if len(names) > 1:
        raise UsageError(
            f"there are {len(names)} features: {', '.join(names)}", where=WHERE, expected="one", remedy="give one"
        )
    return "embedding", names[0]


def require_text(column: str, columns: Sequence[str], kind: object, *, is_text: bool) -> None:
    """Raise `UsageError` where examples have no such column of text; `kind` says what it holds."""
    if column not in columns:
        raise UsageError(
            f"examples has no column {column!r}{nearest(column, columns)}", where=WHERE, expected=", ".join(columns)
        )
    if not is_text:
        raise UsageError(f"the column {column!r} holds {kind}", where=WHERE, expected="a column of text")


def _alike_texts(examples: pl.DataFrame, asked: Comparison) -> Facts:
    kind = examples.schema.get(asked.column)
    is_text = kind == pl.String or isinstance(kind, pl.Categorical | pl.Enum | pl.Null)
    require_text(asked.column, examples.columns, kind, is_text=is_text)
    frame = examples.select(pl.col("example_id").cast(pl.String), text=pl.col(asked.column).cast(pl.String))
    frame = frame if frame["example_id"].is_sorted() else frame.sort("example_id")
    worded = [np.zeros(0, dtype=bool)]

    def texts(wanted: pl.Series) -> pl.DataFrame:
        return frame[frame["example_id"].search_sorted(wanted.sort())]

    def signed() -> Iterator[pl.DataFrame]:
        for part in frame.iter_slices(PART):
            kept = signatures(part, asked.scheme, banded=asked.banded)
            worded.append(kept["digest"].is_not_null().to_numpy())
            yield kept

    compared = compare(signed(), texts, asked.scheme)
    held, ids = np.concatenate(worded), frame.select("example_id")
    return facts((ids if held.all() else taken(ids, np.flatnonzero(held)))["example_id"], compared, asked)


def facts(ids: pl.Series, compared: Compared, asked: Comparison) -> Facts:
    """Say what a comparison of the texts of `ids` (sorted, those with a word) found."""
    return Facts(
        ids=ids,
        pairs=compared.pairs,
        candidates=compared.candidates,
        left_out=compared.left_out,
        untied=compared.untied,
        why="the text has no word",
        curve=asked.scheme.bands if asked.banded else None,
    )
