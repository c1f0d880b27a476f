"""A length split promises what a threshold split does."""

from gradatim.tasks.splits.promises.threshold import promises

__all__ = ["promises"]
