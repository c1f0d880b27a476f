"""Trees as lists of nodes: reading them from what people write, checking them, their size and depth.

A tree is a list of ``{node, parent, label}`` (`gradatim.schemas.tables.TREE`). Everything here works on the flat arrays
of a whole column at once; the only loops run over levels or over the doublings of a path, never over rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

TREE_DTYPE = pl.List(pl.Struct({"node": pl.Int32, "parent": pl.Int32, "label": pl.String}))
"""The Polars type of a column of trees."""

_BRACKETS = r"[()]|[^\s()]+"
_JSON = r'[\[\]]|"(?:[^"\\]|\\.)*"|[^\s,\[\]"]+'


@dataclass(frozen=True)
class Forest:
    """A column of trees as flat arrays: tree i holds the nodes offsets[i] to offsets[i + 1].

    Attributes
    ----------
    offsets : numpy.ndarray, shape (trees + 1,), int64
    parent : numpy.ndarray, shape (nodes,), int64
        Position of the parent within the tree, -1 for a root.
    label : polars.Series of String, length nodes
    """

    offsets: np.ndarray
    parent: np.ndarray
    label: pl.Series

    @property
    def size(self) -> np.ndarray:
        """Nodes of each tree, int64."""
        return np.diff(self.offsets)

    @property
    def tree(self) -> np.ndarray:
        """Tree that each node belongs to, int64."""
        return np.repeat(np.arange(len(self.offsets) - 1), self.size)

    def to_series(self, present: np.ndarray | None = None) -> pl.Series:
        """Return the trees as a Polars column; null where `present` (bool, shape (trees,)) is false."""
        node = np.arange(len(self.parent), dtype=np.int64) - np.repeat(self.offsets[:-1], self.size)
        nodes = pl.DataFrame(
            {
                "node": pl.Series(node, dtype=pl.Int32),
                "parent": pl.Series(self.parent, dtype=pl.Int32),
                "label": self.label.cast(pl.String),
            }
        )
        lists = _lists(nodes.to_struct("tree"), self.offsets)
        return lists if present is None else lists.zip_with(pl.Series(present), _nulls(len(lists)))


def _lists(values: pl.Series, offsets: np.ndarray) -> pl.Series:
    import pyarrow as pa

    return pl.Series(
        "structure",
        pl.from_arrow(pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), values.to_arrow())),
        dtype=TREE_DTYPE,
    )


def _nulls(length: int) -> pl.Series:
    return pl.Series("structure", [None], dtype=TREE_DTYPE).new_from_index(0, length)


def flatten(trees: pl.Series) -> Forest:
    """Lay a column of trees out as flat arrays; a null counts as a tree without nodes.

    Nodes are put in the order of `node` where the column has one. Parents are positions in that order.
    """
    return lay_out(trees)[0]


def lay_out(trees: pl.Series) -> tuple[Forest, np.ndarray]:
    """Do as `flatten` does, and say which trees do not number their nodes from 0 to n - 1 (bool, shape (trees,))."""
    counts = trees.list.len().fill_null(0).to_numpy().astype(np.int64)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    misnumbered = np.zeros(len(counts), dtype=bool)
    present = trees.drop_nulls()
    nodes = present.filter(present.list.len() > 0).explode().struct.unnest()
    if nodes.is_empty():
        return Forest(offsets, np.zeros(0, np.int64), pl.Series("label", [], dtype=pl.String)), misnumbered
    if "node" in nodes.columns:
        node = nodes["node"].cast(pl.Int64).fill_null(-1).to_numpy()
        expected = np.arange(len(node)) - np.repeat(offsets[:-1], counts)
        if not np.array_equal(node, expected):  # sorting is the dearest part: most columns are sorted
            tree = np.repeat(np.arange(len(counts)), counts)
            order = np.lexsort((node, tree))
            nodes = nodes[order]
            misnumbered[tree[node[order] != expected]] = True
    parent = nodes["parent"].cast(pl.Int64).fill_null(-1).to_numpy()
    return Forest(offsets, parent, nodes["label"].cast(pl.String)), misnumbered


def problems(trees: pl.Series) -> pl.Series:
    """Say what is wrong with each tree.

    Parameters
    ----------
    trees : polars.Series
        List of struct with `parent` and `label`, and `node` or the order of the list.

    Returns
    -------
    polars.Series of String
        Null where the tree is sound or null; otherwise "no nodes", "no root", "2 roots", "node numbers are not 0 to
        n-1", "a parent that is not there", "a cycle" or "a node without label".
    """
    forest, misnumbered = lay_out(trees)
    reason = faults(forest, misnumbered)
    reason[trees.is_null().to_numpy()] = None
    return pl.Series("problem", reason.tolist(), dtype=pl.String)


def faults(forest: Forest, misnumbered: np.ndarray) -> np.ndarray:
    """Say what is wrong with each tree, as `problems` does: objects, shape (trees,); None where it is sound."""
    tree, size = forest.tree, forest.size
    count = len(size)
    roots = np.bincount(tree[forest.parent == -1], minlength=count)
    outside = np.bincount(tree[(forest.parent < -1) | (forest.parent >= size[tree])], minlength=count) > 0
    unlabelled = np.bincount(tree[forest.label.is_null().to_numpy()], minlength=count) > 0
    reason = np.full(count, None, dtype=object)
    reason[unlabelled] = "a node without label"
    reason[node_levels(forest)[1]] = "a cycle"
    for many in np.unique(roots[roots > 1]):
        reason[roots == many] = f"{many} roots"
    reason[roots == 0] = "no root"
    reason[outside] = "a parent that is not there"
    reason[misnumbered] = "node numbers are not 0 to n-1"
    reason[size == 0] = "no nodes"
    return reason


def node_levels(forest: Forest) -> tuple[np.ndarray, np.ndarray]:
    """Depth of each node (root 0) by path doubling, and which trees hold a cycle. Cost: nodes x log2(largest tree)."""
    tree, size = forest.tree, forest.size
    inside = (forest.parent >= 0) & (forest.parent < size[tree])
    here = np.arange(len(tree))
    up = np.where(inside, forest.parent + forest.offsets[:-1][tree], here)
    depth = inside.astype(np.int64)
    longest = int(size.max(initial=0))
    for _ in range(max(1, longest.bit_length())):
        depth = depth + depth[up]
        up = up[up]
    # whoever has walked at least n steps without meeting a root goes round
    cyclic = np.zeros(len(size), dtype=bool)
    cyclic[np.unique(tree[inside[up]])] = True
    return depth, cyclic


def sizes(trees: pl.Series) -> pl.Series:
    """Nodes of each tree: Int64, null where the tree is."""
    return trees.list.len().cast(pl.Int64).alias("size")


def depths(trees: pl.Series) -> pl.Series:
    """Levels of each tree below its root: Int64, 0 for a single node, null where the tree is null or has no nodes."""
    forest = flatten(trees)
    depth, _ = node_levels(forest)
    deepest = np.zeros(len(trees), dtype=np.int64)
    np.maximum.at(deepest, forest.tree, depth)
    return pl.Series("depth", deepest).zip_with(pl.Series(forest.size > 0), pl.Series([None], dtype=pl.Int64))


def parse(text: pl.Series) -> tuple[pl.Series, pl.Series]:
    """Read trees written as brackets, ``(a (b) (c))`` or ``(S (NP they) (VP run))``, or as JSON, ``["a", ["b"], "c"]``.

    The first word after an opening bracket is the label of that node; any further word is a leaf.

    Parameters
    ----------
    text : polars.Series of String

    Returns
    -------
    trees : polars.Series of `TREE_DTYPE`
        Null where the text is null or cannot be read.
    problems : polars.Series of String
        Why it cannot be read; null where it can.
    """
    stripped = text.str.strip_chars()
    as_json = stripped.str.starts_with("[")
    tokens = (
        pl.DataFrame({"text": stripped, "json": as_json})
        .select(
            pl.when("json")
            .then(pl.col("text").str.extract_all(_JSON))
            .otherwise(pl.col("text").str.extract_all(_BRACKETS))
        )
        .to_series()
        .fill_null(pl.Series([[]], dtype=pl.List(pl.String)))
    )
    counts = tokens.list.len().to_numpy().astype(np.int64)
    row = np.repeat(np.arange(len(text)), counts)
    token = tokens.filter(tokens.list.len() > 0).explode().cast(pl.String)
    json_row = as_json.fill_null(False).to_numpy()[row]
    bare = token.to_numpy() if len(token) else np.zeros(0, dtype=object)
    opens = np.where(json_row, bare == "[", bare == "(")
    closes = np.where(json_row, bare == "]", bare == ")")
    word = ~(opens | closes)
    names = np.zeros(len(word), dtype=bool)  # a word that follows an opening bracket names that bracket's node
    names[1:] = word[1:] & opens[:-1] & (row[1:] == row[:-1])
    starts = np.zeros(len(word), dtype=bool)
    starts[1:] = row[1:] != row[:-1]
    balance = np.cumsum(opens.astype(np.int64) - closes)
    before_row = np.concatenate([[0], balance])[np.concatenate([[0], np.cumsum(counts)])[:-1]] if len(text) else balance
    level = balance - before_row[row]
    node = names | (word & ~names)
    depth = np.where(names, level - 1, level)[node]
    tree = row[node]
    size = np.bincount(tree, minlength=len(text))
    offsets = np.concatenate([[0], np.cumsum(size)])
    label = _labels(token, json_row, node)
    reason = _syntax(text, row, opens, names, level, depth, tree, size, counts)
    good = np.array([r is None for r in reason], dtype=bool) & text.is_not_null().to_numpy()
    keep = good[tree]
    kept_size = np.where(good, size, 0)
    offsets = np.concatenate([[0], np.cumsum(kept_size)])
    parent = _parents(depth[keep], offsets, kept_size)
    trees = Forest(offsets, parent, label.filter(pl.Series(keep))).to_series(good)
    return trees, pl.Series("problem", reason, dtype=pl.String)


def _labels(token: pl.Series, json_row: np.ndarray, node: np.ndarray) -> pl.Series:
    words = pl.DataFrame({"token": token, "json": json_row}).filter(pl.Series(node, dtype=pl.Boolean))
    quoted = pl.col("json") & pl.col("token").str.starts_with('"')
    return words.select(
        pl.when(quoted)
        .then(pl.when(quoted).then(pl.col("token")).str.json_decode(pl.String))
        .otherwise(pl.col("token"))
        .alias("label")
    ).to_series()


def _syntax(
    text: pl.Series,
    row: np.ndarray,
    opens: np.ndarray,
    names: np.ndarray,
    level: np.ndarray,
    depth: np.ndarray,
    tree: np.ndarray,
    size: np.ndarray,
    counts: np.ndarray,
) -> list[str | None]:
    count = len(text)
    reason = np.full(count, None, dtype=object)
    roots = np.bincount(tree[depth <= 0], minlength=count)
    named_next = np.concatenate([names[1:], [False]]) if len(names) else names
    reason[np.unique(row[opens & ~named_next])] = "a bracket without a label"
    for many in np.unique(roots[roots > 1]):
        reason[roots == many] = f"{many} roots"
    last = np.cumsum(counts) - 1
    present = counts > 0
    unbalanced = np.zeros(count, dtype=bool)
    unbalanced[present] = level[last[present]] != 0
    unbalanced[np.unique(row[level < 0])] = True
    reason[unbalanced] = "brackets that do not match"
    reason[size == 0] = "no nodes"
    reason[text.is_null().to_numpy()] = None
    return reason.tolist()


def _parents(depth: np.ndarray, offsets: np.ndarray, size: np.ndarray) -> np.ndarray:
    """Parent of each node in preorder: the last earlier node one level up. Loops over levels."""
    parent = np.full(len(depth), -1, dtype=np.int64)
    first = np.repeat(offsets[:-1], size)
    above = np.flatnonzero(depth == 0)
    for level in range(1, int(depth.max(initial=0)) + 1):
        here = np.flatnonzero(depth == level)
        parent[here] = above[np.searchsorted(above, here) - 1] - first[here]
        above = here
    return parent
