"""A length split promises what a threshold split does."""

from gradatim.tasks.splits.promises.threshold import promises, sides

__all__ = ["promises", "sides"]
