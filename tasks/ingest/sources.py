"""Files of a source: which they are, what format they have, what they hash to, how their bytes are read."""

from __future__ import annotations

import codecs
import glob
import gzip
import io
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import xxhash

from gradatim.schemas.errors import DataRefused, UsageError, nearest

ENDINGS = {
    ".csv": "csv",
    ".tsv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
}
"""Format by the ending of a file's name; .gz may follow that of a text file."""

CHUNK = 4 << 20
"""Bytes read at a time."""


@dataclass(frozen=True)
class Shard:
    """One file of a source.

    Attributes
    ----------
    uri : str
        As it stands in `source_uri`: relative to the base folder where the file lies below it, with forward slashes.
    path : pathlib.Path
    format : str
        csv, jsonl, parquet or arrow.
    size : int
        Bytes.
    content_hash : str
        xxh3-128 of the file's bytes, 32 hex digits.
    """

    uri: str
    path: Path
    format: str
    size: int
    content_hash: str


def shards(source: str | Path, base: str | Path = ".", format: str | None = None) -> list[Shard]:
    """List a source's files, sorted by uri.

    Parameters
    ----------
    source : str or Path
        File, glob (``*``, ``?``, ``[...]``, ``**``) or folder; a relative one starts at `base`. Of a folder or glob,
        files with a known ending count; of a folder, hidden files and names that start with ``_`` do not.
    base : str or Path
    format : str, optional
        csv, jsonl, parquet or arrow where the ending does not say; then every file counts.

    Raises
    ------
    UsageError
        Nothing is there, or the format cannot be told.
    """
    paths = source_files(source, base, ENDINGS if format is None else None)
    if not paths:
        raise UsageError(
            "there is no data file here",
            where=str(source),
            expected="files that end in " + ", ".join(ENDINGS) + " (.gz may follow a text file's)",
            remedy="name the format: format: csv | jsonl | parquet | arrow",
        )
    found = [
        Shard(source_uri(path, base), path, format or _format(path), path.stat().st_size, file_hash(path))
        for path in paths
    ]
    return sorted(found, key=lambda shard: shard.uri)


def source_files(source: str | Path, base: str | Path, endings: dict[str, str] | None) -> list[Path]:
    """List the regular files of a source, sorted; `endings` keeps those of a folder or glob with such an ending."""
    text = str(source)
    if "://" in text:
        raise UsageError(
            f"found the address {text.split('://')[0]}://…",
            where="from",
            expected="a file, glob or folder on this machine",
        )
    path = Path(base, source).expanduser() if not text.startswith("~") else Path(text).expanduser()
    if path.is_file():
        return [path]
    if path.is_dir():
        found = [p for p in path.rglob("*") if not _hidden(p.relative_to(path))]
    elif glob.has_magic(text):
        found = [Path(p) for p in glob.glob(str(path), recursive=True)]
    else:
        near = nearest(path.name, [p.name for p in path.parent.iterdir()]) if path.parent.is_dir() else ""
        raise UsageError(f"there is no such file or folder{near}", where=text, remedy="correct 'from'")
    kept = [p for p in found if p.is_file() and (endings is None or _ending(p) in endings)]
    return sorted(set(kept), key=lambda p: p.as_posix())


def _hidden(relative: Path) -> bool:
    return any(part.startswith((".", "_")) for part in relative.parts)


def _ending(path: Path) -> str:
    name = path.name.lower().removesuffix(".gz")
    return Path(name).suffix


def _format(path: Path) -> str:
    try:
        return ENDINGS[_ending(path)]
    except KeyError:
        raise UsageError(
            f"the ending {path.suffix!r} does not say the format",
            where=str(path),
            expected="one of " + ", ".join(ENDINGS),
            remedy="name the format: format: csv | jsonl | parquet | arrow",
        ) from None


def source_uri(path: Path, base: str | Path) -> str:
    """Name a file as `source_uri` does: relative to `base` where it lies below it."""
    absolute, root = Path(path).absolute(), Path(base).absolute()
    return absolute.relative_to(root).as_posix() if absolute.is_relative_to(root) else absolute.as_posix()


def file_hash(path: Path) -> str:
    """Hash a file's bytes: xxh3-128, 32 hex digits. Streams; several GB a second from cache."""
    digest = xxhash.xxh3_128()
    try:
        with path.open("rb") as file:
            while chunk := file.read(CHUNK):
                digest.update(chunk)
    except PermissionError:
        raise UsageError("the file may not be read", where=str(path), remedy=f"chmod u+r {path}") from None
    return str(digest.hexdigest())


def utf8_chunks(path: Path, encoding: str, uri: str, *, check: bool = True) -> Iterator[bytes]:
    """Read a text file, gzipped or not, as chunks of UTF-8 without a byte order mark.

    Parameters
    ----------
    check : bool
        Whether bytes that are no UTF-8 are refused here, with their offset; other encodings always are.

    Raises
    ------
    UsageError
        The encoding has no such name.
    DataRefused
        Bytes that do not decode, or a gzip file that is cut short or damaged.
    """
    try:
        name = codecs.lookup(encoding).name
    except LookupError:
        raise UsageError(
            f"there is no encoding {encoding!r}", where="encoding", expected="utf-8, latin-1, cp1252, utf-16, …"
        ) from None
    native = name in ("utf-8", "utf-8-sig")
    decoder = codecs.getincrementaldecoder("utf-8-sig" if native else name)("strict")
    offset, pending, start = 0, b"", True
    for chunk in _raw_chunks(path, uri):
        pending = decoder.getstate()[0] if check or not native else b""
        try:
            text = decoder.decode(chunk) if check or not native else ""
        except UnicodeDecodeError as error:
            raise _undecodable(error, offset - len(pending), encoding, uri) from None
        offset += len(chunk)
        if native:
            yield chunk.removeprefix(codecs.BOM_UTF8) if start else chunk
        else:
            yield (text.removeprefix("\ufeff") if start else text).encode("utf-8", "surrogatepass")
        start = False
    try:
        decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        raise _undecodable(error, offset - len(decoder.getstate()[0]), encoding, uri) from None


def _undecodable(error: UnicodeDecodeError, before: int, encoding: str, uri: str) -> DataRefused:
    return DataRefused(
        f"the byte at offset {before + error.start} is no {encoding} ({error.reason})",
        where=uri,
        expected=f"a text file in {encoding}",
        remedy="name its encoding in the recipe: encoding: latin-1 | cp1252 | utf-16 | …",
    )


def _raw_chunks(path: Path, uri: str) -> Iterator[bytes]:
    try:
        with path.open("rb") as raw:
            zipped = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            file: BinaryIO | gzip.GzipFile = gzip.GzipFile(fileobj=raw) if zipped else raw
            while chunk := file.read(CHUNK):
                yield chunk
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataRefused(
            f"the gzip file is damaged or cut short ({error})", where=uri, remedy="copy or download it again"
        ) from None


class ChunkReader(io.RawIOBase):
    """A readable file over chunks of bytes, for libraries that want one; counts a byte on the way."""

    def __init__(self, chunks: Iterator[bytes], counted: bytes = b'"') -> None:
        super().__init__()
        self._chunks, self._rest, self._counted, self.count = chunks, b"", counted, 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def read(self, size: int = -1) -> bytes:
        """Read up to `size` bytes; all that is left where it is negative."""
        if size < 0:
            whole = self._rest + b"".join(map(self._seen, self._chunks))
            self._rest = b""
            return whole
        if not self._rest:
            self._rest = self._seen(next((chunk for chunk in self._chunks if chunk), b""))
        part, self._rest = self._rest[:size], self._rest[size:]
        return part

    def _seen(self, chunk: bytes) -> bytes:
        self.count += chunk.count(self._counted)
        return chunk
