"""Turn what pydantic found wrong with a scenario into one line a reader can act on."""

from __future__ import annotations

import difflib
import json
import re
import types
from collections.abc import Iterable
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from racecheck.scenario.lines import KeyPath, line_of

_KINDS = {
    "int": "a whole number",
    "float": "a number",
    "string": "text in quotes",
    "bool": "true or false",
    "dict": "a table",
    "model": "a table",
    "list": "a list",
}
_BOUNDS = {
    "greater_than_equal": ("ge", "at least"),
    "greater_than": ("gt", "more than"),
    "less_than_equal": ("le", "at most"),
    "less_than": ("lt", "less than"),
}


def one_problem(
    error: ValidationError, schema: type[BaseModel], lines: dict[KeyPath, int]
) -> tuple[int, str, str]:
    """Line, what is wrong and what to write instead, of the first problem in the file.

    A misspelt key shows twice, as unknown and as missing; the unknown key is the one to name.
    """
    problems = sorted(
        error.errors(include_url=False), key=lambda e: (e["type"] == "missing", line_of(lines, _place(e)))
    )
    first = problems[0]
    wrong, instead = _explain(first, schema)
    return line_of(lines, _place(first)), wrong, instead


def toml(value: Any) -> str:
    """`value` as TOML on one line."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_key(key)} = {toml(item)}" for key, item in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value, default=str, ensure_ascii=False)


def _key(key: str) -> str:
    """`key` as TOML has it: a dot in a bare key would make tables of it."""
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else json.dumps(key, ensure_ascii=False)


def nearest(word: str, known: Iterable[str]) -> str:
    """The remedy for a word that is none of `known`: the one that was meant, or all of them."""
    known = list(known)
    close = difflib.get_close_matches(word, known, n=1)
    return f"did you mean {close[0]}?" if close else f"write one of {', '.join(known)}"


def _place(error: ErrorDetails) -> KeyPath:
    return tuple(part for part in error["loc"] if part != "[key]")


def _explain(error: ErrorDetails, schema: type[BaseModel]) -> tuple[str, str]:
    kind, place = error["type"], _place(error)
    name = ".".join(str(part) for part in place)
    key = str(place[-1]) if place else name
    field = _field(schema, place)
    if kind == "extra_forbidden":
        return f"unknown key {key!r}", _right_key(schema, place)
    if kind == "missing":
        return f"the key {key} is missing", _write(field, name, key)
    if kind == "value_error":
        wrong, _, instead = str(error["ctx"]["error"]).rpartition("; ")
        return f"{name}: {wrong}", instead
    if kind == "literal_error":
        known = [word.strip(" '") for word in error["ctx"]["expected"].replace(" or ", ",").split(",")]
        return f"{name}: {_found(error['input'])} is not known", nearest(str(error["input"]), known)
    if kind in _BOUNDS:
        bound, words = _BOUNDS[kind]
        limit = f"{words} {error['ctx'][bound]:.12g}"
        return f"{name}: {_found(error['input'])} is out of range, it must be {limit}", _write(
            field, name, key
        )
    expected = _KINDS.get(kind.partition("_")[0]) if kind.endswith(("_type", "_parsing")) else None
    if expected is not None:
        return f"{name}: expected {expected}, found {_found(error['input'])}", _write(field, name, key)
    if kind in ("too_short", "string_too_short"):
        return f"{name}: this is empty", _write(field, name, key)
    message = error["msg"][:1].lower() + error["msg"][1:]
    return f"{name}: {message}, found {_found(error['input'])}", _write(field, name, key)


def _found(value: Any) -> str:
    if isinstance(value, dict):
        return "a table" if value else "an empty table"
    if isinstance(value, list):
        return "a list"
    text = toml(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _write(field: FieldInfo | None, name: str, key: str) -> str:
    if field is None or not field.examples:
        return f"write a table [{name}]"
    return f"write {key} = {toml(field.examples[0])}"


def _right_key(schema: type[BaseModel], place: KeyPath) -> str:
    """What an unknown key should have been: a key of its table, or the same key elsewhere."""
    key, table = str(place[-1]), _annotation(schema, place[:-1])
    known = list(table.model_fields)
    if not difflib.get_close_matches(key, known, n=1):
        if key in schema.model_fields:
            return f"write {key} above the first [table]"
        for name, field in schema.model_fields.items():
            inner = field.annotation
            if isinstance(inner, type) and issubclass(inner, BaseModel) and key in inner.model_fields:
                return f"write {key} in the table [{name}]"
    return nearest(key, known)


def _field(schema: type[BaseModel], place: KeyPath) -> FieldInfo | None:
    if not place:
        return None
    parent = _annotation(schema, place[:-1])
    if isinstance(parent, type) and issubclass(parent, BaseModel):
        return parent.model_fields.get(str(place[-1]))
    return None


def _annotation(schema: type[BaseModel], place: KeyPath) -> Any:
    """The type that the format gives to the value at `place`; None beyond what it knows."""
    at: Any = schema
    for part in place:
        if isinstance(at, type) and issubclass(at, BaseModel):
            field = at.model_fields.get(str(part))
            at = None if field is None else field.annotation
        elif get_origin(at) is dict:
            at = get_args(at)[1]
        elif get_origin(at) is list and isinstance(part, int):
            at = get_args(at)[0]
        else:
            return None
        if get_origin(at) is Annotated:
            at = get_args(at)[0]
        if get_origin(at) in (Union, types.UnionType):  # x | None
            at = next((part for part in get_args(at) if part is not types.NoneType), None)
        if get_origin(at) is Literal:
            return None
    return at
