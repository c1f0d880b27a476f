"""Maximum compound divergence: train and test_ood made of the same atoms, put together as differently as can be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import polars as pl
from pydantic import Field, field_validator, model_validator

from gradatim.schemas.errors import DataRefused
from gradatim.tasks.core.divergences import (
    ATOMS,
    COMPOUNDS,
    SOURCE,
    TOP,
    Divergences,
    Profile,
    divergences,
    factor_profile,
    text_profile,
    tree_profile,
)
from gradatim.tasks.core.registry import Cost, register
from gradatim.tasks.splits.config import SplitConfig
from gradatim.tasks.splits.cuts import Cut, cut_by_draw, cut_by_strata
from gradatim.tasks.splits.divergent.search import UNUSED, Aim, search
from gradatim.tasks.splits.divergent.train_atoms import beside, keeps_atoms, with_any
from gradatim.tasks.splits.divergent.units import Units, units_of
from gradatim.tasks.splits.engine import IN, NEITHER, OUT, Marks, build
from gradatim.tasks.splits.inputs import keep_together, prepare
from gradatim.tasks.splits.result import Split
from gradatim.tasks.splits.together import Together, together
from gradatim.tasks.splits.values import frozen_tests

WHERE = "split mcd"
_NEW = -1
_FIXED = 2
"""Units that stand for the released rows of V and of W."""


class McdConfig(SplitConfig):
    """Settings of maximum compound divergence."""

    factors: tuple[str, ...] = Field((), description="columns or factors whose values are the atoms; not trees then")
    text: str | None = Field(None, description="column of texts whose words are the atoms; not trees then")
    max_size: int = Field(5, ge=2, le=12, description="most nodes of a compound (words, of a text)")
    ways: tuple[int, ...] = Field((2,), min_length=1, description="how many factors a compound joins")
    in_distribution: float = Field(
        0.5, gt=0, lt=1, description="share of all rows that train, validation and test are cut from"
    )
    out_of_distribution: float = Field(
        0.1, gt=0, lt=1, description="share of all rows that go to test_ood and validation_ood; the rest is not used"
    )
    target: float = Field(1.0, ge=0, le=1, description="compound divergence to come near to")
    atom_divergence: float = Field(0.02, gt=0, le=1, description="most of the atom divergence")
    alpha_atoms: float = Field(ATOMS, gt=0, lt=1, description="exponent of train in the atom divergence")
    alpha_compounds: float = Field(COMPOUNDS, gt=0, lt=1, description="exponent of train in the compound divergence")
    min_atom_count: int = Field(1, ge=0, description="rows of train that hold each atom of the test, at least")
    top: int = Field(TOP, ge=1, description="compounds that count: those of the greatest weight")
    candidates: int = Field(64, ge=1, description="rows that are looked at for each that is placed")
    starts: int = Field(8, ge=1, description="searches, of which the best is kept")
    exchanges: float = Field(1.0, ge=0, description="most exchanges to try in each of four stages, per row placed")

    @field_validator("factors", "ways", mode="before")
    @classmethod
    def _one(cls, found: object) -> object:
        return (found,) if isinstance(found, str | int) else found

    @model_validator(mode="after")
    def _adds_up(self) -> McdConfig:
        if self.in_distribution + self.out_of_distribution > 1 + 1e-9:
            raise ValueError(
                f"in_distribution {self.in_distribution:g} + out_of_distribution {self.out_of_distribution:g} is more "
                "than all rows"
            )
        if self.factors and self.text:
            raise ValueError("atoms are values of factors or words of a text, not both")
        if min(self.ways) < 2 or (self.factors and len(set(self.factors)) < len(self.factors)):
            raise ValueError("compounds join 2 or more different factors")
        return self

    @property
    def made_of(self) -> tuple[str, ...]:
        """Columns of examples that say what rows are made of."""
        return self.factors or ((self.text,) if self.text else ("structure",))


@register(
    "split",
    "mcd",
    config=McdConfig,
    needs=("examples.{made_of}", "examples.{keep_together}", "examples.{stratify}"),
    cost=lambda rows, width: Cost(4.0 + 4e-4 * rows, 3e8 + 6_000 * rows),
    source=SOURCE,
)
def run(tables: Mapping[str, pl.DataFrame], config: McdConfig, seed: int) -> Split:
    """Draw train and test_ood from two sides with like atoms and compounds as unlike as a search can make them."""
    examples = prepare(tables, "mcd", config)
    columns = keep_together(examples, config)
    builder = _Builder(examples, config, tables, _profile(examples, config), together(examples, columns, tables))
    base: Cut = cut_by_draw
    if config.stratify is not None:
        stratum = examples[config.stratify].cast(pl.String).fill_null("null")
        base = cut_by_strata(stratum.rank("dense").cast(pl.Int64).to_numpy() - 1, stratum.n_unique())
    cut = keeps_atoms(
        base, builder.profile.atoms, lambda: builder.tested, config.min_atom_count, lambda: next(builder.held)
    )
    return build(
        examples, lambda one: [builder.mark(one)], config, seed, tables,
        method="mcd", axis="compounds", source=SOURCE, together=columns, cut=cut,
    )  # fmt: skip


@dataclass
class _Builder:
    """The rows and what they are made of.

    `tested` are the atoms on the out-of-distribution side of the last seed, and `held` gives the rows that a release
    holds in test for each of its cuts.
    """

    examples: pl.DataFrame
    config: McdConfig
    tables: Mapping[str, pl.DataFrame]
    profile: Profile
    whole: Together
    tested: np.ndarray = field(default_factory=lambda: np.zeros(0, np.bool_))
    held: Iterator[np.ndarray] = field(default_factory=lambda: iter(()))

    def mark(self, seed: int) -> Marks:
        """Mark the rows of one seed."""
        config, profile, known = self.config, self.profile, self.profile.known
        before = _released(self.examples["example_id"], self.tables.get("frozen"), seed)
        unit, names, mixed = self._units(known, before)
        quota = self._quota(int(known.sum()), unit)
        units = units_of(profile, unit, len(names), (config.alpha_atoms, config.alpha_compounds))
        fixed = np.full(len(names), UNUSED, np.int8)
        fixed[:_FIXED][units.rows[:_FIXED] > 0] = np.arange(_FIXED)[units.rows[:_FIXED] > 0]
        aim = Aim(
            config.target, config.atom_divergence, quota, config.candidates, config.starts, config.exchanges,
            config.min_atom_count,
        )  # fmt: skip
        found = search(units, names, fixed, aim, seed)
        side = np.where(unit >= 0, found.side[unit], UNUSED)
        tests = frozen_tests(self.examples["example_id"], self.tables, seed, 0, config.folds)
        rare = self._untrained(side, before, tests)
        side[rare] = UNUSED
        self.held = iter(tests)
        self._refuse_empty(side, quota, units)
        reached = divergences(profile, side == 0, side == 1, atoms=config.alpha_atoms, compounds=config.alpha_compounds)
        self._refuse_unlike(reached, quota)
        self.tested = profile.atoms.holders(side == 1) > 0
        marks = np.array([IN, OUT, NEITHER], np.int8)[side]
        told = f"D_C {reached.compound or 0.0:.3f}, D_A {reached.atom or 0.0:.3f}"
        return Marks(
            marks, self._reason(side, known, before, mixed, rare), f"compounds ({told})",
            warnings=self._warnings(reached, side, quota, told, seed),
        )  # fmt: skip

    def _units(self, known: np.ndarray, before: np.ndarray) -> tuple[np.ndarray, pl.Series, np.ndarray]:
        """Number what is placed as one; released rows are the first two units, and new ones of their groups join them.

        Returns
        -------
        unit : numpy.ndarray, (rows,), int64
            -1 for rows that are not placed.
        names : polars.Series of String, (units,)
        mixed : numpy.ndarray of bool, (rows,)
            New rows whose group was released on both sides.
        """
        key = self.whole.key
        code = key.rank("dense").cast(pl.Int64).to_numpy() - 1
        count = int(code.max(initial=-1)) + 1
        beside = np.stack([np.bincount(code[before == side], minlength=count) > 0 for side in (0, 1)], axis=1)[code]
        fresh = before == _NEW
        mixed = fresh & beside.all(axis=1)
        unit = code + _FIXED
        for side in (0, 1):
            unit[(before == side) | (fresh & beside[:, side])] = side
        unit[~known | mixed | (before == UNUSED)] = -1
        names = pl.concat([pl.Series(["V", "W"]), key.unique().sort().rename("")])
        return unit, names, mixed

    def _untrained(self, side: np.ndarray, before: np.ndarray, tests: list[np.ndarray]) -> np.ndarray:
        """Say which new out-of-distribution rows have an atom that a release keeps out of train, with their groups."""
        atoms, code = self.profile.atoms, self.whole.key.rank("dense").cast(pl.Int64).to_numpy() - 1
        lacking = np.zeros(len(side), np.bool_)
        for test in tests:
            if test.any():
                few = atoms.holders((side == 0) & ~beside(test, code)) < self.config.min_atom_count
                lacking |= with_any(atoms, few)
        fresh = (side == 1) & (before == _NEW)
        rare: np.ndarray = fresh & beside(fresh & lacking, code)
        return rare

    def _quota(self, rows: int, unit: np.ndarray) -> tuple[int, int]:
        """Rows of each side, those released among them."""
        config = self.config
        shares = {"in_distribution": config.in_distribution, "out_of_distribution": config.out_of_distribution}
        sizes = []
        for side, (name, share) in enumerate(shares.items()):
            sizes.append(max(int(np.floor(share * rows + 0.5)), int((unit == side).sum())))
            if sizes[-1] == 0:
                raise DataRefused(
                    f"{name} {share:g} of {rows:,} rows is none", where=WHERE, expected="at least one row",
                    remedy=f"raise {name}, or add rows",
                )  # fmt: skip
        return sizes[0], sizes[1]

    def _refuse_empty(self, side: np.ndarray, quota: tuple[int, int], units: Units) -> None:
        for which, name in ((0, "in distribution"), (1, "out of distribution")):
            if (side == which).any():
                continue
            least = int(units.rows[units.rows > 0].min(initial=len(side)))
            why = f"the smallest group holds {least:,}" if least > quota[which] else "its atoms are too rare in train"
            raise DataRefused(
                f"no row is {name}: {quota[which]:,} rows were asked for, and {why}",
                where=WHERE,
                remedy="keep together by a finer column, or ask for larger shares"
                if least > quota[which]
                else f"lower min_atom_count (now {self.config.min_atom_count})",
            )

    def _refuse_unlike(self, reached: Divergences, quota: tuple[int, int]) -> None:
        cap = self.config.atom_divergence
        if reached.atom is not None and reached.atom > cap + 1e-9:
            raise DataRefused(
                f"the atom divergence is {reached.atom:.4f} at best, with a compound divergence of "
                f"{reached.compound or 0.0:.3f}",
                where=WHERE,
                expected=f"at most {cap:g}, so that a gap is put down to compounds and not to atoms",
                remedy=f"raise atom_divergence, or ask for smaller sides (now {quota[0]:,} and {quota[1]:,} rows) so "
                "that the search has a choice",
            )

    def _reason(
        self, side: np.ndarray, known: np.ndarray, before: np.ndarray, mixed: np.ndarray, rare: np.ndarray
    ) -> pl.Series:
        texts = np.array(
            ["its atoms and compounds are like train's", "its compounds are unlike train's, its atoms alike",
             "not used: left out to keep the compounds of train and test apart"], dtype=object,
        )[side]  # fmt: skip
        texts[(side == UNUSED) & (before == UNUSED)] = "not used in the released split"
        texts[rare] = "not used: an atom of its group is too rare in train beside the rows that are released in test"
        texts[mixed] = "not used: its group was released on both sides"
        texts[~known] = f"not used: {' and '.join(self.config.made_of)} null or empty"
        return pl.Series("reason", texts.tolist(), dtype=pl.String)

    def _warnings(
        self, reached: Divergences, side: np.ndarray, quota: tuple[int, int], told: str, seed: int
    ) -> tuple[str, ...]:
        config, said = self.config, []
        if config.target < 1 and abs((reached.compound or 0.0) - config.target) > 0.01:
            said.append(
                f"seed {seed}: the compound divergence is {reached.compound or 0.0:.3f}, asked {config.target:g}"
            )
        if config.target == 1 and (reached.compound or 0.0) < 0.1:
            said.append(f"seed {seed}: compounds hardly differ ({told}); look at the random control")
        for which, name in ((0, "in_distribution"), (1, "out_of_distribution")):
            rows = int((side == which).sum())
            if rows < quota[which]:
                said.append(f"seed {seed}: {name} has {rows:,} of {quota[which]:,} rows")
        if self.profile.left_out:
            said.append(f"{self.profile.left_out:,} compounds of little weight do not count (top {config.top:,})")
        return tuple(said)


def _profile(examples: pl.DataFrame, config: McdConfig) -> Profile:
    """Read what rows are made of; refuses rows that have no compounds at all."""
    if config.factors:
        profile = factor_profile(examples, config.factors, config.ways, top=config.top)
    elif config.text is not None:
        profile = text_profile(examples[config.text].cast(pl.String), config.max_size, top=config.top)
    else:
        if examples["structure"].null_count() == len(examples):
            raise DataRefused(
                f"none of {len(examples):,} rows has a structure", where=WHERE,
                expected="a tree of each row in the column structure",
                remedy="read trees with  structure: COLUMN  in the section examples, or take atoms from factors: [...] "
                "or text: COLUMN",
            )  # fmt: skip
        profile = tree_profile(examples["structure"], config.max_size, top=config.top, ids=examples["example_id"])
    if not profile.compounds.size:
        raise DataRefused(
            f"no row has a compound: {profile.kind}", where=WHERE, expected="rows of two or more atoms",
            remedy="name two or more factors, or trees of two or more nodes",
        )  # fmt: skip
    return profile


def _released(ids: pl.Series, frozen: pl.DataFrame | None, seed: int) -> np.ndarray:
    """Return the side that each row has in the released split of this seed, UNUSED if none, _NEW for a new row."""
    if frozen is None:
        return np.full(len(ids), _NEW, np.int8)
    if "strategy" in frozen.columns:
        frozen = frozen.filter(~pl.col("strategy").str.contains(r"\.(random|matched)$"))
    if "seed" in frozen.columns:
        frozen = frozen.filter(pl.col("seed") == seed)
    side = pl.col("split").replace_strict(
        {"train": 0, "validation": 0, "test": 0, "test_ood": 1, "validation_ood": 1},
        default=UNUSED, return_dtype=pl.Int8,
    )  # fmt: skip
    known = frozen.group_by("example_id").agg(side.min().alias("side"))
    joined = ids.to_frame("example_id").join(known, on="example_id", how="left", maintain_order="left")
    return joined["side"].fill_null(_NEW).to_numpy()
