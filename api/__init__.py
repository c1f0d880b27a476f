"""gradatim: difficulty- and diversity-aware curation of training data.

Everything public is a function here; nothing heavy is imported until it is used::

    import gradatim as gd
    d = gd.irt(answers)
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version as _installed
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gradatim.functions import (
        agreement,
        certify,
        compare,
        compare_splits,
        curriculum,
        difficulty,
        diversity,
        embed,
        evaluate,
        irt,
        linked,
        methods,
        open_store,
        pass_rate,
        read,
        read_dynamics,
        read_features,
        read_lm_eval,
        read_options,
        read_responses,
        select_models,
        split,
    )

__version__ = _installed("gradatim")

__all__ = [
    "agreement",
    "certify",
    "compare",
    "compare_splits",
    "competence",
    "cross_matrix",
    "curriculum",
    "difficulty",
    "diversity",
    "embed",
    "evaluate",
    "irt",
    "linked",
    "methods",
    "open_store",
    "pass_rate",
    "read",
    "read_dynamics",
    "read_features",
    "read_lm_eval",
    "read_options",
    "read_responses",
    "select_models",
    "split",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module("gradatim.functions"), name)
    if name == "torch":
        return import_module("gradatim.torch")
    raise AttributeError(f"module 'gradatim' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
