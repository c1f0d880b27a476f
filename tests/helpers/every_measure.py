"""Examples on which every measure runs, what each needs for it, and how to run one."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

import gradatim as gd

ROWS, WIDTH = 60, 6
SETTINGS: dict[str, dict[str, Any]] = {
    "contamination": {"n": 3},
    "hill": {"column": "template", "by": "domain"},
    "factor_coverage": {"factors": ["template", "label"]},
    "ood_bench": {"label": "label", "rows": 60, "points": 100, "repeats": 2, "calibrate": None},
    "label_shift": {"label": "label"},
    "conditional_wasserstein": {"label": "label"},
    "nico": {"label": "label"},
    "embedding_shift": {"label": "label", "permutations": 19},
    "column_shift": {"label": "label"},
    "subsets": {"label": "label", "nuisance": "template", "sample_size": 20},
    "vendi": {"by": "domain", "sample_size": 20, "samples": 3},
    "heterogeneous_partition": {"clients": 3},
    "semdedup": {"by": "domain"},
    "coverage": {"centres": 5},
}
"""What a measure needs beside its defaults to run on the table below."""
EMBEDDERS: dict[str, dict[str, Any]] = {
    "hashed_tfidf": {"width": 4, "rarest": 1},
    "standardised": {"columns": ["level"], "categories": ["label"]},
}
"""Embedders that need no model; those that do are tested with stand-ins, beside their own tests."""
BY = ("distinct_n", "compression_ratio", "self_repetition", "self_bleu", "homogenisation")


def healthy() -> pl.DataFrame:
    """Examples of two domains, two labels, four templates, a split and texts that differ."""
    number = np.arange(ROWS)
    words = [f"w{i * 7 % 31} x{i * 5 % 17} y{i * 3 % 13} z{i} is asked here" for i in number]
    return pl.DataFrame(
        {
            "example_id": [f"e{i:04d}" for i in number],
            "input": words,
            "output": [f"answer {i % 9}" for i in number],
            "domain": [("a", "b")[i % 2] for i in number],
            "label": [("u", "v")[i // 2 % 2] for i in number],
            "template": [f"t{i // 3 % 4}" for i in number],
            "split": [("train", "train", "train", "test")[i // 5 % 4] for i in number],
            "level": number % 5,
        }
    )


def vectors_of(frame: pl.DataFrame) -> pl.DataFrame:
    found = np.random.default_rng(0).standard_normal((len(frame), WIDTH)).astype(np.float32)
    return frame.select("example_id", embedding=pl.Series(found, dtype=pl.Array(pl.Float32, WIDTH)))


def measured(name: str, frame: pl.DataFrame, vectors: pl.DataFrame | None) -> Any:
    settings = {**SETTINGS.get(name, {}), **({"by": "domain"} if name in BY else {})}
    answers = None
    if name == "domain_agreement":
        ids = frame["example_id"].drop_nulls().unique().sort().to_list()
        answers = pl.DataFrame(
            [(f"r{r}", one, float((r * 7 + i * 3) % 5 > 1)) for r in range(3) for i, one in enumerate(ids)],
            schema={"respondent_id": pl.String, "example_id": pl.String, "score": pl.Float64},
            orient="row",
        )
    features = None if vectors is None else {"own": vectors}
    return gd.diversity(frame, name, features=features, responses=answers, **settings)
