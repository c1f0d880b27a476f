"""A store: one folder or object-store prefix that holds every table, release and run of its datasets.

Layout::

    <root>/<dataset>/<table>/                      a Delta table: part-*.parquet and _delta_log/
    <root>/<dataset>/_releases/000042.json         which versions belong together
    <root>/<dataset>/_quarantine/<table>/<draft>/  what an audit refused: parts, offending rows, reasons
    <root>/<dataset>/_staging/<draft>/             parts being written (local stores; swept after a day)
    <root>/<dataset>/_fits/                        what embedders have learned, by fingerprint
    <root>/<dataset>/_recipes/                     the recipes of versions, by their hash
    <root>/<dataset>/_runs/                        run folders of training and evaluation

Local folders and object stores go through the same calls (obstore). Every path is made of checked names and, on a local
disk, resolved through links: nothing outside the root is ever read or written.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import AlreadyExistsError
from obstore.store import LocalStore, from_url

from gradatim.schemas.errors import UsageError

if TYPE_CHECKING:
    from gradatim.storage.tables import Dataset

SEGMENT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.=@+-]{0,199}")
"""What a file or folder name below the root looks like."""

NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}")
"""What a dataset's name looks like."""

REMOTE = ("s3", "gs", "az", "abfs", "abfss")
_STALE = 24 * 3600


@dataclass(frozen=True)
class Store:
    """An opened store; make one with `Store.open`.

    Attributes
    ----------
    location : str
        Absolute folder, or URL of the prefix, without a slash at its end.
    root : Path or None
        The folder with all links resolved; None for an object store.
    options : mapping
        Settings for object stores (never credentials, which come from the environment).
    """

    location: str
    root: Path | None
    options: Mapping[str, str] = field(default_factory=dict)
    _objects: Any = field(default=None, repr=False, compare=False)

    @classmethod
    def open(cls, location: str | os.PathLike[str], options: Mapping[str, str] | None = None) -> Store:
        """Open a local folder (made if absent) or an object-store URL such as ``s3://bucket/prefix``.

        Raises
        ------
        UsageError
            For an unknown kind of URL, for credentials inside the URL, or where the folder is a file.
        """
        text = os.fspath(location)
        parts = urlsplit(text)
        if parts.scheme in REMOTE:
            if parts.username or parts.password:
                raise UsageError(
                    "a store URL must not hold credentials",
                    where="store",
                    remedy="set them in the environment, e.g. AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
                )
            if ".." in parts.path.split("/"):
                raise UsageError(f"the store URL {text!r} leaves its bucket", where="store")
            settings = {"aws_conditional_put": "etag"} if parts.scheme == "s3" else {}
            settings |= dict(options or {})
            return cls(text.rstrip("/"), None, settings, from_url(text, config=settings))
        if parts.scheme == "file":
            text = parts.path
        elif "://" in text:
            raise UsageError(
                f"{parts.scheme}:// is no store",
                where="store",
                expected="a folder, or a URL that begins with " + ", ".join(f"{scheme}://" for scheme in REMOTE),
            )
        root = Path(text).expanduser()
        try:
            root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(
                f"the store {text!r} is no folder that can be written: {error.strerror}", where="store"
            ) from None
        root = root.resolve()
        return cls(str(root), root, dict(options or {}), LocalStore(prefix=root))

    def dataset(self, name: str) -> Dataset:
        """Return the dataset `name`, which need not exist yet; raises `UsageError` for a name that is no plain name."""
        from gradatim.storage.tables import Dataset

        if not NAME.fullmatch(name):
            raise UsageError(
                f"{name!r} cannot name a dataset",
                where="dataset",
                expected="lower-case letters, digits, '_', '-' and '.', at most 64, beginning with a letter or digit",
            )
        self.key(name)
        return Dataset(self, name)

    def datasets(self) -> list[str]:
        """Return the names of the datasets in the store, sorted."""
        prefixes = obstore.list_with_delimiter(self._objects)["common_prefixes"]
        return sorted(name for prefix in prefixes if NAME.fullmatch(name := prefix.rstrip("/").split("/")[-1]))

    def key(self, *names: str) -> str:
        """Join checked names to a key below the root.

        Raises
        ------
        UsageError
            Where a name holds a slash, ``..`` or another character outside `SEGMENT`, or a link leads out of the root.
        """
        for name in names:
            if not SEGMENT.fullmatch(name):
                raise UsageError(
                    f"{name!r} cannot stand in a path of the store",
                    where=self.location,
                    expected="a plain name of letters, digits and any of _ . = @ + -, without '/' and not '..'",
                )
        key = "/".join(names)
        if self.root is not None and not (self.root / key).resolve().is_relative_to(self.root):
            raise UsageError(
                f"{key!r} is a link that leads out of the store",
                where=self.location,
                remedy="remove the link, or open the folder that it points to as a store of its own",
            )
        return key

    def uri(self, key: str) -> str:
        """Return the absolute path or URL of a key, as Polars, DuckDB and delta-rs take it."""
        return f"{self.location}/{key}"

    def put(self, key: str, content: bytes) -> None:
        """Write an object whole, replacing an older one."""
        obstore.put(self._objects, self.key(*key.split("/")), content)

    def put_file(self, key: str, source: Path) -> None:
        """Move a local file into the store; it appears whole or not at all."""
        key = self.key(*key.split("/"))
        if self.root is None:
            obstore.put(self._objects, key, source)
            source.unlink()
            return
        target = self.root / key
        target.parent.mkdir(parents=True, exist_ok=True)
        with source.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(source, target)

    def create(self, key: str, content: bytes) -> bool:
        """Write an object if there is none; return whether this call made it."""
        try:
            obstore.put(self._objects, self.key(*key.split("/")), content, mode="create")
        except AlreadyExistsError:
            return False
        return True

    def get(self, key: str) -> bytes | None:
        """Read an object; None where there is none."""
        try:
            return bytes(obstore.get(self._objects, self.key(*key.split("/"))).bytes())
        except FileNotFoundError:
            return None

    def delete(self, key: str) -> None:
        """Remove an object; none there is fine."""
        with suppress(FileNotFoundError):
            obstore.delete(self._objects, self.key(*key.split("/")))

    def sizes(self, *names: str) -> dict[str, int]:
        """Return the names of the objects right under a folder, sorted, with their sizes in bytes."""
        found = obstore.list_with_delimiter(self._objects, self.key(*names) + "/")["objects"]
        return {item["path"].split("/")[-1]: int(item["size"]) for item in sorted(found, key=lambda i: i["path"])}

    def folders(self, *names: str) -> list[str]:
        """Return the names of the folders right under a folder, sorted."""
        found = obstore.list_with_delimiter(self._objects, self.key(*names) + "/")["common_prefixes"]
        return sorted(prefix.rstrip("/").split("/")[-1] for prefix in found)

    @contextmanager
    def staging(self, dataset: str) -> Iterator[Path]:
        """Lend a local folder for parts that nobody may see yet; it is removed at the end, whatever happens.

        On a local store it lies on the same disk, so that a finished part moves into place without a copy. What a
        killed process left behind is swept after a day.
        """
        if self.root is None:
            with tempfile.TemporaryDirectory(prefix="gradatim-") as borrowed:
                yield Path(borrowed)
            return
        base = self.root / self.key(dataset, "_staging")
        base.mkdir(parents=True, exist_ok=True)
        for left in base.iterdir():
            with suppress(OSError):
                if time.time() - left.stat().st_mtime > _STALE:
                    shutil.rmtree(left, ignore_errors=True)
        folder = base / uuid.uuid4().hex
        folder.mkdir()
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
