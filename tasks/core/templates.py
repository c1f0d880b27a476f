"""Templates of texts and trees: what is left when numbers, quotations, names or leaves are taken out."""

from __future__ import annotations

from typing import Literal

import numpy as np
import polars as pl

from gradatim.schemas.errors import DataRefused, UsageError
from gradatim.tasks.core.distinct_trees import distinct, same_trees
from gradatim.tasks.core.trees import Forest, parse

Labels = Literal["none", "inner", "all"]

_NUMBER = r"[-+]?\d+(?:[.,]\d+)*"
PLAIN_MASKS = ((r"\"[^\"]*\"|\B'[^']*'\B", "<quoted>"), (_NUMBER, "<number>"), (r"\s+", " "))
"""What is replaced without entities, in this order."""
_QUOTED = r"\"[^\"]*\"|“[^”]*”|«[^»]*»|\B'[^']*'\B|\B‘[^’]*’\B"
_NAME = r"(?:\p{Lu}['’])?\p{Lu}[\p{L}\p{M}\p{N}]+(?:-[\p{L}\p{M}\p{N}]+)*"
_INSIDE = r"([\p{L}\p{M}\p{N}>,;'’)\]%][ \t]+[(\[]?)"
_ENTITY = (rf"{_INSIDE}{_NAME}(?:[ \t]+{_NAME})*", "${1}<entity>")
MASKS = (
    (_QUOTED, "<quoted>"),
    (_NUMBER, "<number>"),
    _ENTITY,
    _ENTITY,  # once more: the first pass used up the letter before "EU (Bonn)"'s second name
    (r"\s+", " "),
)
"""What is replaced with entities, in this order."""
LEAF = "_"
"""What stands for a label that does not count."""


def mask(texts: pl.Series, *, entities: bool = True) -> pl.Series:
    """Replace what changes from one text of a template to the next.

    Parameters
    ----------
    texts : polars.Series of String
        Nulls stay null.
    entities : bool
        Replace names too.

    Returns
    -------
    polars.Series of String
        Texts in quotation marks as ``<quoted>`` (apostrophes inside words are none), numbers with sign and separators
        as ``<number>``, names as ``<entity>``, white space folded to single spaces.

    Notes
    -----
    A name is a run of capitalised words of two letters or more that stands after a letter, digit, comma, semicolon or
    closing mark on the same line: never the first word of a sentence or line, nor one after a full stop, colon or
    opening quotation mark, for these are capitalised whatever they are. So "Ann has 3 eggs" and "Bob has 4 eggs" stay
    two templates; and German nouns, or titles in capitals, are taken for names. Possessive endings stay.

    O(characters).
    """
    for pattern, name in MASKS if entities else PLAIN_MASKS:
        texts = texts.str.replace_all(pattern, name)
    return texts


def skeletons(
    trees: pl.Series, labels: Labels = "inner", ids: pl.Series | None = None, *, where: str = "structure"
) -> pl.Series:
    """Write each tree in brackets, without the labels that do not count.

    Parameters
    ----------
    trees : polars.Series
        Trees, or text in brackets or JSON lists.
    labels : "none", "inner" or "all"
        Keep no label (the shape alone), those of inner nodes (the skeleton of a syntax tree: what stands at its leaves
        is replaced), or all of them.
    ids : polars.Series of String, optional
        Names of the rows, for errors.

    Returns
    -------
    polars.Series of String
        Such as ``(S (NP _) (VP _))``: children in their order, whatever numbers their nodes have. Null for a null and
        for a tree without nodes.

    Raises
    ------
    DataRefused
        For what is no tree; the rows are named.
    UsageError
        If the column holds no trees.
    """
    if trees.dtype == pl.String:
        trees = _read(trees, ids, where)
    found = distinct(trees, ids, where=where)
    leaf = np.ones(len(found.up), dtype=bool)
    leaf[found.up[found.up >= 0]] = False
    hidden = {"none": np.ones_like(leaf), "inner": leaf, "all": np.zeros_like(leaf)}
    if labels not in hidden:
        raise UsageError(f"labels {labels!r}", where=where, expected="none, inner or all")
    code = np.where(hidden[labels], -1, found.label)
    first, which = same_trees(found.forest, code)
    names = [LEAF, *found.labels.to_list()]
    written = [_bracket(found.forest, code, int(tree), names) for tree in first]
    place = np.where(found.tree >= 0, which[np.maximum(found.tree, 0)] if len(which) else -1, -1)
    texts = pl.Series("template", written, dtype=pl.String)
    return texts.gather(pl.Series(place).replace(-1, None))


def _read(texts: pl.Series, ids: pl.Series | None, where: str) -> pl.Series:
    trees, wrong = parse(texts)
    bad = (wrong.is_not_null() & (wrong != "no nodes")).fill_null(False)
    if bad.any():
        rows = bad.arg_true()
        named = [repr(ids[row]) if ids is not None else f"row {row}" for row in rows.head(3).to_list()]
        raise DataRefused(
            f"{len(rows):,} of {len(texts):,} texts are no trees: {wrong[int(rows[0])]} ({', '.join(named)})",
            where=where,
            expected='brackets such as (S (NP they) (VP run)), or JSON lists such as ["S", ["NP", "they"]]',
        )
    return trees


def _bracket(forest: Forest, code: np.ndarray, tree: int, names: list[str]) -> str:
    """Write one tree; different skeletons are few where trees are many, so this is a loop."""
    start, stop = int(forest.offsets[tree]), int(forest.offsets[tree + 1])
    labels = [names[label + 1] for label in code[start:stop].tolist()]
    children: list[list[int]] = [[] for _ in labels]
    root = 0
    for node, parent in enumerate(forest.parent[start:stop].tolist()):
        if parent < 0:
            root = node
        else:
            children[parent].append(node)
    text: list[str] = []
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if node < 0:
            text.append(")")
        elif children[node]:
            text.append(f" ({labels[node]}")
            waiting += [-1, *reversed(children[node])]
        else:
            text.append(f" {labels[node]}")
    return "".join(text)[1:]
