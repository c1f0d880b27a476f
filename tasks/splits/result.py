"""`Split`: a table of who is where, which can say why, be drawn, be cited and be certified."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from gradatim.schemas.errors import UsageError, nearest
from gradatim.schemas.summary import Fact, Summary, SummaryTable
from gradatim.schemas.tables import SPLITS
from gradatim.tasks.core.registry import configure, get
from gradatim.tasks.splits.frozen import LEDGER, Outcome

if TYPE_CHECKING:
    from gradatim.tasks.splits.certificate import Certificate

_DTYPES = {
    "strategy": pl.String, "seed": pl.Int64, "fold": pl.Int32, "example_id": pl.String, "split": pl.String,
    "axis": pl.String, "held_out": pl.String, "component": pl.String, "reason": pl.String,
}  # fmt: skip
_MOST_FOLDS = 200
_MOST_CELLS = 50


@dataclass(frozen=True)
class Split:
    """A split with its controls.

    Attributes
    ----------
    strategy : str
        Its name; controls are ``NAME.random`` and ``NAME.matched``.
    axis : str
        What is shifted: length, domain, a column, or none.
    table : polars.DataFrame
        The table ``splits``: strategy, seed, fold, example_id, split, axis, held_out, component, reason.
    method : str
        The plug-in that made it.
    settings : dict
        Its settings.
    together : tuple of str
        Columns whose equal values were kept together.
    source : str
    frozen : tuple of Outcome
        What a released split changed, one a (seed, fold); empty without one.
    warnings : tuple of str
    drawn : bool
        Whether each component was drawn by itself, so that sizes are binomial.
    alike : bool
        Whether near-duplicates were kept together.
    ledger : polars.DataFrame or None
        Released test rows that are no longer among the examples, of this release and of those before it: strategy,
        seed, fold, example_id, split, component, held_out.
    """

    strategy: str
    axis: str
    table: pl.DataFrame
    method: str
    settings: dict[str, Any]
    together: tuple[str, ...]
    source: str
    frozen: tuple[Outcome, ...] = ()
    warnings: tuple[str, ...] = ()
    drawn: bool = True
    alike: bool = False
    ledger: pl.DataFrame | None = None

    @property
    def config(self) -> Any:
        """The settings as the strategy's own model."""
        plugin = get("split", self.method)
        return configure(plugin, self.settings)

    @property
    def main(self) -> pl.DataFrame:
        """Rows of the strategy itself, without its controls."""
        return self.table.filter(pl.col("strategy") == self.strategy)

    @property
    def released(self) -> pl.DataFrame:
        """What the next split has to keep once this one is released: its rows, and those of the ledger as `away`."""
        rows = self.main.select(LEDGER).with_columns(away=pl.lit(False))
        if self.ledger is None or self.ledger.is_empty():
            return rows
        return pl.concat([rows, self.ledger.with_columns(away=pl.lit(True))], how="diagonal_relaxed")

    @property
    def sizes(self) -> pl.DataFrame:
        """Rows a split for each (strategy, seed, fold), controls included; held_out names the fold."""
        keys = ["strategy", "seed", "fold"]
        return (
            self.table.group_by(keys)
            .agg(
                pl.col("held_out").drop_nulls().first(),
                *[(pl.col("split") == name).sum().cast(pl.Int64).alias(name) for name in SPLITS],
            )
            .sort(keys)
        )

    @property
    def counts(self) -> dict[str, int]:
        """Rows a split, of a split with one seed and fold; see `sizes` for all."""
        self._one()
        counts = dict(self.main.group_by("split").len().iter_rows())
        return {name: counts[name] for name in SPLITS if name in counts}

    @property
    def train(self) -> pl.Series:
        """Ids of the training rows, sorted."""
        return self.ids("train")

    def ids(self, split: str, *, control: str = "") -> pl.Series:
        """Return the ids of one split, sorted; `control` is ``random`` or ``matched``."""
        if split not in SPLITS:
            raise UsageError(f"there is no split {split!r}{nearest(split, SPLITS)}", expected=", ".join(SPLITS))
        self._one()
        name = f"{self.strategy}.{control}" if control else self.strategy
        return self.table.filter((pl.col("strategy") == name) & (pl.col("split") == split))["example_id"]

    def select(self, *, seed: int | None = None, fold: int | None = None) -> Split:
        """Take one seed or fold of a split with several."""
        table, frozen, ledger = self.table, self.frozen, self.ledger
        for name, value in (("seed", seed), ("fold", fold)):
            if value is not None:
                valid = table[name].unique().sort().to_list()
                if value not in valid:
                    raise UsageError(f"there is no {name} {value}", expected=", ".join(map(str, valid)))
                table = table.filter(pl.col(name) == value)
                if ledger is not None and name in ledger.columns:
                    ledger = ledger.filter(pl.col(name) == value)
                frozen = tuple(outcome for outcome in frozen if getattr(outcome, name) == value)
        return replace(self, table=table, frozen=frozen, ledger=ledger)

    def named(self, name: str) -> Split:
        """Give the strategy and its controls another name; no row moves."""
        tail = pl.col("strategy").str.slice(len(self.strategy))
        table = self.table.with_columns(pl.concat_str(pl.lit(name), tail).alias("strategy"))
        ledger = self.ledger
        if ledger is not None and "strategy" in ledger.columns:
            ledger = ledger.with_columns(strategy=pl.lit(name))
        return replace(self, strategy=name, table=table, ledger=ledger)

    def why(self, example_id: str) -> str:
        """Say in which split a row is and why, a line for each seed and fold where there are several."""
        rows = self.main.filter(pl.col("example_id") == example_id)
        if rows.is_empty():
            raise UsageError(f"there is no row {example_id!r} in this split")
        lines = [f"{row['split']}: {row['reason']}" for row in rows.iter_rows(named=True)]
        if len(lines) == 1:
            return lines[0]
        where = [f"seed {row['seed']} fold {row['fold']}" for row in rows.iter_rows(named=True)]
        return "\n".join(f"{place}  {line}" for place, line in zip(where, lines, strict=True))

    def certify(self, examples: Any, difficulty: Any = None, responses: Any = None, pairs: Any = None) -> Certificate:
        """Measure the split and check its promises; see `gradatim.tasks.splits.certificate.certify`."""
        from gradatim.tasks.splits.certificate import certify

        return certify(self, examples, difficulty, responses, pairs)

    def summary(self) -> Summary:
        """Describe the split for terminal, report and artifact."""
        keys = ["strategy", "seed", "fold"]
        differ = self.table.group_by(keys).agg(values=pl.col("held_out").drop_nulls().n_unique())
        sizes = self.sizes.join(differ, on=keys, maintain_order="left")
        main = sizes.filter(pl.col("strategy") == self.strategy)
        shown = [name for name in SPLITS if int(sizes[name].sum()) > 0]
        if len(main) == 1:
            headline = "  ".join(f"{name} {main[name][0]:,}" for name in SPLITS if main[name][0])
        else:
            outside = main["test_ood"].to_list()
            headline = f"{len(main)} splits ({self.axis}), test_ood {min(outside):,} to {max(outside):,} rows"
        rows = tuple(
            (row["strategy"], row["seed"], row["fold"], self._named(row), *[row[name] for name in shown])
            for row in sizes.head(_MOST_FOLDS).iter_rows(named=True)
        )
        whole = [*self.together, *(["near-duplicates"] if self.alike else [])]
        facts = [Fact("axis", self.axis), Fact("kept together", ", ".join(whole) or "nothing")]
        if self.frozen:
            names = ("left", "held", "moved", "joined", "excluded")
            more = ("frozen", *names, "added", "twins", "away")
            total = {name: sum(getattr(one, name) for one in self.frozen) for name in more}
            note = ", ".join(f"{total[name]:,} {name}" for name in names)
            note += f"; {total['away']:,} had left before" if total["away"] else ""
            facts.append(Fact("released test rows", total["frozen"], note=note))
            headline += "   test frozen: {left:,} left, {moved:,} moved, {joined:,} joined".format(**total)
            if total["added"]:
                kinds = {total["added"]: "near-duplicates", 0: "groups"}
                kind = kinds.get(total["twins"], "groups or near-duplicates")
                headline += f"   excluded +{total['added']:,} ({kind} of frozen test rows)"
        return Summary(
            step=f"split {self.strategy}",
            headline=headline,
            facts=tuple(facts),
            tables=(
                SummaryTable("Rows in each split", ("strategy", "seed", "fold", "held out", *shown), rows),
                *self._held_out(),
                SummaryTable("Why rows are where they are", ("split", "reason", "rows"), self._reasons()),
            ),
            warnings=(*self.warnings, *self._gone()),
            next=("certify it: s.certify(examples, difficulty=d, responses=r)",),
            sources=(self.source,),
        )

    def _named(self, row: dict[str, Any]) -> str:
        """Name what a fold holds out, or say how much where its rows differ in it."""
        first, others = row["held_out"], row["values"] - 1
        return first or "" if others < 1 else f"{first} and {others:,} more"

    def _gone(self) -> tuple[str, ...]:
        """Tell which released test rows left, by the fold that lost most."""
        worst = max(self.frozen, key=lambda one: one.left, default=None)
        if worst is None or not worst.left:
            return ()
        listed = ", ".join(worst.gone) + (", ..." if worst.left > len(worst.gone) else "")
        return (
            f"{worst.left:,} released test rows are no longer among the examples ({listed}): the ledger keeps them; "
            "should they come back, they stand where they stood",
        )

    def _held_out(self) -> tuple[SummaryTable, ...]:
        from gradatim.tasks.splits.factor_tables import held_out_cells

        cells = held_out_cells(self)
        if cells["held_out"].n_unique() < 2:
            return ()
        note = f"{_MOST_CELLS} of {len(cells):,}" if len(cells) > _MOST_CELLS else ""
        rows = tuple(cells.head(_MOST_CELLS).iter_rows())
        return (SummaryTable("What is held out", ("seed", "fold", "held out", "rows"), rows, note=note),)

    def _reasons(self) -> tuple[tuple[str, str, int], ...]:
        counted = (
            self.main.group_by("split", "reason")
            .len()
            .sort(["len", "split", "reason"], descending=[True, False, False])
        )
        return tuple(counted.head(20).iter_rows())

    def plot(self) -> Any:
        """Draw the sizes of each split beside its controls (an Altair chart)."""
        from gradatim.tasks.core import charts

        long = self.sizes.unpivot(list(SPLITS), index=["strategy"], variable_name="split", value_name="rows")
        long = (
            long.filter(pl.col("rows") > 0)
            .group_by("strategy", "split")
            .agg(pl.col("rows").sum())
            .sort("strategy", "split")
        )
        return charts.bars(long, x="split", y="rows", color="strategy", title=f"Split {self.strategy}: rows")

    def cite(self) -> str:
        """Name the source of the method."""
        return self.source

    def __repr__(self) -> str:
        return f"Split {self.strategy} (axis {self.axis}): {self.summary().headline}"

    def _one(self) -> None:
        folds = self.main.select("seed", "fold").unique().sort("seed", "fold")
        if len(folds) != 1:
            raise UsageError(
                f"this split has {len(folds)} seeds and folds",
                remedy="take one: s.select(seed=..., fold=...); s.sizes lists them",
            )


def arrange(
    strategy: str,
    seed: int,
    fold: int,
    ids: pl.Series,
    split: np.ndarray,
    axis: str,
    held_out: str | pl.Series | None,
    component: pl.Series,
    reason: pl.Series,
) -> pl.DataFrame:
    """Lay out one (strategy, seed, fold) as rows of the table ``splits``."""
    name = pl.Series("split", list(SPLITS), dtype=pl.String).gather(pl.Series(split.astype(np.uint32)))
    return (
        pl.DataFrame({"example_id": ids, "split": name, "component": component, "reason": reason})
        .with_columns(
            pl.lit(strategy).alias("strategy"),
            pl.lit(seed).alias("seed"),
            pl.lit(fold).alias("fold"),
            pl.lit(axis).alias("axis"),
            pl.when(pl.col("split").is_in(["test_ood", "validation_ood"]))
            .then(pl.lit(held_out, None if isinstance(held_out, pl.Series) else pl.String))
            .alias("held_out"),
        )
        .select([pl.col(column).cast(dtype) for column, dtype in _DTYPES.items()])
    )
