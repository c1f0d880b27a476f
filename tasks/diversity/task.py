"""Prefect tasks of diversity: one a measure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import polars as pl
import pyarrow as pa
from prefect import task

from gradatim.schemas.hashing import value_hash
from gradatim.storage.delta import Version
from gradatim.storage.parts import Part, fingerprint
from gradatim.storage.publish import Wanted
from gradatim.storage.tables import Dataset
from gradatim.tasks.core.frames import polars_schema
from gradatim.tasks.core.near_duplicates import REVISION, compare, signatures
from gradatim.tasks.core.step import (
    RETRIES,
    Method,
    Place,
    StepResult,
    anchored,
    group_parts,
    held,
    keep_only,
    keep_summary,
    kept_summary,
    publish_group,
    read_columns,
)
from gradatim.tasks.diversity.duplicate_nights import Comparison, carried, changes, restored, stored, versioned
from gradatim.tasks.diversity.near_duplicates import (
    NearDuplicatesConfig,
    by_text,
    comparison,
    facts,
    require_text,
    told,
)
from gradatim.tasks.diversity.result import Diversity

GROUP = "diversity "
"""How the groups of the table `statistics` begin that measures publish."""
TABLES = ("statistics", "diversity", "pairs", "signatures", "centroids")
HOW = ("exact", "minhash", "embedding")
"""How near-duplicates are found, which the table `pairs` names after the measure."""


@task(name="diversity", task_run_name="diversity {method.name}", **RETRIES)
def measure(place: Place, method: Method, versions: Mapping[str, int]) -> StepResult:
    """Take one measure and publish its statistics, and its values of rows where it has some."""
    dataset = place.open()
    made = named(dataset, place, method, versions)
    summary = kept_summary(dataset, made)
    if summary is None or not held(dataset, "statistics", made, GROUP + method.name):
        night: dict[str, Any] = {}
        anchor = _anchor(dataset, method, versions)
        if isinstance(method.config, NearDuplicatesConfig) and by_text(method.config):
            found, night = _new_against_all(dataset, place, method, versions, method.config)
        else:
            tables = read_columns(dataset, versions, [*method.needs(), "examples.example_id"], where=method.where)
            if anchor is not None:
                tables["anchor"] = dataset.scan(anchor).filter(pl.col("method") == method.name).collect()
            found = method.plugin.run(tables, method.config, place.seed)
        summary = replace(found.summary(), step=f"diversity {method.name}")
        parents = [f"examples@{versions['examples']}"]
        publish_group(dataset, place, "statistics", GROUP + method.name, made, found.statistics, parents)
        if len(found.table):
            rows = found.table.with_columns(pl.lit(method.name).alias("method"))
            in_order = rows["example_id"].is_sorted()
            publish_group(dataset, place, "diversity", method.name, made, rows, parents, ordered=in_order)
        if found.pairs is not None:
            rows = found.pairs.with_columns(pl.format("{} {}", pl.lit(method.name), "method").alias("method"))
            ids = pl.concat([rows["left_id"], rows["right_id"]]).unique().alias("example_id").to_frame().lazy()
            known = dataset.scan("examples", versions["examples"]).select("example_id", "changed_version")
            rows = versioned(rows, known.join(ids, on="example_id", how="semi").collect())
            latest = dataset.log("pairs").latest()
            bases = {**(latest.metadata.get("bases", {}) if latest else {}), method.name: night}
            publish_group(dataset, place, "pairs", method.name, made, rows, parents, bases=bases)
        if found.centroids is not None:
            rows = found.centroids.with_columns(pl.lit(method.name).alias("method"))
            latest = dataset.log("centroids").latest()
            bases = {
                **(latest.metadata.get("bases", {}) if latest else {}),
                method.name: _basis(dataset, method, versions),
            }
            parents = [*parents, *([anchor] if anchor else [])]
            publish_group(dataset, place, "centroids", method.name, made, rows, parents, bases=bases)
        keep_summary(dataset, made, summary)
    return StepResult(summary, current(dataset))


def named(dataset: Dataset, place: Place, method: Method, versions: Mapping[str, int]) -> str:
    """Return the fingerprint of a measure.

    What is anchored to the current release counts as of its clusters already where its inputs are the same; a release
    that is pinned by number is an input.
    """
    tables = sorted({"examples", *method.reads()} & set(versions))
    inputs = [dataset.content_hash(f"{table}@{versions[table]}") for table in tables]
    anchor = _anchor(dataset, method, versions)
    if anchor is not None and getattr(method.config, "anchor", None) != "current":
        inputs += group_parts(dataset, anchor, method.name)
    return method.fingerprint(place.seed, inputs)


def _anchor(dataset: Dataset, method: Method, versions: Mapping[str, int]) -> str | None:
    """Find the released centroids that a measure keeps to; None where the newest are of other settings or vectors."""
    reference = anchored(dataset, method, "centroids")
    if reference is None or getattr(method.config, "anchor", None) != "current":
        return reference
    basis = dataset.metadata(reference).get("bases", {}).get(method.name)
    return reference if basis == _basis(dataset, method, versions) else None


def _basis(dataset: Dataset, method: Method, versions: Mapping[str, int]) -> str:
    """Hash what the number of a cluster depends on beside the rows: settings, and what the vectors were made by."""
    settings = method.config.model_dump(mode="json")
    names = ("features", "metric", "clusters", "largest", *(() if settings.get("features") else ("column",)))
    tables = sorted(table for table in method.reads() if table.startswith("features_") and table in versions)
    made = [dataset.metadata(f"{table}@{versions[table]}") for table in tables]
    fits = [[found.get("fit"), found.get("section")] for found in made]
    return value_hash([method.plugin.name, {name: settings.get(name) for name in names}, fits])


@task(name="settle diversity", task_run_name="settle diversity", **RETRIES)
def settle(place: Place, names: Sequence[str], versions: Mapping[str, int]) -> dict[str, int]:
    """Drop measures that the recipe no longer asks for."""
    dataset = place.open()
    parents = [f"examples@{versions['examples']}"]
    keep_only(dataset, place, "statistics", [GROUP + name for name in names], parents, among=GROUP)
    for table in ("diversity", "pairs", "signatures", "centroids"):
        keep_only(dataset, place, table, names, parents)
    return current(dataset)


def current(dataset: Dataset) -> dict[str, int]:
    """Return the newest version of each of this area's tables."""
    latest = {table: dataset.log(table).latest() for table in TABLES}
    return {table: version.number for table, version in latest.items() if version is not None}


# --- near-duplicates of texts: what is new against all


def _new_against_all(
    dataset: Dataset, place: Place, method: Method, versions: Mapping[str, int], config: NearDuplicatesConfig
) -> tuple[Diversity, dict[str, Any]]:
    """Sign the parts of the examples that have no signatures yet, and compare what is new with all that there is.

    Returns what there is now, and what the next night goes on from: it is recorded with the pairs.
    """
    work = _Night(dataset, place, method, dataset.version(f"examples@{versions['examples']}"), comparison(config))
    now, before = work.sign(), work.before()
    old = {part.name: part for part in work.signed(before["signatures"])} if before else {}
    kept = {part.name for part in now}
    fresh = [part for part in now if part.name not in old]
    stood = pl.concat([work.none, *(work.read(part) for name, part in old.items() if name not in kept)])
    stood = gone = stood.select("example_id", "digest")
    for part in fresh if len(stood) else ():
        gone = changes(gone, work.read(part))[1]
    scheme = work.asked.scheme
    new = (restored(changes(stood, work.read(part))[0], scheme) for part in fresh)
    compared = compare(
        new, work.texts, scheme, map(partial(restored, scheme=scheme), map(work.read, now if old else []))
    )
    night: dict[str, Any] = {"signatures": dataset.version("signatures").number, "settings": work.settings}
    for name in ("candidates", "left_out", "untied"):
        night[name] = getattr(compared, name) + (before[name] if before else 0)
    if before:
        latest = dataset.scan("pairs").filter(pl.col("method").is_in([f"{method.name} {how}" for how in HOW])).collect()
        latest = latest.with_columns(pl.col("method").str.strip_prefix(f"{method.name} "))
        pairs = carried(latest, compared.pairs, gone["example_id"], work.asked.scheme.threshold)
        counts = {name: night[name] for name in ("candidates", "left_out", "untied")}
        compared = replace(compared, pairs=pairs, **counts)
    ids = [work.read(part).drop_nulls("digest")["example_id"] for part in now]
    found = facts(pl.concat([work.none["example_id"], *ids]).sort(), compared, work.asked)
    return told(found, config, work.examples.rows), night


@dataclass(frozen=True)
class _Night:
    """Signatures of one measure's texts in a version of the examples."""

    dataset: Dataset
    place: Place
    method: Method
    examples: Version
    asked: Comparison

    @property
    def none(self) -> pl.DataFrame:
        """A frame of no signatures."""
        return pl.DataFrame(schema=polars_schema("signatures"))

    @property
    def settings(self) -> str:
        """Hash of all that pairs depend on beside the examples; those of other settings are not gone on from."""
        return value_hash([self.asked.settings, self.method.plugin.revision])

    @cached_property
    def parts(self) -> dict[str, Part]:
        """The parts of the examples by the name of their signatures."""
        column, step = self.asked.column, f"signatures {self.method.name}"
        names, kind = self.examples.schema.names, None
        if column in names:
            kind = self.examples.schema.field(column).type
        require_text(column, names, kind, is_text=kind is not None and pa.types.is_string(kind))
        return {
            fingerprint(step, REVISION, self.asked.signed, [part.content_hash]): part
            for part in self.examples.parts
            if part.rows
        }

    def sign(self) -> list[Part]:
        """Publish the signatures of all parts; those that have some are not read."""
        wanted = [Wanted(made, partial(self._sign, part), group=self.method.name) for made, part in self.parts.items()]
        published = self.dataset.publish(
            "signatures", wanted, parents=[self.examples.reference], metadata=self.place.metadata(), keep_others=True
        )
        return self.signed(published.version)

    def _sign(self, part: Part) -> Iterator[pl.DataFrame]:
        asked = self.asked
        yield stored(signatures(self._scan(part).collect(), asked.scheme, banded=asked.banded), self.method.name)

    def _scan(self, part: Part) -> pl.LazyFrame:
        """Scan example_id and text of a part of the examples."""
        scan = self.dataset.scan_part("examples", part)
        # a column that came later is not in the files of former parts
        there = self.asked.column in scan.collect_schema().names()
        return scan.select("example_id", text=pl.col(self.asked.column) if there else pl.lit(None, pl.String))

    def texts(self, wanted: pl.Series) -> pl.DataFrame:
        """Return example_id and text of some ids."""
        ids = wanted.alias("example_id").sort().to_frame()
        if ids.is_empty():
            return ids.with_columns(text=pl.lit(None, pl.String))
        first, last = ids["example_id"][0], ids["example_id"][-1]
        parts = [part for part in self.parts.values() if part.first[0] <= last and part.last[0] >= first]
        frames = [self._scan(part).join(ids.lazy(), on="example_id", how="semi") for part in parts]
        return pl.concat([frame.collect() for frame in frames])  # one part after the other is held

    def signed(self, number: int) -> list[Part]:
        """Return this measure's parts of a version of the table `signatures`."""
        return [part for part in self.dataset.parts(f"signatures@{number}") if part.group == self.method.name]

    def read(self, part: Part) -> pl.DataFrame:
        """Read one of them."""
        return self.dataset.scan_part("signatures", part).select(self.none.columns).collect()

    def before(self) -> dict[str, Any] | None:
        """Return what the newest pairs of this measure rest on; None where there are none of the same settings."""
        latest = self.dataset.log("pairs").latest()
        found: dict[str, Any] | None = latest.metadata.get("bases", {}).get(self.method.name) if latest else None
        if latest is None or not found or found["settings"] != self.settings:
            return None
        stands = any(part.group == self.method.name for part in latest.parts)
        return found if stands and self.dataset.log("signatures").version(found["signatures"]) else None
