"""Each fold's rows hold what the published split says, and no others do; the bare primitive is trained on."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from gradatim.tasks.splits.constraints import Check, zero
from gradatim.tasks.splits.promises._sides import IN, NEITHER, OUT, compared


def promises(settings: dict[str, Any], rows: pl.DataFrame) -> list[Check]:
    """Look for the words of each command between spaces, and count actions."""
    axis = str(rows["axis"][0])
    if axis == "none":
        return compared(np.full(len(rows), IN), rows, "the simple split")
    if axis == "length":
        actions = rows[settings["actions"]]
        long = actions.str.split(" ").list.eval(pl.element().filter(pl.element() != "")).list.len()
        side = np.where(long.fill_null(0).to_numpy() > 22, OUT, IN)
        return compared(np.where(actions.is_null().to_numpy(), NEITHER, side), rows, "more than 22 actions")
    command = rows[settings["command"]]
    # words between single blanks, so that nothing but whole words is found
    padded = pl.DataFrame({"words": command}).select(pl.format(" {} ", "words"))
    words = padded.to_series().str.replace_all(r"\s+", " ")
    name = axis.split(" ", 1)[1]
    if axis.startswith("primitive"):
        bare = (words.str.strip_chars() == name).fill_null(False)
        out = words.str.contains(f" {name} ", literal=True).fill_null(False) & ~bare
        skip = command.is_null()
    else:
        verbs = ["jump"] if name.startswith("jump") else ["walk", "look", "run", "jump"]
        held = [f" {verb} around right " for verb in verbs]
        out = words.str.contains_any(held).fill_null(False)
        skip = words.str.contains(" turn around right ", literal=True).fill_null(True)
    side = np.where(skip.to_numpy(), NEITHER, np.where(out.to_numpy(), OUT, IN))
    checks = compared(side, rows, name)
    if axis.startswith("primitive"):
        trained = int((bare & (rows["split"] == "train")).sum())
        checks.append(zero(f"constraint:{name} by itself is not trained on", int(trained == 0), int(bare.sum())))
    return checks
