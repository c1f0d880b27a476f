"""Small frames in the shape of the compositional benchmarks: every case of each occurs."""

from __future__ import annotations

import random
from typing import Any

import polars as pl

ORDER = [
    "prim_to_subj_common", "prim_to_subj_proper", "prim_to_obj_common", "prim_to_obj_proper", "prim_to_inf_arg",
    "subj_to_obj_common", "subj_to_obj_proper", "obj_to_subj_common", "obj_to_subj_proper", "active_to_passive",
    "passive_to_active", "obj_omitted_transitive_to_transitive", "unacc_to_transitive", "do_dative_to_pp_dative",
    "pp_dative_to_do_dative", "only_seen_as_transitive_subj_as_unacc_subj",
    "only_seen_as_unacc_subj_as_obj_omitted_transitive_subj", "only_seen_as_unacc_subj_as_unerg_subj",
    "obj_pp_to_subj_pp", "cp_recursion", "pp_recursion",
]  # fmt: skip
"""The 21 generalisation cases of COGS, in the order of the paper's table."""
OPERATORS = (("exist", "sumeven", "producteven", "getshape"), ("sumodd", "productodd", "go", "getcolor"))
STARTS = (("exist", "sumeven", "producteven"), ("sumodd", "productodd"))
ENDINGS = (("sumeven", "producteven", "getcolor", "getshape"), ("exist", "sumodd", "productodd", "go"))
SKILLS = {
    "metaphor": "literary", "irony": "literary", "anaphora": "rhetorical", "hyperbole": "rhetorical",
    "litotes": "rhetorical", "modus ponens": "reasoning", "induction": "reasoning", "syllogism": "reasoning",
    "false belief": "theory of mind", "emotional self regulation": "theory of mind",
}  # fmt: skip
OF_ATTRIBUTE = {
    "shape size": ["progression", "XOR", "OR", "AND", "consistent union"],
    "shape colour": ["progression", "XOR", "OR", "AND", "consistent union"],
    "shape number": ["progression", "consistent union"],
    "shape position": ["XOR", "OR", "AND"],
    "shape type": ["progression", "XOR", "OR", "AND", "consistent union"],
    "line colour": ["progression", "XOR", "OR", "AND", "consistent union"],
    "line type": ["XOR", "OR", "AND", "consistent union"],
}
"""Relations of each attribute, as appendix A.1 of the paper lists them."""


def frame(rows: list[dict[str, Any]], **types: Any) -> pl.DataFrame:
    names = [f"e{place:05d}" for place in range(len(rows))]
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    series = [pl.Series(name, values, dtype=types.get(name)) for name, values in columns.items()]
    return pl.DataFrame([pl.Series("example_id", names), *series])


def cogs(in_distribution: int = 400, of_a_case: int = 10) -> pl.DataFrame:
    types = ["in_distribution"] * in_distribution + ["primitive"] * 14
    types += [f"exposure_example_{name}" for name in ("passive", "active", "obj_common")]
    types += [case for case in ORDER for _ in range(of_a_case)]
    return frame([{"type": name} for name in types])


def gcog(n: int = 3000, seed: int = 0) -> pl.DataFrame:
    chance = random.Random(seed)
    rows = []
    for _ in range(n):
        depth = chance.choice([1, 1, 1, 3, 3, 5, 7])
        start = chance.choice([name for half in (OPERATORS if depth == 1 else STARTS) for name in half])
        ends = (
            []
            if depth == 1
            else chance.choices(chance.choice(ENDINGS) if chance.random() < 0.7 else sum(ENDINGS, ()), k=2)
        )
        rows.append(
            {
                "depth": depth,
                "operator": start,
                "ends": ends,
                "color": chance.choice(["red", "blue", "green", "pink", "grey", "cyan"]),
                "shape": chance.choice("abcdefgh"),
                "distractors": chance.choice([1, 2, 5, 7, 10, 20, 40]),
            }
        )
    return frame(rows, ends=pl.List(pl.String))


def skill_mix(n: int = 2000, seed: int = 0) -> pl.DataFrame:
    chance = random.Random(seed)
    rows = []
    for _ in range(n):
        mind = chance.choice(
            [["literary", "rhetorical"], ["reasoning", "theory of mind"], sorted(set(SKILLS.values()))]
        )
        among = [skill for skill, category in SKILLS.items() if category in mind]
        skills = chance.sample(among, min(chance.randint(1, 6), len(among)))
        rows.append({"skills": skills, "skill_categories": [SKILLS[skill] for skill in skills]})
    return frame(rows, skills=pl.List(pl.String), skill_categories=pl.List(pl.String))


def med_mat(n: int = 2000, seed: int = 0) -> pl.DataFrame:
    chance = random.Random(seed)
    pairs = {"CT": ["Lung", "Brain"], "X-ray": ["Lung", "Bones", "Brain"], "Dermoscopy": ["Skin"]}
    rows = []
    for _ in range(n):
        modality = chance.choice(sorted(pairs))
        task = chance.choice(["Cancer", "State", "Level"] if modality != "Dermoscopy" else ["Recognition", "Cancer"])
        rows.append({"modality": modality, "anatomy": chance.choice(pairs[modality]), "task": task})
    return frame(rows)


def pgm(n: int = 3000, seed: int = 0) -> pl.DataFrame:
    chance = random.Random(seed)
    every = [f"{relation} {attribute}" for attribute, relations in OF_ATTRIBUTE.items() for relation in relations]
    rows = []
    while len(rows) < n:
        triples = chance.sample(every, chance.randint(1, 4))
        attributes = {triple.split()[-1] for triple in triples}
        if {"number", "position"} <= attributes:
            continue
        low, high = chance.choice([(0, 5), (5, 10), (0, 10)])
        step = chance.choice([1, 2])
        values = list(range(low, high, step))[: chance.randint(1, 3)]
        rows.append({"triples": triples, "values": values})
    return frame(rows, triples=pl.List(pl.String), values=pl.List(pl.Int64))
