"""Where each row belongs in the compositional presets, row by row, from what the papers say."""

from __future__ import annotations

from itertools import combinations
from typing import Any

Row = dict[str, Any]
IN, OUT, NEITHER = "in", "out", "neither"


def scan(row: Row, fold: str) -> str:
    """Words of the command one by one; `fold` is what is held out."""
    if fold == "length":
        if row["output"] is None:
            return NEITHER
        return OUT if len(row["output"].split()) > 22 else IN
    if fold == "simple":
        return IN
    if row["input"] is None:
        return NEITHER
    words = row["input"].split()
    if fold in ("jump", "turn left"):
        if words == fold.split():
            return IN
        return OUT if within(fold.split(), words) else IN
    if within(["turn", "around", "right"], words):
        return NEITHER
    verbs = ["jump"] if fold == "jump around right" else ["walk", "look", "run", "jump"]
    return OUT if any(within([verb, "around", "right"], words) for verb in verbs) else IN


def within(some: list[str], words: list[str]) -> bool:
    return any(words[at : at + len(some)] == some for at in range(len(words)))


def cogs(row: Row, cases: set[str]) -> str:
    kind = row["type"]
    if kind is None:
        return NEITHER
    if kind == "in_distribution" or kind == "primitive" or kind.startswith("exposure_example"):
        return IN
    return OUT if kind in cases else NEITHER


def gcog(row: Row, regime: str, colors: set[str], shapes: set[str], setting: Row) -> str:
    if row["depth"] is None:
        return NEITHER
    if regime == "productive":
        if row["depth"] in (1, 3):
            return IN
        return OUT if row["depth"] > 3 else NEITHER
    if row["depth"] != (3 if regime == "systematic_depth3" else 1):
        return NEITHER
    if regime == "distractor":
        number = row["distractors"]
        return NEITHER if number is None else IN if number <= 5 else OUT if number >= 10 else NEITHER
    if regime == "systematic_depth1":
        if None in (row["operator"], row["color"], row["shape"]):
            return NEITHER
        own, other = row["color"] in colors, row["shape"] in shapes
        if row["operator"] not in setting["operators"][0]:
            own, other = other, own
        return IN if own else OUT if other else NEITHER
    if row["operator"] is None or not row["ends"]:
        return NEITHER
    kind = 0 if row["operator"] in setting["starts"][0] else 1
    kinds = {0 if end in setting["endings"][0] else 1 for end in row["ends"]}
    return NEITHER if len(kinds) > 1 else IN if kinds == {kind} else OUT


def skill_mix(row: Row, regime: str, held_out: set[str], of: dict[str, str], mixed: str) -> str:
    skills = {skill for skill in row["skills"] or [] if skill is not None}
    k = len(skills)
    held = [of[skill] in held_out for skill in skills]
    if k == 0:
        return NEITHER
    if k in (1, 2, 3) and not any(held):
        return IN
    counts = any(held) if mixed == "test" else all(held)
    if regime == "k":
        return OUT if k in (4, 5) and not any(held) else NEITHER
    return OUT if counts and k in ((1, 2, 3) if regime == "category" else (4, 5)) else NEITHER


def med_mat(row: Row, target: dict[str, str], regime: str) -> str:
    if any(row[name] is None for name in target):
        return NEITHER
    same = {name for name in target if row[name] == target[name]}
    if len(same) == 3:
        return OUT
    if regime == "all":
        return IN
    if regime == "unrelated":
        return NEITHER if same else IN
    if not same:
        return NEITHER
    return NEITHER if regime.startswith("without_") and regime.split("_")[1] in same else IN


def pgm(row: Row, regime: str, held: set[str]) -> tuple[str, list[str]]:
    """Also gives what the structure holds of what is held out, sorted."""
    triples = sorted(set(row["triples"] or []))
    if not triples:
        return NEITHER, []
    if regime == "neutral":
        return IN, []
    attributes = [" ".join(triple.split()[-2:]) for triple in triples]
    if regime in ("interpolation", "extrapolation"):
        values = row["values"]
        if not values or not any(name.split()[1] in ("colour", "size") for name in attributes):
            return NEITHER, []
        far = [value % 2 == 1 if regime == "interpolation" else value >= 5 for value in values]
        return (OUT if all(far) else NEITHER if any(far) else IN), []
    if regime == "attr.rel.pairs":
        have = [pair for one, other in combinations(triples, 2) for pair in (f"{one} + {other}", f"{other} + {one}")]
    elif regime == "attrs.pairs":
        some = sorted(set(attributes))
        have = [pair for one, other in combinations(some, 2) for pair in (f"{one} + {other}", f"{other} + {one}")]
    else:
        have = triples if regime == "attr.rels" else attributes
    if regime.endswith(".pairs") and len(triples) < 2:
        return NEITHER, []
    hits = sorted(held & set(have))
    return (OUT if hits else IN), hits
