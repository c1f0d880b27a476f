"""Prefect task of training: one a run, that is an arm and a seed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import polars as pl
from prefect import task
from prefect.artifacts import create_progress_artifact, update_progress_artifact

from gradatim.schemas.errors import DataRefused
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


@dataclass(frozen=True)
class Order:
    """What a run trains on: one arm of a curriculum over the train rows of one split and fold, at fixed versions."""

    arm: str
    split: str
    fold: int
    versions: Mapping[str, int]

    def reference(self, table: str) -> str:
        """Name a table at its version."""
        return f"{table}@{self.versions[table]}"


def run_name(dataset: Dataset, train: Train, order: Order, seed: int) -> str:
    """Name a run by arm, seed and eight digits of all that it is made from: settings, examples, split and order."""
    section = _settings(train, order.arm, seed).model_dump(mode="json", exclude={"launcher"})
    rows = [p.content_hash for p in dataset.parts(order.reference("splits")) if p.group == order.split]
    positions = [p.content_hash for p in dataset.parts(order.reference("curriculum")) if p.group == order.arm]
    inputs = [dataset.content_hash(order.reference("examples")), order.split, str(order.fold)]
    return f"{order.arm}-{seed}-{value_hash([section, *inputs, *sorted(rows), *sorted(positions)])[:8]}"


@task(name="train", task_run_name="train {order.arm} seed {seed}", **RETRIES)
def run(place: Place, train: Train, order: Order, seed: int, ranks: int | None = None) -> StepResult:
    """Train one arm with one seed in exactly its order, and publish what came of it.

    An interrupted run goes on at its last checkpoint, on `ranks` workers if given; a finished one is not trained again.
    """
    dataset = place.open()
    run_id = run_name(dataset, train, order, seed)
    prepared = _prepare(dataset, place, _settings(train, order.arm, seed), order, seed, run_id)
    outcome = train_run(prepared, _reporter(run_id), ranks=ranks)
    if outcome.state == "printed":
        headline = f"{run_id}: start it with   {outcome.command}"
        return StepResult(Summary(f"train {order.arm}", headline, next=(outcome.command,)), current(dataset))
    made = value_hash([run_id, outcome.figures["chain"], outcome.figures["manifest"]])
    if not held(dataset, "predictions", made, run_id):
        parents = [order.reference(table) for table in ("examples", "splits", "curriculum")]
        _publish(dataset, place, outcome, made, run_id, parents)
    return StepResult(_summary(outcome, order.arm, seed, run_id), current(dataset))


def _settings(train: Train, arm: str, seed: int) -> Train:
    """Reduce the section to this run: other arms and seeds do not matter to it."""
    return train.model_copy(update={"arms": [arm], "seeds": [seed]})


def run_folder(dataset: Dataset, run_id: str) -> Path:
    """Return a run's folder: in a local store, else below the current folder, since workers need a disk."""
    if dataset.store.root is not None:
        return Path(dataset.runs_path(run_id))
    return Path.cwd() / "gradatim-runs" / dataset.name / run_id


def _prepare(dataset: Dataset, place: Place, train: Train, order: Order, seed: int, run_id: str) -> Run:
    mine = (pl.col("arm") == order.arm) & (pl.col("seed") == place.seed)
    positions = dataset.scan("curriculum", order.versions["curriculum"]).filter(mine)
    rows = dataset.scan("splits", order.versions["splits"]).filter(
        (pl.col("strategy") == order.split) & (pl.col("seed") == place.seed) & (pl.col("fold") == order.fold)
    )
    _only_train_rows(positions, rows, order)
    tested = rows.filter(pl.col("split").is_in(EVALUATED)).select("split", "example_id").sort("example_id").collect()
    evaluate = {
        name: ids["example_id"].to_list() for (name,), ids in tested.partition_by("split", as_dict=True).items()
    }
    columns = list(dict.fromkeys(["example_id", *models.columns(train.model)]))
    require_columns(dataset, order.reference("examples"), columns, where="train.model")
    used = rows.filter(pl.col("split") != "excluded").select("example_id")
    examples = dataset.scan("examples", order.versions["examples"]).select(columns)
    folder = run_folder(dataset, run_id)
    return prepare(
        folder,
        train=train,
        examples=examples.join(used, on="example_id", how="semi"),
        order=positions.select("position", "example_id", "weight").collect(),
        evaluate=evaluate,
        seed=seed,
        cache_dir=folder.parent / "cache",
        run_id=run_id,
    )


def _only_train_rows(positions: pl.LazyFrame, rows: pl.LazyFrame, order: Order) -> None:
    """Refuse an order with a row that its split does not train on: no number after it could be believed."""
    train = rows.filter(pl.col("split") == "train").select("example_id")
    strays = positions.select("example_id").unique().join(train, on="example_id", how="anti").collect()["example_id"]
    if len(strays):
        raise DataRefused(
            f"{len(strays):,} rows of the order are not train rows of the split, e.g. {strays.sort()[0]!r}",
            where=f"{order.reference('curriculum')}, {order.reference('splits')}: {order.split} fold {order.fold}",
            expected="train rows only",
            remedy="gradatim curate RECIPE makes the order of the newest split",
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
