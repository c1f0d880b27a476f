"""What a diversity measure gives back: statistics of subsets, values of rows, and what they rest on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from gradatim.schemas.errors import UsageError, nearest
from gradatim.schemas.summary import Fact, Summary, SummaryTable
from gradatim.tasks.core.picture import Picture

_SHOWN = 50


@dataclass(frozen=True, repr=False)
class Diversity:
    """A measure's result.

    Attributes
    ----------
    method : str
        Name of the measure, with its column where that matters.
    statistics : polars.DataFrame
        In the schema of the table `statistics`.
    table : polars.DataFrame
        In the schema of the table `diversity`; no rows where the measure says nothing about single rows.
    main : str
        The metric to look at first.
    parameters : dict
        Settings, as JSON values.
    source : str
        Authors (year). Title.
    warnings : tuple of str
    pairs : polars.DataFrame or None
        In the schema of the table `pairs`, where the measure decides about pairs.
    centroids : polars.DataFrame or None
        In the schema of the table `centroids`, where the measure clusters rows.
    pictures : mapping
        Further pictures by name; `plot(name)` draws one.
    tables : tuple of SummaryTable
        Further tables of the summary.
    """

    method: str
    statistics: pl.DataFrame
    table: pl.DataFrame
    main: str
    parameters: dict[str, Any]
    source: str
    warnings: tuple[str, ...] = field(default=())
    pairs: pl.DataFrame | None = None
    centroids: pl.DataFrame | None = None
    pictures: Mapping[str, Picture] = field(default_factory=dict)
    tables: tuple[SummaryTable, ...] = ()

    def value(self, metric: str = "", subset: str = "all", reference: str | None = None) -> float:
        """Return one statistic; raises `UsageError` with the nearest spelling for an unknown one.

        `reference` names what a subset was compared with, where it was compared with several.
        """
        metric = metric or self.main
        found = self.statistics.filter((pl.col("metric") == metric) & (pl.col("subset") == subset))
        found = found if reference is None else found.filter(pl.col("reference") == reference)
        if found.is_empty():
            known = self.statistics["metric"].unique(maintain_order=True).to_list()
            subsets = self.statistics["subset"].unique(maintain_order=True).to_list()
            raise UsageError(
                f"there is no {metric!r} of {subset!r}{nearest(metric, known)}",
                expected=f"metric one of {', '.join(known)}; subset one of {', '.join(subsets[:10])}",
            )
        value = found["value"][0]
        return float("nan") if value is None else float(value)

    def summary(self) -> Summary:
        """Describe the result for people, with its chart."""
        from gradatim.tasks.core.charts import chart

        first = self.statistics.filter((pl.col("subset") == "all") & (pl.col("reference") == ""))
        compared = ["reference"] if (self.statistics["reference"] != "").any() else []
        columns = ["subset", *compared, "metric", "value", "ci_low", "ci_high", "n"]
        rows = self.statistics.select(columns).head(_SHOWN).rows()
        left = len(self.statistics) - len(rows)
        return Summary(
            step=f"diversity {self.method}",
            headline=f"{self.main} {self.value():.4g} over {int(first['n'][0]):,} rows",
            facts=tuple(Fact(row["metric"], row["value"]) for row in first.iter_rows(named=True)),
            tables=(
                SummaryTable(
                    "Diversity",
                    ("subset", *(["compared with"] if compared else []), "metric", "value", "low", "high", "rows"),
                    tuple(rows),
                    note=f"{left} more rows in the table statistics" if left else "",
                ),
                *self.tables,
            ),
            charts=(
                *(() if self._pictured() else (chart(self.plot(), self._caption()),)),
                *(chart(picture.draw(), picture.caption) for picture in self.pictures.values()),
            ),
            warnings=self.warnings,
            sources=(self.source,),
        )

    def plot(self, picture: str = "") -> Any:
        """Draw one of `pictures` by name; else the main metric of each subset, or the first picture where there is one.

        Returns an Altair chart: of all metrics where there is neither; raises `UsageError` for a picture that the
        measure does not have.
        """
        from gradatim.tasks.core.charts import bars

        if not picture and self._pictured():
            picture = next(iter(self.pictures))
        if picture:
            if picture not in self.pictures:
                listed = ", ".join(self.pictures) or "none: this measure has only its bars"
                raise UsageError(
                    f"there is no picture {picture!r}{nearest(picture, self.pictures)}", where="plot", expected=listed
                )
            return self.pictures[picture].draw()
        subsets = self.statistics.filter(pl.col("metric") == self.main)
        if len(subsets) > 1:
            beside = (
                pl.when(pl.col("reference") == "").then("subset").otherwise(pl.format("{} / {}", "subset", "reference"))
            )
            shown = subsets.head(_SHOWN).select(beside.alias("subset"), pl.col("value").alias(self.main))
            title = self.main if self.method == self.main else f"{self.method}: {self.main}"
            return bars(shown, x="subset", y=self.main, title=title)
        overall = self.statistics.filter(pl.col("subset") == subsets["subset"].first()) if len(subsets) else subsets
        return bars(overall.drop_nulls("value"), x="metric", y="value", title=self.method)

    def _caption(self) -> str:
        """Say what the bars show."""
        subsets = self.statistics.filter(pl.col("metric") == self.main)
        if len(subsets) < 2:
            return f"What {self.method} says of all rows."
        more = f" The first {_SHOWN} of {len(subsets):,}." if len(subsets) > _SHOWN else ""
        return f"{self.main} of all rows and of each subset.{more}"

    def _pictured(self) -> bool:
        """Whether pictures say more than bars, which would set counts beside shares of the one subset."""
        shown = self.statistics.filter(pl.col("metric") == self.main)
        compared = shown.filter(pl.col("reference") != "")  # of one comparison alone the row of all is a copy
        return bool(self.pictures) and len(compared if len(compared) else shown) <= 1

    def cite(self) -> str:
        """Return the source to cite."""
        return self.source

    def __repr__(self) -> str:
        rows = [
            f"  {metric:<22} {value:.4f}" if value is not None else f"  {metric:<22} -"
            for metric, value in self.statistics.filter((pl.col("subset") == "all") & (pl.col("reference") == ""))
            .select("metric", "value")
            .rows()
        ]
        subsets = self.statistics["subset"].n_unique() - 1
        more = [f"  ... and {subsets} subsets in .statistics"] if subsets else []
        notes = [f"  ! {warning}" for warning in self.warnings]
        return "\n".join([f"Diversity {self.method}", *rows, *more, *notes])
