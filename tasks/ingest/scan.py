"""SCAN: commands and the actions that they mean, from the published grammar."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from gradatim.tasks.core.registry import Config, Cost, register
from gradatim.tasks.core.trees import TREE_DTYPE
from gradatim.tasks.ingest.finish import finish_generated

PRIMITIVES = ("walk", "look", "run", "jump")
DIRECTIONS = ("left", "right")
REPEATS = {"none": 1, "twice": 2, "thrice": 3}
NONE = "none"
"""Value of a factor whose word does not stand in the command."""


class ScanConfig(Config):
    """SCAN has no settings: it is one set of 20,910 pairs."""


def _verbs() -> list[dict[str, object]]:
    """The 34 verb phrases of V: words, meaning, and rules from V down to the word."""
    phrases: list[dict[str, object]] = []
    for primitive in (*PRIMITIVES, "turn"):
        act = [] if primitive == "turn" else [f"I_{primitive.upper()}"]
        word_rules = [] if primitive == "turn" else [f"U -> {primitive}"]
        if act:
            phrases.append(_verb(primitive, NONE, NONE, [primitive], act, ["V -> U", *word_rules]))
        for direction in DIRECTIONS:
            turn = [f"I_TURN_{direction.upper()}"]
            directed = [f"D -> turn {direction}" if primitive == "turn" else f"D -> U {direction}", *word_rules]
            phrases += [
                _verb(primitive, direction, NONE, [primitive, direction], turn + act, ["V -> D", *directed]),
                _verb(
                    primitive,
                    direction,
                    "opposite",
                    [primitive, "opposite", direction],
                    turn * 2 + act,
                    ["V -> D[1] opposite D[2]", *directed],
                ),
                _verb(
                    primitive,
                    direction,
                    "around",
                    [primitive, "around", direction],
                    (turn + act) * 4,
                    ["V -> D[1] around D[2]", *directed],
                ),
            ]
    return phrases


def _verb(
    primitive: str, direction: str, modifier: str, words: list[str], actions: list[str], rules: list[str]
) -> dict[str, object]:
    masked = ["<primitive>" if word in PRIMITIVES else "<direction>" if word in DIRECTIONS else word for word in words]
    return {
        "primitive": primitive,
        "direction": direction,
        "modifier": modifier,
        "words": words,
        "masked": masked,
        "actions": actions,
        "rules": rules,
    }


def _clauses() -> pl.DataFrame:
    """The 102 clauses of S: a verb phrase, once, twice or thrice."""
    rows = []
    for verb in _verbs():
        for repeat, times in REPEATS.items():
            words = [] if repeat == NONE else [repeat]
            rows.append(
                {
                    **verb,
                    "repeat": repeat,
                    "words": verb["words"] + words,  # type: ignore[operator]
                    "masked": verb["masked"] + words,  # type: ignore[operator]
                    "actions": verb["actions"] * times,  # type: ignore[operator]
                    "rules": [f"S -> V {repeat}" if words else "S -> V", *verb["rules"]],  # type: ignore[misc]
                }
            )
    return pl.DataFrame(rows)


def _tree(frame: pl.DataFrame, second: bool) -> pl.DataFrame:
    """Add the derivation: a node for each rule application, each clause a chain below the rule of C."""
    labels = pl.concat_list("rule").list.concat("rules_1")
    frame = frame.with_columns(labels=labels.list.concat("rules_2")).with_row_index("row")
    # the head of the second clause hangs on the root; every other node hangs on the one before it
    branch = pl.col("rules_1").list.len().cast(pl.Int32) + 1 if second else pl.lit(-1, pl.Int32)
    nodes = (
        frame.select("row", branch.alias("branch"), "labels")
        .with_columns(node=pl.int_ranges(0, pl.col("labels").list.len(), dtype=pl.Int32))
        .explode("labels", "node")
        .with_columns(parent=pl.when(pl.col("node") == pl.col("branch")).then(0).otherwise(pl.col("node") - 1))
        .group_by("row", maintain_order=True)
        .agg(structure=pl.struct("node", pl.col("parent").cast(pl.Int32), label="labels"))
    )
    return frame.with_columns(nodes["structure"].cast(TREE_DTYPE)).drop("row", "labels")


def _sentences(clauses: pl.DataFrame, conjunction: str) -> pl.DataFrame:
    first = clauses.rename(lambda name: f"{name}_1")
    second = clauses.rename(lambda name: f"{name}_2")
    frame = first if conjunction == NONE else first.join(second, how="cross")
    both = conjunction != NONE
    if not both:
        empty = pl.lit([], dtype=pl.List(pl.String))
        texts, lists = ["primitive", "direction", "modifier", "repeat"], ["words", "masked", "actions", "rules"]
        frame = frame.with_columns(
            *[pl.lit(NONE).alias(f"{name}_2") for name in texts], *[empty.alias(f"{name}_2") for name in lists]
        )
    frame = frame.with_columns(
        conjunction=pl.lit(conjunction), rule=pl.lit(f"C -> S {conjunction} S" if both else "C -> S")
    )
    return _tree(frame, both)


@register(
    "dataset",
    "scan",
    config=ScanConfig,
    cost=lambda rows, width: Cost(seconds=1.0, bytes=120e6),
    source="Lake, Baroni (2018). Generalization without Systematicity: On the Compositional Skills of "
    "Sequence-to-Sequence Recurrent Networks",
)
def scan(config: ScanConfig, seed: int = 0) -> Iterator[pl.DataFrame]:
    """SCAN, all 20,910 commands with their actions, derivations and words.

    Parameters
    ----------
    config : ScanConfig
    seed : int
        Not used: the set is complete, nothing is drawn.

    Yields
    ------
    polars.DataFrame
        One part of 20,910 rows in the columns of the table `examples` and the payload `n_words` and `n_actions`
        (int64). `structure` has a node for each rule application of the grammar below; `factors` names the words of
        each clause ("none" where there is none); `template` masks primitives and directions.

    Notes
    -----
    The grammar: C -> S and S | S after S | S; S -> V twice | V thrice | V; V -> D[1] opposite D[2] |
    D[1] around D[2] | D | U; D -> U left | U right | turn left | turn right; U -> walk | look | run | jump.
    """
    clauses = _clauses()
    parts = [_sentences(clauses, conjunction) for conjunction in (NONE, "and", "after")]
    frame = pl.concat(parts, how="diagonal")
    after = pl.col("conjunction") == "after"
    between = pl.when(pl.col("conjunction") == NONE)
    join = between.then(pl.lit([], dtype=pl.List(pl.String))).otherwise(pl.concat_list("conjunction"))
    words = pl.col("words_1").list.concat(join).list.concat("words_2")
    masked = pl.col("masked_1").list.concat(join).list.concat("masked_2")
    actions = (
        pl.when(after)
        .then(pl.col("actions_2").list.concat("actions_1"))
        .otherwise(pl.col("actions_1").list.concat("actions_2"))
    )
    names = [f"{name}_{clause}" for clause in (1, 2) for name in ("primitive", "direction", "modifier", "repeat")]
    columns = sorted([*[(name.replace("_", ""), name) for name in names], ("conjunction", "conjunction")])
    factors = pl.concat_list(
        [pl.struct(pl.lit(factor).alias("key"), pl.col(column).alias("value")) for factor, column in columns]
    )
    yield finish_generated(
        frame.select(
            input=words.list.join(" "),
            output=actions.list.join(" "),
            template=masked.list.join(" "),
            factors=factors,
            structure="structure",
            n_words=words.list.len().cast(pl.Int64),
            n_actions=actions.list.len().cast(pl.Int64),
        ),
        "scan",
    )
