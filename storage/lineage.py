"""Lineage: what a version was made from, up to the source files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gradatim.storage.delta import Version

if TYPE_CHECKING:
    from gradatim.storage.tables import Dataset


@dataclass(frozen=True)
class Ancestry:
    """A version and the versions that it was made from.

    Attributes
    ----------
    version : Version
    parents : tuple of Ancestry
    """

    version: Version
    parents: tuple[Ancestry, ...]

    def walk(self) -> list[Version]:
        """Return the version and all ancestors, nearest first, each once."""
        found: dict[str, Version] = {}
        level = [self]
        while level:
            for node in level:
                found.setdefault(node.version.reference, node.version)
            level = [parent for node in level for parent in node.parents]
        return list(found.values())

    def __str__(self) -> str:
        return "\n".join(self._lines(0))

    def _lines(self, depth: int) -> list[str]:
        version = self.version
        head = f"{'  ' * depth}{version.reference}  {version.rows:,} rows  {version.content_hash[:12]}"
        return [head, *(line for parent in self.parents for line in parent._lines(depth + 1))]


def lineage(dataset: Dataset, reference: str) -> Ancestry:
    """Follow a version's parents up to tables that were made from files.

    Raises
    ------
    UsageError
        Where the version, or one that it names as a parent, is not in the log.
    """
    known: dict[str, Ancestry] = {}

    def follow(name: str) -> Ancestry:
        if name not in known:
            version = dataset.version(name)
            known[name] = Ancestry(version, tuple(follow(parent) for parent in version.metadata["parents"]))
        return known[name]

    return follow(dataset.version(reference).reference)
