"""Checks of what a strategy is given, and what strategies say of rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import polars as pl

from gradatim.schemas.errors import DataRefused, UsageError, nearest
from gradatim.tasks.core.factor_cells import named_factors
from gradatim.tasks.core.registry import get
from gradatim.tasks.splits.config import SplitConfig

_LOOK = 100_000
NESTED = ("structure", "factors")
"""Columns of examples that are not single values."""


def prepare(tables: Mapping[str, pl.DataFrame], method: str, config: SplitConfig) -> pl.DataFrame:
    """Return the examples sorted by id, a text, with the factors that the settings name as columns.

    Raises
    ------
    UsageError
        For a column that is neither there nor a factor.
    DataRefused
        For null or double ids, or no rows.
    """
    examples = with_factors(
        tables["examples"], columns_of(method, config), lists=config.lists, place_of=config.place_of
    )
    for name in (*(config.keep_together or ()), *filter(None, [config.stratify])):
        require_column(examples, name)
    require_column(examples, "example_id")
    if examples.is_empty():
        raise DataRefused("there are no rows to split", where="table examples", remedy="look at ingest's rejects")
    ids = examples["example_id"]
    if ids.null_count():
        raise DataRefused(f"{ids.null_count()} rows have no id", where="table examples, column 'example_id'")
    if ids.dtype != pl.String:
        examples = examples.with_columns(pl.col("example_id").cast(pl.String))
        ids = examples["example_id"]
    if not ids.is_sorted():
        examples = examples.sort("example_id")
        ids = examples["example_id"]
    double = (ids == ids.shift(1)).fill_null(False)
    if double.any():
        raise DataRefused(
            f"the id {ids.filter(double)[0]!r} comes more than once ({int(double.sum())} rows too many)",
            where="table examples, column 'example_id'",
            remedy="collapse equal rows at ingest, or name a unique id column",
        )
    return examples


def columns_of(method: str, config: SplitConfig) -> list[str]:
    """Return the columns of examples that a strategy with these settings reads, ids left out."""
    needs = [need for need in get("split", method).columns(config) if need.startswith("examples.")]
    return [name for need in needs if (name := need.removeprefix("examples.")) != "example_id"]


def with_factors(
    examples: pl.DataFrame,
    columns: Sequence[str],
    *,
    lists: bool = False,
    place_of: Callable[[str], str] = lambda _: "",
) -> pl.DataFrame:
    """Add the named factors (of the map ``factors``) as columns of texts; raises `UsageError` for an unknown name.

    A name with a ``?`` at its end need not be there. Columns of lists are refused unless `lists`. The error for an
    unknown name ends with what `place_of` says of it.
    """
    missing = [name for name in dict.fromkeys(columns) if name.removesuffix("?") not in examples.columns]
    known: dict[str, pl.Series] = {}
    if missing and "factors" in examples.columns:
        known = named_factors(examples, "factors")
        examples = examples.with_columns(known[name].alias(name) for name in missing if name in known)
    for name in columns:
        if name.removesuffix("?") not in examples.columns and not name.endswith("?"):
            valid = [*examples.columns, *known]
            raise UsageError(
                f"there is no column {name!r}{nearest(name, valid)}{place_of(name)}",
                where="table examples",
                expected="one of " + ", ".join(valid),
            )
        listed = lists and name in examples.columns and isinstance(examples[name].dtype, pl.List | pl.Array)
        if name in examples.columns and name not in NESTED and not listed:
            require_column(examples, name)
    return examples


def require_column(examples: pl.DataFrame, name: str) -> None:
    """Raise `UsageError` with the nearest spelling where a column is missing."""
    if name not in examples.columns:
        raise UsageError(
            f"there is no column {name!r}{nearest(name, examples.columns)}",
            where="table examples",
            expected="one of " + ", ".join(examples.columns),
        )
    if examples[name].dtype.is_nested():
        raise UsageError(
            f"the column {name!r} holds {examples[name].dtype}",
            where="table examples",
            expected="a column of texts, numbers, times or booleans",
        )


def phrase(
    *parts: str | pl.Series | pl.Expr, when: pl.Series | None = None, otherwise: pl.Series | None = None
) -> pl.Series:
    """Join texts, columns and expressions to a column of sentences named reason; `when` limits it to some rows."""
    text = pl.concat_str([part if isinstance(part, pl.Expr) else pl.lit(part) for part in parts])
    if when is not None:
        text = pl.when(when).then(text).otherwise(pl.lit(otherwise))
    return pl.select(text.alias("reason"))["reason"]


def distinct_rows(frame: pl.DataFrame) -> tuple[pl.DataFrame, pl.Series] | None:
    """Return the distinct rows and the place of each row among them; None where most rows are distinct.

    Rows of the same values then share the text of their reason. Not of floats, where 0.0 and -0.0 are equal but read
    differently.
    """
    if any(kind.is_nested() or kind.is_float() for kind in frame.dtypes):
        return None
    few = frame.head(_LOOK)
    if few.n_unique() > len(few) // 4:
        return None
    distinct = frame.unique()
    rows = frame.join(
        distinct.with_row_index("\x1fplace"), on=frame.columns, how="left", maintain_order="left", nulls_equal=True
    )
    return distinct, rows["\x1fplace"]


def keep_together(examples: pl.DataFrame, config: SplitConfig) -> tuple[str, ...]:
    """Return the columns to keep together: those asked for, else 'group' where it holds anything."""
    if config.keep_together is not None:
        return config.keep_together
    has_group = "group" in examples.columns and examples["group"].null_count() < len(examples)
    return ("group",) if has_group else ()
