"""Hold out values of a column: rows that have one of them are out of distribution."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
import polars as pl
from pydantic import Field, field_validator, model_validator

from gradatim.schemas.errors import DataRefused, UsageError, nearest
from gradatim.schemas.hashing import uniform
from gradatim.tasks.core.registry import Cost
from gradatim.tasks.splits.config import SplitConfig
from gradatim.tasks.splits.engine import IN, NEITHER, OUT, Marks, rule
from gradatim.tasks.splits.values import Coded, assignments, coded, spelt, standing

SOURCE = "Barrett, Hill, Santoro, Morcos & Lillicrap (2018). Measuring Abstract Reasoning in Neural Networks."
_SHOWN = 20


class HoldoutValuesConfig(SplitConfig):
    """Settings of held-out values."""

    lists: ClassVar[bool] = True
    column: str = Field(description="column, or factor; of lists (several labels a row) each label counts")
    values: tuple[bool | int | float | str, ...] = Field((), description="values that are held out")
    fraction: float | None = Field(
        None, gt=0, lt=1, description="in place of values: the share of them that is drawn, each by its own number"
    )

    @field_validator("values", mode="before")
    @classmethod
    def _one_or_more(cls, found: object) -> object:
        return (found,) if isinstance(found, str | int | float) else found

    @model_validator(mode="after")
    def _one_choice(self) -> HoldoutValuesConfig:
        if bool(self.values) == (self.fraction is not None):
            raise ValueError("name either the 'values' that are held out or the 'fraction' of them to draw")
        return self


@rule(
    "holdout_values",
    config=HoldoutValuesConfig,
    needs=("examples.{column}",),
    axis=lambda config: config.column,
    cost=lambda rows, width: Cost(2e-6 * rows, 350 * rows),
    source=SOURCE,
)
def mark(
    examples: pl.DataFrame, config: HoldoutValuesConfig, seed: int, tables: Mapping[str, pl.DataFrame]
) -> list[Marks]:
    """Rows with a held-out value are test_ood; of a row with several labels one is enough. Null is neither."""
    name, column = config.column, examples[config.column]
    several = isinstance(column.dtype, pl.List | pl.Array)
    owner = np.arange(len(column))
    single = column
    if several:
        lists = column.arr.to_list() if isinstance(column.dtype, pl.Array) else column
        long = pl.DataFrame({"row": owner, "value": lists}).explode("value").drop_nulls()
        owner, single = long["row"].to_numpy(), long["value"]
    if single.dtype.is_nested():
        raise UsageError(f"the column {name!r} holds {column.dtype}", expected="single values, or lists of them")
    found = coded(single)
    named = assignments([name], [found.levels])
    held = _held(examples["example_id"], single, found, named, owner, config, seed, tables)
    unknown = column.is_null().to_numpy() if several else found.codes < 0
    hit = (found.codes >= 0) & np.append(held, False)[found.codes]
    out = np.zeros(len(column), np.bool_)
    out[owner[hit]] = True
    side = np.where(unknown, NEITHER, np.where(out, OUT, IN)).astype(np.int8)
    told = [f"{name} {level} is{'' if h else ' not'} held out" for level, h in zip(found.levels, held, strict=True)]
    null = f"{name} is null"
    if not several:
        cells = named.set(pl.Series(~held), None)
        return [Marks(side, _each([*told, null], found.codes), _each([*cells, None], found.codes))]
    # labels of a row in the order of values, each once
    pairs = pl.DataFrame({"row": owner[hit], "level": found.codes[hit]}).unique().sort("row", "level")
    texts = pairs.select("row", reason=_each(told, pairs["level"]), held_out=_each([*named], pairs["level"]))
    joined = texts.group_by("row", maintain_order=True).agg(pl.col("reason", "held_out").str.join("; "))
    rows = pl.DataFrame({"row": np.arange(len(column))}).join(joined, on="row", how="left", maintain_order="left")
    reason = rows["reason"].fill_null(f"none of {name} is held out").set(pl.Series(unknown), null)
    return [Marks(side, reason, rows["held_out"])]


def _each(texts: Sequence[str | None], codes: np.ndarray | pl.Series) -> pl.Series:
    """Give each row the text of its level; a code of -1 takes the last one."""
    places = pl.Series(codes, dtype=pl.Int64)
    few = pl.Series(texts, dtype=pl.String)
    return few.gather(places.set(places < 0, len(texts) - 1).cast(pl.UInt32))


def _held(
    ids: pl.Series, single: pl.Series, found: Coded, named: pl.Series, owner: np.ndarray,
    config: HoldoutValuesConfig, seed: int, tables: Mapping[str, pl.DataFrame],
) -> np.ndarray:  # fmt: skip
    """Say of each level whether it is held out."""
    levels, name = found.levels, config.column
    if config.fraction is None:
        wanted = [spelt(value, single) for value in config.values]
        known = set(levels)
        for value in wanted:
            if value not in known:
                more = f" and {len(known) - _SHOWN:,} more" if len(known) > _SHOWN else ""
                raise UsageError(
                    f"there is no value {value!r}{nearest(value, levels.head(2000))}",
                    where=f"column {name!r}",
                    expected=", ".join(levels.head(_SHOWN)) + more,
                )
        held = levels.is_in(wanted).to_numpy()
        if held.all():
            raise DataRefused(
                f"every value of {name!r} would be held out", where="split holdout_values", remedy="name fewer values"
            )
        return held
    draw = uniform(levels, seed, "split holdout_values values")
    held = draw < config.fraction
    released = standing(ids, tables, seed)
    if released is not None:
        seen = np.zeros(len(levels), np.bool_)
        seen[found.codes[released.inside[owner] & (found.codes >= 0)]] = True
        held = named.is_in(list(released.held)).to_numpy() | (held & ~seen)
    if held.all() or not held.any():
        few = "none" if not held.any() else "each"
        bound = (
            f"raise fraction above {np.ceil(draw.min() * 1000) / 1000:g}"
            if not held.any() and len(draw)
            else "lower fraction"
        )
        raise DataRefused(
            f"{few} of the {len(levels):,} values of {name!r} is drawn at the fraction {config.fraction:g}",
            where="split holdout_values",
            remedy=f"{bound}, take another seed, or name the values",
        )
    return held
