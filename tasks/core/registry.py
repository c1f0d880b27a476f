"""Plug-ins: every estimator, measure, split builder, pacing function, reader, data set and model recipe is one.

A plug-in is one function behind `Plugin`: its settings as a pydantic model, the columns that it needs, the integer
`revision` of its output, its cost, its source and its maturity. Built-in ones register when their area's package is
imported; third parties name theirs under the entry point group ``gradatim.plugins``.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from typing import Any, ClassVar, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from gradatim.schemas.errors import UsageError, nearest
from gradatim.schemas.recipe import Step, explain

Maturity = Literal["stable", "experimental"]

AREAS: dict[str, str] = {
    "reader": "gradatim.tasks.ingest",
    "dataset": "gradatim.tasks.ingest",
    "embedding": "gradatim.tasks.embedding",
    "difficulty": "gradatim.tasks.difficulty",
    "diversity": "gradatim.tasks.diversity",
    "split": "gradatim.tasks.splits",
    "pacing": "gradatim.tasks.curriculum",
    "model": "gradatim.tasks.training",
}
"""What a plug-in can be, and the package whose modules hold the built-in ones."""


class Config(BaseModel):
    """Base of every plug-in's settings: unknown keys are errors, values are fixed.

    `paths` names the settings that are paths of files, `folders` those that are paths of folders: a recipe's start from
    its data folder, and what the file holds, or all files below the folder, is part of the result's name.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, ser_json_inf_nan="strings")
    paths: ClassVar[tuple[str, ...]] = ()
    folders: ClassVar[tuple[str, ...]] = ()

    def named(self, setting: str) -> Any:
        """Return what a setting puts into a need (see `Plugin.needs`); nothing where that is not read."""
        return getattr(self, setting)


@dataclass(frozen=True)
class Cost:
    """What a plug-in is expected to take: wall `seconds` on two cores and peak `bytes` of memory."""

    seconds: float
    bytes: float


@dataclass(frozen=True)
class Plugin:
    """One registered method.

    Attributes
    ----------
    area, name : str
    run : callable
        The method itself; its signature is the area's (see docs/concepts.md).
    config : type of Config
    needs : tuple of str
        Columns as ``table.column``, e.g. ``responses.score``. A name in braces is a setting, e.g.
        ``examples.{column}`` or ``features_{features}.embedding``: nothing where it is not set, each of a list; braces
        alone are needs that the setting writes out. A ``?`` at the end marks what need not be there, e.g.
        ``responses.period?``. A method that needs ``difficulty`` names the earlier steps that it reads in its setting
        `of`.
    revision : int
        Raised whenever the output for the same input changes; part of the fingerprint.
    cost : callable
        ``cost(rows, width) -> Cost``; width is respondents, dimensions or tokens, as the method counts them.
    source : str
        Authors (year). Title.
    maturity : "stable" or "experimental"
    row_wise : bool
        Whether each row's result depends on that row alone, so that unchanged parts are reused.
    """

    area: str
    name: str
    run: Callable[..., Any]
    config: type[Config]
    needs: tuple[str, ...]
    revision: int
    cost: Callable[[int, int], Cost]
    source: str
    maturity: Maturity
    row_wise: bool = False

    def columns(self, config: Config) -> tuple[str, ...]:
        """Return what it needs with the settings of `config` filled in; optional needs keep their ``?``."""
        found: list[str] = []
        for need in self.needs:
            setting = re.search(r"{(\w+)}", need)
            if setting is None:
                found.append(need)
                continue
            value = config.named(setting[1])
            names = [value] if isinstance(value, str) else list(value or ())
            found += [need.replace(setting[0], name) for name in names if name]
        return tuple(dict.fromkeys(found))

    @property
    def summary(self) -> str:
        """First line of the docstring."""
        return (self.run.__doc__ or "").strip().split("\n")[0]


_plugins: dict[tuple[str, str], Plugin] = {}
F = TypeVar("F", bound=Callable[..., Any])


def register(
    area: str,
    name: str,
    *,
    config: type[Config],
    needs: tuple[str, ...] = (),
    revision: int = 1,
    cost: Callable[[int, int], Cost],
    source: str,
    maturity: Maturity = "stable",
    row_wise: bool = False,
) -> Callable[[F], F]:
    """Register the decorated function as a plug-in; arguments as the attributes of `Plugin`."""
    if area not in AREAS:
        raise UsageError(f"there is no plug-in area {area!r}{nearest(area, AREAS)}", expected=", ".join(AREAS))

    def decorate(function: F) -> F:
        _no_clash(area, name, function)
        _plugins[area, name] = Plugin(area, name, function, config, needs, revision, cost, source, maturity, row_wise)
        return function

    return decorate


def _no_clash(area: str, name: str, function: Callable[..., Any]) -> None:
    """Two modules cannot give one name; a built-in method keeps its own, whichever module was imported first."""
    taken = _plugins.get((area, name))
    if taken is None or taken.run.__module__ == function.__module__:
        return
    what = f"the {area} {name!r} of {function.__module__} is also one of {taken.run.__module__}"
    if not function.__module__.startswith("gradatim."):
        raise UsageError(what, remedy="register it under another name")
    warnings.warn(f"{what}: the built-in one is used", stacklevel=4)


@cache
def _load(area: str) -> None:
    package = importlib.import_module(AREAS[area])
    for module in pkgutil.iter_modules(package.__path__):
        if module.name not in ("task", "tasks"):  # the thin file that imports Prefect
            importlib.import_module(f"{package.__name__}.{module.name}")
    _load_entry_points()


@cache
def _load_entry_points() -> None:
    for point in entry_points(group="gradatim.plugins"):
        try:
            point.load()
        except (Exception, SystemExit) as error:  # a broken plug-in of a third party must not stop the command line
            warnings.warn(f"plug-in {point.name!r} ({point.value}) does not load: {error}", stacklevel=2)


def plugins(area: str) -> dict[str, Plugin]:
    """Return an area's plug-ins by name, sorted; raises `UsageError` for an area that there is not."""
    if area not in AREAS:
        raise UsageError(f"there is no area {area!r}{nearest(area, AREAS)}", expected="one of " + ", ".join(AREAS))
    _load(area)
    return {name: plugin for (a, name), plugin in sorted(_plugins.items()) if a == area}


def get(area: str, name: str, *, where: str = "") -> Plugin:
    """Return one plug-in; raises `UsageError` with the valid names and the nearest spelling."""
    known = plugins(area)
    if name not in known:
        raise UsageError(
            f"there is no {area} {name!r}{nearest(name, known)}", where=where, expected="one of " + ", ".join(known)
        )
    return known[name]


def configure(plugin: Plugin, settings: Mapping[str, Any], *, where: str = "") -> Config:
    """Validate a plug-in's settings; raises `UsageError` that names the path, what was found and what is valid."""
    try:
        return plugin.config.model_validate(dict(settings))
    except ValidationError as error:
        raise explain(error, plugin.config, where=where or f"{plugin.area} {plugin.name}") from None


def resolve(area: str, step: Step, *, where: str = "") -> tuple[Plugin, Config]:
    """Find a recipe step's plug-in and validate its settings; `where` is the path in the recipe, for errors."""
    plugin = get(area, step.method, where=where)
    return plugin, configure(plugin, step.settings, where=f"{where}.{step.method}" if where else step.method)
