"""Releases: tables that belong together become visible together.

A release is one JSON object, ``_releases/000042.json``, created if absent: of two writers one wins, and the other is
told. It maps each table to a version and names the release that it is based on.
"""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from gradatim.schemas.errors import DataRefused, TryAgain, UsageError

if TYPE_CHECKING:
    from gradatim.storage.tables import Dataset

STATEFUL = frozenset({"splits"})
"""Tables whose next version depends on the released one: ids that were tested on stay there."""
_FILE = re.compile(r"(\d{6,})\.json")


@dataclass(frozen=True)
class Release:
    """Versions that are visible together.

    Attributes
    ----------
    number : int
        From 1.
    tables : dict of str to int
        Version of each table.
    based_on : int or None
        The release that stood when its tables were made.
    created_at : str
        ISO 8601, UTC.
    rows : dict of str to int
        Rows of each table.
    content : dict of str to str
        Content hash of each table.
    metadata : dict
        What the publisher recorded: recipe hash, counts.
    package : str
        Version of gradatim that wrote it.
    """

    number: int
    tables: dict[str, int]
    based_on: int | None
    created_at: str
    rows: dict[str, int]
    content: dict[str, str]
    metadata: dict[str, Any]
    package: str


def release_numbers(dataset: Dataset) -> list[int]:
    """Return the numbers of all releases, oldest first."""
    names = dataset.store.sizes(dataset.name, "_releases")
    return sorted(int(match[1]) for name in names if (match := _FILE.fullmatch(name)))


def read_release(dataset: Dataset, number: int) -> Release:
    """Return a release; raises `UsageError` with the ones that there are."""
    raw = dataset.store.get(_key(dataset, number))
    if raw is None:
        known = ", ".join(map(str, release_numbers(dataset)[-20:])) or "(none yet)"
        raise UsageError(f"there is no release {number}", where=dataset.name, expected=f"one of {known}")
    try:
        return Release(**json.loads(raw))
    except (ValueError, TypeError) as error:
        raise DataRefused(
            f"the release file is damaged: {error}", where=dataset.store.uri(_key(dataset, number))
        ) from None


def release(
    dataset: Dataset, tables: Mapping[str, int], *, based_on: int | None, metadata: Mapping[str, Any] | None = None
) -> Release:
    """Make versions visible together.

    Parameters
    ----------
    dataset : Dataset
    tables : mapping of str to int
        Version of each table. Tables of the former release that are not named stay at theirs.
    based_on : int or None
        Number of the release that stood when the tables were made (None before the first): `Dataset.latest_release` at
        the start of the work.
    metadata : mapping, optional
        JSON values to record.

    Returns
    -------
    Release

    Raises
    ------
    TryAgain
        Where another release came first and a stateful table (splits) is in this one, which then has to be made again
        on top of that release; or where somebody released in the same moment.
    UsageError
        Where a version does not exist.
    """
    if not tables:
        raise UsageError("a release needs at least one table", where=dataset.name)
    newest = dataset.latest_release()
    stands = newest.number if newest else None
    if stands != based_on and STATEFUL & set(tables):
        raise TryAgain(
            f"release {stands} came first, and {', '.join(sorted(STATEFUL & set(tables)))} depends on what is released",
            where=dataset.name,
            expected=f"release {based_on} to be the newest",
            remedy="run again: the splits are rebuilt on the new release, and nothing is lost",
        )
    versions = {table: dataset.version(f"{table}@{number}") for table, number in sorted(tables.items())}
    kept = {table: number for table, number in (newest.tables if newest else {}).items() if table not in versions}
    versions |= {table: dataset.version(f"{table}@{number}") for table, number in kept.items()}
    made = Release(
        number=(stands or 0) + 1,
        tables={table: version.number for table, version in sorted(versions.items())},
        based_on=stands,
        created_at=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        rows={table: version.rows for table, version in sorted(versions.items())},
        content={table: version.content_hash for table, version in sorted(versions.items())},
        metadata=dict(metadata or {}),
        package=importlib.metadata.version("gradatim"),
    )
    if not dataset.store.create(_key(dataset, made.number), json.dumps(vars(made), indent=1).encode()):
        raise TryAgain(
            f"release {made.number} was made in the same moment",
            where=dataset.name,
            remedy="run again on top of that release",
        )
    return made


def released_splits(dataset: Dataset) -> pl.LazyFrame | None:
    """Scan the splits of the newest release, whose test ids are frozen; None before the first release with splits."""
    newest = dataset.latest_release()
    if newest is None or "splits" not in newest.tables:
        return None
    return dataset.scan("splits", newest.tables["splits"])


def _key(dataset: Dataset, number: int) -> str:
    return dataset.store.key(dataset.name, "_releases", f"{number:06d}.json")
