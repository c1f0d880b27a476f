"""A first recipe from a look at a file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from gradatim.schemas.recipe import Recipe
from gradatim.tasks.ingest.inspection import Inspection, inspect
from gradatim.tasks.ingest.lm_eval import SAMPLES, field_paths, filters_and_metrics
from gradatim.tasks.ingest.sources import source_files

SEVERAL = 8
"""Respondents from which an IRT model is worth fitting."""

FEWEST_GROUPS = 10
"""Fewer groups than this leave no room for splits that keep them whole."""

MOST_TORN = 0.1
"""Share of rows in groups on both sides of a cut beyond which the suggested cut does not keep groups whole."""

MOST_DOMAINS = 50
"""More domains than this would make too many folds of leaving one out."""


def guess_recipe(
    inspection: Inspection, responses: str | Path | None = None, *, base: str | Path = ".", name: str | None = None
) -> Recipe:
    """Suggest a recipe: columns by the inspection's best guesses, methods that those columns allow.

    Parameters
    ----------
    inspection : Inspection
    responses : str or Path, optional
        Folder, glob or file with responses: lm-evaluation-harness logs or a table.
    base : str or Path
        Folder at which a relative `responses` starts.
    name : str, optional
        Of the data set; by default made from the source's file name.

    Returns
    -------
    Recipe
        Its columns of examples are there; columns of responses that no name tells are left for the user to fill in.
    """
    examples: dict[str, Any] = {"from": inspection.source}
    for role in ("id", "input", "output", "domain", "group", "level", "template", "structure", "created_at"):
        column = inspection.best(role)
        if column and (role != "group" or inspection.column(column).distinct >= FEWEST_GROUPS):
            examples[role] = column
    if "id" not in examples and "input" not in examples:
        examples["identity"] = [view.name for view in inspection.columns]
    answered = None if responses is None else _responses(responses, base)
    difficulty: list[Any] = []
    if answered is not None:
        difficulty.append("irt" if answered.pop("several") else "pass_rate")
    if "input" in examples:
        difficulty.append({"length": {"of": "input", "unit": "words"}})
    elif "level" in examples:
        difficulty.append({"column": {"column": examples["level"]}})
    found: dict[str, Any] = {
        "dataset": name or _name(inspection.source),
        "examples": examples,
        "difficulty": difficulty,
        "splits": _splits(inspection, examples),
    }
    if answered is not None:
        found["responses"] = answered
    if difficulty:
        first = difficulty[0] if isinstance(difficulty[0], str) else next(iter(difficulty[0]))
        found["curriculum"] = {"by": first, "arms": ["curriculum", "random", "anti"]}
    return Recipe.model_validate(found)


def _name(source: str) -> str:
    stem = re.sub(r"(\.(csv|tsv|jsonl|ndjson|json|parquet|pq|arrow|feather|ipc|gz))+$", "", Path(source).name.lower())
    stem = re.sub(r"[^a-z0-9_.-]+", "-", stem).strip("-_.")[:64]
    return stem or "data"


def _splits(inspection: Inspection, examples: dict[str, Any]) -> list[Any]:
    splits: list[Any] = []
    if steps := inspection.best("steps"):
        bound = inspection.bounds[steps]
        settings: dict[str, Any] = {"column": steps, "train": f"<= {bound.value}"}
        # groups that lie on both sides would be left out whole, and with them most rows
        if "group" in examples and bound.torn > MOST_TORN:
            settings["keep_together"] = []
        splits.append({"length": settings})
    if "domain" in examples and inspection.column(examples["domain"]).distinct <= MOST_DOMAINS:
        splits.append("leave_one_domain_out")
    if "group" in examples:
        splits.append("group")
    return splits or ["random"]


def _responses(source: str | Path, base: str | Path) -> dict[str, Any]:
    files = source_files(source, base, None)
    logs = [file for file in files if SAMPLES.match(file.name)]
    if logs:
        filters, metrics = filters_and_metrics(logs, base)
        paths = field_paths(logs, base)
        join = next((p for p in ("doc.id", "doc.example_id", "doc.item_id", "doc.instance_id") if p in paths), "input")
        return {
            "from": str(source),
            "format": "lm-eval",
            "metric": _first(metrics, ("exact_match", "acc", "pass@1")),
            "filter": _first(filters, ("flexible-extract", "strict-match", "none")),
            "join": join,
            "several": len({file.parent for file in logs}) >= SEVERAL,
        }
    look = inspect(source, base=base)
    names = {
        "respondent": (
            "respondent_id",
            "respondent",
            "submission",
            "model",
            "agent",
            "system",
            "subject_id",
            "user_id",
        ),
        "example": ("example_id", "item_id", "instance_id", "question_id", "item", "task_id", "id", "qid"),
        "score": ("score", "correct", "resolved", "passed", "is_correct", "solved", "success", "exact_match", "acc"),
    }
    by_lower = {view.name.lower(): view.name for view in reversed(look.columns)}
    chosen = {role: next((by_lower[n] for n in options if n in by_lower), None) for role, options in names.items()}
    found: dict[str, Any] = {"from": str(source)} | {role: column for role, column in chosen.items() if column}
    who = chosen["respondent"]
    found["several"] = look.column(who).distinct >= SEVERAL if who else len(look.columns) > SEVERAL
    return found


def _first(names: list[str], preferred: tuple[str, ...]) -> str | None:
    return next((name for name in preferred if name in names), names[0] if names else None)
