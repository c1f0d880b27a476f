"""Near-duplicates by embedding: equal vectors first, then all pairs within a cosine."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl
import xxhash

from gradatim.tasks.core.embeddings import placed_rows
from gradatim.tasks.core.frames import conform
from gradatim.tasks.core.range_search import cosine_pairs
from gradatim.tasks.core.signature_files import first_of_equal
from gradatim.tasks.core.vector_rows import scratch
from gradatim.tasks.diversity.duplicate_result import Facts


def alike_vectors(
    tables: Mapping[str, pl.DataFrame], features: str, threshold: float, lists_probed: int | None
) -> Facts:
    """Find the pairs of examples whose vectors have a cosine of at least `threshold`.

    Parameters
    ----------
    tables : mapping of str to polars.DataFrame
        examples and ``features_{features}``.
    features : str
    threshold : float in (0, 1]
    lists_probed : int, optional
        As for `cosine_pairs`.

    Notes
    -----
    Vectors are read some at a time, so that those of a mapped table are never in memory as a whole: held are some 40
    bytes a row, their ids, and what is found.
    """
    ids, vectors, _ = placed_rows(tables, features, "diversity near_duplicates")
    known = tables["examples"]["example_id"].cast(pl.String)
    held = ids.is_in(known.implode()).to_numpy()
    for some, part in vectors.slices():
        held[some] &= (part != 0).any(axis=1)
    if not held.all():
        ids, vectors = ids.filter(pl.Series(held)), vectors.view(held)
    digests = scratch(len(ids), 2, np.uint64)
    for some, part in vectors.slices():
        plain = part + np.float32(0)  # one zero
        digests[some] = np.frombuffer(b"".join(map(xxhash.xxh3_128_digest, plain)), dtype=np.uint64).reshape(-1, 2)
    different, copies = first_of_equal(digests)
    first, equal = np.flatnonzero(different), copies[:, ::-1]
    one = not len(equal)
    found = cosine_pairs(
        vectors if one else vectors.view(first),
        threshold,
        ids if one else ids.gather(first),
        lists_probed=lists_probed,
    )
    near = first[found.pairs] if len(found.pairs) else found.pairs
    pairs = np.concatenate([equal, near]).astype(np.int64)
    frame = pl.DataFrame(
        {
            "left_id": ids.gather(pairs[:, 0]),
            "right_id": ids.gather(pairs[:, 1]),
            "kind": pl.Series(["near_duplicate"], dtype=pl.String).new_from_index(0, len(pairs)),
            "similarity": np.concatenate([np.ones(len(equal)), found.similarity]),
            "method": pl.Series(np.repeat(["exact", "embedding"], [len(equal), len(near)]), dtype=pl.String),
            "threshold": np.concatenate([np.ones(len(equal)), np.full(len(near), threshold)]),
        }
    )
    return Facts(
        ids=ids,
        pairs=conform(frame, "pairs"),
        candidates=len(near),
        left_out=found.left_out,
        untied=found.left_out,  # an upper bound
        why="there is no vector, or one of zeros",
        curve=None,
    )
