"""The small files that stand in the folder in which a page's examples run."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

ITEMS, MODELS = 270, 12


def write(folder: Path) -> None:
    """Write `items.jsonl` (sums of 1 to 9 steps) and `answers.jsonl` (twelve models; longer is harder)."""
    chance = random.Random(0)
    items, answers = [], []
    for i in range(ITEMS):
        steps = 1 + i % 9
        numbers = [chance.randint(1, 99) for _ in range(steps + 1)]
        items.append(
            {
                "id": f"q{i}",
                "question": "what is " + " plus ".join(map(str, numbers)),
                "answer": str(sum(numbers)),
                "parse": f"(sum {' '.join(f'(term {n})' for n in numbers)})",
                "n_steps": steps,
                "template": f"t{i % 45}",
                "topic": ("shop", "school", "sport")[i % 3],
            }
        )
        for model in range(MODELS):
            solved = chance.random() < 1 / (1 + 2.718 ** (0.6 * steps - 0.5 * model))
            answers.append({"respondent_id": f"model-{model}", "example_id": f"q{i}", "score": float(solved)})
    _lines(folder / "items.jsonl", items)
    _lines(folder / "answers.jsonl", answers)


def _lines(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
