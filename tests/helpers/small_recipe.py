"""A small arithmetic data set, its recipe, and how to write them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson


def items(first: int, last: int, **more: Any) -> list[dict[str, Any]]:
    """Rows of a small arithmetic data set; every third belongs to a longer kind."""
    return [
        {
            "id": f"q{i:04d}",
            "question": f"what is {i} plus {i * 7 % 11}",
            "answer": str(i + i * 7 % 11),
            "n_steps": 1 + i % 9,
            "kind": f"kind-{i % 5}",
            **more,
        }
        for i in range(first, last)
    ]


def write_jsonl(path: Path, rows: list[dict[str, Any]]) -> Path:
    """Write rows as JSON Lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    return path


RECIPE = """
dataset: small
examples:
  from: items/
  id: id
  input: question
  output: answer
  domain: kind
responses: {from: answers.jsonl, respondent: who, example: what, score: right}
difficulty:
  - irt
  - length
diversity:
  - hill: {column: domain}
splits:
  - length: {column: n_steps, train: "<= 6"}
curriculum: {by: irt, arms: [curriculum, random, anti, shuffled], passes: 2}
"""
