"""What every table is expected to satisfy, as values: the audit before publishing checks them.

Row-level expectations concern one row and are validated by Great Expectations part by part; table-level ones concern
the whole version and are checked by `gradatim.storage.checks` on streamed aggregates and merges. This module names
neither.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from gradatim.schemas.errors import UsageError, nearest
from gradatim.schemas.hashing import value_hash
from gradatim.schemas.tables import SPLITS, spec

Severity = Literal["warn", "reject_rows", "refuse"]
"""What a broken expectation does: it is noted, its rows are left out, or nothing is published."""

RowKind = Literal["not_null", "finite", "between", "in_set", "not_empty", "matches", "ordered"]
TableKind = Literal["unique", "exists", "conserved", "contiguous", "splits_filled", "kept_whole", "not_empty_table"]

ROW_KINDS: tuple[str, ...] = RowKind.__args__  # type: ignore[attr-defined]
TABLE_KINDS: tuple[str, ...] = TableKind.__args__  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Expectation:
    """One thing that should hold.

    Attributes
    ----------
    name : str
        Unique in its suite, e.g. ``score_between``.
    kind : str
        For rows (null values pass, but for `not_null`): ``not_null``; ``finite``; ``between`` (`low`, `high`,
        `open_low`, `open_high`; NaN fails); ``in_set`` (`values`); ``not_empty`` (text with at least one character);
        ``matches`` (`pattern`); ``ordered`` (`column` at most `other`).
        For tables: ``unique`` (the key); ``exists`` (`column` occurs as `other` in `table`); ``conserved`` (each
        group of `by` has every row of `table` once); ``contiguous`` (`column` runs from 0 without a gap within `by`);
        ``splits_filled`` (each group of `by` has rows in each of `values`); ``kept_whole`` (`column` lies in one
        split within `by`, but for excluded rows); ``not_empty_table``.
    column : str
        Column that it is about; the key for `unique`.
    parameters : mapping
        As named above.
    severity : "warn", "reject_rows" or "refuse"
        Table-level expectations warn or refuse.
    tolerance : float
        Largest share of failing rows, in [0, 1], at which it still holds. For `reject_rows`: beyond it nothing is
        published.
    """

    name: str
    kind: RowKind | TableKind
    column: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    severity: Severity = "refuse"
    tolerance: float = 0.0

    @property
    def row_level(self) -> bool:
        """Whether one row alone decides."""
        return self.kind in ROW_KINDS

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that are read to check it."""
        other = self.parameters.get("other")
        return (self.column, other) if self.kind == "ordered" and other else (self.column,) if self.column else ()

    def __str__(self) -> str:
        details = ", ".join(f"{key}={value}" for key, value in self.parameters.items())
        return f"{self.column or 'table'} {self.kind}{f' ({details})' if details else ''}"


@dataclass(frozen=True)
class Suite:
    """All expectations of a table."""

    table: str
    expectations: tuple[Expectation, ...]

    @property
    def row_level(self) -> tuple[Expectation, ...]:
        """Expectations that one row decides."""
        return tuple(e for e in self.expectations if e.row_level)

    @property
    def table_level(self) -> tuple[Expectation, ...]:
        """Expectations about the whole version."""
        return tuple(e for e in self.expectations if not e.row_level)

    def tolerate(self, **shares: float) -> Suite:
        """Return a copy with other tolerances, by name of the expectation; raises `UsageError` for an unknown name."""
        return self._change({name: {"tolerance": share} for name, share in shares.items()})

    def severities(self, **severities: Severity) -> Suite:
        """Return a copy with other severities, by name of the expectation; raises `UsageError` for an unknown name."""
        return self._change({name: {"severity": severity} for name, severity in severities.items()})

    def extend(self, *expectations: Expectation) -> Suite:
        """Return a copy with further expectations."""
        return replace(self, expectations=self.expectations + expectations)

    def suite_hash(self) -> str:
        """Hash of the suite, 32 hex digits."""
        rows = [
            [e.name, e.kind, e.column, {k: e.parameters[k] for k in sorted(e.parameters)}, e.severity, e.tolerance]
            for e in self.expectations
        ]
        return value_hash(rows)

    def _change(self, changes: Mapping[str, Mapping[str, Any]]) -> Suite:
        known = [e.name for e in self.expectations]
        for name in changes:
            if name not in known:
                raise UsageError(
                    f"the table {self.table} has no expectation {name!r}{nearest(name, known)}",
                    expected="one of " + ", ".join(known),
                )
        return replace(self, expectations=tuple(replace(e, **changes.get(e.name, {})) for e in self.expectations))


def _not_null(*columns: str) -> list[Expectation]:
    return [Expectation(f"{column}_not_null", "not_null", column) for column in columns]


def _between(
    column: str,
    low: float | None = None,
    high: float | None = None,
    *,
    open_low: bool = False,
    open_high: bool = False,
    severity: Severity = "refuse",
) -> Expectation:
    limits: dict[str, Any] = {"low": low, "high": high, "open_low": open_low, "open_high": open_high}
    return Expectation(
        f"{column}_between",
        "between",
        column,
        {k: v for k, v in limits.items() if v is not None and v is not False},
        severity,
    )


def _finite(*columns: str) -> list[Expectation]:
    return [Expectation(f"{column}_finite", "finite", column) for column in columns]


def _exists(table: str, column: str = "example_id", other: str = "example_id") -> Expectation:
    return Expectation(f"{column}_exists", "exists", column, {"table": table, "other": other})


def _in_set(column: str, values: tuple[str, ...]) -> Expectation:
    return Expectation(f"{column}_in_set", "in_set", column, {"values": list(values)})


def _hash(column: str) -> Expectation:
    return Expectation(f"{column}_is_hash", "matches", column, {"pattern": "^[0-9a-f]{32}$"})


def _ordered(low: str, high: str) -> Expectation:
    return Expectation(f"{low}_at_most_{high}", "ordered", low, {"other": high})


_CHECKS: dict[str, list[Expectation]] = {
    "examples": [
        Expectation("example_id_not_empty", "not_empty", "example_id"),
        *_not_null("input", "source_uri", "source_row", "content_hash"),
        Expectation("output_not_empty", "not_empty", "output", severity="refuse"),
        _between("source_row", 0),
        _between("length_input", 0),
        _between("length_output", 0),
        _in_set("length_unit", ("characters", "words", "tokens")),
        _hash("content_hash"),
        _ordered("first_version", "changed_version"),
        Expectation("not_empty_table", "not_empty_table"),
    ],
    "rejects": [*_not_null("reason"), _between("source_row", 0)],
    "respondents": [*_finite("ability"), _between("standard_error", 0), _between("n", 0)],
    "responses": [
        *_not_null("score"),
        _between("score", 0, 1),
        _between("attempt", 0),
        _exists("examples"),
        Expectation("not_empty_table", "not_empty_table"),
    ],
    "options": [_between("order", 0), _between("gold", 0), _exists("examples")],
    "features": [*_not_null("embedding"), _exists("examples")],
    "dynamics": [
        *_not_null("example_id"),
        _between("position", 0),
        _between("epoch", 0),
        _between("gold_probability", 0, 1),
        *_finite("loss", "margin"),
        # 2-norm of (probabilities - one-hot) is at most sqrt 2; float32 may round up
        _between("error_norm", 0, 1.4142137),
        _between("hidden_norm", 0),
        _between("alignment", -1, 1),
        _exists("examples"),
    ],
    "difficulty": [
        *_not_null("value", "scale", "percentile", "bin"),
        *_finite("value", "raw"),
        _between("standard_error", 0),
        _between("percentile", 0, 1, open_low=True),
        _between("bin", 0),
        _between("n", 0),
        _exists("examples"),
    ],
    "item_parameters": [
        *_finite("discrimination", "location"),
        _between("lower", 0, 1),
        _between("upper", 0, 1),
        _between("discrimination_error", 0),
        _between("location_error", 0),
        _exists("examples"),
    ],
    "diversity": [*_finite("value", "nearest_similarity"), _exists("examples")],
    "centroids": [*_not_null("centroid"), _between("cluster", 0), _between("rows", 0)],
    "pairs": [
        _in_set("kind", ("near_duplicate", "contamination")),
        _between("similarity", 0, 1),
        _between("threshold", 0, 1),
        _exists("examples", "left_id"),
    ],
    "signatures": [*_not_null("scheme"), _hash("digest"), _exists("examples")],
    "components": [*_not_null("component"), _exists("examples")],
    "statistics": [*_not_null("value"), *_finite("value"), _between("n", 0), _ordered("ci_low", "ci_high")],
    "splits": [
        *_not_null("split", "reason"),
        _in_set("split", SPLITS),
        _between("fold", 0),
        _exists("examples"),
        Expectation("every_example_once", "conserved", "", {"by": ["strategy", "seed", "fold"], "table": "examples"}),
        Expectation(
            "train_and_test_filled",
            "splits_filled",
            "split",
            {"by": ["strategy", "seed", "fold"], "values": ["train", "test"]},
        ),
        Expectation(
            "component_kept_whole", "kept_whole", "component", {"by": ["strategy", "seed", "fold"], "split": "split"}
        ),
    ],
    "certificate": [*_finite("value"), *_finite("control_value"), *_finite("matched_value"), _between("n", 0)],
    "curriculum": [
        *_not_null("example_id", "stage", "weight"),
        _between("position", 0),
        _between("stage", 0),
        *_finite("weight"),
        _between("weight", 0, open_low=True),
        _exists("examples"),
        Expectation("positions_contiguous", "contiguous", "position", {"by": ["arm", "seed"]}),
        Expectation("not_empty_table", "not_empty_table"),
    ],
    "runs": [
        *_not_null("kind", "state"),
        _in_set("kind", ("train", "evaluate")),
        _in_set("state", ("running", "finished", "failed", "fenced")),
        _between("attempt", 0),
    ],
    "predictions": [
        _between("checkpoint", 0),
        _between("attempt", 0),
        _between("score", 0, 1),
        _between("loss", 0, severity="warn"),
        _exists("examples"),
    ],
    "evaluation": [
        _between("checkpoint", 0),
        *_not_null("value"),
        *_finite("value"),
        _between("n", 0),
        _ordered("ci_low", "ci_high"),
    ],
}


def suite(table: str) -> Suite:
    """Return a table's suite: its key not null and unique, its columns in range; any `features_NAME` has one too."""
    features = table.startswith("features_")
    key = ("example_id",) if features else spec(table).key
    common = [*_not_null(*key), Expectation("key_unique", "unique", "", {"by": list(key)})]
    if table == "splits":
        # one row an id and split assignment: what makes the splits of a strategy disjoint
        common.append(Expectation("splits_disjoint", "unique", "", {"by": list(key)}))
    checks = _CHECKS["features" if features else table]
    return Suite(table, (*common, *checks))
