"""When findings of two commits are the same race."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from histories import History

from racecheck.bisect.git import Git
from racecheck.bisect.identity import Form, assign
from racecheck.bisect.snapshot import Place, Snapshot

Files = Mapping[str, Mapping[str, list[str]]]


class Sources:
    """A snapshot in memory: by file and function, the lines."""

    def __init__(self, files: Files) -> None:
        self.files = files

    def has_function(self, place: Place) -> bool:
        """As Snapshot.has_function."""
        return place.function in self.files.get(place.file, {})

    def has_line(self, place: Place) -> bool:
        """As Snapshot.has_line."""
        return place.text in self.files.get(place.file, {}).get(place.function, [])


LINES = ["p.fill_(n)", "d = p.to(device)"]
BEFORE: Files = {"sampler.py": {"stage": LINES, "plan": ["p.zero_()"]}, "kv.py": {"plan": ["p.fill_(n)"]}}


def form(write: tuple[str, str, str] = ("sampler.py", "stage", "p.fill_(n)"), **changes: Any) -> Form:
    """A race of a copy and the host write at `write`."""
    files = changes.pop("files", BEFORE)
    sides = (("h2d-read", Place("sampler.py", "stage", "d = p.to(device)")), ("host-write", Place(*write)))
    made = Place("sampler.py", "__init__", "p = torch.zeros(4, pin_memory=True)")
    settings = {"rule": "race/h2d-read-vs-host-write", "buffer": "rows", "fingerprint": "f1", "sides": sides}
    return Form(**{**settings, "made": made, "snapshot": Sources(files), **changes})


MOVED: Files = {"staging.py": BEFORE["sampler.py"], "kv.py": BEFORE["kv.py"]}
RENAMED: Files = {**BEFORE, "sampler.py": {"stage_rows": LINES, "plan": ["p.zero_()"]}}
TAKEN: Files = {"sampler.py": {"plan": ["p.zero_()"]}, "kv.py": {**BEFORE["kv.py"], "stage": LINES}}
INLINED: Files = {**BEFORE, "sampler.py": {"stage": LINES[1:], "plan": ["p.zero_()", LINES[0]]}}
SAME_NAME: Files = {"sampler.py": {"plan": []}, "kv.py": {"plan": [*BEFORE["kv.py"]["plan"], "p.zero_()"]}}
EDITED: Files = {**BEFORE, "sampler.py": {"stage": ["p.fill_(n + 1)", LINES[1]], "plan": ["p.zero_()"]}}
ADDED: Files = {**BEFORE, "sampler.py": {"stage": ["p[0] = n", *LINES], "plan": ["p.zero_()"]}}


@pytest.mark.parametrize(
    "other",
    [
        form(),
        form(("staging.py", "stage", "p.fill_(n)"), files=MOVED),
        form(("kv.py", "stage", "p.fill_(n)"), files=TAKEN),
        form(("kv.py", "stage", "p.fill_(n + 1)"), files=TAKEN),
        form(("sampler.py", "plan", "p.fill_(n)"), files=INLINED),
        form(("sampler.py", "stage_rows", "p.fill_(n)"), files=RENAMED),
        form(("sampler.py", "stage", "p.fill_(n + 1)"), files=EDITED),
        form(("sampler.py", "stage_rows", "p.fill_(n, m)"), files={"sampler.py": {"stage_rows": []}}),
        form(("sampler.py", "stage", "")),
        form(sides=(form().sides[1], form().sides[0])),
    ],
    ids=[
        "equal",
        "file",
        "function to another file",
        "and edited",
        "line to another function",
        "function",
        "line",
        "function and line",
        "a stretch",
        "seen the other way round",
    ],
)
def test_the_same_race(other: Form) -> None:
    """What differs was moved, renamed or edited: it is not there at the other commit."""
    assert form().likeness(other) > 0
    assert other.likeness(form()) == form().likeness(other)


@pytest.mark.parametrize(
    "other",
    [
        form(rule="race/d2h-write-vs-host-read"),
        form(buffer="pages"),
        form(("kv.py", "plan", "p.fill_(n)")),
        form(("sampler.py", "plan", "p.zero_()")),
        replace(form(("sampler.py", "stage", "p[0] = n")), snapshot=Sources(ADDED)),
    ],
    ids=["rule", "buffer", "file", "function", "line"],
)
def test_another_race(other: Form) -> None:
    """Rule or buffer differ, or a place that is there at both commits."""
    assert form(files=ADDED).likeness(other) == 0
    assert other.likeness(form(files=ADDED)) == 0


def test_a_line_moves_into_a_function_of_that_name():
    """Two files may have functions of one name, before and after: the line tells, or the functions do."""
    before = form(("sampler.py", "plan", "p.zero_()"))
    after = form(("kv.py", "plan", "p.zero_()"), files=SAME_NAME)
    assert before.likeness(after) > 0
    assert after.likeness(before) == before.likeness(after)
    assert before.likeness(form(("kv.py", "plan", "p.fill_(n)"), files=SAME_NAME)) == 0
    assert before.likeness(form(("kv.py", "plan", ""), files=SAME_NAME)) == 0


def test_memory_without_a_name_is_known_by_where_it_was_made():
    """Its size may change; its allocation, and the places that use it, must agree in two parts of three."""
    unnamed = form(buffer="pinned memory of 16 bytes")
    larger = Place("sampler.py", "__init__", "p = torch.zeros(8, pin_memory=True)")
    assert unnamed.likeness(replace(unnamed, buffer="pinned memory of 32 bytes", made=larger)) > 0
    assert unnamed.likeness(replace(unnamed, made=Place("kv.py", "plan", "q = 1"))) == 0
    assert unnamed.likeness(form()) == 0
    renamed = form(("sampler.py", "stage_rows", "p.fill_(n, m)"), files={}, buffer=unnamed.buffer)
    assert unnamed.likeness(renamed) == 0


def test_one_finding_is_one_race():
    """Two that are alike are told apart while both are there: the closest are paired first."""
    other = form(("sampler.py", "stage", "p[0] = n"), files={})
    edited = form(("sampler.py", "stage", "p[0] = n + 1"), files={})
    assert assign([other], [[form(files={})], [other]]) == {0: 1}
    assert assign([edited, form(files={})], [[form(files={})], [other]]) == {0: 1, 1: 0}
    assert assign([form(buffer="pages")], [[form()]]) == {}


def test_a_known_form_counts_as_well():
    """A race is recognised by any form it was met in."""
    pinned = {"buffer": "pinned memory of 16 bytes"}
    renamed = form(("sampler.py", "stage_rows", "p.fill_(n)"), files={}, **pinned)
    twice = form(("sampler.py", "stage_rows", "p.fill_(n, m)"), files={}, **pinned)
    assert assign([twice], [[form(**pinned)]]) == {}
    assert assign([twice], [[form(**pinned), renamed]]) == {0: 0}


def test_text_and_names_come_from_the_commit(tmp_path: Path):
    """A line's text is that of the commit; a file that git sees renamed has its name of the bad end."""
    text = "def f():\n    one()\n    two()\n\n\ndef g():\n    two()\n    three()\n"
    history = History(tmp_path / "repo")
    history.add({"src/old.py": text, "kernel.cu": "void run() {\n  launch();\n}\n"})
    history.add({"src/pkg/new.py": "import torch\n" + text})
    git = Git(history.build().folder)
    before, after = (Snapshot(git, commit, history.commits[1]) for commit in history.commits)
    place = before.place({"file": "old.py", "line": 3, "function": "f"})
    assert place == after.place({"file": "pkg/new.py", "line": 4, "function": "f"})
    assert place == Place("src/pkg/new.py", "f", "two()")
    assert before.has_line(place)
    assert not before.has_line(replace(place, text="three()"))
    assert before.has_line(replace(place, function="g", text="three()"))
    assert not before.has_function(replace(place, function="h"))
    assert before.has_line(Place("kernel.cu", "run", "launch();"))
    assert not after.has_function(Place("kernel.cu", "run", ""))
    assert before.place({"file": "made.py", "line": 3, "function": "f"}) == Place("made.py", "f", "")
