"""Prefect task of training: one a run, that is an arm and a seed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import polars as pl
from prefect import task
from prefect.artifacts import create_progress_artifact, update_progress_artifact

from gradatim.schemas.hashing import value_hash
from gradatim.schemas.recipe import Train
from gradatim.schemas.summary import Fact, Summary
from gradatim.storage.publish import Wanted
from gradatim.storage.tables import Dataset
from gradatim.tasks.core import format as fmt
from gradatim.tasks.core.step import RETRIES, Place, StepResult, held, publish_group, require_columns
from gradatim.tasks.training import models
from gradatim.tasks.training.audit import audit
from gradatim.tasks.training.folder import Run, prepare
from gradatim.tasks.training.launch import Outcome, Progress, train_run

EVALUATED = ("validation", "validation_ood", "test", "test_ood")
TABLES = ("runs", "dynamics", "predictions")


def run_name(train: Train, arm: str, seed: int, inputs: list[str]) -> str:
    """Name a run by arm, seed and eight digits of all that it is made from."""
    section = train.model_dump(mode="json", exclude={"arms", "seeds", "launcher"})
    return f"{arm}-{seed}-{value_hash([section, *inputs])[:8]}"


@task(name="train", task_run_name="train {arm} seed {seed}", **RETRIES)
def run(
    place: Place,
    train: Train,
    arm: str,
    seed: int,
    split: str,
    fold: int,
    versions: Mapping[str, int],
    ranks: int | None = None,
) -> StepResult:
    """Train one arm with one seed in exactly its order, and publish what came of it.

    An interrupted run goes on at its last checkpoint, on `ranks` workers if given; a finished one is not trained again.
    """
    train = train.model_copy(update={"arms": [arm], "seeds": [seed]})
    dataset = place.open()
    references = {table: f"{table}@{versions[table]}" for table in ("examples", "splits", "curriculum")}
    order = [part for part in dataset.parts(references["curriculum"]) if part.group == arm]
    inputs = [
        dataset.content_hash(references["examples"]),
        split,
        str(fold),
        *sorted(part.content_hash for part in order),
    ]
    run_id = run_name(train, arm, seed, inputs)
    prepared = _prepare(dataset, place, train, arm, seed, split, fold, versions, run_id)
    outcome = train_run(prepared, _reporter(run_id), ranks=ranks)
    if outcome.state == "printed":
        headline = f"{run_id}: start it with   {outcome.command}"
        return StepResult(Summary(step=f"train {arm}", headline=headline, next=(outcome.command,)), current(dataset))
    made = value_hash([run_id, outcome.figures["chain"], outcome.figures["manifest"]])
    if not held(dataset, "predictions", made, run_id):
        _publish(dataset, place, outcome, made, run_id, list(references.values()))
    return StepResult(_summary(outcome, arm, seed, run_id), current(dataset))


def run_folder(dataset: Dataset, run_id: str) -> Path:
    """Return a run's folder: in a local store, else below the current folder, since workers need a disk."""
    if dataset.store.root is not None:
        return Path(dataset.runs_path(run_id))
    return Path.cwd() / "gradatim-runs" / dataset.name / run_id


def _prepare(
    dataset: Dataset,
    place: Place,
    train: Train,
    arm: str,
    seed: int,
    split: str,
    fold: int,
    versions: Mapping[str, int],
    run_id: str,
) -> Run:
    mine = (pl.col("arm") == arm) & (pl.col("seed") == place.seed)
    order = dataset.scan("curriculum", versions["curriculum"]).filter(mine)
    rows = dataset.scan("splits", versions["splits"]).filter(
        (pl.col("strategy") == split) & (pl.col("seed") == place.seed) & (pl.col("fold") == fold)
    )
    tested = rows.filter(pl.col("split").is_in(EVALUATED)).select("split", "example_id").sort("example_id").collect()
    evaluate = {
        name: ids["example_id"].to_list() for (name,), ids in tested.partition_by("split", as_dict=True).items()
    }
    columns = list(dict.fromkeys(["example_id", *models.columns(train.model)]))
    require_columns(dataset, f"examples@{versions['examples']}", columns, where="train.model")
    used = rows.filter(pl.col("split") != "excluded").select("example_id")
    folder = run_folder(dataset, run_id)
    return prepare(
        folder,
        train=train,
        examples=dataset.scan("examples", versions["examples"]).select(columns).join(used, on="example_id", how="semi"),
        order=order.select("position", "example_id", "weight").collect(),
        evaluate=evaluate,
        seed=seed,
        cache_dir=folder.parent / "cache",
        run_id=run_id,
    )


def _reporter(run_id: str) -> Callable[[Progress], None]:
    """Make the callback that moves a progress artifact in Prefect's UI."""
    artifact = create_progress_artifact(progress=0.0, key=f"train-{run_id}", description=f"Training run {run_id}")
    shown = [0]

    def report(progress: Progress) -> None:
        percent = int(100 * progress.step / max(progress.steps, 1))
        if percent > shown[0]:
            shown[0] = percent
            update_progress_artifact(artifact_id=artifact, progress=float(percent))  # type: ignore[arg-type]

    return report


def _publish(dataset: Dataset, place: Place, outcome: Outcome, made: str, run_id: str, parents: list[str]) -> None:
    figures = dict(outcome.figures)
    record = pl.DataFrame(
        {
            "run_id": [run_id],
            "kind": ["train"],
            "parent": pl.Series([None], dtype=pl.String),
            "manifest": [figures["manifest"]],
            "state": [outcome.state],
            "attempt": pl.Series([figures["attempt"]], dtype=pl.Int32),
            "config": [json.dumps(outcome.run.config(), sort_keys=True)],
            "figures": [json.dumps(figures, sort_keys=True)],
        }
    )
    publish_group(dataset, place, "runs", run_id, made, record, parents)
    dynamics = Wanted(made, lambda: [outcome.dynamics().collect()], group=run_id)
    dataset.publish("dynamics", [dynamics], parents=parents, metadata=place.metadata(), keep_others=True)
    publish_group(dataset, place, "predictions", run_id, made, outcome.predictions().collect(), parents)


def _summary(outcome: Outcome, arm: str, seed: int, run_id: str) -> Summary:
    figures = outcome.figures
    proof = audit(outcome.run.folder)
    seconds = float(figures["seconds"])
    return Summary(
        step=f"train {arm}" if seed == 0 else f"train {arm} seed {seed}",
        headline=f"{fmt.count(int(figures['steps']))} steps, {fmt.count(int(figures['positions']))} positions in "
        f"{fmt.duration(seconds)}, order {proof.verdict}",
        facts=(
            Fact("run", run_id),
            Fact("final loss", round(float(figures["loss"]), 5), "nats"),
            Fact("wall time", round(seconds, 1), "s"),
            Fact("ranks", figures["ranks"]),
            Fact("device", figures["device"]),
            Fact("ZeRO stage", figures["zero"]),
            Fact("attempt", figures["attempt"]),
            Fact("manifest", figures["manifest"]),
            Fact(
                "audit chain",
                figures["chain"],
                note=f"{proof.verdict}: as the manifest demands" if proof.holds else proof.reason,
            ),
        ),
        next=(f"gradatim audit {run_id}",),
    )


def current(dataset: Dataset) -> dict[str, int]:
    """Return the newest version of each of this area's tables."""
    latest = {table: dataset.log(table).latest() for table in TABLES}
    return {table: version.number for table, version in latest.items() if version is not None}
