"""Writes the pages of the reference from the code itself, so that they are never stale."""

from __future__ import annotations

import ast
import importlib.util
import json
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from inspect import cleandoc
from pathlib import Path
from typing import Any

import typer
from pydantic import BaseModel

import gradatim
from gradatim.flows import cli
from gradatim.schemas.recipe import Recipe
from gradatim.schemas.tables import CONTRACT_VERSION, TABLES, TableSpec
from gradatim.tasks.core.registry import AREAS, Plugin, plugins

VERSION = version("gradatim")
ROWS, WIDTH = 1_000_000, 100  # where a method's cost is shown


def write(folder: Path) -> None:
    """Write every generated page; one that did not change keeps its time, so that Sphinx does not read it again."""
    folder.mkdir(exist_ok=True)
    pages = {
        "methods.md": methods(),
        "tables.md": tables(),
        "commands.md": commands(),
        "api.md": api(),
        "recipe_keys.txt": recipe_keys(),
    }
    for name, text in pages.items():
        if not (folder / name).is_file() or (folder / name).read_text(encoding="utf-8") != text:
            (folder / name).write_text(text, encoding="utf-8")


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Build a Markdown table."""
    head = list(head)
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines) + "\n"


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").replace("<", "&lt;").split())


# --- settings, of the recipe and of plug-ins


def keys(schema: Mapping[str, Any]) -> str:
    """Build the table of a model's keys from its JSON schema."""
    required = schema.get("required", ())
    return table(
        ["key", "value", "default", "meaning"],
        [
            [f"`{key}`", kind(field), "required" if key in required else default(field), field.get("description", "")]
            for key, field in schema.get("properties", {}).items()
        ],
    )


def kind(field: Mapping[str, Any]) -> str:
    """Say in a few words what a key takes."""
    if "enum" in field:
        return ", ".join(f"`{json.dumps(value) if isinstance(value, bool) else value}`" for value in field["enum"])
    if "const" in field:
        return f"`{field['const']}`"
    if "$ref" in field:
        name = field["$ref"].rsplit("/", 1)[1]
        return "a [step](#step)" if name == "Step" else f"section [{name.lower()}](#{name.lower()})"
    if "anyOf" in field:
        return " or ".join(dict.fromkeys(kind(one) for one in field["anyOf"] if one.get("type") != "null"))
    if field.get("type") == "array":
        items = field.get("items", {})
        return f"list of {kind(items).replace('a [step]', '[steps]')}" if items else "list"
    if isinstance(inner := field.get("additionalProperties"), dict) and "$ref" in inner:
        return f"mapping of names to {kind(inner)}"
    names = {"string": "text", "integer": "whole number", "boolean": "true or false", "object": "mapping"}
    name = names.get(field.get("type", ""), field.get("type", "any value"))
    bounds = [f"{sign} {field[key]:g}" for key, sign in _BOUNDS.items() if key in field]
    return f"{name} {', '.join(bounds)}" if bounds else name


_BOUNDS = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}


def default(field: Mapping[str, Any]) -> str:
    """Show a key's default."""
    value = field.get("default")
    return "" if value in (None, "", [], {}) or isinstance(value, dict) else f"`{json.dumps(value)}`"


def recipe_keys() -> str:
    """Build the reference of every section of a recipe."""
    schema = Recipe.model_json_schema()
    parts = [f"### The whole\n\n{schema['description']}\n\n{keys(schema)}"]
    order = ["Step", "Examples", "Responses", "Dynamics", "Options", "Features"]
    order += ["Curriculum", "Train", "Optimizer", "Checkpoints", "Evaluate", "Checks"]
    for name in sorted(schema["$defs"], key=order.index):
        section = schema["$defs"][name]
        text = section["description"].replace("``", "`")
        parts.append(f"### {name.lower()}\n\n{text}\n\n{keys(section)}")
    return "\n".join(parts)


# --- methods


def methods() -> str:
    """Build the page of every built-in plug-in."""
    parts = [
        "# Methods\n",
        "Every method is a plug-in; a wrong name in a recipe is answered with these. "
        "`gradatim methods --for FILE` lists those that a file can use. "
        f"Cost is wall time on two cores and peak memory at {ROWS:,} rows and width {WIDTH} "
        "(respondents, dimensions or tokens, as the method counts).\n",
    ]
    for area in AREAS:
        found = [p for p in plugins(area).values() if p.run.__module__.startswith("gradatim.")]
        if found:
            parts += [f"## {area}\n", table(_METHOD_HEAD, map(_method_row, found))]
            parts += [_method(plugin) for plugin in found if plugin.config.model_fields]
    return "\n".join(parts)


_METHOD_HEAD = ["method", "what it does", "needs", "cost", "maturity", "source"]


def _method_row(plugin: Plugin) -> list[str]:
    cost = plugin.cost(ROWS, WIDTH)
    needs = ", ".join(f"`{need}`" for need in plugin.needs)
    spent = f"{_amount(cost.seconds)} s, {_amount(cost.bytes / 1e9)} GB"
    return [f"`{plugin.name}`", plugin.summary, needs, spent, plugin.maturity, plugin.source]


def _amount(number: float) -> str:
    """Two significant digits are all that an estimate has; no exponents."""
    return f"{float(f'{number:.2g}'):,.0f}" if number >= 10 else f"{number:.2g}"


def _method(plugin: Plugin) -> str:
    return f"### {plugin.area} `{plugin.name}`\n\n{keys(_schema(plugin.config))}"


def _schema(model: type[BaseModel]) -> dict[str, Any]:
    """Return a model's JSON schema with the shapes of inner models written out as mappings."""
    schema = model.model_json_schema()
    text = json.dumps(schema.get("properties", {}))
    for name in schema.get("$defs", {}):
        text = text.replace(json.dumps({"$ref": f"#/$defs/{name}"}), '{"type": "object"}')
        text = text.replace(json.dumps(f"#/$defs/{name}")[1:-1], name)
    return {**schema, "properties": json.loads(text)}


# --- tables


def tables() -> str:
    """Build the page of the tables' contract."""
    head = (
        "# Tables\n\nKey columns are never null, and unique together over the whole table; parts are sorted by them. "
        f"These descriptions stand in the files' metadata too. Contract version {CONTRACT_VERSION}. Beside these, each "
        "feature is a table `features_NAME` with an `example_id` and an `embedding`, a fixed-size list of float32.\n"
    )
    return "\n".join([head, *map(_table, TABLES.values())])


def _table(spec: TableSpec) -> str:
    notes = [
        "A user's further columns follow these." if spec.open else "",
        "Holds what users wrote: rows never reach logs, errors, events or artifacts." if spec.private else "",
    ]
    rows = [
        [f"`{f.name}`" + (" (key)" if f.name in spec.key else ""), f"`{f.type}`", f.metadata[b"description"].decode()]
        for f in spec.schema
    ]
    return f"## {spec.name}\n\n{' '.join(notes).strip()}\n\n{table(['column', 'type', 'meaning'], rows)}"


# --- functions


def api() -> str:
    """Build the page of the public functions, their results, and what a plug-in or a program needs."""
    functions = [f".. autofunction:: gradatim.{name}" for name in public()]
    results = [f".. autoclass:: {name}\n   :members:" for name in result_classes()]
    further = [f".. autofunction:: gradatim.schemas.recipe.{n}" for n in ("load_recipe", "parse_recipe", "dump_recipe")]
    further += [".. autofunction:: gradatim.tasks.core.registry.register"]
    further += [f".. autoclass:: gradatim.tasks.core.registry.{n}" for n in ("Config", "Cost", "Plugin")]
    further += [f".. autofunction:: gradatim.schemas.hashing.{n}" for n in ("uniform", "random_bits")]
    errors = ("GradatimError", "UsageError", "DataRefused", "TryAgain")
    further += [f".. autoexception:: gradatim.schemas.errors.{n}" for n in errors]
    sections = {"Functions": functions, "Results": results, "For programs and plug-ins": further}
    parts = [f"# API\n\n{cleandoc(gradatim.__doc__ or '').splitlines()[0]}\n"]
    for title, entries in sections.items():
        if entries:
            parts.append(f"## {title}\n\n```{{eval-rst}}\n" + "\n\n".join(entries) + "\n```\n")
    return "\n".join(parts)


def public() -> list[str]:
    """Return the names that `import gradatim` gives."""
    return sorted(gradatim.__all__)


def result_classes() -> list[str]:
    """Return the classes that the public functions return, as `api/functions.py` names them for type checkers."""
    origin = importlib.util.find_spec("gradatim.functions")
    assert origin is not None
    assert origin.origin is not None
    tree = ast.parse(Path(origin.origin).read_text(encoding="utf-8"))
    blocks = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    return [
        f"{node.module}.{alias.name}"
        for block in blocks
        for node in block.body
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("gradatim.")
        for alias in node.names
        if alias.name[0].isupper()
    ]


# --- the command line


def commands() -> str:
    """Build the page of all commands: what each does, an example, its arguments and options."""
    group = typer.main.get_command(cli.app)
    lines = [
        "# Commands",
        "",
        "`gradatim COMMAND --help` says the same. Exit codes: 0 done, 1 crashed, 2 wrong use, 3 data refused,",
        "4 try again.",
    ]
    for name, command in group.commands.items():  # type: ignore[attr-defined]
        text, _, example = cleandoc(command.help or "").partition("Example: ")
        lines += ["", f"## {name}", "", text.strip(), "", f"```sh\n{' '.join(example.split())}\n```", ""]
        rows = [
            [f"`{p.metavar or p.name}`" if p.param_type_name == "argument" else f"`{', '.join(p.opts)}`", p.help or ""]
            for p in command.params
        ]
        lines.append(table(["argument or option", "meaning"], rows))
    return "\n".join(lines)
