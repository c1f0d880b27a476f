"""Prefect task of embeddings: one a table `features_NAME`, made part by part of the examples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import polars as pl
from prefect import task

from gradatim.schemas.errors import UsageError
from gradatim.schemas.tables import features_spec
from gradatim.storage.parts import Part, fingerprint
from gradatim.storage.publish import Wanted
from gradatim.storage.releases import Release
from gradatim.storage.shards import ShardNotes
from gradatim.storage.tables import Dataset
from gradatim.tasks.core.step import (
    RETRIES,
    Method,
    Place,
    StepResult,
    keep_summary,
    kept_summary,
    require_columns,
)
from gradatim.tasks.embedding.embedder import Embedder, Fit, Learned, choose_sample, from_bytes, to_bytes, vectors
from gradatim.tasks.embedding.result import embedding_summary


@dataclass(frozen=True)
class Kept:
    """A fit by its name, and the version of the examples that it rests on; no name where nothing is learned.

    `section` names the settings that a vector depends on: which release a fit is kept of is none of them.
    """

    made: str
    reference: str
    section: str

    @property
    def told(self) -> str:
        """Say what it rests on."""
        return self.reference if self.made else ""


@task(name="embed", task_run_name="features {method.name}", **RETRIES)
def embed(place: Place, method: Method, versions: Mapping[str, int]) -> StepResult:
    """Embed the parts of the examples that have no vectors yet by the fit that stands, and publish the table."""
    dataset, table = place.open(), f"features_{method.name}"
    examples = dataset.version(f"examples@{versions['examples']}")
    kept, named = name_parts(dataset, place, method, versions)
    whole = fingerprint(table, method.plugin.revision, "", sorted(named))
    latest = dataset.log(table).latest()
    if latest is not None and {part.fingerprint for part in latest.parts} == set(named):
        summary = kept_summary(dataset, whole)
        if summary is not None:
            return StepResult(summary, {table: latest.number})
    embedder: Embedder = method.plugin.run(method.config, place.seed)
    require_columns(dataset, examples.reference, embedder.columns, where=f"{method.where}.{method.plugin.name}")
    work = _Work(dataset, place, method, embedder, kept)
    wanted = [Wanted(made, _Rows(work, part, made), group=part.group) for made, part in named.items()]
    published = dataset.publish(
        features_spec(method.name, embedder.width(work.fit)),
        wanted,
        parents=[examples.reference],
        metadata=place.metadata(fit=kept.made, fitted_on=kept.told, section=kept.section),
    )
    counts = Counter[str]()
    for made in named:
        counts.update(ShardNotes(dataset, made).counts() or {})
    width = embedder.width(work.fit)
    new = sum(part.rows for made, part in named.items() if any(made in name for name in published.new_parts))
    summary = embedding_summary(
        method.name, published.rows, width, embedder.facts(work.fit), counts, method.plugin.source,
        new=new, fitted=kept.told,
    )  # fmt: skip
    keep_summary(dataset, whole, summary)
    return StepResult(summary, {table: published.version})


def name_parts(
    dataset: Dataset, place: Place, method: Method, versions: Mapping[str, int]
) -> tuple[Kept, dict[str, Part]]:
    """Return the fit that counts, and for each part of the examples the name of its vectors.

    A part's name is made of the embedder's settings, the fit, and what the part holds.
    """
    kept = _fit_name(dataset, place, method, versions)
    plugin = method.plugin
    parts = dataset.parts(f"examples@{versions['examples']}")
    return kept, {
        fingerprint(f"embedding {plugin.name}", plugin.revision, kept.section, [kept.made, part.content_hash]): part
        for part in parts
        if part.rows
    }


def rows_to_embed(dataset: Dataset, place: Place, method: Method, versions: Mapping[str, int]) -> int:
    """Return how many rows of the examples have no vectors yet."""
    table = f"features_{method.name}"
    held = dataset.fingerprints(table) if dataset.log(table).latest() is not None else set()
    return sum(part.rows for made, part in name_parts(dataset, place, method, versions)[1].items() if made not in held)


def _fit_name(dataset: Dataset, place: Place, method: Method, versions: Mapping[str, int]) -> Kept:
    reference, config = f"examples@{versions['examples']}", method.config
    if not isinstance(config, Learned):
        return Kept("", reference, method.fingerprint(place.seed, []))
    anchor = config.anchor
    section = replace(method, config=config.model_copy(update={"anchor": None})).fingerprint(place.seed, [])
    if anchor is not None:
        release = dataset.latest_release() if anchor == "current" else dataset.read_release(int(anchor))
        table = f"features_{method.name}"
        if anchor == "current" and release is not None and table in release.tables:
            made = dataset.metadata(f"{table}@{release.tables[table]}")
            if made.get("section") == section:  # its settings are these: its fit goes on, from release to release
                return Kept(made["fit"], made["fitted_on"], section)
        if release is not None and _has_columns(dataset, release, method, must=anchor != "current"):
            reference = f"examples@{release.tables['examples']}"
    inputs = [dataset.content_hash(reference)]
    return Kept(fingerprint(f"fit {method.plugin.name}", method.plugin.revision, section, inputs), reference, section)


def _has_columns(dataset: Dataset, release: Release, method: Method, *, must: bool) -> bool:
    """Whether a release has examples with the columns that are fitted on; with `must` it is an error if not."""
    where = f"{method.where}.{method.plugin.name}.anchor: release {release.number}"
    if "examples" not in release.tables:
        if must:
            raise UsageError("the release has no examples", where=where, expected="examples that can be fitted on")
        return False
    columns = [need.split(".", 1)[1] for need in method.needs()]
    reference = f"examples@{release.tables['examples']}"
    if must:
        require_columns(dataset, reference, columns, where=where)
    return set(columns) <= set(dataset.version(reference).schema.names)


@dataclass(frozen=True)
class _Work:
    """One table on its way; the fit is read or made when the first part asks for it."""

    dataset: Dataset
    place: Place
    method: Method
    embedder: Embedder
    kept: Kept

    @cached_property
    def fit(self) -> Fit:
        """The kept fit; made from its version of the examples, and kept, where there is none."""
        if not self.kept.made:
            return self.embedder.fit(pl.DataFrame())
        store = self.dataset.store
        key = store.key(self.dataset.name, "_fits", f"{self.kept.made}.npz")
        raw = store.get(key)
        if raw is None:
            raw = to_bytes(self.embedder.fit(self._fitted_on()))
            store.put(key, raw)
        # read back also where it was made just now: the same numbers every night
        return from_bytes(raw, store.uri(key))

    def _fitted_on(self) -> pl.DataFrame:
        rows = self.dataset.scan(self.kept.reference).select("example_id", *self.embedder.columns)
        if self.embedder.sample:
            ids = rows.select("example_id").collect()["example_id"]
            chosen = choose_sample(ids, self.embedder.sample, self.place.seed)
            rows = rows.join(chosen.to_frame().lazy(), on="example_id", how="semi")
        return rows.collect().sort("example_id")


@dataclass(frozen=True)
class _Rows:
    """Vectors of one part of the examples."""

    work: _Work
    part: Part
    made: str

    def __call__(self) -> Iterator[pl.DataFrame]:
        """Yield the part's vectors batch by batch, and note at the end what was out of the ordinary."""
        columns = ["example_id", *self.work.embedder.columns]
        scan = self.work.dataset.scan_part("examples", self.part)
        # a column that came later is not in the files of former parts
        there = scan.collect_schema().names()
        rows = scan.select(name if name in there else pl.lit(None).alias(name) for name in columns).collect()
        counts = Counter[str]()
        where = f"features_{self.work.method.name}: {self.part.group}"
        for frame, found in vectors(self.work.embedder, self.work.fit, rows, where):
            counts.update(found.counts)
            yield frame
        ShardNotes(self.work.dataset, self.made).keep_counts(**counts)
