"""Prefect task of evaluation: every arm in and out of distribution, and compared pair by pair."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import polars as pl
from prefect import task

from gradatim.schemas.errors import UsageError
from gradatim.schemas.hashing import value_hash
from gradatim.schemas.recipe import Evaluate
from gradatim.schemas.summary import Summary
from gradatim.storage.publish import Wanted
from gradatim.storage.tables import Dataset
from gradatim.tasks.core.step import RETRIES, Place, StepResult, keep_summary, kept_summary, require_columns
from gradatim.tasks.evaluation.compare import compare
from gradatim.tasks.evaluation.evaluate import evaluate
from gradatim.tasks.evaluation.result import Evaluation

REVISION = 2


@task(name="evaluate", task_run_name="evaluate", **RETRIES)
def run(
    place: Place,
    settings: Evaluate,
    runs: Mapping[str, list[str]],
    split: str,
    fold: int,
    difficulty: str,
    versions: Mapping[str, int],
) -> tuple[StepResult, ...]:
    """Evaluate the runs of each arm and compare the arms.

    Parameters
    ----------
    runs : mapping of arm to run ids
    split, difficulty : str
        Names in the recipe.

    Returns
    -------
    tuple of StepResult
        One an arm, then the claims; their sentences are the report's headline.
    """
    dataset = place.open()
    predictions = dataset.version(f"predictions@{versions['predictions']}")
    inputs = sorted(p.content_hash for p in predictions.parts if p.group in {r for ids in runs.values() for r in ids})
    tables = [t for t in ("examples", "splits", "difficulty") if t in versions]
    inputs += [dataset.content_hash(f"{t}@{versions[t]}") for t in tables]
    section = {**settings.model_dump(mode="json"), "split": split, "fold": fold, "difficulty": difficulty}
    made = value_hash(
        {"step": "evaluate", "revision": REVISION, "section": section, "inputs": inputs, "runs": dict(runs)}
    )
    keys = {name: value_hash([made, name]) for name in (*runs, "claims")}
    told = [summary for key in keys.values() if (summary := kept_summary(dataset, key)) is not None]
    if len(told) < len(keys) or made not in dataset.fingerprints("evaluation"):
        found = _evaluate(dataset, place, settings, runs, split, fold, difficulty, versions)
        rows, claims = _claims(found, settings, place.seed, versions["splits"])
        parents = [f"{t}@{versions[t]}" for t in (*tables, "predictions")]
        wanted = Wanted(made, lambda: [rows], group=split)
        dataset.publish("evaluation", [wanted], parents=parents, metadata=place.metadata(), keep_others=True)
        told = [*(replace(one.summary(), step=f"evaluate {arm}") for arm, one in found.items()), claims]
        for key, summary in zip(keys.values(), told, strict=True):
            keep_summary(dataset, key, summary)
    number = dataset.version("evaluation").number
    return tuple(StepResult(summary, {"evaluation": number}) for summary in told)


def _claims(
    found: Mapping[str, Evaluation], settings: Evaluate, seed: int, split_version: int
) -> tuple[pl.DataFrame, Summary]:
    """Return the rows of the table `evaluation` and what may be claimed, a sentence an arm and one a comparison."""
    rows = [one.table for one in found.values()]
    sentences = [one.sentence() for one in found.values()]
    if len(found) < 2:
        return pl.concat(rows), Summary("claims", sentences[0], extra={"sentences": sentences})
    baseline = settings.baseline if settings.baseline in found else None
    compared = compare(found, baseline, resamples=settings.resamples, seed=seed, split_version=split_version)
    sentences.append(compared.sentence())
    told = replace(compared.summary(), step="claims", headline=sentences[-1], extra={"sentences": sentences})
    return pl.concat([*rows, compared.evaluation]), told


def _evaluate(
    dataset: Dataset,
    place: Place,
    settings: Evaluate,
    runs: Mapping[str, list[str]],
    split: str,
    fold: int,
    difficulty: str,
    versions: Mapping[str, int],
) -> dict[str, Evaluation]:
    rows = dataset.scan("splits", versions["splits"]).filter(
        (pl.col("strategy") == split) & (pl.col("seed") == place.seed) & (pl.col("fold") == fold)
    )
    wanted = [settings.cluster] if settings.cluster else []
    have = require_columns(dataset, f"examples@{versions['examples']}", wanted, where="evaluate.cluster")
    columns = [c for c in dict.fromkeys(["example_id", "level", "domain", "group", settings.cluster]) if c in have]
    examples = dataset.scan("examples", versions["examples"]).select(columns).collect()
    bins = respondents = None
    if difficulty:
        bins = dataset.scan("difficulty", versions["difficulty"]).filter(pl.col("method") == difficulty).collect()
        if "respondents" in versions:
            respondents = dataset.scan("respondents", versions["respondents"]).select("respondent_id").collect()
    places = rows.collect()
    axes = [axis for axis in ("level", "domain") if examples[axis].null_count() < len(examples)]
    found = {}
    for arm, ids in runs.items():
        answers = dataset.scan("predictions", versions["predictions"]).filter(pl.col("run_id").is_in(ids)).collect()
        if answers.is_empty():
            raise UsageError(f"the arm {arm!r} has no predictions", where="evaluate", remedy="gradatim train RECIPE")
        found[arm] = evaluate(
            answers,
            places,
            examples,
            bins,
            name=f"the {arm} arm",
            respondents=None if respondents is None else respondents["respondent_id"].to_list(),
            axes=axes,
            cluster=settings.cluster or None,
            resamples=settings.resamples,
            seed=place.seed,
            split_version=versions["splits"],
        )
    return found
