"""Template split: whole templates out of distribution, so that train and test_ood share none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

import polars as pl
from pydantic import Field

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.schemas.hashing import value_hash
from gradatim.tasks.core.registry import Cost
from gradatim.tasks.core.templates import Labels, mask, skeletons
from gradatim.tasks.splits import holdout_values
from gradatim.tasks.splits.config import SplitConfig
from gradatim.tasks.splits.engine import Marks, rule
from gradatim.tasks.splits.holdout_values import HoldoutValuesConfig
from gradatim.tasks.splits.inputs import require_column

SOURCE = (
    "Finegan-Dollak, Kummerfeld, Zhang, Ramanathan, Sadasivam, Zhang & Radev (2018). Improving Text-to-SQL Evaluation "
    "Methodology."
)
_WHERE = "split template_split"
_DIGITS = 16


class TemplateSplitConfig(SplitConfig):
    """Settings of a template split."""

    lists: ClassVar[bool] = True
    column: str = Field("template", description="column of templates, of texts or programs, or of trees")
    mask: Literal["none", "constants", "skeleton"] = Field(
        "none",
        description="none: the column names templates; constants: its texts, with numbers, quotations and names taken "
        "out; skeleton: its trees, with labels taken out",
    )
    entities: bool = Field(True, description="constants: take names (capitalised words) out too")
    labels: Labels = Field("inner", description="skeleton: the labels that count: none, those of inner nodes, or all")
    fraction: float = Field(0.2, gt=0, lt=1, description="share of the templates that are held out, drawn")


@rule(
    "template_split",
    config=TemplateSplitConfig,
    needs=("examples.{column}",),
    axis="template",
    cost=lambda rows, width: Cost(5e-6 * rows, 350 * rows),
    source=SOURCE,
)
def mark(
    examples: pl.DataFrame, config: TemplateSplitConfig, seed: int, tables: Mapping[str, pl.DataFrame]
) -> list[Marks]:
    """Hold out whole templates, each by its own number; test has new rows of the templates that are trained on."""
    frame = examples.select("example_id", template=templates(examples, config))
    count = frame["template"].drop_nulls().n_unique()
    if count < 2:
        raise DataRefused(
            f"the column {config.column!r} has {count} templates; one must be trained on and one be held out",
            where=_WHERE,
            remedy="name another column" + (", or let more labels count" if config.mask == "skeleton" else ""),
        )
    setting = HoldoutValuesConfig(column="template", fraction=config.fraction)
    try:
        return holdout_values.mark(frame, setting, seed, tables)
    except DataRefused as error:
        remedy = error.remedy.replace(", take another seed, or name the values", ", or take another seed")
        raise DataRefused(error.what, where=_WHERE, remedy=remedy) from None


def templates(examples: pl.DataFrame, config: TemplateSplitConfig) -> pl.Series:
    """Name the template of each row.

    Returns
    -------
    polars.Series of String, (rows,)
        The column's values; of masked texts and of skeletons a hash, so that no text leaves the examples.
    """
    column = examples[config.column]
    if config.mask == "skeleton":
        texts = skeletons(column, config.labels, examples["example_id"], where=config.column)
    elif config.mask == "constants":
        column = column.cast(pl.String) if column.dtype in (pl.Categorical, pl.Enum) else column
        if column.dtype != pl.String:
            raise UsageError(f"the column {config.column!r} holds {column.dtype}", where=_WHERE, expected="texts")
        texts = mask(column, entities=config.entities)
    else:
        require_column(examples, config.column)
        return column
    levels = texts.drop_nulls().unique().sort()
    names = pl.Series([value_hash(level)[:_DIGITS] for level in levels], dtype=pl.String)
    return texts.replace_strict(levels, names, default=None, return_dtype=pl.String)
