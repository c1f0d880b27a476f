"""Turns pydantic's complaints into errors that name path, value found, valid values and nearest spelling."""

from __future__ import annotations

import re
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from gradatim.schemas.errors import UsageError, nearest

_SHOWN = 60  # characters of a found value


def explain(error: ValidationError, model: type[BaseModel], *, where: str) -> UsageError:
    """Explain pydantic's most telling complaint.

    Parameters
    ----------
    error : pydantic.ValidationError
    model : type of BaseModel
        The model that refused.
    where : str
        File, or path inside one; the complaint's own path is appended.
    """
    # a misspelt key is the likelier cause of a missing one, and a check over sections comes last
    first = min(error.errors(), key=lambda complaint: _RANK.get(complaint["type"], 1))
    context = first.get("ctx", {})
    at = _join(where, context.get("path") or _path(first["loc"]))
    key = str(first["loc"][-1]) if first["loc"] else ""
    if first["type"] == "extra_forbidden":
        known = _keys(_owner(model, first["loc"]))
        expected = "one of " + ", ".join(known) if known else "no keys: there is nothing to set"
        return UsageError(f"unknown key {key!r}{nearest(key, known)}", where=at, expected=expected)
    if first["type"] == "missing":
        known = _keys(_owner(model, first["loc"]))
        return UsageError(f"the key {key!r} is missing", where=at, expected="keys here: " + ", ".join(known))
    if first["type"] == "recipe":
        return UsageError(context["what"], where=at, expected=context["expected"])
    if first["type"] in ("value_error", "assertion_error"):
        return UsageError(re.sub(r"^(Value|Assertion) error,? ?", "", first["msg"]), where=at)
    return _wrong_value(first, at)


_RANK = {"extra_forbidden": 0, "recipe": 2}
_PLAIN = {
    "string_type": "text",
    "bool_parsing": "true or false",
    "bool_type": "true or false",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "int_type": "a whole number",
    "float_parsing": "a number",
    "float_type": "a number",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
}


def _wrong_value(complaint: ErrorDetails, at: str) -> UsageError:
    found, kind = complaint["input"], complaint["type"]
    expected = _PLAIN.get(kind, complaint["msg"].removeprefix("Input should be "))
    near = nearest(str(found), re.findall(r"'([^']*)'", complaint.get("ctx", {}).get("expected", "")))
    remedy = ""
    if kind == "string_type" and not isinstance(found, dict | list | type(None)):
        remedy = "put it in quotes if it is meant as text"
    return UsageError(f"found {shown(found)}{near}", where=at, expected=expected, remedy=remedy)


def shown(value: Any) -> str:
    """Show a found value as a recipe's writer knows it, shortened."""
    if value is None:
        return "nothing"
    if isinstance(value, dict):
        return f"a mapping with the keys {', '.join(map(repr, list(value)[:4]))}" if value else "an empty mapping"
    if isinstance(value, bool):
        return str(value).lower()
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def _path(steps: tuple[int | str, ...]) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps).removeprefix(".")


def _join(where: str, path: str) -> str:
    """Append a path: ``recipe.yaml: train`` and ``ranks`` to ``recipe.yaml: train.ranks``."""
    if not path or not where:
        return path or where
    if ": " in where:
        return f"{where}{'' if path.startswith('[') else '.'}{path}"
    return f"{where}: {path}"


def _keys(model: type[BaseModel] | None) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items()] if model else []


def _owner(model: type[BaseModel], path: tuple[int | str, ...]) -> type[BaseModel] | None:
    """Follow a complaint's path to the model whose key it is about."""
    owner: type[BaseModel] | None = model
    for step in path[:-1]:
        if owner is None or isinstance(step, int):
            continue
        fields = {field.alias or name: field for name, field in owner.model_fields.items()}
        owner = _model_in(fields[step].annotation) if step in fields else owner
    return owner


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in getattr(annotation, "__args__", ()):
        if (found := _model_in(argument)) is not None:
            return found
    return None
