"""Prefect task of the curriculum: the order of training with its control arms."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

import polars as pl
import pyarrow as pa
from prefect import task

from gradatim.schemas.errors import UsageError
from gradatim.schemas.hashing import value_hash
from gradatim.schemas.recipe import Curriculum
from gradatim.storage.parts import fingerprint
from gradatim.storage.publish import Wanted
from gradatim.storage.tables import Dataset
from gradatim.tasks.core.step import RETRIES, Method, Place, StepResult, keep_summary, kept_summary
from gradatim.tasks.curriculum.build import build_curriculum
from gradatim.tasks.curriculum.result import CurriculumOrder, curriculum_batches

REVISION = 1


@task(name="curriculum", task_run_name="curriculum", **RETRIES)
def order(place: Place, curriculum: Curriculum, split: str, pacing: Method, versions: Mapping[str, int]) -> StepResult:
    """Order the train rows of a split by a difficulty and publish every arm, streaming."""
    dataset = place.open()
    chosen = curriculum.model_dump(mode="json", exclude={"pacing", "arms"})
    section = value_hash({**chosen, "split": split, "seed": place.seed, "pacing": pacing.fingerprint(place.seed, [])})
    # only these two results matter, not what else the tables hold
    inputs = [
        _group_hash(dataset, "splits", versions, split),
        _group_hash(dataset, "difficulty", versions, curriculum.by),
    ]
    made = {arm: fingerprint(f"curriculum {arm}", REVISION, section, inputs) for arm in sorted(curriculum.arms)}
    whole = value_hash(made)
    built: list[CurriculumOrder] = []

    def one() -> CurriculumOrder:
        if not built:
            built.append(_build(dataset, place, curriculum, split, pacing, versions))
        return built[0]

    def batches(arm: str) -> Iterator[pa.RecordBatch]:
        return curriculum_batches(one(), [arm])

    parents = [f"{table}@{versions[table]}" for table in ("examples", "splits", "difficulty")]
    published = dataset.publish(
        "curriculum",
        [Wanted(name, partial(batches, arm), group=arm, ordered=True) for arm, name in made.items()],
        parents=parents,
        metadata=place.metadata(by=curriculum.by, split=split),
    )
    summary = kept_summary(dataset, whole)
    if summary is None:
        summary = one().summary()
        keep_summary(dataset, whole, summary)
    return StepResult(summary, {"curriculum": published.version})


def _group_hash(dataset: Dataset, table: str, versions: Mapping[str, int], group: str) -> str:
    parts = dataset.version(f"{table}@{versions[table]}").parts
    return value_hash(sorted(part.content_hash for part in parts if part.group == group))


def _build(
    dataset: Dataset, place: Place, curriculum: Curriculum, split: str, pacing: Method, versions: Mapping[str, int]
) -> CurriculumOrder:
    rows = dataset.scan("splits", versions["splits"]).filter(
        (pl.col("strategy") == split) & (pl.col("seed") == place.seed) & (pl.col("fold") == curriculum.fold)
    )
    train = rows.filter(pl.col("split") == "train").select("example_id").collect()["example_id"]
    if train.is_empty():
        folds = dataset.scan("splits", versions["splits"]).filter(pl.col("strategy") == split)
        known = folds.select("fold").unique().sort("fold").collect()["fold"].to_list()
        raise UsageError(
            f"the split {split} has no train rows in fold {curriculum.fold}",
            where="curriculum.fold",
            expected="one of " + ", ".join(map(str, known)),
        )
    difficulty = dataset.scan("difficulty", versions["difficulty"]).filter(pl.col("method") == curriculum.by).collect()
    return build_curriculum(
        train,
        difficulty,
        by=curriculum.by,
        pacing=pacing.plugin.name,
        settings=pacing.config.model_dump(),
        arms=curriculum.arms,
        passes=curriculum.passes,
        stages=curriculum.stages,
        seed=place.seed,
    )
