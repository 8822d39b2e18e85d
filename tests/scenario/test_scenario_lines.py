from __future__ import annotations

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from racecheck.scenario.lines import KeyPath, key_lines, line_of
from racecheck.scenario.problems import toml


def paths(value: Any, at: KeyPath = ()) -> set[KeyPath]:
    """Every path that tomllib's result `value` contains."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return {at}.union(*(paths(item, (*at, key)) for key, item in inner))


@pytest.mark.parametrize(
    ("text", "path", "line"),
    [
        ("a = 1\nb = 2", ("b",), 2),
        ("# a = 0\n\na = 1", ("a",), 3),
        ("[t]\nx = 1\n[t.u]\ny = 2", ("t", "u", "y"), 4),
        ("[t]\nx = 1\n[t.u]\ny = 2", ("t", "u"), 3),
        ("[ t . u ]\ny = 2", ("t", "u", "y"), 2),
        ("[[a]]\nx = 1\n[[a]]\nx = 2", ("a", 1, "x"), 4),
        ("[[a]]\n[[a.b]]\nx = 1\n[[a]]\n[[a.b]]\n[[a.b]]\nx = 2", ("a", 1, "b", 1, "x"), 7),
        ("[[a]]\n[a.t]\nx = 1\n[[a]]\n[a.t]\nx = 2", ("a", 1, "t", "x"), 6),
        ('"two words" = 1\n\'three "big" words\' = 2', ('three "big" words',), 2),
        ('"\\u0061" = 1', ("a",), 1),
        ("a.b.c = 1\na.b.d = 2", ("a", "b", "d"), 2),
        ('a . "b.c" . d = 1', ("a", "b.c", "d"), 1),
        ("[x]\n1 = 'race'\n2 = 'clean'", ("x", "2"), 3),
        ("a = [\n  1,\n  2, # two\n]\nb = 3", ("a", 1), 3),
        ("a = [\n  1,\n  2, # two\n]\nb = 3", ("b",), 5),
        ("a = [[1], [\n2]]", ("a", 1, 0), 2),
        ("a = { b = 1, c = { d = '}' } }\ne = 2", ("a", "c", "d"), 1),
        ("a = [{ b = 1 },\n{ b = 2 }]", ("a", 1, "b"), 2),
        ('a = """\nb = 1\n[c]\n"""\nb = 2', ("b",), 5),
        ("a = '''\nb = \\'''\nb = 2", ("b",), 3),
        ('a = "x # y = 1"\nb = 2', ("b",), 2),
        ('a = """x""""\nb = 2', ("b",), 2),
        ("a = 1979-05-27 07:32:00\nb = 1979-05-27T07:32:00Z\nc = 1", ("c",), 3),
        ("a = 1\r\n\r\nb = 2\r\n", ("b",), 3),
        ("a = -1e5 # x\nb = inf", ("b",), 2),
    ],
)
def test_line_of_key(text: str, path: KeyPath, line: int) -> None:
    """The line of a key is found whatever TOML construct it stands in or behind."""
    lines = key_lines(text)
    assert lines[path] == line
    assert set(lines) == paths(tomllib.loads(text))


_KEYS = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), max_size=5)
_VALUES = st.recursive(
    st.integers(-9, 9) | st.booleans() | st.text(st.sampled_from("a#[]{}='\"\\\n,."), max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(_KEYS, _VALUES, max_size=5))
def test_finds_every_key_of_any_document(document: dict[str, Any]) -> None:
    """One key a line: every top-level key is found on its line, and no key is invented."""
    text = "".join(f"{toml(key)} = {toml(value)}\n" for key, value in document.items())
    lines = key_lines(text)
    assert tomllib.loads(text) == document
    assert set(lines) == paths(document)
    assert [lines[(key,)] for key in document] == list(range(1, len(document) + 1))


def test_a_missing_key_has_the_line_of_its_table() -> None:
    """What is not in the file is shown at the innermost table that is."""
    lines = key_lines("a = 1\n[t]\nx = 1\n")
    assert line_of(lines, ("t", "missing", "deeper")) == 2
    assert line_of(lines, ("missing",)) == 1
