"""Matrices in NumPy's own files, .npy and .npz, and the ids of their rows; nothing pickled is ever loaded."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gradatim.schemas.errors import DataRefused, UsageError, nearest
from gradatim.schemas.recipe import Features
from gradatim.tasks.core.registry import get
from gradatim.tasks.ingest.arrow_types import text
from gradatim.tasks.ingest.reading import ReadOptions
from gradatim.tasks.ingest.sources import ENDINGS, Shard, file_hash, source_uri, utf8_chunks

NUMPY = (".npy", ".npz")
ROWS = 65_536
"""Rows that are converted together."""
MAX_RATIO = 1_000
"""Times that an array of an .npz may unpack to its size."""


def numpy_vectors(shard: Shard, settings: Features, base: str | Path) -> Iterator[tuple[Any, Any, Any]]:
    """Yield ids, vectors (float32) and rows of a matrix, some thousand rows at a time.

    Of an .npy, `settings.ids` names a file: one id a line, an .npy of text or whole numbers, or a table with the column
    `settings.example`. Of an .npz it names an array inside (``ids`` or ``example_id`` by default).
    """
    zipped = zipfile.is_zipfile(shard.path)
    if zipped:
        matrix, ids = _from_archive(shard, settings)
    else:
        matrix, ids = _array(shard.path, shard.uri), _ids_beside(shard, settings, base)
    if matrix.ndim != 2 or matrix.dtype.kind not in "fiub" or matrix.shape[1] == 0:
        raise UsageError(
            f"found an array of shape {matrix.shape} and type {matrix.dtype}",
            where=f"features: {shard.uri}",
            expected="a matrix of numbers, examples x dimensions",
        )
    if len(ids) != len(matrix):
        raise DataRefused(
            f"there are {len(matrix):,} vectors and {len(ids):,} ids", where=shard.uri, expected="an id for each row"
        )
    for start in range(0, len(matrix), ROWS):
        with np.errstate(over="ignore"):  # infinity is refused with its row
            part = np.array(matrix[start : start + ROWS], dtype=np.float32, order="C")
        yield ids.slice(start, len(part)), part, np.arange(start, start + len(part), dtype=np.int64)


def _array(path: Path, uri: str) -> NDArray[Any]:
    with _readable(uri):
        found: NDArray[Any] = np.load(path, allow_pickle=False, mmap_mode="r")
    return found


def _from_archive(shard: Shard, settings: Features) -> tuple[NDArray[Any], pl.Series]:
    with _readable(shard.uri), zipfile.ZipFile(shard.path) as archive:
        names = [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]
        wanted = next((name for name in settings.columns if name in names), None)
        ids = settings.ids or next((name for name in ("ids", "example_id") if name in names), None)
        others = [name for name in names if name != ids]
        if wanted is None and len(others) == 1:
            wanted = others[0]
        for key, name in (("columns", wanted), ("ids", ids)):
            if name is None or name not in names:
                asked = name or ", ".join(settings.columns)
                raise UsageError(
                    f"there is no array {asked!r}{nearest(asked, names)}",
                    where=f"features: {shard.uri}",
                    expected="one of " + ", ".join(names),
                    remedy=f"name it: {key}: ARRAY",
                )
        assert wanted is not None
        assert ids is not None
        return _member(archive, wanted, shard.uri), _as_ids(_member(archive, ids, shard.uri), f"{shard.uri}: {ids}")


def _member(archive: zipfile.ZipFile, name: str, uri: str) -> NDArray[Any]:
    """Read one array of an .npz; what its header claims is compared with what the archive holds first."""
    info = archive.getinfo(f"{name}.npy")
    if info.file_size > MAX_RATIO * max(info.compress_size, 4096):
        raise DataRefused(
            f"the array {name!r} claims to unpack to {info.file_size:,} bytes from {info.compress_size:,}", where=uri
        )
    with archive.open(info) as file:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(file)
        if dtype.hasobject:
            raise ValueError("it holds Python objects, which are not loaded")
        claimed = int(np.prod(shape, dtype=object)) * dtype.itemsize
        if claimed > info.file_size:
            raise ValueError(f"the array {name!r} claims {claimed:,} bytes and has {info.file_size:,}")
    with archive.open(info) as file:
        found: NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
    return found


def _ids_beside(shard: Shard, settings: Features, base: str | Path) -> pl.Series:
    if settings.ids is None:
        raise UsageError(
            "an .npy holds numbers only: which example is each row?",
            where=f"features: {shard.uri}",
            expected="a file with one id a line, in the order of the rows",
            remedy="name it: ids: FILE",
        )
    path = Path(base, settings.ids).expanduser()
    if not path.is_file():
        near = nearest(path.name, [p.name for p in path.parent.iterdir()]) if path.parent.is_dir() else ""
        raise UsageError(f"there is no such file{near}", where=f"features.ids: {settings.ids}")
    uri = source_uri(path, base)
    ending = Path(path.name.lower().removesuffix(".gz")).suffix
    if ending == ".npy":
        return _as_ids(_array(path, uri), uri)
    if ending in ENDINGS:
        table = Shard(uri, path, ENDINGS[ending], path.stat().st_size, file_hash(path))
        parts = []
        for batch in get("reader", table.format).run(table, ReadOptions(text_columns=frozenset({settings.example}))):
            names = batch.table.schema.names
            if settings.example not in names:
                raise UsageError(
                    f"there is no column {settings.example!r}{nearest(settings.example, names)}",
                    where=f"features.ids: {uri}",
                    expected=", ".join(names[:20]),
                    remedy="name it: example: COLUMN",
                )
            parts.append(pl.Series(pl.from_arrow(text(batch.table[settings.example]))).cast(pl.String))
        return pl.concat(parts).alias("example_id") if parts else pl.Series("example_id", [], dtype=pl.String)
    lines = b"".join(utf8_chunks(path, "utf-8", uri)).decode("utf-8").splitlines()
    blank = next((i for i, line in enumerate(lines) if not line.strip()), None)
    if blank is not None:
        raise DataRefused("the line is empty", where=f"{uri}: line {blank + 1}", expected="one id a line")
    return pl.Series("example_id", lines, dtype=pl.String)


def _as_ids(found: NDArray[Any], where: str) -> pl.Series:
    if found.ndim != 1 or found.dtype.kind not in "USiu":
        raise UsageError(
            f"found an array of shape {found.shape} and type {found.dtype}",
            where=where,
            expected="a list of texts or whole numbers, an id a row",
        )
    if found.dtype.kind == "S":
        found = np.char.decode(found, "utf-8")
    return pl.Series("example_id", found.tolist()).cast(pl.String)


@contextmanager
def _readable(uri: str) -> Iterator[None]:
    try:
        yield
    except (ValueError, OSError, EOFError, KeyError, zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
        reason = str(error).split("\n")[0][:200] or type(error).__name__
        raise DataRefused(
            f"this is no readable NumPy file, a truncated one, or one of Python objects ({reason})",
            where=uri,
            expected="an .npy or .npz of numbers, saved without pickle",
            remedy="save it again: numpy.save(FILE, matrix.astype('float32'))",
        ) from None
