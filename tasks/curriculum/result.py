"""`CurriculumOrder`: the order of training and its control arms, as ids, as a table or as a stream."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from gradatim.schemas.errors import UsageError, nearest
from gradatim.schemas.summary import Fact, Summary, SummaryChart, SummaryTable
from gradatim.schemas.tables import spec
from gradatim.tasks.curriculum.order import Plan, arm_blocks, exposures, recut

ARMS = ("curriculum", "random", "anti", "shuffled")
"""The curriculum and its controls: the same rows as often, in another order."""

BATCH = 131_072
_WINDOWS = 100
_MOST_CHARTED = 5_000_000


@dataclass(frozen=True)
class CurriculumOrder:
    """An order of training with its control arms.

    Attributes
    ----------
    ids : polars.Series of String, (rows,)
        Training rows, easiest first.
    without_difficulty : polars.Series of String
        Training rows that have no difficulty and come in no arm, sorted.
    plan : Plan
    arms : tuple of str
    seed : int
    by : str
        The difficulty that orders them.
    passes : float
    pacing : str
        The pacing with its settings.
    source : str
    """

    ids: pl.Series
    without_difficulty: pl.Series
    plan: Plan
    arms: tuple[str, ...]
    seed: int
    by: str
    passes: float
    pacing: str
    source: str

    @property
    def positions(self) -> int:
        """Exact number of positions of each arm: ceil(passes x rows)."""
        return self.plan.positions

    @cached_property
    def exposures(self) -> pl.DataFrame:
        """How often each row comes, in every arm alike: example_id, exposures; easiest first."""
        return pl.DataFrame({"example_id": self.ids, "exposures": exposures(self.plan)})

    def order(self, arm: str) -> pl.Series:
        """Return an arm's ids in training order (String, (positions,))."""
        return self.ids.gather(self._ranks(arm)).alias("example_id")

    @cached_property
    def table(self) -> pl.DataFrame:
        """The table ``curriculum``, all arms: arm, seed, position, example_id, stage, weight."""
        frame = pl.from_arrow(pa.Table.from_batches(curriculum_batches(self), spec("curriculum").schema))
        assert isinstance(frame, pl.DataFrame)
        return frame

    def summary(self) -> Summary:
        """Describe the order for terminal, report and artifact."""
        counts = self.exposures["exposures"].to_numpy()
        rows, seen = self.plan.rows, int((counts > 0).sum())
        full = self._full_from()
        facts = (
            Fact("arms", ", ".join(self.arms)),
            Fact("training rows", rows),
            Fact("positions", self.positions, note=f"{self.passes:g} passes, in each arm"),
            Fact("different rows seen", seen),
            Fact("exposures of a row", f"{counts.min()} to {counts.max()}"),
            Fact("rows available at the start", self.plan.available(0)),
            Fact("every row available from position", full if full is not None else "never"),
            Fact("rows without a difficulty, left out", len(self.without_difficulty)),
        )
        warnings = []
        if seen < rows:
            warnings.append(f"{rows - seen:,} of {rows:,} rows never come: raise passes or make them available earlier")
        if len(self.without_difficulty):
            warnings.append(
                f"{len(self.without_difficulty):,} training rows have no difficulty {self.by} and come in no arm"
            )
        tables: tuple[SummaryTable, ...] = ()
        if len(self.without_difficulty):
            listed = tuple((one,) for one in self.without_difficulty.head(20))
            tables = (SummaryTable("Rows without a difficulty (the first 20)", ("example_id",), listed),)
        return Summary(
            step="curriculum",
            headline=f"{self.positions:,} positions over {rows:,} rows by {self.by}, {self.pacing}",
            facts=facts,
            tables=tables,
            charts=self._charts(),
            warnings=tuple(warnings),
            sources=(self.source,),
        )

    def plot(self) -> Any:
        """Draw the mean difficulty percentile along each arm (an Altair chart)."""
        from gradatim.tasks.core import charts

        return charts.lines(
            self.profile(), x="position", y="percentile", color="arm", title="Difficulty along the order"
        )

    def profile(self, windows: int = _WINDOWS) -> pl.DataFrame:
        """Return the mean difficulty percentile of each window of positions: arm, position (its middle), percentile."""
        cut = np.unique(np.arange(windows + 1) * self.positions // windows)
        sizes = np.diff(cut)
        counts = self.exposures["exposures"].to_numpy()
        frames = []
        for arm in self.arms:
            blocks = recut(arm_blocks(self.plan, arm, counts), sizes.tolist())
            means = [(float(block.sum(dtype=np.int64)) / len(block) + 1) / self.plan.rows for block in blocks]
            frames.append(pl.DataFrame({"arm": arm, "position": (cut[:-1] + cut[1:]) // 2, "percentile": means}))
        return pl.concat(frames)

    def cite(self) -> str:
        """Name the source of the pacing."""
        return self.source

    def __repr__(self) -> str:
        arms = ", ".join(self.arms)
        return f"CurriculumOrder of {self.plan.rows:,} rows by {self.by}: {self.positions:,} positions, {arms}"

    def _charts(self) -> tuple[SummaryChart, ...]:
        if self.positions > _MOST_CHARTED:
            return ()
        from gradatim.tasks.core import charts

        caption = "Mean difficulty percentile of the rows along each arm; all arms hold the same rows as often."
        return (charts.chart(self.plot(), caption),)

    def _full_from(self) -> int | None:
        """First position at which every row is available."""
        if self.plan.available(self.positions - 1) < self.plan.rows:
            return None
        low, high = -1, self.positions - 1
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self.plan.available(middle) == self.plan.rows else (middle, high)
        return high

    def _ranks(self, arm: str) -> pl.Series:
        if arm not in self.arms:
            raise UsageError(f"there is no arm {arm!r}{nearest(arm, self.arms)}", expected=", ".join(self.arms))
        return pl.Series(np.concatenate(list(arm_blocks(self.plan, arm, self._counts_if_needed(arm)))))

    def _counts_if_needed(self, arm: str) -> np.ndarray | None:
        return self.exposures["exposures"].to_numpy() if arm in ("random", "anti") else None


def curriculum_batches(
    order: CurriculumOrder, arms: Sequence[str] | None = None, *, size: int = BATCH
) -> Iterator[pa.RecordBatch]:
    """Stream the table ``curriculum`` in the order of its key: arm by arm, position by position.

    Parameters
    ----------
    order : CurriculumOrder
    arms : sequence of str, optional
        All of the order's by default.
    size : int
        Rows a batch.

    Yields
    ------
    pyarrow.RecordBatch
        In the schema of the table.

    Notes
    -----
    Memory is bounded by the number of training rows and the batch, whatever the number of positions.
    """
    schema = spec("curriculum").schema
    starts = order.plan.stage_starts()[1:]
    for arm in sorted(order.arms if arms is None else arms):
        if arm not in order.arms:
            raise UsageError(f"there is no arm {arm!r}{nearest(arm, order.arms)}", expected=", ".join(order.arms))
        position = 0
        for ranks in recut(arm_blocks(order.plan, arm, order._counts_if_needed(arm)), size):
            place = np.arange(position, position + len(ranks), dtype=np.int64)
            stage = np.searchsorted(starts, place, side="right").astype(np.int32)
            columns = {
                "arm": pa.array([arm], pa.string()).take(pa.array(np.zeros(len(ranks), np.int32))),
                "seed": pa.array(np.full(len(ranks), order.seed, np.int64)),
                "position": pa.array(place),
                "example_id": order.ids.gather(pl.Series(ranks)).to_arrow().cast(pa.string()),
                "stage": pa.array(stage),
                "weight": pa.array(np.ones(len(ranks), np.float32)),
            }
            yield pa.RecordBatch.from_arrays([columns[field.name] for field in schema], schema=schema)
            position += len(ranks)
