"""The audit's row-level half: Great Expectations validates each new part, our own predicate names the offending rows.

The only module that knows Great Expectations, and it imports it late (3 to 4 s). One ephemeral context serves an
audit; each part is one run of one checkpoint over the needed columns, read as Arrow-backed pandas. Its own
``between`` calls Python once a row, so that one metric is ours, on whole columns. Great Expectations decides how many
rows fail; which ones is found only where some do.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from gradatim.schemas.expectations import Expectation, Suite
from gradatim.schemas.tables import TableSpec
from gradatim.storage.parts import read_part
from gradatim.storage.report import SAMPLE, Outcome

_ONE_AT_A_TIME = Lock()  # the context is shared and not made for threads
_LARGEST = 1.7976931348623157e308


@dataclass
class RowAudit:
    """Validates parts one after the other and gathers what failed.

    Attributes
    ----------
    suite : Suite
    spec : TableSpec
    folder : Path
        Where offending rows are written, a file a part.
    """

    suite: Suite
    spec: TableSpec
    folder: Path
    failed: dict[str, int] = field(default_factory=dict)
    samples: dict[str, tuple[str, ...]] = field(default_factory=dict)
    rows: int = 0
    rejected: int = 0
    results: list[dict[str, Any]] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)

    def check(self, path: Path) -> pa.Table | None:
        """Validate one part.

        Returns
        -------
        pyarrow.Table or None
            The part without its rejected rows, where there are any; it then has to be written again.
        """
        expectations = [e for e in self.suite.row_level if e.column in pq.read_schema(path).names]
        needed = list(dict.fromkeys([*self.spec.key, *(c for e in expectations for c in e.columns)]))
        table = read_part(path, needed)
        self.rows += len(table)
        if not expectations or not len(table):
            return None
        with _ONE_AT_A_TIME:
            counts, result = _validate(table, expectations)
        self.results.append({"part": path.name, **result})
        broken = [e for e in expectations if counts[e.name]]
        if not broken:
            return None
        frame = pl.DataFrame(pl.from_arrow(table))
        drop = pl.repeat(False, len(frame), eager=True)
        found = []
        for expectation in broken:
            mask = frame.select(failing(expectation, frame.schema).fill_null(False).alias("fails")).to_series()
            rows = frame.filter(mask)
            self._note(expectation, rows, counts[expectation.name])
            found.append(
                rows.select(
                    *(pl.col(name).cast(pl.String) for name in self.spec.key),
                    pl.lit(expectation.name).alias("expectation"),
                    pl.col(expectation.column).cast(pl.String, strict=False).str.slice(0, 200).alias("found")
                    if not frame.schema[expectation.column].is_nested()
                    else pl.lit(None, pl.String).alias("found"),
                )
            )
            if expectation.severity == "reject_rows":
                drop = drop | mask
        self.files.append(self.folder / f"rows-{len(self.files):05d}.parquet")
        pl.concat(found).write_parquet(self.files[-1])
        if not drop.any():
            return None
        self.rejected += int(drop.sum())
        return read_part(path).filter((~drop).to_arrow())

    def outcomes(self) -> list[Outcome]:
        """Return how each row-level expectation turned out over all parts that were validated."""
        made = [
            Outcome(e.name, e.severity, e.tolerance, str(e), self.failed.get(e.name, 0), self.rows)
            for e in self.suite.row_level
        ]
        return [
            replace(o, holds=o.share <= o.tolerance, sample=self.samples.get(o.name, ())) if o.failed else o
            for o in made
        ]

    def _note(self, expectation: Expectation, rows: pl.DataFrame, count: int) -> None:
        if len(rows) != count:
            raise RuntimeError(
                f"{expectation.name}: Great Expectations counts {count} failing rows, our predicate finds {len(rows)}"
            )
        self.failed[expectation.name] = self.failed.get(expectation.name, 0) + count
        held = self.samples.get(expectation.name, ())
        self.samples[expectation.name] = (held + keys(rows.head(SAMPLE), self.spec.key))[:SAMPLE]


def keys(frame: pl.DataFrame, columns: Iterable[str]) -> tuple[str, ...]:
    """Name rows by their key, its columns joined by slashes."""
    return tuple("/".join("null" if v is None else str(v) for v in row) for row in frame.select(list(columns)).rows())


def failing(expectation: Expectation, schema: Mapping[str, pl.DataType]) -> pl.Expr:
    """Return the predicate of rows that break a row-level expectation."""
    column, parameters = pl.col(expectation.column), expectation.parameters
    nan = column.is_nan() if schema[expectation.column].is_float() else pl.lit(False)
    match expectation.kind:
        case "not_null":
            return column.is_null()
        case "finite":
            return column.is_not_null() & ~column.is_between(-_LARGEST, _LARGEST) | nan
        case "between":
            low, high = parameters.get("low"), parameters.get("high")
            wrong = nan
            if low is not None:
                wrong = wrong | (column <= low if parameters.get("open_low") else column < low)
            if high is not None:
                wrong = wrong | (column >= high if parameters.get("open_high") else column > high)
            return wrong
        case "in_set":
            return ~column.is_in(list(parameters["values"]))
        case "not_empty":
            return column.str.len_bytes() == 0
        case "matches":
            return ~column.str.contains(parameters["pattern"])
        case "ordered":
            other = pl.col(parameters["other"])
            nans = [pl.col(name).is_nan() for name in expectation.columns if schema[name].is_float()]
            both = column.is_not_null() & other.is_not_null()
            return both & pl.any_horizontal(column > other, *nans)
    raise ValueError(f"{expectation.kind} is no row-level kind")


def _validate(table: pa.Table, expectations: list[Expectation]) -> tuple[dict[str, int], dict[str, Any]]:
    """Run one checkpoint; returns failing rows by expectation, and the result as Great Expectations serialises it."""
    import pandas as pd

    gx, classes = _great_expectations()
    context = _context()
    name = f"audit-{len(context.suites.all())}"
    suite = gx.ExpectationSuite(name=name, expectations=[_translate(e, classes) for e in expectations])
    definition = context.validation_definitions.add(
        gx.ValidationDefinition(name=name, data=_batch_definition(), suite=context.suites.add(suite))
    )
    checkpoint = context.checkpoints.add(
        gx.Checkpoint(name=name, validation_definitions=[definition], result_format={"result_format": "BASIC"})
    )
    try:
        frame = table.to_pandas(types_mapper=pd.ArrowDtype)
        result = next(iter(checkpoint.run(batch_parameters={"dataframe": frame}).run_results.values()))
    finally:
        context.checkpoints.delete(name)
        context.validation_definitions.delete(name)
        context.suites.delete(name)
    counts: dict[str, int] = {}
    for found in result.results:
        label = found.expectation_config.meta["name"]
        if found.exception_info and found.exception_info.get("raised_exception"):
            raise RuntimeError(f"Great Expectations failed on {label}: {found.exception_info['exception_message']}")
        counts[label] = int(found.result["unexpected_count"])
    document = result.to_json_dict()
    for found in document["results"]:  # values that users wrote stay out of the record
        for key in ("partial_unexpected_list", "partial_unexpected_counts", "partial_unexpected_index_list"):
            found["result"].pop(key, None)
    return counts, document


@cache
def _great_expectations() -> tuple[Any, dict[str, Any]]:
    os.environ.setdefault("GX_ANALYTICS_ENABLED", "False")
    import great_expectations as gx
    import great_expectations.expectations as expectations
    from great_expectations.execution_engine import PandasExecutionEngine
    from great_expectations.expectations.expectation import ColumnMapExpectation
    from great_expectations.expectations.metrics.map_metric_provider import (
        ColumnMapMetricProvider,
        column_condition_partial,
    )

    # the second one sets its own level when it is imported
    for name in ("great_expectations", "great_expectations.data_context.types.base"):
        logging.getLogger(name).setLevel(logging.WARNING)

    class ColumnValuesWithin(ColumnMapMetricProvider):  # type: ignore[misc]
        """Whether values lie in an interval, on whole columns; NaN does not."""

        condition_metric_name = "column_values.gradatim_within"
        condition_value_keys = ("low", "high", "open_low", "open_high")

        @column_condition_partial(engine=PandasExecutionEngine)  # type: ignore[untyped-decorator]
        def _pandas(cls, column: Any, low: Any, high: Any, open_low: Any, open_high: Any, **_: Any) -> Any:
            within = column == column
            if low is not None:
                within &= column > low if open_low else column >= low
            if high is not None:
                within &= column < high if open_high else column <= high
            return within

    class ExpectColumnValuesWithin(ColumnMapExpectation):  # type: ignore[misc]
        """Expect values in an interval that may be open at either end."""

        low: float | None = None
        high: float | None = None
        open_low: bool = False
        open_high: bool = False
        map_metric = "column_values.gradatim_within"
        success_keys = ("low", "high", "open_low", "open_high", "mostly")

    return gx, {name: getattr(expectations, name) for name in dir(expectations)} | {"Within": ExpectColumnValuesWithin}


def warm_up() -> None:
    """Import Great Expectations now, so that the first audit need not: 3 to 4 s once a process."""
    _batch_definition()


@cache
def _context() -> Any:
    gx, _ = _great_expectations()
    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = {"globally": False}
    return context


@cache
def _batch_definition() -> Any:
    asset = _context().data_sources.add_pandas("parts").add_dataframe_asset("part")
    return asset.add_batch_definition_whole_dataframe("whole")


def _translate(expectation: Expectation, classes: Mapping[str, Any]) -> Any:
    column, parameters = expectation.column, expectation.parameters
    meta = {"name": expectation.name}
    match expectation.kind:
        case "not_null":
            return classes["ExpectColumnValuesToNotBeNull"](column=column, meta=meta)
        case "finite":
            return classes["Within"](column=column, low=-_LARGEST, high=_LARGEST, meta=meta)
        case "between":
            return classes["Within"](column=column, **parameters, meta=meta)
        case "in_set":
            return classes["ExpectColumnValuesToBeInSet"](
                column=column, value_set=list(parameters["values"]), meta=meta
            )
        case "not_empty":
            return classes["ExpectColumnValueLengthsToBeBetween"](column=column, min_value=1, meta=meta)
        case "matches":
            return classes["ExpectColumnValuesToMatchRegex"](column=column, regex=parameters["pattern"], meta=meta)
        case "ordered":
            return classes["ExpectColumnPairValuesAToBeGreaterThanB"](
                column_A=parameters["other"],
                column_B=column,
                or_equal=True,
                ignore_row_if="either_value_is_missing",
                meta=meta,
            )
    raise ValueError(f"{expectation.kind} is no row-level kind")
