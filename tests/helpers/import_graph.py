"""The import graph of the rooms, read from the source without importing anything."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROOMS = {"api": "gradatim", **{room: f"gradatim.{room}" for room in ("flows", "schemas", "storage", "tasks")}}
FLOORS = {"schemas": 0, "storage": 1, "core": 2, "area": 3, "flows": 4, "api": 5}
PREFECT_FILES = ("task", "tasks")
"""The thin file of Prefect tasks in each area."""

SHARED_BY_TASKS = "gradatim.tasks.core.step"
"""What those thin files share: it opens the store, so it is no science either."""


def module_name(path: Path) -> str:
    room, *inner = path.relative_to(ROOT).with_suffix("").parts
    return ".".join([ROOMS[room], *inner]).removesuffix(".__init__")


def sources() -> dict[str, Path]:
    return {module_name(path): path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))}


def imports(name: str, source: str, *, package: bool = False) -> Iterator[tuple[str, bool]]:
    """Yield each imported name with whether it is imported whenever the module is (not inside a function)."""
    tree = ast.parse(source)
    lazy = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) or _type_checking(node)
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, id(node) not in lazy
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = name.split(".")[: len(name.split(".")) - node.level + package]
                base = ".".join([*above, base] if base else above)
            for alias in node.names:
                yield f"{base}.{alias.name}", id(node) not in lazy


def _type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def floor(name: str) -> tuple[int, str]:
    """Return a module's floor and the flat on it: areas share a floor, each behind its own door."""
    steps = name.split(".")
    if len(steps) == 1 or steps[1] not in ("flows", "schemas", "storage", "tasks"):
        return FLOORS["api"], "api"
    if steps[1] != "tasks":
        return FLOORS[steps[1]], steps[1]
    if len(steps) == 2 or steps[2] == "core":
        return FLOORS["core"], "core"
    return FLOORS["area"], steps[2]


def trespasses(name: str, source: str, *, package: bool = False) -> list[str]:
    (own, flat), found = floor(name), []
    for target, _ in imports(name, source, package=package):
        if target.split(".")[0] == "gradatim":
            other, door = floor(target)
            if other > own or (other == own and door != flat):
                found.append(f"{name} imports {target}")
    return found


def science(name: str) -> bool:
    thin = name.split(".")[-1] in PREFECT_FILES or name == SHARED_BY_TASKS
    return name.startswith("gradatim.tasks") and not thin


def imported(target: str, *names: str) -> bool:
    return any(target == name or target.startswith(f"{name}.") for name in names)


MODULES = sources()
