"""Prefect task of evaluation: every arm in and out of distribution, and compared pair by pair."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import polars as pl
from gradatim.schemas.errors import UsageError
from gradatim.schemas.hashing import value_hash
from gradatim.schemas.recipe import Evaluate
from gradatim.schemas.summary import Summary
from gradatim.storage.publish import Wanted
from gradatim.storage.tables import Dataset
from gradatim.tasks.core.step import RETRIES, Place, StepResult, keep_summary, kept_summary
from gradatim.tasks.evaluation.compare import compare
from gradatim.tasks.evaluation.evaluate import evaluate
from gradatim.tasks.evaluation.result import Evaluation
from prefect import task

REVISION = 1


@task(name="evaluate", **RETRIES)
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
        The claims first (their sentences are the report's headline), then one an arm.
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
    names = ["claims", *runs]
    kept = {name: kept_summary(dataset, value_hash([made, name])) for name in names}
    if any(summary is None for summary in kept.values()) or made not in dataset.fingerprints("evaluation"):
        found = _evaluate(dataset, place, settings, runs, split, fold, difficulty, versions)
        rows = pl.concat([*(one.table for one in found.values())])
        summaries = {arm: replace(one.summary(), step=f"evaluate {arm}") for arm, one in found.items()}
        claims = Summary(step="claims", headline=" ".join(one.sentence() for one in found.values()))
        if len(found) > 1:
            compared = compare(
                found,
                settings.baseline if settings.baseline in found else None,
                resamples=settings.resamples,
                seed=place.seed,
                split_version=versions["splits"],
            )
            rows = pl.concat([rows, compared.evaluation])
            sentence = compared.sentence()
            claims = replace(compared.summary(), step="claims", headline=f"{claims.headline} {sentence}")
        parents = [f"{t}@{versions[t]}" for t in (*tables, "predictions")]
        wanted = Wanted(made, lambda: [rows], group=split)
        dataset.publish("evaluation", [wanted], parents=parents, metadata=place.metadata(), keep_others=True)
        kept = {"claims": claims, **summaries}
        for name, summary in kept.items():
            keep_summary(dataset, value_hash([made, name]), summary)
    number = dataset.version("evaluation").number
    return tuple(StepResult(summary, {"evaluation": number}) for summary in kept.values() if summary is not None)


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
    have = dataset.version(f"examples@{versions['examples']}").schema.names
    if settings.cluster and settings.cluster not in have:
        raise UsageError(f"there is no column {settings.cluster!r}", where="evaluate.cluster", expected=", ".join(have))
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
