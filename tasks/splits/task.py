"""Prefect tasks of splits: one a strategy, published only with a certificate that holds."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import replace

import polars as pl
from prefect import task

from gradatim.schemas.errors import DataRefused
from gradatim.schemas.hashing import value_hash
from gradatim.schemas.summary import Summary
from gradatim.storage.delta import Version
from gradatim.storage.parts import fingerprint
from gradatim.storage.releases import released_splits
from gradatim.storage.tables import Dataset
from gradatim.tasks.core.frames import polars_schema
from gradatim.tasks.core.step import (
    RETRIES,
    Method,
    Place,
    StepResult,
    held,
    keep_only,
    keep_summary,
    kept_summary,
    publish_group,
    quarantine,
    read_columns,
)
from gradatim.tasks.splits.frozen import CONTROLS, LEDGER
from gradatim.tasks.splits.growth import grow_components
from gradatim.tasks.splits.result import Split
from gradatim.tasks.splits.together import near_duplicates

NOT_READ = ("factors", "structure", "first_version", "changed_version", "content_hash", "source_uri", "source_row")
"""Columns of examples that neither a strategy nor a certificate looks at unless it names them."""

MOST_TREES = 200_000
"""Rows up to which trees are read for the certificate alone; beyond, a strategy that names them reads them."""


@task(name="components", task_run_name="components", **RETRIES)
def tie(place: Place, alike: Sequence[str], versions: Mapping[str, int]) -> StepResult:
    """Let the components of near-duplicates of the newest release grow by the pairs of the measures `alike`.

    Drafts bind nothing. With the same input as the released components were made from, these are listed again.
    """
    dataset = place.open()
    base, made = named_components(dataset, alike, versions)
    summary = kept_summary(dataset, made)
    if summary is None or not held(dataset, "components", made, ""):
        release = dataset.latest_release()
        known = pl.DataFrame(schema=polars_schema("components"))
        if release is not None and "components" in release.tables:
            known = dataset.scan("components", release.tables["components"]).collect()
        ids = dataset.scan("examples", versions["examples"]).select("example_id").collect()["example_id"]
        grown = grow_components(known, _alike(dataset, alike, versions), ids, _tested(dataset))
        parents = [f"{t}@{versions[t]}" for t in ("examples", "pairs")]
        publish_group(dataset, place, "components", "", made, grown.table, parents, base=base)
        summary = grown.summary()
        keep_summary(dataset, made, summary)
    return StepResult(summary, {"components": dataset.version("components").number})


def named_components(dataset: Dataset, alike: Sequence[str], versions: Mapping[str, int]) -> tuple[str, str]:
    """Return the fingerprint of the components by themselves, and of those on top of the newest release."""
    inputs = [dataset.content_hash(f"examples@{versions['examples']}"), *_pair_hashes(dataset, alike, versions)]
    base = fingerprint("components", 1, value_hash(sorted(alike)), inputs)
    release = dataset.latest_release()
    if release is None or "components" not in release.tables:
        return base, base
    version = dataset.version(f"components@{release.tables['components']}")
    if version.metadata.get("base") == base:
        return base, version.parts[0].fingerprint
    return base, value_hash([base, version.content_hash])


def _pair_hashes(dataset: Dataset, alike: Sequence[str], versions: Mapping[str, int]) -> list[str]:
    parts = dataset.parts(f"pairs@{versions['pairs']}") if alike else ()
    return sorted(f"{part.group} {part.content_hash}" for part in parts if part.group in alike)


def _alike(dataset: Dataset, alike: Sequence[str], versions: Mapping[str, int]) -> pl.DataFrame:
    """Read the near-duplicates that some measures found."""
    scan = dataset.scan("pairs", versions["pairs"]).filter(pl.col("kind") == "near_duplicate")
    by = pl.col("method").str.replace(" [a-z]+$", "")
    return near_duplicates(scan.filter(by.is_in(list(alike))).drop("left_version", "right_version").collect())


def _tested(dataset: Dataset) -> pl.Series:
    """Return the ids that stand in test or test_ood of any strategy of the newest release."""
    scan = released_splits(dataset)
    if scan is None:
        return pl.Series("example_id", [], dtype=pl.String)
    tests = scan.filter(pl.col("split").is_in(["test", "test_ood"]) & ~pl.col("strategy").str.contains(CONTROLS))
    return tests.select("example_id").unique().collect()["example_id"]


@task(name="split", task_run_name="split {method.name}", **RETRIES)
def build(
    place: Place, method: Method, difficulty: str, versions: Mapping[str, int], alike: Sequence[str] = ()
) -> StepResult:
    """Build one split with its controls, certify it, and publish both if every promise holds.

    Test rows of the newest release stay where they are. With the same input as the released split was made from, that
    very split is listed again. Near-duplicates that the measures `alike` found are counted across the splits, and kept
    together where there are `components`.
    """
    dataset = place.open()
    base, made, frozen = named(dataset, place, method, difficulty, versions, alike)
    summary = kept_summary(dataset, made)
    standing = all(held(dataset, table, made, method.name) for table in ("splits", "certificate"))
    if summary is None or not standing:
        parents = _parents(versions)
        summary = _build(dataset, place, method, difficulty, versions, alike, frozen, (base, made), parents)
        keep_summary(dataset, made, summary)
    return StepResult(summary, current(dataset))


def named(
    dataset: Dataset,
    place: Place,
    method: Method,
    difficulty: str,
    versions: Mapping[str, int],
    alike: Sequence[str] = (),
) -> tuple[str, str, pl.DataFrame | None]:
    """Return the fingerprint of a split by itself, that of the split on top of the newest release, and its frozen rows.

    Of the difficulties only the one that the split is matched on counts.
    """
    read = sorted({"examples", "responses", "components", *method.reads()} - {"difficulty", "pairs"})
    inputs = [dataset.content_hash(f"{t}@{versions[t]}") for t in read if t in versions]
    inputs += _pair_hashes(dataset, alike, versions)
    if difficulty and "difficulty" in versions:
        parts = dataset.parts(f"difficulty@{versions['difficulty']}")
        inputs += [difficulty, *sorted(part.content_hash for part in parts if part.group == difficulty)]
    base = method.fingerprint(place.seed, inputs)
    frozen, made = _frozen(dataset, method.name, base)
    return base, made, frozen


def _frozen(dataset: Dataset, name: str, base: str) -> tuple[pl.DataFrame | None, str]:
    """Return the released split of this strategy and the fingerprint of the one to build on it."""
    release = dataset.latest_release()
    if release is None or "splits" not in release.tables:
        return None, base
    version = dataset.version(f"splits@{release.tables['splits']}")
    parts = [part for part in version.parts if part.group == name]
    if not parts:
        return None, base
    if version.metadata.get("bases", {}).get(name) == base:
        return None, parts[0].fingerprint
    scan = released_splits(dataset)
    assert scan is not None
    rows = scan.filter(pl.col("strategy") == name).select(LEDGER).with_columns(away=pl.lit(False)).collect()
    made = value_hash([base, sorted(part.content_hash for part in parts)])
    gone = read_ledger(dataset, version, name)
    if gone is not None:
        rows = pl.concat([rows, gone.with_columns(away=pl.lit(True))])
        made = value_hash([made, version.metadata["ledgers"][name]])
    return rows, made


def read_ledger(dataset: Dataset, version: Version, name: str) -> pl.DataFrame | None:
    """Read the released test rows of a strategy that had left the examples when a version of splits was made."""
    made = version.metadata.get("ledgers", {}).get(name)
    raw = dataset.store.get(_ledger_key(dataset, made)) if made else None
    return None if raw is None else pl.read_parquet(io.BytesIO(raw))


def _write_ledger(dataset: Dataset, made: str, split: Split) -> str | None:
    """Keep the released test rows that left; by the split's fingerprint, None where there are none."""
    if split.ledger is None or split.ledger.is_empty():
        return None
    buffer = io.BytesIO()
    split.ledger.select(LEDGER).write_parquet(buffer)
    dataset.store.put(_ledger_key(dataset, made), buffer.getvalue())
    return made


def _ledger_key(dataset: Dataset, made: str) -> str:
    return dataset.store.key(dataset.name, "_ledgers", f"{made}.parquet")


def _build(
    dataset: Dataset,
    place: Place,
    method: Method,
    difficulty: str,
    versions: Mapping[str, int],
    alike: Sequence[str],
    frozen: pl.DataFrame | None,
    names: tuple[str, str],
    parents: Sequence[str],
) -> Summary:
    base, made = names
    have = dataset.version(f"examples@{versions['examples']}").schema.names
    # a name that examples have no column of may be a factor; the strategy says if it is none
    named = {need for need in method.needs() if need.removeprefix("examples.").removesuffix("?") in have}
    factors = any(need.startswith("examples.") for need in set(method.needs()) - named)
    others = {need for need in method.needs() if not need.startswith("examples.")}
    wanted = {f"examples.{name}" for name in have if name not in NOT_READ} | named | others
    wanted |= {"examples.factors?"} if factors else set()
    if dataset.version(f"examples@{versions['examples']}").rows <= MOST_TREES:
        wanted |= {"examples.structure?"}  # for the divergences of the certificate
    tables = read_columns(dataset, versions, sorted(wanted), where=method.where)
    known = None
    if difficulty:
        scan = dataset.scan("difficulty", versions["difficulty"])
        known = tables["difficulty"] = scan.filter(pl.col("method") == difficulty).collect()
    pairs = _alike(dataset, alike, versions) if alike else None
    if pairs is not None and "components" in versions:
        tables["components"] = dataset.scan("components", versions["components"]).collect()
        tables["pairs"] = pairs
    if frozen is not None:
        # the engine knows its strategies by the method's name
        tables["frozen"] = frozen.with_columns(pl.lit(method.plugin.name).alias("strategy"))
    split: Split = method.plugin.run(tables, method.config, place.seed)
    split = split.named(method.name)
    responses = dataset.scan("responses", versions["responses"]).collect() if "responses" in versions else None
    certificate = split.certify(tables["examples"], known, responses, pairs)
    if not certificate.holds:
        broken = certificate.failures.select("check", "value", "bound").iter_rows()
        listed = "; ".join(f"{check} is {value}, asked {bound}" for check, value, bound in broken)
        there = quarantine(dataset, "certificate", f"{method.name}.parquet", certificate.table)
        raise DataRefused(
            f"the split {method.name} does not keep its promises: {listed}",
            where=method.where,
            remedy=f"see {there}; change the strategy or the data; the former version stays in force",
        )
    latest = dataset.log("splits").latest()
    kept = latest.metadata if latest else {}
    release = dataset.latest_release() if frozen is not None else None
    # what names a split whatever stands already, and the release that it was built on
    bases = {**kept.get("bases", {}), method.name: base}
    grounds = {**kept.get("grounds", {}), method.name: release.number if release else None}
    ledgers = {**kept.get("ledgers", {}), method.name: _write_ledger(dataset, made, split)}
    publish_group(
        dataset, place, "splits", method.name, made, split.table, parents,
        bases=bases, grounds=grounds, ledgers=ledgers,
    )  # fmt: skip
    publish_group(dataset, place, "certificate", method.name, made, certificate.table, parents)
    about, proof = split.summary(), certificate.summary()
    return replace(
        about,
        step=f"split {method.name}",
        facts=(*about.facts, *proof.facts),
        tables=(*about.tables[:-1], *proof.tables, about.tables[-1]),
        charts=(*about.charts, *proof.charts),
        warnings=(*about.warnings, *proof.warnings),
        next=(),
        sources=tuple(dict.fromkeys((*about.sources, *proof.sources))),
    )


@task(name="settle splits", task_run_name="settle splits", **RETRIES)
def settle(place: Place, names: Sequence[str], versions: Mapping[str, int]) -> dict[str, int]:
    """Drop splits that the recipe no longer asks for."""
    dataset = place.open()
    parents = _parents(versions)
    for table in ("splits", "certificate"):
        keep_only(dataset, place, table, names, parents)
    return current(dataset)


def _parents(versions: Mapping[str, int]) -> list[str]:
    tables = ("examples", "difficulty", "responses", "pairs", "components")
    return [f"{table}@{versions[table]}" for table in tables if table in versions]


def current(dataset: Dataset) -> dict[str, int]:
    """Return the newest version of each of this area's tables."""
    return {table: dataset.version(table).number for table in ("splits", "certificate")}
