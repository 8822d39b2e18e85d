"""A fault of the catalogue, planted in the source of the reference engine.

A fault is a class that derives from a right part of the engine, or a function that makes one. Here its code
takes the place of the right code: the methods of the class stand in the part itself, or, where one of them
calls `super()`, the class stands behind the part and gets its name. A function becomes the default of the
engine's parts. What they use comes along.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import racecheck.engine
from racecheck.engine import config
from racecheck.faults import Fault

_HOME = Path(racecheck.engine.__file__).parent
_FAULTS = "racecheck.faults"
#: The engine as it should be: text by file.
RIGHT = {f"engine/{path.relative_to(_HOME)}": path.read_text() for path in sorted(_HOME.rglob("*.py"))}


def planted(fault: Fault) -> tuple[str, str]:
    """The file of the engine in which `fault` is planted, and its text then."""
    code: Any = getattr(fault.part, "shown", fault.part)
    if inspect.isclass(code):
        return _in_its_part(_Source(code))
    edit = _Edit(config)
    edit.bring(code)
    default = next(
        node for node in edit.class_of("Parts").body
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == fault.kind
    )  # fmt: skip
    edit.put(default, f"    {fault.kind}: {ast.unparse(default.annotation)} = {code.__name__}\n")
    return edit.done()


def _in_its_part(fault: _Source) -> tuple[str, str]:
    part = next(one for one in fault.definition.__mro__ if one.__module__.startswith("racecheck.engine"))
    edit = _Edit(sys.modules[part.__module__])
    for node in fault.tree.body:
        edit.supply(node, fault)
    place = edit.class_of(part.__name__)
    if "super()" in fault.text:
        plain = f"Plain{part.__name__}"
        body = fault.text.split(":\n", 1)[1]
        edit.rename(place, plain)
        edit.insert(place.end_lineno, f"\n\nclass {part.__name__}({plain}):\n{body}")
        return edit.done()
    own = {node.name: node for node in place.body if isinstance(node, ast.FunctionDef)}
    for node in fault.tree.body[1:]:  # the first is the docstring
        text = fault.text_of(node)
        if node.name in own:
            edit.put(own[node.name], text)
        else:
            edit.insert(place.end_lineno, f"\n{text}")
    return edit.done()


class _Source:
    """The source of a class or function."""

    def __init__(self, definition: Any) -> None:
        self.definition = definition
        self.text = inspect.getsource(definition)
        self.tree: Any = ast.parse(self.text).body[0]
        self.around = vars(sys.modules[definition.__module__])

    def text_of(self, node: Any) -> str:
        """The lines of a part of it."""
        return "".join(self.text.splitlines(keepends=True)[node.lineno - 1 : node.end_lineno])


class _Edit:
    """Changes of one module."""

    def __init__(self, module: ModuleType) -> None:
        self._file = f"engine/{Path(inspect.getfile(module)).relative_to(_HOME)}"
        self._lines = RIGHT[self._file].splitlines(keepends=True)
        self._tree = ast.parse(RIGHT[self._file])
        self._known = dict(vars(module))
        self._changes: list[tuple[int, int, str]] = []  # from line to line (0 is the first), and the new text
        imports = [node for node in self._tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
        self._top = max(node.end_lineno or 0 for node in imports)

    def class_of(self, name: str) -> Any:
        """The class `name` of the module."""
        return next(node for node in self._tree.body if isinstance(node, ast.ClassDef) and node.name == name)

    def put(self, node: Any, text: str) -> None:
        """`text` takes the place of `node`."""
        self._changes.append((node.lineno - 1, node.end_lineno, text))

    def insert(self, line: int, text: str) -> None:
        """`text` comes behind so many lines."""
        self._changes.append((line, line, text))

    def rename(self, node: Any, name: str) -> None:
        """The class `node` is called `name`."""
        at = node.lineno - 1
        self._changes.append((at, at + 1, self._lines[at].replace(node.name, name, 1)))

    def bring(self, definition: Any) -> None:
        """Add a class or function of the catalogue, above all others."""
        source = _Source(definition)
        self._known[definition.__name__] = definition
        self.supply(source.tree, source)
        self.insert(self._top, f"\n\n{source.text}")

    def supply(self, node: ast.AST, source: _Source) -> None:
        """Add what `node`, a part of `source`, takes from its module and this module lacks."""
        for name in sorted(_taken(node)):
            value = source.around.get(name, builtins)
            if value is builtins or self._known.get(name, builtins) is value:
                continue
            if getattr(value, "__module__", "").startswith(_FAULTS):
                self.bring(value)
                continue
            self._known[name] = value
            if inspect.ismodule(value):
                self.insert(self._top, f"import {value.__name__}\n")
            elif hasattr(value, "__module__"):
                self.insert(self._top, f"from {value.__module__} import {name}\n")
            else:
                self.insert(self._top, f"\n{name} = {value!r}\n")

    def done(self) -> tuple[str, str]:
        """The file, and its text with all changes."""
        lines = list(self._lines)
        changes = sorted(self._changes, key=lambda change: change[:2])  # at one line: as they were made
        for first, last, text in reversed(changes):
            lines[first:last] = [text]
        return self._file, "".join(lines)


def _taken(node: ast.AST) -> set[str]:
    """The names that `node` looks up when it runs; annotations are never looked up."""
    if isinstance(node, ast.Name):
        return {node.id}
    parts = (
        value for name, value in ast.iter_fields(node) if name not in ("annotation", "returns")
    )  # fmt: skip
    below = [one for part in parts for one in (part if isinstance(part, list) else [part])]
    return set().union(*(_taken(one) for one in below if isinstance(one, ast.AST)))
