"""Prefect tasks of ingest: one a shard, then one that settles duplicates over all shards and publishes."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from prefect import task

from gradatim.schemas.errors import DataRefused
from gradatim.schemas.expectations import suite
from gradatim.schemas.hashing import add_hashes, value_hash
from gradatim.schemas.recipe import Checks, Dynamics, Examples, Features, Options, Responses
from gradatim.schemas.tables import EMBEDDING, TableSpec, features_spec
from gradatim.storage.casting import Changes
from gradatim.storage.parts import fingerprint
from gradatim.storage.publish import Wanted
from gradatim.storage.shards import ShardNotes
from gradatim.storage.tables import Dataset
from gradatim.tasks.core import format as fmt
from gradatim.tasks.core.registry import resolve
from gradatim.tasks.core.step import RETRIES, Place, StepResult, held, keep_summary, kept_summary, quarantine
from gradatim.tasks.ingest import examples as reading
from gradatim.tasks.ingest.dynamics import read_dynamics
from gradatim.tasks.ingest.features import read_features
from gradatim.tasks.ingest.identity import KEYS, compare_versions, resolve_duplicates
from gradatim.tasks.ingest.joining import join_examples
from gradatim.tasks.ingest.options import read_options
from gradatim.tasks.ingest.reading import rejects_table, shard_schema
from gradatim.tasks.ingest.responses import read_responses
from gradatim.tasks.ingest.sources import Shard, file_hash, shards, source_files
from gradatim.tasks.ingest.summary import examples_summary, responses_summary

REVISION = 1
"""Of what a shard becomes; raised whenever the same shard would give other rows."""


@dataclass(frozen=True)
class Mapped:
    """A mapped shard: its name and fingerprint, how many rows came and into how many parts they went."""

    uri: str
    made: str
    rows_in: int
    parts: int
    shard: Shard | None


@task(name="list shards", task_run_name="list shards", **RETRIES)
def list_shards(place: Place, examples: Examples) -> list[Shard]:
    """List the files of the source with their hashes; none for a procedural data set."""
    return shards(str(examples.source), place.base, examples.format) if examples.source is not None else []


@task(name="read columns", task_run_name="read columns", **RETRIES)
def read_schema(place: Place, examples: Examples, found: list[Shard]) -> bytes:
    """Find the one schema of the source; each shard is looked at once, ever."""
    dataset = place.open()
    options = reading.read_options(examples)
    section = value_hash({"encoding": options.encoding, "text": sorted(options.text_columns)})
    schemas = {}
    for shard in found:
        notes = ShardNotes(dataset, fingerprint("shard schema", REVISION, section, [shard.content_hash]))
        raw = notes.get("schema.arrow")
        if raw is None:
            raw = shard_schema(shard, options).serialize().to_pybytes()
            notes.put("schema.arrow", raw)
        schemas[shard.uri] = pa.ipc.read_schema(pa.py_buffer(raw))
    schema: bytes = reading.examples_schema(schemas, examples).serialize().to_pybytes()
    return schema


@task(name="map shard", task_run_name="ingest {shard.uri}", **RETRIES)
def map_shard(place: Place, examples: Examples, shard: Shard, schema: bytes, scratch: str) -> Mapped:
    """Map one shard to rows of `examples` and rejects, unless that was done before; rows wait in `scratch`."""
    made = _mapped_name(examples, shard, schema)
    parts = reading.map_shard(shard, examples, pa.ipc.read_schema(pa.py_buffer(schema)))
    counts = _stage(ShardNotes(place.open(), made), shard.uri, ((p.table, p.rejects) for p in parts), Path(scratch))
    return Mapped(shard.uri, made, counts["rows_in"], counts["parts"], shard)


@task(name="generate", task_run_name="generate {examples.generate.method}", **RETRIES)
def generate(place: Place, examples: Examples, scratch: str) -> Mapped:
    """Generate a procedural data set, unless that was done before; rows wait in `scratch`."""
    made = _generated_name(place, examples)
    uri, frames = _generated(place, examples)
    none = rejects_table(uri, [])
    counts = _stage(ShardNotes(place.open(), made), uri, ((f.to_arrow(), none) for f in frames), Path(scratch))
    return Mapped(uri, made, counts["rows_in"], counts["parts"], None)


def _stage(notes: ShardNotes, uri: str, parts: Iterator[tuple[pa.Table, pa.Table]], scratch: Path) -> dict[str, int]:
    """Write parts to `scratch` and keep their keys and rejects; a shard that was staged before is left alone."""
    known = notes.counts()
    if known is not None:
        return known
    keys, rejects, rows_in, count = [], [rejects_table(uri, [])], 0, 0
    for count, (table, bad) in enumerate(parts, start=1):
        pq.write_table(table, scratch / f"{notes.made}-{count - 1}.parquet")
        frame = pl.DataFrame(pl.from_arrow(table.select(KEYS)))
        keys.append(frame.with_columns(part=pl.lit(count - 1, pl.Int32)))
        rejects.append(bad)
        rows_in += len(table) + len(bad)
    none = pl.DataFrame(schema={**dict.fromkeys(KEYS[:3], pl.String), "source_row": pl.Int64, "part": pl.Int32})
    notes.keep("keys", pl.concat([none, *keys]))
    notes.keep("rejects", pl.DataFrame(pl.from_arrow(pa.concat_tables(rejects))))
    return notes.keep_counts(rows_in=rows_in, parts=count)


def _generated(place: Place, examples: Examples) -> tuple[str, Iterator[pl.DataFrame]]:
    assert examples.generate is not None
    plugin, config = resolve("dataset", examples.generate, where="examples.generate")
    return f"generate:{plugin.name}", iter(plugin.run(config, place.seed))


def _mapped_name(examples: Examples, shard: Shard, schema: bytes) -> str:
    section = value_hash(examples.model_dump(mode="json", exclude={"source", "on_conflict", "renamed", "dropped"}))
    return fingerprint("ingest", REVISION, section, [shard.uri, shard.content_hash, value_hash(schema.hex())])


def _generated_name(place: Place, examples: Examples) -> str:
    assert examples.generate is not None
    plugin, config = resolve("dataset", examples.generate, where="examples.generate")
    section = value_hash({"settings": json.loads(config.model_dump_json()), "seed": place.seed})
    return fingerprint(f"generate {plugin.name}", plugin.revision, section, [])


def standing(place: Place, examples: Examples) -> bool:
    """Whether the newest examples are those of this very source: no shard is new, changed or gone."""
    dataset = place.open()
    latest = dataset.log("examples").latest()
    if latest is None:
        return False
    if examples.generate is not None:
        names = [_generated_name(place, examples)]
    else:
        found = list_shards.fn(place, examples)
        schema = read_schema.fn(place, examples, found)
        names = [_mapped_name(examples, shard, schema) for shard in found]
    notes = {name: ShardNotes(dataset, name).counts() for name in names}
    # a part that dropped no duplicate can be named without reading a key
    made = {
        fingerprint("examples", REVISION, "", [name, str(index)])
        for name, counts in notes.items()
        for index in range(counts["parts"] if counts else 0)
    }
    return all(notes.values()) and made == {part.fingerprint for part in latest.parts}


@task(name="publish examples", task_run_name="publish examples", **RETRIES)
def publish_examples(
    place: Place, examples: Examples, checks: Checks, mapped: list[Mapped], schema: bytes, scratch: str
) -> StepResult:
    """Settle duplicates over all shards, audit and publish `examples` and `rejects`; every row is accounted for."""
    dataset = place.open()
    before = dataset.log("examples").latest()
    places = [(m, index) for m in mapped for index in range(m.parts)]
    noted = {m.made: ShardNotes(dataset, m.made) for m in mapped}
    keys = [_keys(noted[m.made], index) for m, index in places]
    if not keys:
        raise DataRefused("there is no row in the whole source", where=str(examples.source), expected="at least one")
    resolution = resolve_duplicates(keys, examples.on_conflict, examples.id)
    rejects = [noted[m.made].frame("rejects") for m in mapped]
    rows_in = sum(m.rows_in for m in mapped)
    rejected = sum(map(len, rejects)) + len(resolution.rejects)
    _refuse_rejects(dataset, rejected, rows_in, checks, rejects, resolution.rejects)

    previous = None
    if before is not None:
        known = ["example_id", "content_hash", "first_version", "changed_version"]
        previous = dataset.scan("examples", before.number).select(known)
    names = set(dataset.version(f"examples@{before.number}").schema.names) if before else set()
    number = before.number + 1 if before else 0
    wanted = []
    for (m, index), drop in zip(places, resolution.drop, strict=True):
        dropped = value_hash(drop.tolist()) if len(drop) else ""
        source = _Rows(place, examples, m, index, schema, scratch, drop, previous, number, names)
        made = fingerprint("examples", REVISION, dropped, [m.made, str(index)])
        wanted.append(Wanted(made, source.produce, group=m.uri))
    expectations = suite("examples").tolerate(output_not_empty=checks.output_not_empty)
    if examples.input is None and examples.generate is None:
        expectations = expectations.severities(input_not_null="warn")
    changes = Changes(examples.renamed, tuple(examples.dropped))
    try:
        published = dataset.publish("examples", wanted, suite=expectations, metadata=place.metadata(), changes=changes)
    except DataRefused as error:
        if "output_not_empty" in error.what:
            error.remedy += "; or allow a share of empty outputs: checks: {output_not_empty: 1%}"
        raise

    current = pl.concat([_kept(k, drop) for k, drop in zip(keys, resolution.drop, strict=True)])
    seen = compare_versions(
        None if previous is None else previous.select("example_id", "content_hash").collect(), current
    )
    counts = reading.IngestCounts(
        rows_in=rows_in,
        published=published.rows,
        rejected=rejected,
        redelivered=resolution.redelivered,
        new=seen.new,
        same=seen.same,
        changed=seen.changed,
        vanished=seen.vanished,
    )
    bad = dataset.publish(
        "rejects",
        [
            *(
                Wanted(fingerprint("rejects", REVISION, "", [m.made]), _Frame(r), m.uri)
                for m, r in zip(mapped, rejects, strict=True)
            ),
            Wanted(
                fingerprint("rejects", REVISION, examples.on_conflict, sorted({m.made for m in mapped})),
                _Frame(resolution.rejects),
                "duplicates",
            ),
        ],
        metadata=place.metadata(),
    )
    every = pl.concat([*rejects, resolution.rejects])
    summary = examples_summary(
        counts, every, len(mapped), dataset.version(published.reference).schema.names, published.reused
    )
    return StepResult(summary, {"examples": published.version, "rejects": bad.version})


@dataclass(frozen=True)
class _Frame:
    frame: pl.DataFrame

    def __call__(self) -> list[pl.DataFrame]:
        return [self.frame]


@dataclass(frozen=True)
class _Rows:
    """Rows of one part on their way to be published."""

    place: Place
    examples: Examples
    mapped: Mapped
    index: int
    schema: bytes
    scratch: str
    drop: np.ndarray
    previous: pl.LazyFrame | None
    number: int
    known: set[str]

    def produce(self) -> Iterator[pl.DataFrame]:
        """Yield the part's rows without duplicates, with the versions in which they came and changed."""
        table = self._read()
        keep = np.ones(len(table), dtype=bool)
        keep[self.drop] = False
        frame = pl.DataFrame(pl.from_arrow(table.filter(pa.array(keep))))
        # a version that adds columns takes two numbers of the Delta log
        number = self.number + bool(self.known and set(frame.columns) - self.known)
        now = pl.lit(number, pl.Int64)
        if self.previous is None:
            yield frame.with_columns(first_version=now, changed_version=now)
            return
        ids = frame.select("example_id").lazy()
        before = self.previous.join(ids, on="example_id", how="semi").collect()
        joined = frame.drop("first_version", "changed_version").join(
            before.rename({"content_hash": "hash_before"}), on="example_id", how="left", maintain_order="left"
        )
        same = pl.col("content_hash") == pl.col("hash_before")
        yield joined.with_columns(
            pl.col("first_version").fill_null(now),
            pl.when(same).then("changed_version").otherwise(now).alias("changed_version"),
        ).drop("hash_before")

    def _read(self) -> pa.Table:
        path = Path(self.scratch) / f"{self.mapped.made}-{self.index}.parquet"
        if path.is_file():
            return pq.read_table(path)
        # staged in an earlier run that published nothing, or its duplicates have changed since: once more, all parts
        if self.mapped.shard is None:
            tables = (frame.to_arrow() for frame in _generated(self.place, self.examples)[1])
        else:
            schema = pa.ipc.read_schema(pa.py_buffer(self.schema))
            tables = (part.table for part in reading.map_shard(self.mapped.shard, self.examples, schema))
        for index, table in enumerate(tables):
            pq.write_table(table, path.with_name(f"{self.mapped.made}-{index}.parquet"))
        if not path.is_file():
            raise DataRefused("the file has changed while it was read", where=self.mapped.uri, remedy="run it again")
        return pq.read_table(path)


def _keys(notes: ShardNotes, index: int) -> pl.LazyFrame:
    return notes.scan("keys").filter(pl.col("part") == index).select(KEYS)


def _kept(keys: pl.LazyFrame, drop: np.ndarray) -> pl.DataFrame:
    frame = keys.select("example_id", "content_hash").collect()
    if not len(drop):
        return frame
    keep = np.ones(len(frame), dtype=bool)
    keep[drop] = False
    return frame.filter(pl.Series(keep))


def _refuse_rejects(
    dataset: Dataset, rejected: int, rows_in: int, checks: Checks, rejects: list[pl.DataFrame], duplicates: pl.DataFrame
) -> None:
    if rejected <= checks.rejects * rows_in:
        return
    every = pl.concat([*rejects, duplicates])
    first = every.group_by("reason").len().sort("len", "reason", descending=[True, False]).row(0)
    there = quarantine(dataset, "examples", "rejects.parquet", every)
    raise DataRefused(
        f"{fmt.count(rejected)} of {fmt.count(rows_in)} rows are rejected ({fmt.share(rejected / rows_in)}), "
        f"most often: {first[0]} ({fmt.count(first[1])})",
        where="examples",
        expected=f"at most {fmt.share(checks.rejects)} (checks.rejects)",
        remedy=f"see {there}; mend the data, or raise checks.rejects",
    )


@task(name="responses", task_run_name="responses", **RETRIES)
def publish_responses(place: Place, responses: Responses, checks: Checks, examples_version: int) -> StepResult:
    """Read who solved what, join it to the examples, audit and publish `responses` and `respondents`."""
    dataset = place.open()
    examples = dataset.version(f"examples@{examples_version}")
    source = _response_source(place, responses)
    section = value_hash({**responses.model_dump(mode="json", exclude={"source"}), "joined": checks.joined})
    made = fingerprint("responses", REVISION, section, [source, examples.content_hash])
    summary = kept_summary(dataset, made)
    if summary is not None and held(dataset, "responses", made, ""):
        return StepResult(summary, _versions(dataset, "responses", "respondents"))
    columns = [name for name in ("example_id", "input") if name in examples.schema.names]
    frame = dataset.scan("examples", examples_version).select(columns).collect()
    found = read_responses(responses, base=place.base, examples=frame, joined=checks.joined)
    if len(found.rejects) > checks.rejects * found.rows_in:
        reason = found.rejects["reason"].value_counts(sort=True).row(0)
        raise DataRefused(
            f"{len(found.rejects):,} of {found.rows_in:,} responses are rejected, "
            f"most often: {reason[0]} ({reason[1]:,})",
            where=f"responses: {responses.source}",
            expected=f"at most {fmt.share(checks.rejects)} (checks.rejects)",
            remedy="mend the data, or raise checks.rejects",
        )
    parents = [examples.reference]
    published = dataset.publish(
        "responses", [Wanted(made, lambda: [found.responses])], parents=parents, metadata=place.metadata()
    )
    who = dataset.publish(
        "respondents",
        [Wanted(made, lambda: [found.respondents])],
        parents=[published.reference],
        metadata=place.metadata(),
    )
    summary = responses_summary(found, checks.joined)
    keep_summary(dataset, made, summary)
    return StepResult(summary, {"responses": published.version, "respondents": who.version})


@task(name="read table", task_run_name="{table}", **RETRIES)
def publish_table(
    place: Place, table: str, section: Dynamics | Options | Features, checks: Checks, examples_version: int
) -> StepResult:
    """Read dynamics, options or vectors, join them to the examples, audit and publish them."""
    dataset = place.open()
    examples = dataset.version(f"examples@{examples_version}")
    files = files_behind(section, place.base)
    source = add_hashes(value_hash([path.name, file_hash(path)]) for path in files)
    asked = value_hash({**section.model_dump(mode="json", exclude={"source", "by"}), "joined": checks.joined})
    made = fingerprint(table, REVISION, asked, [source, examples.content_hash])
    summary = kept_summary(dataset, made)
    group = "source" if table == "dynamics" else ""  # beside the runs that were trained here
    if summary is not None and held(dataset, table, made, group):
        return StepResult(summary, _versions(dataset, table))
    ids = dataset.scan("examples", examples_version).select("example_id").collect()["example_id"]
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        rows = _read_table(section, place.base)
    found = join_examples(rows, ids, checks.joined, where=f"{table}: {section.source}")
    contract: str | TableSpec = table
    if isinstance(section, Features):
        width = found.rows.schema[EMBEDDING].size  # type: ignore[attr-defined]
        contract = features_spec(table.removeprefix("features_"), width)
    published = dataset.publish(
        contract,
        [Wanted(made, lambda: [found.rows], group=group)],
        parents=[examples.reference],
        metadata=place.metadata(),
        keep_others=table == "dynamics",
    )
    summary = found.summary(table, checks.joined, [str(one.message) for one in said if one.category is UserWarning])
    keep_summary(dataset, made, summary)
    return StepResult(summary, {table: published.version})


def files_behind(section: Dynamics | Options | Features, base: str | Path) -> list[Path]:
    """Return the files whose content a table rests on: those of its source, and a file of ids beside a .npy."""
    further = []
    if isinstance(section, Features) and section.ids and (Path(base) / section.ids).is_file():
        further = [section.ids]  # else the name of an array in an .npz
    return [path for source in (section.source, *further) for path in source_files(source, base, None)]


def _read_table(section: Dynamics | Options | Features, base: str) -> pl.DataFrame:
    if isinstance(section, Dynamics):
        return read_dynamics(section, base=base)
    return read_options(section, base=base) if isinstance(section, Options) else read_features(section, base=base)


def _response_source(place: Place, responses: Responses) -> str:
    if responses.format == "lm-eval":
        files = source_files(responses.source, place.base, {".jsonl": "jsonl"})
        return add_hashes(value_hash([path.as_posix(), file_hash(path)]) for path in files)
    return add_hashes(
        value_hash([shard.uri, shard.content_hash]) for shard in shards(responses.source, place.base, responses.format)
    )


def _versions(dataset: Dataset, *tables: str) -> dict[str, int]:
    return {name: dataset.version(name).number for name in tables}
