"""What a run would do: its steps, what stands already, and what the rest takes in time and memory."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl
import pyarrow.parquet as pq

from gradatim.flows.job import Job
from gradatim.flows.steps import default_difficulty
from gradatim.schemas.summary import Fact, Summary, SummaryTable
from gradatim.schemas.tables import EMBEDDING
from gradatim.storage.tables import Dataset
from gradatim.tasks.core import format as fmt
from gradatim.tasks.core.registry import Cost, Plugin, get
from gradatim.tasks.core.step import Method, held
from gradatim.tasks.difficulty import task as difficulty_tasks
from gradatim.tasks.diversity import task as diversity_tasks
from gradatim.tasks.embedding import task as embedding_tasks
from gradatim.tasks.ingest.lm_eval import count_responses
from gradatim.tasks.ingest.sources import Shard, shards, source_files, utf8_chunks
from gradatim.tasks.splits import task as split_tasks

ENGINE = Cost(seconds=18.0, bytes=650e6)
"""Prefect's ephemeral server, imports, and the process itself; `benchmarks/plan.py` holds these numbers to account."""
PUBLISH = Cost(seconds=3.5e-6, bytes=350.0)
"""To write, hash, audit and commit one row of a table of a few columns."""
CONTRACT = 20
"""Columns that the table `examples` has beside the user's."""
CONTROLS = Cost(seconds=25e-6, bytes=600.0)
"""To draw a split's controls and certify it, an example; and `CERTIFY` seconds however few there are."""
CERTIFY = 2.0
COMPONENTS = Cost(seconds=4e-6, bytes=500.0)
"""To let components of near-duplicates grow, an example."""
VECTOR, FLOATS = 256, 16
"""Numbers of an embedder's vector, whose width is not known before it runs; and how many cost what a row does."""
NOTHING = Cost(seconds=0.0, bytes=0.0)
RESPONSE = Cost(seconds=5e-6, bytes=300.0)
"""To read and settle a response of a table; a line of a sample log takes `SAMPLE` seconds."""
SAMPLE = 3e-5


@dataclass(frozen=True)
class Planned:
    """One step: what it is, whether its result stands, how many rows it makes, and its cost."""

    step: str
    state: str
    rows: int
    cost: Cost


def plan_recipe(recipe: str, store: str | None, data: str | None) -> Summary:
    """List the steps of a recipe with what each takes.

    Whether a result stands is known where its input does: with new examples all that follows is new. Times are for two
    cores; memory is the largest step's.
    """
    job = Job.load(recipe, store, data)
    dataset = job.place.open()
    rows, width, size = _size(job)
    steps = list(_steps(job, dataset, rows, width))
    fresh = [step for step in steps if step.state != "stands"]
    seconds = ENGINE.seconds + sum(step.cost.seconds for step in fresh)
    memory = ENGINE.bytes + max((step.cost.bytes for step in fresh), default=0.0)
    table = tuple(
        (s.step, s.state, s.rows, fmt.duration(s.cost.seconds), fmt.size(s.cost.bytes))
        if s.state != "stands"
        else (s.step, s.state, s.rows, "", "")
        for s in steps
    )
    return Summary(
        step="plan",
        headline=f"{len(fresh)} of {len(steps)} steps to do: about {fmt.duration(seconds)} and {fmt.size(memory)}",
        facts=(
            Fact("rows in", rows, note="estimated from the files' size" if size else ""),
            Fact("bytes to read", fmt.size(size)),
            Fact("estimated seconds", round(seconds, 1), "s"),
            Fact("estimated memory", fmt.size(memory)),
        ),
        tables=(SummaryTable("Steps", ("step", "state", "rows", "time", "memory"), table),),
        next=(f"gradatim run {recipe}",),
        extra={"seconds": seconds, "bytes": memory, "rows": rows},
    )


def _steps(job: Job, dataset: Dataset, rows: int, width: int) -> list[Planned]:
    latest = {table: version.number for table in dataset.tables() if (version := dataset.log(table).latest())}
    known = _ingested(job, dataset)
    versions = latest if known else {}
    source = job.generator.plugin if job.generator else _reader(job)
    cost = source.cost(rows, width)
    total = Cost(cost.seconds + PUBLISH.seconds * rows * (CONTRACT + width) / 5, cost.bytes + PUBLISH.bytes * rows)
    found = [Planned("ingest", "stands" if known else "new", rows, total)]
    respondents = 0
    if job.recipe.responses is not None:
        if "responses" in versions and "respondents" in versions:
            answers, respondents = dataset.version("responses").rows, dataset.version("respondents").rows
        else:
            answers, respondents = plan_responses(job)
        state = "stands" if "responses" in versions and known else "new"
        found.append(Planned("responses", state, answers, _published(_read(job, answers), answers)))

    for table, section in job.recipe.sources():
        told = plan_source(job, section.source)
        state = "stands" if table in versions and known else "new"
        found.append(
            Planned(table, state, told, _published(Cost(told * RESPONSE.seconds, told * RESPONSE.bytes), told))
        )

    for method in job.embedders:
        new = embedding_tasks.rows_to_embed(dataset, job.place, method, versions) if versions else rows
        own, written = method.plugin.cost(new, VECTOR), new * VECTOR / FLOATS
        cost = Cost(own.seconds + PUBLISH.seconds * written, own.bytes + min(PUBLISH.bytes * written, 1.2e9))
        found.append(Planned(f"features_{method.name}", "new" if new else "stands", new or rows, cost))

    def add(name: str, method: Method, stands: bool, made: int, wide: int, more: Cost = NOTHING) -> None:
        own = method.plugin.cost(rows, wide)
        cost = _published(Cost(own.seconds + more.seconds, own.bytes + more.bytes), made)
        found.append(Planned(f"{name} {method.name}", "stands" if stands else "new", made, cost))

    difficulties = job.difficulty or (default_difficulty(job, versions),)
    for method in difficulties:
        stands = bool(versions) and held(
            dataset, "difficulty", difficulty_tasks.named(dataset, job.place, method, versions)[0], method.name
        )
        add("difficulty", method, stands, rows, respondents or 1)
    for method in job.diversity:
        stands = bool(versions) and held(
            dataset,
            "statistics",
            diversity_tasks.named(dataset, job.place, method, versions),
            diversity_tasks.GROUP + method.name,
        )
        add("diversity", method, stands, rows, _width(job, dataset, method))
    matched = job.recipe.curriculum.by if job.recipe.curriculum else difficulties[0].name
    measured = not job.alike or "pairs" in versions
    if job.keeps_alike:
        stands = (
            bool(versions)
            and measured
            and held(dataset, "components", split_tasks.named_components(dataset, job.alike, versions)[1], "")
        )
        found.append(
            Planned(
                "components",
                "stands" if stands else "new",
                rows,
                _published(Cost(COMPONENTS.seconds * rows, COMPONENTS.bytes * rows), rows),
            )
        )
    else:
        versions = {table: number for table, number in versions.items() if table != "components"}
    for method in job.splits:
        stands = (
            bool(versions)
            and measured
            and held(
                dataset,
                "splits",
                split_tasks.named(dataset, job.place, method, matched, versions, job.alike)[1],
                method.name,
            )
        )
        add("split", method, stands, 3 * rows, 2, Cost(CERTIFY + CONTROLS.seconds * rows, CONTROLS.bytes * rows))
    curriculum = job.recipe.curriculum
    if curriculum is not None and job.pacing is not None:
        positions = int(0.8 * rows * curriculum.passes) * len(curriculum.arms)
        upstream = all(step.state == "stands" for step in found)
        state = "stands" if upstream and "curriculum" in versions else "new"
        cost = _published(job.pacing.plugin.cost(positions, 1), positions)
        found.append(Planned("curriculum", state, positions, Cost(cost.seconds, min(cost.bytes, 1.2e9))))
    if job.recipe.train is not None and curriculum is not None:
        positions = int(0.8 * rows * curriculum.passes)
        for arm in job.arms:
            for seed in job.recipe.train.seeds:
                cost = job.model.plugin.cost(positions, 1) if job.model else Cost(0.0, 0.0)
                found.append(Planned(f"train {arm} seed {seed}", "new", positions, cost))
    return found


def _width(job: Job, dataset: Dataset, method: Method) -> int:
    """Return the width of the vectors that a measure reads; 0 where it reads none, or hashes texts itself."""
    names = [table for table in method.reads() if table.startswith("features_")]
    if not names:
        return 0
    latest = dataset.log(names[0]).latest() if names[0] in dataset.tables() else None
    if latest is not None:
        return int(dataset.version(f"{names[0]}@{latest.number}").schema.field(EMBEDDING).type.list_size)
    asked = {f"features_{embedder.name}": getattr(embedder.config, "width", VECTOR) for embedder in job.embedders}
    return int(asked.get(names[0], VECTOR))


def _published(cost: Cost, rows: int) -> Cost:
    return Cost(cost.seconds + PUBLISH.seconds * rows, cost.bytes + PUBLISH.bytes * rows)


def _read(job: Job, answers: int) -> Cost:
    source = job.recipe.responses
    assert source is not None
    return Cost(answers * (SAMPLE if source.format == "lm-eval" else RESPONSE.seconds), answers * RESPONSE.bytes)


def _ingested(job: Job, dataset: Dataset) -> bool:
    """Whether the examples of this very source stand: no shard is new, changed or gone."""
    from gradatim.tasks.ingest.task import standing

    return standing(job.place, job.recipe.examples)


def _reader(job: Job) -> Plugin:
    first = shards(str(job.recipe.examples.source), job.place.base, job.recipe.examples.format)[0]
    return get("reader", first.format)


def _size(job: Job) -> tuple[int, int, int]:
    """Estimate rows and columns of the source, and return its bytes."""
    if job.generator is not None:
        plugin = job.generator.plugin
        rows = sum(len(frame) for frame in plugin.run(job.generator.config, job.place.seed))
        return rows, 20, 0
    found = shards(str(job.recipe.examples.source), job.place.base, job.recipe.examples.format)
    size = sum(shard.size for shard in found)
    counted = [_rows(shard) for shard in found if shard.format == "parquet"]
    sampled = [shard for shard in found if shard.format != "parquet"]
    rows = sum(count for count, _ in counted)
    width = max((columns for _, columns in counted), default=0)
    if sampled:
        density, columns = _density(sampled[0])
        rows += int(sum(shard.size for shard in sampled) * density)
        width = max(width, columns)
    return rows, width, size


def _rows(shard: Shard) -> tuple[int, int]:
    with pq.ParquetFile(shard.path) as file:
        return file.metadata.num_rows, file.metadata.num_columns


def _density(shard: Shard) -> tuple[float, int]:
    """Return rows a byte of the file, from the lines of its beginning (gzip shrinks text to a quarter); and columns."""
    if shard.format == "arrow":
        frame = pl.scan_ipc(shard.path)
        return frame.select(pl.len()).collect().item() / max(shard.size, 1), len(frame.collect_schema())
    start = next(iter(utf8_chunks(shard.path, "utf-8", shard.uri, check=False)), b"")
    packed = 0.25 if shard.path.name.endswith(".gz") else 1.0
    whole = len(start) * packed >= shard.size * 0.99
    lines = start.count(b"\n") + (not start.endswith(b"\n")) - (shard.format == "csv")
    columns = start.split(b"\n", 1)[0].count(b",") + 1
    return lines / max(shard.size if whole else len(start) * packed, 1), columns


def plan_source(job: Job, source: str) -> int:
    """Estimate the rows of a source: those of Parquet are known, of text guessed, of .npy a vector an example."""
    paths = source_files(source, job.place.base, None)
    if any(path.suffix in (".npy", ".npz") for path in paths):
        return _size(job)[0]
    found = [shard for path in paths for shard in shards(str(path), job.place.base)]
    return sum(_rows(s)[0] if s.format == "parquet" else int(s.size * _density(s)[0]) for s in found)


def plan_responses(job: Job) -> tuple[int, int]:
    """Estimate (responses, respondents) from the files: lines of sample logs are counted, those of tables guessed."""
    source = job.recipe.responses
    assert source is not None
    if source.format == "lm-eval":
        return count_responses(source.source, job.place.base)
    found = shards(source.source, job.place.base, source.format)
    rows = sum(_rows(s)[0] if s.format == "parquet" else int(s.size * _density(s)[0]) for s in found)
    return rows, max(1, rows // max(_size(job)[0], 1))
