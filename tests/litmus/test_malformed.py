"""Malformed litmus files: a message that says where, or a program that can be judged, and nothing else."""

from __future__ import annotations

import random
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from mutate import MUTATIONS, Mutation, mutate

from racecheck.errors import LitmusError
from racecheck.litmus import judge, load, parse

FILES = sorted((Path(__file__).parents[2] / "scenarios" / "litmus").glob("*.litmus"))
ROUNDS, MUTANTS = 10, 1000
HEADER = "# expect: SAFE\nalloc pinned P\nalloc device D\n"
OPERATION = "expected an operation (alloc, await, "
NO_EXPECT = "no '# expect: RACE | STALE | HANG | SAFE' before the first operation"

# The whole file; line and column of the message; how it begins.
MALFORMED_FILES = (
    ("", "1:1", NO_EXPECT),
    ("alloc pinned P\n# expect: SAFE\n", "1:1", NO_EXPECT),
    ("# title: t\n# expect: MAYBE\n", "2:1", "expect is 'MAYBE'; write RACE, STALE, HANG or SAFE"),
    ("# expect:\n", "1:1", "expect is ''; write RACE, STALE, HANG or SAFE"),
    ("# expect: SAFE\r\nalloc pinned P\r\nhost_read Q\r\n", "3:11", "buffer 'Q' is not allocated"),
    ("# expect: SAFE\n\n  # a comment\n\n\t sync\n", "5:7", "expected an event, a stream or 'device'"),
    ("# expect: SAFE\nalloc pinned é\nhost_read é é\n", "3:13", "expected the end of the line, found 'é'"),
)
# A fourth line after HEADER; the column of the message; how it begins.
MALFORMED_LINES = (
    ("launch D", 1, OPERATION),
    ("-> P", 1, OPERATION),
    ("alloc hbm Q", 7, "expected a kind of memory (pinned, pageable, mapped, device), found 'hbm'"),
    ("alloc pinned", 13, "expected a buffer, found the end of the line"),
    ("alloc pinned P", 1, "buffer 'P' is allocated already"),
    ("alloc pinned Q[0:4]", 15, "expected the end of the line, found '['"),
    ("alloc pinned Q aliases", 23, "expected the buffer whose block it gets, found the end of the line"),
    ("alloc pinned Q aliases Z", 1, "buffer 'Z' is not allocated, so 'Q' cannot alias it"),
    ("alloc pinned Q aliases P after use", 32, "expected 'uses', found 'use'"),
    ("alloc pinned Q aliases P at once", 26, "expected the end of the line, found 'at'"),
    ("stream s", 9, "expected 'blocking', found the end of the line"),
    ("host_write Z", 12, "buffer 'Z' is not allocated; add 'alloc KIND Z' above"),
    ("host_write P as", 16, "expected the value written, found the end of the line"),
    ("host_write P as v w", 19, "expected the end of the line, found 'w'"),
    ("host_read P as v", 13, "expected the end of the line, found 'as'"),
    ("host_read P # as v\nhost_read P )", 13, "expected the end of the line, found ')'"),
    ("host_write P[4:4]", 14, "expected a range a < b, found [4:4], which is empty"),
    ("host_write P[8:4]", 14, "expected a range a < b, found [8:4], which is empty"),
    ("host_write P[a:4]", 14, "expected the first byte, a whole number, found 'a'"),
    ("host_write P[-1:4]", 14, "expected the first byte, a whole number, found '-1'"),
    ("host_write P[²:4]", 14, "expected the first byte, a whole number, found '²'"),
    ("host_write P[0:]", 16, "expected the byte after the last, a whole number, found ']'"),
    ("host_write P[0:9999999999999999]", 16, "expected the byte after the last, a whole number, found '9"),
    ("host_write P[0 4]", 16, "expected ':', found '4'"),
    ("host_write P[0:4", 17, "expected ']', found the end of the line"),
    ("h2d P D on s0", 7, "expected '->', found 'D'"),
    ("h2d P, P -> D on s0", 6, "expected '->', found ','"),
    ("h2d P -> D", 11, "expected 'on', found the end of the line"),
    ("d2h D -> P on", 14, "expected a stream, found the end of the line"),
    ("d2d D -> D at s0", 12, "expected 'on', found 'at'"),
    ("h2d P -> D on s0 order", 23, "expected '=', found the end of the line"),
    ("h2d P -> D on s0 order=late", 24, "expected an order (stream, call, any), found 'late'"),
    ("memcpy_h2d P -> D on s0", 19, "expected the end of the line, found 'on'"),
    ("kernel reads D, on s0", 20, "expected 'on', found 's0'"),
    ("kernel reads D", 15, "expected 'on', found the end of the line"),
    ("kernel writes D as v on s0 as w", 28, "expected the end of the line, found 'as'"),
    ("hostfn writes P on s0 as v", 23, "expected the end of the line, found 'as'"),
    ("record e s0", 10, "expected 'on', found 's0'"),
    ("wait e on", 10, "expected a stream, found the end of the line"),
    ("wait_stream s0 -> s1", 16, "expected '<-', found '->'"),
    ("sync s0 s1", 9, "expected the end of the line, found 's1'"),
    ("query e -> maybe", 12, "expected the outcome (done, pending), found 'maybe'"),
    ("query e <- done", 9, "expected '->', found '<-'"),
    ("signal", 7, "expected a name, found the end of the line"),
    ("await x", 1, "await 'x' comes before its signal"),
    ("[t] await x\n[u] signal x", 5, "await 'x' comes before its signal"),
    ("[t host_read P", 4, "expected ']', found 'host_read'"),
    ("[] host_read P", 2, "expected the host thread's name, found ']'"),
    ("[t] [u] host_read P", 5, OPERATION),
    ("free P P", 8, "expected the end of the line, found 'P'"),
    ("release P on s0", 11, "expected the end of the line, found 'on'"),
    ("graph g", 8, "expected '{', found the end of the line"),
    ("graph g { h2d P -> D on s0 }", 22, "expected ';' or '}', found 'on'"),
    ("graph g { h2d P -> D", 21, "expected ';' or '}', found the end of the line"),
    ("graph g { host_write P }", 11, "expected a captured operation (h2d, d2h, d2d, kernel, hostfn), found"),
    ("graph g { kernel reads Z }", 24, "buffer 'Z' is not allocated; add 'alloc KIND Z' above"),
    ("replay g on s0", 1, "graph 'g' is not captured; add 'graph g { ... }' above"),
    ("rank0 coll A", 1, OPERATION),
    ("rank0: allreduce A", 8, "expected 'coll', found 'allreduce'"),
    ("rank0: coll", 12, "expected the collective's name, found the end of the line"),
    ("host_read P want P", 19, "expected '=', found the end of the line"),
    ("host_read P want P=", 20, "expected the value that is needed, found the end of the line"),
    ("host_read P want Z=v", 18, "buffer 'Z' is not allocated; add 'alloc KIND Z' above"),
)


@pytest.fixture
def deadline() -> Iterator[None]:
    """Break off what hangs, where the system can."""
    if not hasattr(signal, "SIGALRM"):
        yield
        return

    def stop(*_: object) -> None:
        raise TimeoutError("a file took for ever")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def outcome(path: Path) -> str:
    """The verdict on the file, or its message, which has to begin with where the fault is."""
    try:
        program = load(path)
    except LitmusError as error:
        message = str(error)
    else:
        return judge(program).verdict
    assert re.fullmatch(re.escape(str(path)) + r":[1-9]\d*:[1-9]\d*: \S.*", message), repr(message)
    return message


@pytest.mark.usefixtures("deadline")
@pytest.mark.parametrize("seed", range(ROUNDS))
def test_a_spoiled_file_is_judged_or_refused(seed: int, tmp_path: Path) -> None:
    """A thousand mutants of the collection: no exception but LitmusError, and both outcomes are frequent."""
    rng, path = random.Random(seed), tmp_path / "mutant.litmus"
    contents, outcomes = [file.read_bytes() for file in FILES], []
    with path.open("wb", buffering=0) as file:  # opening it anew for every mutant is most of the time
        for number in range(MUTANTS):
            file.seek(0)
            file.truncate(file.write(mutate(contents[number % len(contents)], rng)))
            outcomes.append(outcome(path))
    judged = sum(found in ("RACE", "STALE", "HANG", "SAFE") for found in outcomes)
    assert MUTANTS / 10 < judged < MUTANTS * 9 / 10


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.__name__)
def test_each_mutation_changes_files(mutation: Mutation) -> None:
    """No way of spoiling files leaves most of them as they were."""
    rng, contents = random.Random(0), [path.read_bytes() for path in FILES]
    assert sum(mutation(data, rng) != data for data in contents) > len(FILES) / 2


@pytest.mark.parametrize(("text", "place", "message"), MALFORMED_FILES)
def test_a_malformed_file_is_refused_where_it_is_wrong(text: str, place: str, message: str) -> None:
    """Line and column of the fault, and what was expected."""
    with pytest.raises(LitmusError) as caught:
        parse(text, "file.litmus")
    assert str(caught.value).startswith(f"file.litmus:{place}: {message}")


@pytest.mark.parametrize(("lines", "column", "message"), MALFORMED_LINES)
def test_a_malformed_line_is_refused_where_it_is_wrong(lines: str, column: int, message: str) -> None:
    """Line and column of the fault, and what was expected; the fault is in the first bad line."""
    number = 4 if "\n" not in lines or lines.startswith("[t] await") else 5
    with pytest.raises(LitmusError) as caught:
        parse(HEADER + lines + "\n", "file.litmus")
    assert str(caught.value).startswith(f"file.litmus:{number}:{column}: {message}")


@pytest.mark.parametrize(
    ("data", "place", "message"),
    [
        (b"# expect: SAFE\nalloc pinned \xff\n", "1:1", "is not UTF-8 (byte 28)"),
        (b"# expect: SAFE\nalloc pinned \x00\n", "2:14", "expected a buffer, found"),
    ],
    ids=["not UTF-8", "NUL"],
)
def test_strange_bytes_are_refused(data: bytes, place: str, message: str, tmp_path: Path) -> None:
    """What is no text, or no word, is said to be so."""
    path = tmp_path / "strange.litmus"
    path.write_bytes(data)
    with pytest.raises(LitmusError) as caught:
        load(path)
    assert str(caught.value).startswith(f"{path}:{place}: {message}")


def test_a_byte_order_mark_is_passed_over(tmp_path: Path) -> None:
    """Editors put one there; it is no part of the text."""
    path = tmp_path / "marked.litmus"
    path.write_bytes(b"\xef\xbb\xbf# expect: SAFE\nalloc pinned P\n")
    assert load(path).expect == "SAFE"


def test_contradictions_are_refused() -> None:
    """Two expectations, a want on a capture, a name that is a stream and an event."""
    for lines, place in (
        ("# expect: RACE\n# expect: SAFE\nalloc pinned P\n", "2:1"),
        (HEADER + "graph g { h2d P -> D } want P=v\n", "4:1"),
        (HEADER + "record x on x\nsync x\n", "5:1"),
    ):
        with pytest.raises(LitmusError, match=f"^f:{place}: "):
            parse(lines, "f")


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    """A path that cannot be read has the form of every other message."""
    with pytest.raises(LitmusError, match=r"no\.litmus:1:1: cannot be read \(No such file or directory\)"):
        load(tmp_path / "no.litmus")
    with pytest.raises(LitmusError, match=":1:1: cannot be read "):
        load(tmp_path)
