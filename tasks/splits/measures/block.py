"""One split of one seed and fold, with what is known of its rows: what every measure takes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import polars as pl

from gradatim.schemas.tables import SPLITS

Measured = dict[str, tuple[float | None, int]]
"""Value and number of rows by the name of the check."""

USED = tuple(name for name in SPLITS if name != "excluded")


@dataclass(frozen=True)
class Block:
    """Rows of one (strategy, seed, fold).

    Attributes
    ----------
    rows : polars.DataFrame
        example_id, row (its place among the examples), split, component, and where they are known input, text (its
        number, see `measures.duplicates.normalised`), output, domain, template, structure, bin and value (difficulty)
        and score; sorted by example_id.
    seed : int
    pairs : polars.DataFrame or None
        Near-duplicates, as `measures.duplicates.alike` gives them.
    answers : polars.DataFrame or None
        As `measures.scores.known_answers` gives it.
    """

    rows: pl.DataFrame
    seed: int
    pairs: pl.DataFrame | None = None
    answers: pl.DataFrame | None = None

    @cached_property
    def parts(self) -> dict[str, pl.DataFrame]:
        """Rows of each split but excluded, empty ones too."""
        found = self.rows.partition_by("split", as_dict=True, maintain_order=True)
        return {name: found.get((name,), self.rows.clear()) for name in USED}

    @property
    def train(self) -> pl.DataFrame:
        """Training rows."""
        return self.parts["train"]

    @property
    def compared(self) -> pl.DataFrame:
        """What train is compared with: test_ood, or test where there is none."""
        outside = self.parts["test_ood"]
        return outside if len(outside) else self.parts["test"]

    def has(self, *columns: str) -> bool:
        """Whether all of these columns are known."""
        return all(name in self.rows.columns for name in columns)
