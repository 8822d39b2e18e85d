"""The trace file: what is written is read back; what is damaged is refused with its line."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from racecheck.detect import Detector
from racecheck.errors import RacecheckError, TraceFileError
from racecheck.litmus import judge, load
from racecheck.trace import records as r
from racecheck.trace.file import FORMAT, read, write

ROOT = Path(__file__).resolve().parent.parent.parent
PROGRAMS = sorted((ROOT / "scenarios" / "litmus").glob("*.litmus"))

NODE = r.Node(kind="h2d", name="c", reads=((1, 2), (3, 4)), any_reads=((5, 6),), call_reads=((7, 8),))
KERNEL = r.Node(kind="kernel", writes=((1, 2),))
HERE = r.Loc("f.py", 3, "g")
EVERYTHING: list[r.Record] = [
    r.HostAccess(thread="a", loc=HERE, mark=r.Mark(step=1, slot=0), reads=((1, 2),), how="bytes", since=HERE),
    r.DeviceOp(thread="main", stream=("s", 1), blocking=True, node=NODE),
    r.StreamDeclare(thread="main", stream=3, blocking=True),
    r.EventRecord(thread="main", event=("e", ("x", 1)), stream="legacy"),
    r.EventFree(thread="main", event="e"),
    r.StreamWait(thread="main", event=None, stream=True),
    r.Acquire(thread="main", scope="device", how="query", done=False),
    r.Signal(thread="main", name="x"),
    r.Await(thread="main", name="x"),
    r.Alloc(
        thread="main", span=(0, 64), name="P", kind="pinned", buffer="b", slot=2, guarded=True, reuse=True
    ),
    r.Free(thread="main", span=(0, 64), stream="s"),
    r.Capture(thread="main", graph="g", nodes=(KERNEL,), locs=(HERE,)),
    r.Replay(thread="main", graph="g", stream="s"),
    r.Collective(thread="main", rank=1, name="sum"),
    r.Stale(thread="main", span=(1, 2), wanted="x", found="y"),
    r.Label(thread="main", span=(1, 2), value="x"),
    r.Want(thread="main", span=(1, 2), value="x"),
]


def test_every_kind_of_record_comes_back(tmp_path):
    """All types, all fields, names of every shape."""
    kinds = {kind for kind in r.Record.__subclasses__() if getattr(r, kind.__name__) is kind}
    assert {type(record) for record in EVERYTHING} == kinds
    write(EVERYTHING, tmp_path / "t")
    assert read(tmp_path / "t") == (EVERYTHING, None)


def test_shipped_programs_come_back_with_their_verdict(tmp_path):
    """A trace that went through a file is judged as before."""
    for path in PROGRAMS[::5]:
        judgement = judge(load(path))
        write(judgement.trace, tmp_path / "t")
        records, _ = read(tmp_path / "t")
        assert records == judgement.trace


BAD = {
    "": (1, "is empty"),
    "{}": (1, "the first line must be"),
    '{"format": "racecheck-trace/9"}\n': (1, "the first line must be"),
    "[1]\n": (1, "is not a trace"),
    "HEADER{]\n": (2, "is not a line of JSON"),
    "HEADER\n": (2, "is not a line of JSON"),
    'HEADER{"record": "free"': (2, "ends in the middle"),
    "HEADER[]\n": (2, "is not a record"),
    'HEADER{"record": 7}\n': (2, "is not a record"),
    'HEADER{"record": "fre"}\n': (2, "unknown type 'fre'"),
    'HEADER{"record": "free", "thread": "m"}\n': (2, "free lacks the key 'span'"),
    'HEADER{"record": "free", "thread": 1, "span": [0, 1]}\n': (2, "free.thread is 1, not of type str"),
    'HEADER{"record": "free", "thread": "m", "span": [2, 1]}\n': (2, "not a range"),
    'HEADER{"record": "free", "thread": "m", "span": [0, true]}\n': (2, "not a range"),
    'HEADER{"record": "free", "thread": "m", "span": [0, 1], "x": 1}\n': (2, "unknown key 'x'"),
    'HEADER{"record": "free", "thread": "m", "span": [0, 1], "stream": {}}\n': (2, "not a name"),
    'HEADER{"record": "free", "thread": "m", "span": [0, 1], "loc": ["f"]}\n': (
        2,
        "not [file, line, function]",
    ),
    'HEADER{"record": "free", "thread": "m", "span": [0, 1], "mark": {"stp": 1}}\n': (2, "unknown key 'stp'"),
    'HEADER{"record": "free", "thread": "m", "span": [0, 1], "mark": {"step": "1"}}\n': (
        2,
        "not of type int",
    ),
    'HEADER{"record": "device_op", "thread": "m", "stream": "s", "node": 3}\n': (2, "node is not an object"),
    'HEADER{"record": "device_op", "thread": "m", "stream": "s", "node": {}}\n': (2, "lacks the key 'kind'"),
    'HEADER{"record": "capture", "thread": "m", "graph": "g", "nodes": 3}\n': (2, "nodes is not a list"),
    "HEADER" + "[" * 100_000 + "\n": (2, "is not a line of JSON"),
    'HEADER{"record": "replay", "thread": "m", "graph": ' + "9" * 5000 + ', "stream": "s"}\n': (
        2,
        "not a line of JSON",
    ),
}


@pytest.mark.parametrize("text", BAD, ids=range(len(BAD)))
def test_damage_is_named_with_its_line(tmp_path, text):
    """File, line, what is wrong."""
    path = tmp_path / "t"
    path.write_text(text.replace("HEADER", json.dumps({"format": FORMAT}) + "\n"))
    line, words = BAD[text]
    with pytest.raises(TraceFileError) as error:
        read(path)
    assert str(error.value).startswith(f"{path}:{line}: ")
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_partial_keeps_what_comes_before(tmp_path):
    """The good records and the complaint about the first bad line."""
    path = tmp_path / "t"
    write(EVERYTHING[:3], path)
    with path.open("a") as file:
        file.write('{"record": "signal", "thr')
    records, damage = read(path, partial=True)
    assert records == EVERYTHING[:3]
    assert damage is not None
    assert damage.startswith(f"{path}:5: ends in the middle")


@pytest.mark.parametrize("data", [b"\xff\xfe\x00", b"\x00" * 40, b"not a trace\n"])
def test_partial_does_not_excuse_another_kind_of_file(tmp_path, data):
    """There is nothing to judge in it."""
    (tmp_path / "t").write_bytes(data)
    with pytest.raises(TraceFileError, match=":1: "):
        read(tmp_path / "t", partial=True)


def test_missing_file_and_folder(tmp_path):
    """Both are one line."""
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(TraceFileError, match="cannot be read"):
            read(path)


def test_mutated_files_never_break_the_reader_or_the_detector(tmp_path):
    """Two thousand damaged traces: an error with a line, or a verdict."""
    rng = random.Random(1)
    path = tmp_path / "t"
    sources = []
    for program in PROGRAMS[::7]:
        write(judge(load(program)).trace, path)
        sources.append(path.read_bytes())
    write(EVERYTHING, path)
    sources.append(path.read_bytes())
    refused = 0
    for _ in range(2000):
        path.write_bytes(_mutated(rng, rng.choice(sources)))
        try:
            records, _ = read(path)
            detector = Detector()
            for record in records:
                detector.feed(record)
            assert detector.verdict in ("race", "stale", "hang", "clean", "inconclusive")
        except RacecheckError:
            refused += 1
    assert 500 < refused < 2000


def _mutated(rng: random.Random, data: bytes) -> bytes:
    """One to three small damages."""
    out = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(out))
        choice = rng.randrange(6)
        if choice == 0:
            out[at] = rng.randrange(256)
        elif choice == 1:
            del out[at : at + rng.randint(1, 20)]
        elif choice == 2:
            out[at:at] = rng.choice(
                [b"1", b'"', b"{", b"]", b",", b"\n", b"null", b"-5", b"1e9", b"true", b"\xc3"]
            )
        elif choice == 3:
            lines = bytes(out).split(b"\n")
            rng.shuffle(lines)
            out = bytearray(b"\n".join(lines))
        elif choice == 4:
            out = out[:at]
        else:
            line = bytes(out).split(b"\n")
            line.insert(rng.randrange(len(line)), rng.choice(line))
            out = bytearray(b"\n".join(line))
        out = out or bytearray(b"x")
    return bytes(out)
