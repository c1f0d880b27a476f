"""Prefect tasks of ingest: one a shard, then one that settles duplicates over all shards and publishes."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from gradatim.schemas.errors import DataRefused
from gradatim.schemas.expectations import suite
from gradatim.schemas.hashing import add_hashes, value_hash
from gradatim.schemas.recipe import Checks, Examples, Responses
from gradatim.schemas.summary import Fact, Summary, SummaryTable
from gradatim.storage.parts import fingerprint
from gradatim.storage.publish import Wanted
from gradatim.storage.tables import Dataset
from gradatim.tasks.core import format as fmt
from gradatim.tasks.core.registry import resolve
from gradatim.tasks.core.step import RETRIES, Place, StepResult, held, keep_summary, kept_summary, quarantine
from gradatim.tasks.ingest import examples as reading
from gradatim.tasks.ingest.identity import KEYS, compare_versions, resolve_duplicates
from gradatim.tasks.ingest.reading import rejects_table, shard_schema
from gradatim.tasks.ingest.responses import read_responses
from gradatim.tasks.ingest.sources import Shard, shards
from prefect import task

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


@task(name="list shards", **RETRIES)
def list_shards(place: Place, examples: Examples) -> list[Shard]:
    """List the files of the source with their hashes; none for a procedural data set."""
    return shards(str(examples.source), place.base, examples.format) if examples.source is not None else []


@task(name="read columns", **RETRIES)
def read_schema(place: Place, examples: Examples, found: list[Shard]) -> bytes:
    """Find the one schema of the source; each shard is looked at once, ever."""
    dataset = place.open()
    options = reading.read_options(examples)
    section = value_hash({"encoding": options.encoding, "text": sorted(options.text_columns)})
    schemas = {}
    for shard in found:
        key = _shard_key(dataset, fingerprint("shard schema", REVISION, section, [shard.content_hash]), "schema.arrow")
        raw = dataset.store.get(key)
        if raw is None:
            raw = shard_schema(shard, options).serialize().to_pybytes()
            dataset.store.put(key, raw)
        schemas[shard.uri] = pa.ipc.read_schema(pa.py_buffer(raw))
    schema: bytes = reading.examples_schema(schemas, examples).serialize().to_pybytes()
    return schema


@task(name="map shard", task_run_name="ingest {shard.uri}", **RETRIES)
def map_shard(place: Place, examples: Examples, shard: Shard, schema: bytes, scratch: str) -> Mapped:
    """Map one shard to rows of `examples` and rejects, unless that was done before; rows wait in `scratch`."""
    dataset = place.open()
    made = _mapped_name(examples, shard, schema)
    raw = dataset.store.get(_shard_key(dataset, made, "counts.json"))
    counts = json.loads(raw) if raw else _map(dataset, examples, shard, schema, made, Path(scratch))
    return Mapped(shard.uri, made, counts["rows_in"], counts["parts"], shard)


def _mapped_name(examples: Examples, shard: Shard, schema: bytes) -> str:
    section = value_hash(examples.model_dump(mode="json", exclude={"source", "on_conflict"}))
    return fingerprint("ingest", REVISION, section, [shard.uri, shard.content_hash, value_hash(schema.hex())])


def _generated_name(place: Place, examples: Examples) -> str:
    assert examples.generate is not None
    plugin, config = resolve("dataset", examples.generate, where="examples.generate")
    section = value_hash({"settings": config.model_dump(mode="json"), "seed": place.seed})
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
    counts = [dataset.store.get(_shard_key(dataset, name, "counts.json")) for name in names]
    if not all(counts):
        return False
    parts = [
        (name, index)
        for name, raw in zip(names, counts, strict=True)
        for index in range(json.loads(raw or b"{}")["parts"])
    ]
    # parts without dropped duplicates can be named without reading a key
    made = {fingerprint("examples", REVISION, "", [name, str(index)]) for name, index in parts}
    return made == {part.fingerprint for part in latest.parts}


def _map(dataset: Dataset, examples: Examples, shard: Shard, schema: bytes, made: str, scratch: Path) -> dict[str, int]:
    keys, rejects, rows_in, count = [], [rejects_table(shard.uri, [])], 0, 0
    for part in reading.map_shard(shard, examples, pa.ipc.read_schema(pa.py_buffer(schema))):
        pq.write_table(part.table, scratch / f"{made}-{part.index}.parquet")
        keys.append(part.keys().with_columns(part=pl.lit(part.index, pl.Int32)))
        rejects.append(part.rejects)
        rows_in, count = rows_in + part.rows_in, count + 1
    empty = pl.DataFrame(schema={**dict.fromkeys(KEYS[:3], pl.String), "source_row": pl.Int64, "part": pl.Int32})
    _put(dataset, made, "keys.parquet", pl.concat([empty.select(*KEYS, "part"), *keys]).to_arrow())
    _put(dataset, made, "rejects.parquet", pa.concat_tables(rejects))
    counts = {"rows_in": rows_in, "parts": count}
    dataset.store.put(_shard_key(dataset, made, "counts.json"), json.dumps(counts).encode())
    return counts


@task(name="generate", task_run_name="generate {examples.generate.method}", **RETRIES)
def generate(place: Place, examples: Examples, scratch: str) -> Mapped:
    """Generate a procedural data set; rows wait in `scratch`."""
    assert examples.generate is not None
    dataset = place.open()
    plugin, config = resolve("dataset", examples.generate, where="examples.generate")
    made = _generated_name(place, examples)
    uri = f"generate:{plugin.name}"
    raw = dataset.store.get(_shard_key(dataset, made, "counts.json"))
    if raw is not None:
        counts = json.loads(raw)
        return Mapped(uri, made, counts["rows_in"], counts["parts"], None)
    keys, rows_in = [], 0
    for index, frame in enumerate(plugin.run(config, place.seed)):
        pq.write_table(frame.to_arrow(), Path(scratch) / f"{made}-{index}.parquet")
        keys.append(frame.select(KEYS).with_columns(part=pl.lit(index, pl.Int32)))
        rows_in += len(frame)
    _put(dataset, made, "keys.parquet", pl.concat(keys).to_arrow())
    _put(dataset, made, "rejects.parquet", rejects_table(uri, []))
    counts = {"rows_in": rows_in, "parts": len(keys)}
    dataset.store.put(_shard_key(dataset, made, "counts.json"), json.dumps(counts).encode())
    return Mapped(uri, made, rows_in, len(keys), None)


@task(name="publish examples", **RETRIES)
def publish_examples(
    place: Place, examples: Examples, checks: Checks, mapped: list[Mapped], schema: bytes, scratch: str
) -> StepResult:
    """Settle duplicates over all shards, audit and publish `examples` and `rejects`; every row is accounted for."""
    dataset = place.open()
    before = dataset.log("examples").latest()
    places = [(m, index) for m in mapped for index in range(m.parts)]
    keys = [_keys(dataset, m, index) for m, index in places]
    if not keys:
        raise DataRefused("there is no row in the whole source", where=str(examples.source), expected="at least one")
    resolution = resolve_duplicates(keys, examples.on_conflict, examples.id)
    rejects = [_rejects(dataset, m) for m in mapped]
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
    published = dataset.publish("examples", wanted, suite=expectations, metadata=place.metadata())

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
    summary = _ingest_summary(
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
        # mapped in an earlier run that published nothing, or its duplicates have changed since: once more, all parts
        if self.mapped.shard is None:
            plugin, config = resolve("dataset", self.examples.generate, where="examples.generate")  # type: ignore[arg-type]
            tables = (frame.to_arrow() for frame in plugin.run(config, self.place.seed))
        else:
            schema = pa.ipc.read_schema(pa.py_buffer(self.schema))
            tables = (part.table for part in reading.map_shard(self.mapped.shard, self.examples, schema))
        for index, table in enumerate(tables):
            pq.write_table(table, path.with_name(f"{self.mapped.made}-{index}.parquet"))
        if not path.is_file():
            raise DataRefused("the file has changed while it was read", where=self.mapped.uri, remedy="run it again")
        return pq.read_table(path)


def _keys(dataset: Dataset, mapped: Mapped, index: int) -> pl.LazyFrame:
    raw = dataset.store.get(_shard_key(dataset, mapped.made, "keys.parquet"))
    return pl.read_parquet(io.BytesIO(raw or b"")).lazy().filter(pl.col("part") == index).select(KEYS)


def _kept(keys: pl.LazyFrame, drop: np.ndarray) -> pl.DataFrame:
    frame = keys.select("example_id", "content_hash").collect()
    if not len(drop):
        return frame
    keep = np.ones(len(frame), dtype=bool)
    keep[drop] = False
    return frame.filter(pl.Series(keep))


def _rejects(dataset: Dataset, mapped: Mapped) -> pl.DataFrame:
    return pl.read_parquet(io.BytesIO(dataset.store.get(_shard_key(dataset, mapped.made, "rejects.parquet")) or b""))


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


def _ingest_summary(
    counts: reading.IngestCounts, rejects: pl.DataFrame, files: int, columns: list[str], reused: bool
) -> Summary:
    reasons = rejects.group_by("reason", "column").len("rows").sort("rows", "reason", descending=[True, False])
    listed = tuple((r["reason"], r["column"], r["rows"]) for r in reasons.head(50).iter_rows(named=True))
    some = rejects.sort("source_uri", "source_row").head(20)
    tables: tuple[SummaryTable, ...] = ()
    if len(rejects):
        tables = (
            SummaryTable("Rejected rows, by reason", ("reason", "column", "rows"), listed),
            SummaryTable("Rejected rows, the first 20", tuple(some.columns), tuple(some.iter_rows()), private=True),
        )
    return Summary(
        step="ingest",
        headline=str(counts),
        facts=(
            Fact("files", files),
            Fact("rows in", counts.rows_in),
            Fact("published", counts.published),
            Fact("rejected", counts.rejected),
            Fact("re-delivered", counts.redelivered, note="equal rows, collapsed"),
            Fact("new", counts.new),
            Fact("changed", counts.changed),
            Fact("vanished", counts.vanished),
            Fact("columns", ", ".join(columns)),
        ),
        tables=tables,
        reused=reused,
    )


@task(name="responses", **RETRIES)
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
    usable = found.rows_in - len(found.rejects)
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
    summary = Summary(
        step="responses",
        headline=str(found),
        facts=(
            Fact("rows in", found.rows_in),
            Fact("usable", usable),
            Fact("joined", fmt.share(found.joined), note=f"at least {fmt.share(checks.joined)} is asked"),
            Fact("re-delivered", found.redelivered),
            Fact("rejected", len(found.rejects)),
        ),
        tables=tuple(
            SummaryTable(title, tuple(rows.columns), tuple(rows.head(50).iter_rows()), private=True)
            for title, rows in (
                ("Responses without an example", found.unjoined),
                ("Rejected responses", found.rejects),
            )
            if len(rows)
        ),
    )
    keep_summary(dataset, made, summary)
    return StepResult(summary, {"responses": published.version, "respondents": who.version})


def _response_source(place: Place, responses: Responses) -> str:
    from gradatim.tasks.ingest.sources import file_hash, source_files

    if responses.format == "lm-eval":
        files = source_files(responses.source, place.base, {".jsonl": "jsonl"})
        return add_hashes(value_hash([path.as_posix(), file_hash(path)]) for path in files)
    return add_hashes(
        value_hash([shard.uri, shard.content_hash]) for shard in shards(responses.source, place.base, responses.format)
    )


def _versions(dataset: Dataset, *tables: str) -> dict[str, int]:
    return {name: dataset.version(name).number for name in tables}


def _shard_key(dataset: Dataset, made: str, name: str) -> str:
    return dataset.store.key(dataset.name, "_shards", made, name)


def _put(dataset: Dataset, made: str, name: str, table: pa.Table) -> None:
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd")
    dataset.store.put(_shard_key(dataset, made, name), buffer.getvalue())
