"""What threads are called, and marks."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy
import pytest
import torch

import racecheck
from racecheck.trace import Trace, current_mark, mark, scope, subscribe, thread_name


def named(name: str | None = None) -> str:
    """What the trace calls a thread that the program calls `name`."""
    seen: list[str] = []
    thread = threading.Thread(target=lambda: seen.append(thread_name()), name=name)
    thread.start()
    thread.join()
    return seen[0]


def test_no_two_threads_share_a_name() -> None:
    """Not even one after the other, and not with the main thread."""
    with scope():
        assert [named("worker") for _ in range(3)] == ["worker", "worker#2", "worker#3"]
        assert (thread_name(), named("main")) == ("main", "main#2")
        assert (named("worker#4"), named("worker"), named("worker")) == ("worker#4", "worker#5", "worker#6")


def test_a_thread_keeps_its_name() -> None:
    """Also after it worked in an inner scope."""
    seen: list[str] = []

    def work() -> None:
        seen.append(thread_name())
        with scope():
            seen.append(thread_name())
        seen.append(thread_name())

    with scope():
        named("worker")
        thread = threading.Thread(target=work, name="worker")
        thread.start()
        thread.join()
    assert seen == ["worker#2", "worker", "worker#2"]


def test_names_of_pythons_making_are_replaced() -> None:
    """They count every thread of the process; ours count those of the scope."""
    for _ in range(2):
        with scope():
            assert [named(), named("io"), named(), named("thread 3")] == [
                "thread 1", "io", "thread 2", "thread 3",
            ]  # fmt: skip
            with ThreadPoolExecutor(1) as pool:
                assert pool.submit(thread_name).result() == "thread 3#2"
            with ThreadPoolExecutor(1, "plan") as pool:
                assert pool.submit(thread_name).result() == "plan_0"


def test_names_outlast_a_scope_that_somebody_listens_across() -> None:
    """One trace, one name a thread; a trace that starts afterwards begins anew."""
    for _ in range(2):
        seen = []
        with subscribe(Trace()):
            for _ in range(2):
                with scope():
                    seen.append(named("worker"))
        assert seen == ["worker", "worker#2"]


def hand_over(rewrite: Callable[[torch.Tensor], object]) -> racecheck.Audit:
    """Two threads of one name, one after the other: the first stages, the second rewrites."""
    with racecheck.virtual_cuda(), racecheck.audit() as audit:
        pinned = torch.zeros(4, pin_memory=True)
        device = torch.empty(4, device="cuda")
        for work in (lambda: device.copy_(pinned, non_blocking=True), lambda: rewrite(pinned)):
            thread = threading.Thread(target=work, name="worker")
            thread.start()
            thread.join()
    return audit


def test_two_threads_of_one_name_are_two_chains() -> None:
    """The finding tells them apart, and two runs tell the same story."""
    first, second = (hand_over(lambda pinned: pinned.fill_(1)) for _ in range(2))
    (finding,) = first.findings
    assert finding.second.chain == "thread worker#2"
    assert str(finding.second) == str(second.findings[0].second)


def test_threads_that_nobody_joined_are_not_ordered() -> None:
    """That they have one name must not stand for an order: the first one's write races with the second's."""
    turns = [os.pipe(), os.pipe()]  # hands over in a way that no trace shows

    def hand_over_in_secret() -> racecheck.Audit:
        with racecheck.virtual_cuda(patience=0.01), racecheck.audit() as audit:
            pinned = torch.zeros(4, pin_memory=True)

            def work(turn: int) -> None:
                os.read(turns[turn][0], 1)
                pinned.fill_(turn)

            threads = [threading.Thread(target=work, args=(turn,), name="worker") for turn in range(2)]
            for thread in threads:
                thread.start()
            for ends, thread in zip(turns, threads, strict=True):
                os.write(ends[1], b"x")
                thread.join()
        return audit

    with pytest.warns(RuntimeWarning, match="no traced call"):
        audit = hand_over_in_secret()
    for end in (*turns[0], *turns[1]):
        os.close(end)
    assert audit.verdict == "race"
    assert {audit.findings[0].first.chain, audit.findings[0].second.chain} == {
        "thread worker",
        "thread worker#2",
    }


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"step": "x"}, "mark: step must be a whole number, not 'x'"),
        ({"slot": 1.5}, "mark: slot must be a whole number, not 1.5"),
        ({"phase": 3}, "mark: phase must be text, not 3"),
        ({"resource": b"kv"}, "mark: resource must be text, not b'kv'"),
    ],
)
def test_a_mark_of_the_wrong_kind_is_one_line(wrong: dict[str, object], message: str) -> None:
    """At the call, not in a report or a trace file long after."""
    with pytest.raises(TypeError, match=f"^{re.escape(message)}$"):
        mark(**wrong)  # type: ignore[arg-type]


def test_marks_nest() -> None:
    """What an inner mark does not say it inherits; numpy's whole numbers are plain ones afterwards."""
    with mark(step=numpy.int64(3), phase="plan"), mark(slot=1, phase="run") as inner:
        assert inner == current_mark() == (3, "run", None, 1)
        assert type(inner.step) is int
    assert current_mark() == (None, None, None, None)
