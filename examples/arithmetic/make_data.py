"""Write a small data set as a user would have one: chains of sums, and the harness logs of nine models that tried them.

    python examples/arithmetic/make_data.py          # items.jsonl and lm_eval_results/ in the current folder

The models are simulated: each solves an item with a probability that falls with the item's number of steps and differs
from template to template, so that there is something to find.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

ITEMS, STEPS, MODELS = 2_400, 9, 9
THINGS = ("marbles", "pages", "coins", "tickets", "stamps", "apples")


def items(rng: np.random.Generator) -> list[dict[str, object]]:
    """Make the items: a question, its answer, its number of steps and the template that it was made from."""
    rows: list[dict[str, object]] = []
    for number in range(ITEMS):
        steps = int(rng.integers(1, STEPS + 1))
        thing = THINGS[int(rng.integers(len(THINGS)))]
        terms = rng.integers(2, 60, size=steps + 1)
        signs = rng.choice([1, -1], size=steps, p=[0.7, 0.3])
        text = f"There are {terms[0]} {thing} in a box."
        for term, sign in zip(terms[1:], signs, strict=True):
            text += f" Then {term} {'come in' if sign > 0 else 'are taken out'}."
        total = int(terms[0] + (signs * terms[1:]).sum())
        template = f"{thing}-{''.join('+' if sign > 0 else '-' for sign in signs)}"
        question = f"{text} How many {thing} are there now?"
        row = {"id": f"q{number}", "question": question, "answer": str(total), "n_steps": steps, "template": template}
        rows.append(row)
    return rows


def write_logs(rows: list[dict[str, object]], folder: Path, rng: np.random.Generator) -> None:
    """Write each model's sample log and results file as lm-evaluation-harness does."""
    steps = np.array([row["n_steps"] for row in rows], dtype=float)
    hardness = 0.45 * (steps - 5) + rng.normal(0, 0.8, size=len(rows))
    for index, ability in enumerate(np.linspace(-1.8, 2.2, MODELS)):
        name = f"model-{'abcdefghi'[index]}"
        solved = rng.random(len(rows)) < 1 / (1 + np.exp(hardness - ability))
        target = folder / name
        target.mkdir(parents=True, exist_ok=True)
        with (target / "samples_arithmetic_2026-01-01T00-00-00.jsonl").open("w", encoding="utf-8") as file:
            for position, row in enumerate(rows):
                line = {
                    "doc_id": position,
                    "doc": row,
                    "target": row["answer"],
                    "filter": "flexible-extract",
                    "metrics": ["exact_match"],
                    "exact_match": float(solved[position]),
                }
                file.write(json.dumps(line) + "\n")
        results = {"model_name": name, "results": {"arithmetic": {"exact_match": float(solved.mean())}}}
        (target / "results_2026-01-01T00-00-00.json").write_text(json.dumps(results), encoding="utf-8")


def main() -> None:
    """Write both into the current folder."""
    rng = np.random.default_rng(0)
    rows = items(rng)
    Path("items.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    write_logs(rows, Path("lm_eval_results"), rng)
    print(f"wrote items.jsonl ({len(rows):,} items) and lm_eval_results/ ({MODELS} models)")


if __name__ == "__main__":
    main()
