"""No in-distribution row has a held-out structure, each row of test_ood has one, and train has every symbol."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from gradatim.tasks.core.distinct_trees import distinct
from gradatim.tasks.core.local_structures import LocalStructures, local_structures
from gradatim.tasks.splits.constraints import Check, zero
from gradatim.tasks.splits.promises._sides import IN, NEITHER, OUT, compared


def promises(settings: dict[str, Any], rows: pl.DataFrame) -> list[Check]:
    """Look for the structures that ``held_out`` names, count symbols, and tell how many test rows are hard."""
    trees = rows[settings["of"]]
    some = distinct(trees)
    found = {n: local_structures(some, n) for n in sorted({2, 3, int(settings["n"])})}
    own = found[int(settings["n"])]
    told = {piece for text in rows["held_out"].drop_nulls().unique() for piece in text.split("; ")}
    held = own.names().str.replace_all(";", r"\u003b", literal=True).is_in(list(told)).to_numpy()
    has = _holds(own, held)
    side = np.where(some.tree < 0, NEITHER, np.where(has, OUT, IN))
    least = int(settings["keep_symbols"])
    labels = trees.list.eval(pl.element().struct.field("label")).list.unique()
    beside = pl.DataFrame({"symbol": labels, "train": rows["split"] == "train"}).explode("symbol").drop_nulls("symbol")
    counts = beside.group_by("symbol").agg(pl.len().alias("all"), pl.col("train").sum().alias("trained"))
    few = counts.filter(pl.col("trained") < pl.min_horizontal("all", pl.lit(least)))
    checks = [
        *compared(side, rows, "a held-out structure"),
        zero(f"constraint:symbols in fewer than {least} training rows", len(few), len(counts)),
        Check("held_out_structures", float(held.sum()), None, None, own.size),
    ]
    train = (rows["split"] == "train").to_numpy()
    for n in (2, 3):
        hard = _holds(found[n], found[n].examples(train) == 0)
        for name in ("test", "test_ood"):
            tested = (rows["split"] == name).to_numpy() & (some.tree >= 0)
            if tested.any():
                checks.append(Check(f"hard_{n}_ls:{name}", float(hard[tested].mean()), None, None, int(tested.sum())))
    return checks


def _holds(found: LocalStructures, chosen: np.ndarray) -> np.ndarray:
    """Say which rows hold one of the structures chosen."""
    line = np.zeros(len(found.indptr), np.bool_)  # one more, for rows without a tree
    line[found.line[chosen[found.code]]] = True
    rows: np.ndarray = line[found.tree]
    return rows
