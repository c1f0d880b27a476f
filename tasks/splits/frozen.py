"""Frozen evaluation: rows in test or test_ood of a released split stay there, and their twins never enter train."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from gradatim.schemas.errors import UsageError
from gradatim.schemas.tables import SPLITS
from gradatim.tasks.splits.inputs import phrase
from gradatim.tasks.splits.together import near_duplicates

KEPT = "kept from the released split"
"""How the reason of a row begins that only its release holds where it is."""

STRADDLES = " also has out-of-distribution rows"
"""How the reason of a row ends that is excluded since its group lies on both sides of the rule."""
LEDGER = ("strategy", "seed", "fold", "example_id", "split", "component", "held_out")
"""Columns by which a released row is kept."""
CONTROLS = r"\.(random|matched)$"
"""How the names of controls end, which freeze nothing."""

_TESTS = ("test", "test_ood")
_TEST, _TEST_OOD, _EXCLUDED = SPLITS.index("test"), SPLITS.index("test_ood"), SPLITS.index("excluded")


@dataclass(frozen=True)
class Now:
    """What the engine would do without a release: ids, split codes, components, reasons, all (rows,).

    `pairs` are near-duplicates, named where a row is kept out for one: left_id, right_id, similarity where known.
    """

    ids: pl.Series
    split: np.ndarray
    component: pl.Series
    reason: pl.Series
    pairs: pl.DataFrame | None = None


@dataclass(frozen=True)
class Outcome:
    """What the release changed in one (seed, fold).

    Attributes
    ----------
    seed, fold : int
    frozen : int
        Rows of the released test and test_ood.
    left : int
        Those that are no longer among the examples, and were when it was released.
    held : int
        Those that the rules alone would have put elsewhere.
    moved : int
        Those that changed their split; always 0.
    joined : int
        Rows that are new in test or test_ood.
    excluded : int
        Rows kept out since their group or near-duplicates hold a frozen row.
    added : int
        Those of them that the release had not kept out.
    twins : int
        Those of these that have a near-duplicate.
    away : int
        Rows of `frozen` that had left before the release, and are not back.
    gone : tuple of str
        Ids of the first five of `left`.
    """

    seed: int
    fold: int
    frozen: int
    left: int
    held: int
    moved: int
    joined: int
    excluded: int
    added: int = 0
    twins: int = 0
    away: int = 0
    gone: tuple[str, ...] = ()


def released(table: pl.DataFrame | None) -> pl.DataFrame | None:
    """Check a released split and drop its controls, and the rows that bind nothing.

    Parameters
    ----------
    table : polars.DataFrame or None
        Columns example_id and split; seed, fold, strategy and component where it has them.

    Raises
    ------
    UsageError
        Where a column is missing or rows of two strategies are mixed.
    """
    if table is None:
        return None
    for name in ("example_id", "split"):
        if name not in table.columns:
            raise UsageError(f"the released split has no column {name!r}", expected="example_id and split")
    if "strategy" in table.columns:
        table = table.filter(~pl.col("strategy").str.contains(CONTROLS))
        names = table["strategy"].unique().sort().to_list()
        if len(names) > 1:
            raise UsageError(
                f"the released split mixes the strategies {', '.join(map(repr, names))}",
                expected="rows of one strategy",
            )
    return table.filter(pl.col("split").is_in([*_TESTS, "excluded"]))


def ledger(table: pl.DataFrame | None, ids: pl.Series) -> pl.DataFrame | None:
    """Return the released test rows that are not among the examples: should they come back, they are test rows still.

    Parameters
    ----------
    table : polars.DataFrame or None
        From `released`.
    ids : polars.Series of String
        The rows that there are.

    Returns
    -------
    polars.DataFrame or None
        strategy, seed, fold, example_id, split, component, held_out, as far as `table` has them; sorted.
    """
    if table is None:
        return None
    away = table.filter(pl.col("split").is_in(_TESTS) & ~pl.col("example_id").is_in(ids.implode()))
    known = [name for name in LEDGER if name in table.columns]
    return away.select(known).sort(known[: known.index("example_id") + 1])


def keep(now: Now, table: pl.DataFrame, seed: int, fold: int) -> tuple[np.ndarray, pl.Series, Outcome]:
    """Put frozen rows back where they were released, and keep their group's other rows out of every other split."""
    for name, value in (("seed", seed), ("fold", fold)):
        if name in table.columns:
            table = table.filter(pl.col(name) == value)
    columns = ["example_id", "split", *(name for name in ("component", "away") if name in table.columns)]
    table = table.select(columns).unique(subset="example_id", keep="first", maintain_order=True)
    out_before = now.ids.is_in(table.filter(pl.col("split") == "excluded")["example_id"].implode()).to_numpy()
    table = table.filter(pl.col("split").is_in(_TESTS))
    before = (
        now.ids.to_frame("example_id")
        .join(table.select("example_id", "split"), on="example_id", how="left", maintain_order="left")["split"]
        .replace_strict({"test": _TEST, "test_ood": _TEST_OOD}, default=255, return_dtype=pl.UInt8)
        .fill_null(255)
        .to_numpy()
    )
    is_frozen = before != 255
    split = np.where(is_frozen, before, now.split).astype(np.uint8)
    changed = is_frozen & (split != now.split)
    homes = _homes(now.component, before, table)
    # a new row that its own draw puts beside the frozen one may join it
    elsewhere = (homes != now.split) & (now.split != _EXCLUDED)
    straddles = now.reason.str.ends_with(STRADDLES).fill_null(False).to_numpy()
    blocked = (homes != 255) & ~is_frozen & (elsewhere | straddles)
    split[blocked] = _EXCLUDED
    held_here = np.isin(split, [_TEST, _TEST_OOD])
    reason = phrase(KEPT, "; the rule now says: ", now.reason, when=pl.Series(changed), otherwise=now.reason)
    twin = ("its group ", now.component, " holds a released test row")
    reason = phrase(*twin, when=pl.Series(blocked), otherwise=reason)
    partners = _partners(now, blocked, table["example_id"])
    reason = partners.select(pl.coalesce("reason", pl.lit(reason)).alias("reason"))["reason"]
    added = blocked & ~out_before
    missing = table.filter(~pl.col("example_id").is_in(now.ids.implode()))
    left = missing.filter(~pl.col("away")) if "away" in table.columns else missing
    outcome = Outcome(
        seed=seed,
        fold=fold,
        frozen=len(table),
        left=len(left),
        held=int(changed.sum()),
        moved=int((is_frozen & (split != before)).sum()),
        joined=int((held_here & ~is_frozen).sum()),
        excluded=int(blocked.sum()),
        added=int(added.sum()),
        twins=int((added & partners["reason"].is_not_null().to_numpy()).sum()),
        away=len(missing) - len(left),
        gone=tuple(left["example_id"].sort().head(5)),
    )
    return split, reason, outcome


def _by_component(component: pl.Series, before: np.ndarray, table: pl.DataFrame) -> pl.DataFrame:
    """List each component that holds or held a frozen row, with its one frozen split, or 254 where it has both."""
    here = pl.DataFrame({"component": component, "home": before}).filter(pl.col("home") != 255)
    gone = pl.DataFrame(schema=here.schema)
    if "component" in table.columns:
        home = pl.col("split").replace_strict({"test": _TEST, "test_ood": _TEST_OOD}, return_dtype=pl.UInt8)
        gone = table.select("component", home.alias("home"))
    lowest, highest = pl.col("home").min(), pl.col("home").max()
    one = pl.when(lowest == highest).then(lowest).otherwise(pl.lit(254, pl.UInt8)).alias("home")
    return pl.concat([here, gone]).drop_nulls("component").group_by("component").agg(one)


def _homes(component: pl.Series, before: np.ndarray, table: pl.DataFrame) -> np.ndarray:
    """Give each row the frozen split of its component, or 255."""
    found = component.to_frame("component").join(
        _by_component(component, before, table), on="component", how="left", maintain_order="left"
    )
    homes: np.ndarray = found["home"].fill_null(255).to_numpy()
    return homes


def _partners(now: Now, blocked: np.ndarray, frozen: pl.Series) -> pl.DataFrame:
    """Name the near-duplicate for which each blocked row is kept out: a released test row if one is, the most alike.

    Returns
    -------
    polars.DataFrame
        reason, null where there is no near-duplicate, in the order of `now`.
    """
    rows = pl.DataFrame({"example_id": now.ids, "component": now.component})
    pairs = pl.DataFrame(schema={"left_id": pl.String, "right_id": pl.String})
    if now.pairs is not None:
        pairs = near_duplicates(now.pairs)
    if "similarity" not in pairs.columns:
        pairs = pairs.with_columns(similarity=pl.lit(None, pl.Float64))
    near = pl.concat(
        pairs.select(pl.col(one).alias("example_id"), pl.col(other).alias("partner"), "similarity")
        for one, other in (("left_id", "right_id"), ("right_id", "left_id"))
    ).join(rows.filter(pl.Series(blocked)), on="example_id", how="semi")
    near = near.with_columns(is_frozen=pl.col("partner").is_in(frozen.implode()))
    order = ["example_id", "is_frozen", "similarity", "partner"]
    near = near.sort(order, descending=[False, True, True, False], nulls_last=True)
    near = near.unique("example_id", keep="first", maintain_order=True)
    # written as in a paper: .93
    alike = pl.format(" (similarity {})", pl.col("similarity").round(3).cast(pl.String).str.strip_prefix("0"))
    end = (
        pl.when("is_frozen")
        .then(pl.lit(", a released test row"))
        .otherwise(pl.format(", and its group {} holds a released test row", "component"))
    )
    said = pl.concat_str(pl.lit("near-duplicate of "), "partner", alike.fill_null(""), end)
    return rows.join(near, on="example_id", how="left", maintain_order="left").select(
        reason=pl.when(pl.col("partner").is_not_null()).then(said)
    )
