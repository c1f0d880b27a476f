"""YAML as a recipe wants it: parsed without running code, a key that stands twice refused, plain words left alone.

Scalars follow YAML 1.2's core schema: ``no``, ``on`` and ``2026-01-01`` stay text (they are likely column names and
values), ``010`` is ten, ``1e-3`` is a number.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

from gradatim.schemas.errors import UsageError

_SCALARS: dict[str, tuple[str, str]] = {
    "bool": (r"true|True|TRUE|false|False|FALSE", "tTfF"),
    "int": (r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", "-+0123456789"),
    "float": (
        r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        "-+0123456789.",
    ),
    "null": (r"~|null|Null|NULL|", "~nN\0"),
}


class _Loader(yaml.SafeLoader):
    """Safe loader with the scalars of `_SCALARS`."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012  (declared so by PyYAML)


class _Dumper(yaml.SafeDumper):
    """Safe dumper that quotes whatever `_Loader` would not read back as text."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012  (declared so by PyYAML)

    def ignore_aliases(self, data: Any) -> bool:
        return True  # a value used twice is written twice: anchors are hard to read


for _name, (_pattern, _first) in _SCALARS.items():
    for _kind in (_Loader, _Dumper):
        _kind.add_implicit_resolver(
            f"tag:yaml.org,2002:{_name}", re.compile(f"^(?:{_pattern})$"), ["" if c == "\0" else c for c in _first]
        )


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    # PyYAML folds Unicode's own line ends away in any style but the one that escapes them
    style = '"' if set(text) & set("\r\x85\u2028\u2029") else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


def _int(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> int:
    text = str(loader.construct_scalar(node))
    return int(text, 0) if text[:2] in ("0o", "0x") else int(text)


def _float(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> float:
    return float(re.sub(r"\.(?=inf|nan)", "", str(loader.construct_scalar(node)).lower()))


def _mapping(loader: yaml.SafeLoader, node: yaml.MappingNode) -> dict[Any, Any]:
    first: dict[Any, int] = {}
    for key_node, _ in node.value:
        key = loader.construct_object(key_node, deep=True)
        if not isinstance(key, str):
            raise yaml.MarkedYAMLError(
                problem=f"the key {key!r} is not text: quote it", problem_mark=key_node.start_mark
            )
        line = key_node.start_mark.line + 1
        if key in first:
            raise yaml.MarkedYAMLError(
                problem=f"the key {key!r} stands twice, first in line {first[key]}", problem_mark=key_node.start_mark
            )
        first[key] = line
    return {loader.construct_object(k, deep=True): loader.construct_object(v, deep=True) for k, v in node.value}


def _sequence(loader: yaml.SafeLoader, node: yaml.SequenceNode) -> list[Any]:
    # built whole, so that a list that contains itself is refused as a mapping that contains itself is
    return [loader.construct_object(child, deep=True) for child in node.value]


_Dumper.add_representer(str, _text)
_Loader.add_constructor("tag:yaml.org,2002:int", _int)
_Loader.add_constructor("tag:yaml.org,2002:float", _float)
_Loader.add_constructor("tag:yaml.org,2002:map", _mapping)
_Loader.add_constructor("tag:yaml.org,2002:seq", _sequence)


def load(text: str, *, where: str) -> Any:
    """Parse YAML text; raises `UsageError` with the line."""
    try:
        return yaml.load(text, _Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        at = f"{where}: line {mark.line + 1}" if mark else where
        raise UsageError(str(error.problem or error.context), where=at, expected="valid YAML") from None
    except yaml.YAMLError as error:  # a control character: the reader knows no line
        raise UsageError(str(error).split("\n")[0], where=where, expected="valid YAML") from None
    except ValueError as error:  # an explicit tag that does not fit its text, as in !!int x
        raise UsageError(str(error), where=where, expected="valid YAML") from None
    except RecursionError:
        raise UsageError("the text is nested too deeply", where=where, expected="a few levels") from None


def dump(data: Any) -> str:
    """Write plain dicts, lists and scalars as YAML that `load` reads back."""
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)
