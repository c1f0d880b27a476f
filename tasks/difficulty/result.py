"""`Difficulty`: a difficulty for each example, which explains itself."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl

from gradatim.schemas.errors import DataRefused, UsageError, nearest
from gradatim.schemas.summary import Cell, Fact, Summary, SummaryTable
from gradatim.tasks.core.format import count, number
from gradatim.tasks.core.frames import conform
from gradatim.tasks.core.picture import Picture
from gradatim.tasks.core.ranks import distinct, percentile_and_bin, rounded
from gradatim.tasks.difficulty.reliability import choose_bins, supported_bins

SHOWN = 20  # ids and statistics listed in a summary


@dataclass(frozen=True)
class Difficulty:
    """A difficulty for each example; higher is harder.

    Attributes
    ----------
    method : str
        Name in the column `method`: the estimator, with its settings where they differ from the defaults.
    title : str
        The same for people, e.g. ``irt 1pl``.
    table : polars.DataFrame
        The table `difficulty`, sorted by example_id.
    item_parameters, respondents : polars.DataFrame or None
        The tables of these names, where the method estimates them.
    intervals : polars.DataFrame or None
        example_id, low, high: 95 % interval of value, where the method has one.
    excluded : polars.DataFrame
        example_id, reason: examples without a difficulty. They have no row in `table`.
    reliability : float or None
        Share of the variance of `value` that is not error.
    notes : mapping
        Facts of the estimation by name, for people: settings, log-likelihood, iterations, counts.
    warnings : tuple of str
        What to read with care.
    source : str
        Papers behind the method.
    statistics : polars.DataFrame or None
        Numbers about the whole set or its subsets, in the schema of the table `statistics`.
    pictures : mapping
        Further pictures by name; `plot(name)` draws one.
    """

    method: str
    title: str
    table: pl.DataFrame
    item_parameters: pl.DataFrame | None = None
    respondents: pl.DataFrame | None = None
    intervals: pl.DataFrame | None = None
    excluded: pl.DataFrame = field(default_factory=lambda: no_rows_excluded())
    reliability: float | None = None
    notes: Mapping[str, Cell] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    source: str = ""
    statistics: pl.DataFrame | None = None
    pictures: Mapping[str, Picture] = field(default_factory=dict, repr=False)
    refit: Callable[[str], Difficulty] | None = field(default=None, repr=False, compare=False)

    @property
    def bins(self) -> int:
        """Number of bins in `table`."""
        return self.table["bin"].n_unique()

    def __repr__(self) -> str:
        return f"difficulty {self.title}, {self._support()}"

    def _support(self) -> str:
        bins = _plural(self.bins, "bin")
        asked = "respondents" in self.notes
        number_of = int(self.notes["respondents"] or 0) if asked else len(self.table)
        who = _plural(number_of, "respondent" if asked else "example")
        if self.reliability is None:
            return f"{who}{', reliability unknown' if asked else ''}: {bins}"
        could = supported_bins(self.reliability)
        cut = "" if could == self.bins else f", cut into {self.bins}"
        return f"{who}, reliability {number(self.reliability, 2)}: supports {_plural(could, 'bin')}{cut}"

    def explain(self, example_id: str) -> str:
        """Say in a few lines how hard an example is and why; raises `UsageError` for an unknown id.

        Ids are text: a number is taken for the text that it reads as. Values that differ by less than 1e-9 are equally
        hard, whatever their percentiles.
        """
        example_id = str(example_id)
        found = self.table.filter(pl.col("example_id") == example_id)
        if not len(found):
            reason = self.excluded.filter(pl.col("example_id") == example_id)["reason"]
            if len(reason):
                return f"{example_id}: no difficulty, {reason[0]}"
            ids = self.table["example_id"].head(100_000)
            raise UsageError(f"there is no example {example_id!r}{nearest(example_id, ids)}", where="explain")
        row = found.row(0, named=True)
        error = "" if row["standard_error"] is None else f" ± {number(row['standard_error'], 2)}"
        values, here = rounded(self.table["value"].to_numpy()), rounded(np.array([row["value"]]))[0]
        easier, equal = int((values < here).sum()), int((values == here).sum()) - 1
        alike = f", as hard as {_plural(equal, 'other')}" if equal else ""
        lines = [
            f"{example_id}: {number(row['value'])}{error} {row['scale']} ({self.title})",
            f"  harder than {count(easier)} of {_plural(len(self.table), 'example')}{alike}, "
            f"bin {row['bin']} of 0 to {self.bins - 1}, {_plural(row['n'], 'observation')}",
        ]
        if self.intervals is not None:
            low, high = self.intervals.filter(pl.col("example_id") == example_id).select("low", "high").row(0)
            lines.append(f"  95 % interval {number(low)} to {number(high)}")
        if self.item_parameters is not None:
            item = self.item_parameters.filter(pl.col("example_id") == example_id).row(0, named=True)
            lines.append(f"  discrimination {number(item['discrimination'])}, location {number(item['location'])}")
        if row["details"]:
            facts = json.loads(row["details"]).items()
            lines.append("  " + ", ".join(f"{key} {_told(value)}" for key, value in facts))
        if row["flag"]:
            lines.append(f"  read with care: {row['flag']}")
        return "\n".join(lines)

    def leave_out(self, name: str) -> Difficulty:
        """Estimate again without a respondent, or without all of a family.

        A difficulty that is used to evaluate a model should not have been estimated from that model.

        Raises
        ------
        UsageError
            If nobody is so called, or the method does not look at respondents.
        """
        if self.refit is None:
            raise UsageError(
                f"{self.title} does not depend on respondents", where="leave_out", remedy="use it as it is"
            )
        return self.refit(name)

    def plot(self, picture: str = "") -> Any:
        """Draw the distribution of difficulty, or one of `pictures` by name, as an Altair chart.

        Raises
        ------
        UsageError
            For a picture that the method does not have.
        """
        from gradatim.tasks.core.charts import histogram

        if picture:
            if picture not in self.pictures:
                listed = ", ".join(self.pictures) or "none: this method has only its histogram"
                raise UsageError(
                    f"there is no picture {picture!r}{nearest(picture, self.pictures)}", where="plot", expected=listed
                )
            return self.pictures[picture].draw()
        scale = self.table["scale"][0] if len(self.table) else ""
        return histogram(self.table["value"], title=f"Difficulty: {self.title}", x=f"difficulty ({scale})")

    def cite(self) -> str:
        """Name the papers behind the method."""
        return self.source

    def summary(self) -> Summary:
        """Summarise for terminal, report and artifact."""
        from gradatim.tasks.core.charts import chart

        table = self.table
        facts = [Fact("examples", len(table)), *(Fact(name, value) for name, value in self.notes.items())]
        if self.reliability is not None:
            support = supported_bins(self.reliability)
            facts.insert(1, Fact("reliability", round(self.reliability, 4), note=f"supports {_plural(support, 'bin')}"))
        facts.append(Fact("bins", self.bins))
        warnings = list(self.warnings)
        tables = [_by_bin(table)] if len(table) else []
        flags = table["flag"].drop_nulls().value_counts(sort=True).sort("count", "flag", descending=[True, False])
        warnings += [f"{_plural(n, 'example')}: {flag}" for flag, n in flags.iter_rows()]
        if len(self.excluded):
            warnings.append(f"without a difficulty: {_plural(len(self.excluded), 'example')}")
            rows = tuple(self.excluded.head(SHOWN).iter_rows())
            note = f"{count(len(self.excluded))} in all" + ("" if len(self.excluded) <= SHOWN else f", {SHOWN} shown")
            tables.append(SummaryTable("Examples without a difficulty", ("example_id", "reason"), rows, note))
        if self.statistics is not None and len(self.statistics):
            tables.append(_of_subsets(self.statistics))
        charts = [chart(self.plot(), "How hard the examples are.")] if len(table) else []
        charts += [chart(picture.draw(), picture.caption) for picture in self.pictures.values()]
        return Summary(
            step=f"difficulty {self.method}",
            headline=f"{self.title}, {self._support()}",
            facts=tuple(facts),
            tables=tuple(tables),
            charts=tuple(charts),
            warnings=tuple(warnings),
            sources=(self.source,) if self.source else (),
        )


def build(
    *,
    method: str,
    title: str,
    ids: Sequence[str],
    value: np.ndarray,
    raw: np.ndarray,
    scale: str,
    n: np.ndarray,
    error: np.ndarray | None = None,
    flag: Sequence[str | None] | None = None,
    details: Sequence[str | None] | None = None,
    bins: int | None = None,
    reliability: float | None = None,
    warnings: Sequence[str] = (),
    **rest: Any,
) -> Difficulty:
    """Rank, bin and lay out a `Difficulty`.

    Parameters
    ----------
    ids : sequence of str, length N
    value, raw, n, error : numpy.ndarray, shape (N,)
        As in the table `difficulty`; a NaN in `error` becomes null.
    flag, details : sequence of str or None, length N
        As there; `details` are JSON objects.
    bins : int, optional
        Bins that the user asks for; by default what `reliability` supports.
    rest
        Further fields of `Difficulty`.
    """
    if not len(ids):
        raise DataRefused("no example has a difficulty", where=f"difficulty {title}", expected="at least one")
    cut = choose_bins(value, reliability, bins)
    percentile, bin_ = percentile_and_bin(ids, value, cut)
    supported = min(supported_bins(reliability), distinct(value))
    notices = list(warnings)
    if bins is not None and cut > supported:
        notices.append(f"{cut} bins were asked for, but the reliability supports {supported}")
    if bins is not None and cut < bins:
        notices.append(f"{bins} bins were asked for, but there are only {cut} different values")
    frame = pl.DataFrame(
        {
            "example_id": pl.Series(ids, dtype=pl.String),
            "method": pl.repeat(method, len(ids), eager=True),
            "value": value,
            "scale": pl.repeat(scale, len(ids), eager=True),
            "raw": raw,
            "standard_error": pl.Series(error, dtype=pl.Float64).fill_nan(None) if error is not None else None,
            "percentile": percentile,
            "bin": bin_,
            "n": n,
            "flag": pl.Series(flag, dtype=pl.String) if flag is not None else None,
            "details": pl.Series(details, dtype=pl.String) if details is not None else None,
        }
    )
    return Difficulty(
        method=method,
        title=title,
        table=conform(frame, "difficulty"),
        reliability=reliability,
        warnings=tuple(notices),
        **rest,
    )


def no_rows_excluded() -> pl.DataFrame:
    """Return the empty frame of `Difficulty.excluded`."""
    return pl.DataFrame(schema={"example_id": pl.String, "reason": pl.String})


def method_name(name: str, settings: Mapping[str, Any], defaults: Mapping[str, Any]) -> str:
    """Name a method with the settings that differ from the defaults, e.g. ``irt model=2pl``."""
    changed = [f"{key}={settings[key]}" for key in sorted(settings) if settings[key] != defaults.get(key)]
    return " ".join([name, *changed])


def unanswered(tables: Mapping[str, pl.DataFrame], ids: Sequence[str]) -> pl.DataFrame:
    """List the examples of the tables `examples` and `responses` that are not among `ids`, as nobody answered them."""
    empty = no_rows_excluded().select("example_id")
    found = {
        name: tables[name].select(pl.col("example_id").cast(pl.String)).drop_nulls().unique()
        if name in tables
        else empty
        for name in ("examples", "responses")
    }
    silent = found["responses"].with_columns(reason=pl.lit("no response with a score"))
    absent = found["examples"].join(silent, on="example_id", how="anti").with_columns(reason=pl.lit("no response"))
    known = pl.DataFrame({"example_id": pl.Series(ids, dtype=pl.String)})
    return pl.concat([silent, absent]).join(known, on="example_id", how="anti").sort("example_id")


def _plural(n: int, word: str) -> str:
    return f"{count(n)} {word}{'' if n == 1 else 's'}"


def _told(value: Any) -> str:
    if isinstance(value, list):
        more = f" and {len(value) - 3} more" if len(value) > 3 else ""
        return ", ".join(map(_told, value[:3])) + more
    return number(value) if isinstance(value, float) else str(value)


def _of_subsets(statistics: pl.DataFrame) -> SummaryTable:
    columns = ("subset", "metric", "value", "ci_low", "ci_high", "n")
    note = "" if len(statistics) <= SHOWN else f"{count(len(statistics))} in all, {SHOWN} shown"
    rows = tuple(statistics.select(columns).head(SHOWN).iter_rows())
    return SummaryTable("Of the whole set", ("subset", "metric", "value", "low", "high", "rows"), rows, note)


def _by_bin(table: pl.DataFrame) -> SummaryTable:
    rows = table.group_by("bin").agg(
        pl.len().alias("examples"), pl.col("value").min().alias("from"), pl.col("value").max().alias("to")
    )
    cells = tuple((b, n, round(low, 4), round(high, 4)) for b, n, low, high in rows.sort("bin").iter_rows())
    return SummaryTable("Bins, easiest first", ("bin", "examples", "from", "to"), cells)
