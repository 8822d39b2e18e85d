"""The trace file `racecheck-trace/1`: JSON Lines, described in docs/trace.md.

The first line is `{"format": "racecheck-trace/1"}`; each further line is one record, an object whose `record`
names its type and whose other keys are the record's fields. Defaults are left out.
"""

from __future__ import annotations

import json
import re
import types
import typing
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import IO, Any

from racecheck.errors import TraceFileError
from racecheck.trace import records as r

FORMAT = "racecheck-trace/1"

_KINDS: dict[str, type[r.Record]] = {
    re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower(): kind
    for kind in (
        r.HostAccess, r.DeviceOp, r.StreamDeclare, r.EventRecord, r.EventFree, r.StreamWait, r.Acquire,
        r.Signal, r.Await, r.Alloc, r.Free, r.Capture, r.Replay, r.Collective, r.Stale,
        r.Label, r.Want,
    )
}  # fmt: skip
_NAMES = {kind: name for name, kind in _KINDS.items()}


class TraceWriter:
    """A listener that writes every record to `file`, the header first."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file
        file.write(json.dumps({"format": FORMAT}) + "\n")

    def __call__(self, record: r.Record) -> None:
        """Write one record."""
        self._file.write(json.dumps(as_dict(record), separators=(",", ":"), ensure_ascii=False) + "\n")


def write(records: Iterable[r.Record], path: Path) -> None:
    """Write all of `records` to `path`."""
    with path.open("w", encoding="utf-8") as file:
        writer = TraceWriter(file)
        for record in records:
            writer(record)


def as_dict(record: r.Record) -> dict[str, Any]:
    """`record` as plain data."""
    return {"record": _NAMES[type(record)], **_plain_fields(record)}


def _plain_fields(thing: Any) -> dict[str, Any]:
    plain = {}
    for field in fields(thing):
        value = getattr(thing, field.name)
        if field.default is MISSING or value != field.default:
            plain[field.name] = _plain(value)
    return plain


def _plain(value: Any) -> Any:
    if isinstance(value, r.Mark):
        return {key: part for key, part in value._asdict().items() if part is not None}
    if isinstance(value, r.Node):
        return _plain_fields(value)
    if isinstance(value, tuple):
        return [_plain(part) for part in value]
    return value


class _NoTraceError(TraceFileError):
    """The file is of another kind: no part of it can be read."""


def read(
    path: Path, *, partial: bool = False, remedy: str = "read it with partial=True for what comes before it"
) -> tuple[list[r.Record], str | None]:
    """The records of the trace file at `path`.

    With `partial`, reading stops at the first bad line; what was read is returned with the complaint.
    `remedy` is what the complaint says can be done.

    Raises:
        TraceFileError: it cannot be read, or (without `partial`) a line is bad: `file:line: what is wrong`.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise TraceFileError(
            f"{path}:1: cannot be read ({error.strerror or error}); name a trace file"
        ) from None
    records: list[r.Record] = []
    try:
        records.extend(_records(data, path, remedy))  # extend keeps what came before an exception
    except TraceFileError as error:
        if not partial or isinstance(error, _NoTraceError):
            raise
        return records, str(error)
    return records, None


def _records(data: bytes, path: Path, remedy: str) -> Iterator[r.Record]:
    if not data:
        raise _NoTraceError(f"{path}:1: is empty; a trace starts with its format line")
    lines = data.split(b"\n")
    torn = bool(lines[-1])  # a complete file ends in a newline
    for number, line in enumerate(lines if torn else lines[:-1], 1):
        where = f"{path}:{number}: "
        try:
            plain = json.loads(line.decode("utf-8"))
        except (ValueError, RecursionError):
            if number == 1:
                raise _no_trace(where) from None
            cut = torn and number == len(lines)
            what = "ends in the middle of a record" if cut else "is not a line of JSON"
            raise TraceFileError(f"{where}{what}; {remedy}") from None
        if number == 1:
            if not isinstance(plain, dict) or plain.get("format") != FORMAT:
                raise _no_trace(where)
            continue
        try:
            yield from_dict(plain)
        except _Bad as error:
            raise TraceFileError(f"{where}{error}; {remedy}") from None


def _no_trace(where: str) -> _NoTraceError:
    return _NoTraceError(f'{where}is not a trace; the first line must be {{"format": "{FORMAT}"}}')


class _Bad(Exception):
    """What is wrong with a record."""


def from_dict(plain: Any) -> r.Record:
    """The record that `plain` describes."""
    if not isinstance(plain, dict) or not isinstance(plain.get("record"), str):
        raise _Bad("is not a record; write an object with the key 'record'")
    kind = plain.pop("record")
    if kind not in _KINDS:
        raise _Bad(f"is a record of the unknown type {kind[:40]!r}; known are {', '.join(_KINDS)}")
    built: r.Record = _build(_KINDS[kind], plain, kind)
    return built


def _build(target: type, plain: dict[str, Any], what: str) -> Any:
    hints = _hints(target)
    known: dict[str, Field[Any]] = {field.name: field for field in fields(target)}
    for key in plain:
        if key not in known:
            raise _Bad(f"{what} has the unknown key {key[:40]!r}; known are {', '.join(known)}")
    values = {}
    for name, field in known.items():
        if name in plain:
            values[name] = _value(hints[name], plain[name], f"{what}.{name}")
        elif field.default is MISSING and field.default_factory is MISSING:
            raise _Bad(f"{what} lacks the key {name!r}")
    return target(**values)


def _hints(target: type) -> dict[str, Any]:
    if target not in _hints_cache:
        _hints_cache[target] = typing.get_type_hints(target)
    return _hints_cache[target]


_hints_cache: dict[type, dict[str, Any]] = {}


def _value(hint: Any, value: Any, what: str) -> Any:
    """`value` as a field of type `hint`."""
    if isinstance(hint, types.UnionType):
        if value is None:
            return None
        hint = next(part for part in typing.get_args(hint) if part is not type(None))
    if hint is r.Node:
        if not isinstance(value, dict):
            raise _Bad(f"{what} is not an object")
        return _build(r.Node, value, what)
    if hint is r.Mark:
        return _mark(value, what)
    if hint is r.Loc:
        return _loc(value, what)
    if hint is Hashable:
        return _name(value, what)
    if hint == r.Span:
        return _span(value, what)
    if typing.get_origin(hint) is tuple:
        if not isinstance(value, list):
            raise _Bad(f"{what} is not a list")
        return tuple(_value(typing.get_args(hint)[0], part, what) for part in value)
    if type(value) is not hint:
        raise _Bad(f"{what} is {json.dumps(value)[:40]}, not of type {hint.__name__}")
    return value


def _span(value: Any, what: str) -> r.Span:
    good = isinstance(value, list) and len(value) == 2 and all(type(end) is int for end in value)
    if not good or not 0 <= value[0] <= value[1] < 1 << 70:
        raise _Bad(f"{what} holds {json.dumps(value)[:40]}, not a range [low, high] of addresses")
    return value[0], value[1]


def _loc(value: Any, what: str) -> r.Loc:
    if not (
        isinstance(value, list) and len(value) == 3 and [type(part) for part in value] == [str, int, str]
    ):
        raise _Bad(f"{what} is {json.dumps(value)[:40]}, not [file, line, function]")
    return r.Loc(*value)


def _mark(value: Any, what: str) -> r.Mark:
    if not isinstance(value, dict):
        raise _Bad(f"{what} is {json.dumps(value)[:40]}, not an object")
    hints = _hints(r.Mark)
    for key in value:
        if key not in hints:
            raise _Bad(f"{what} has the unknown key {key[:40]!r}; known are {', '.join(hints)}")
    return r.Mark(**{key: _value(hints[key], part, f"{what}.{key}") for key, part in value.items()})


def _name(value: Any, what: str, depth: int = 0) -> Hashable:
    if isinstance(value, list) and depth < 4:
        return tuple(_name(part, what, depth + 1) for part in value)
    if value is None or type(value) in (str, int, bool):
        return value  # type: ignore[no-any-return]
    raise _Bad(f"{what} is {json.dumps(value)[:40]}, not a name (text, a number or a list of them)")
