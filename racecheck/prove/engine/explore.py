"""Explore one configuration of the engine: built once, then a fork of it for every order of its threads."""

from __future__ import annotations

import gc
import multiprocessing
import os
import pickle
import random
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import racecheck
from racecheck.engine import Engine
from racecheck.engine.worker import Tokens
from racecheck.errors import UsageError
from racecheck.judge import Audit
from racecheck.prove.engine.cells import STEPS, VARIANTS, Variant, build
from racecheck.prove.orders import MOST_RUNS, Explored, Seen, every_order
from racecheck.prove.protocol import Protocol
from racecheck.prove.verdict import Status
from racecheck.virtual.orders import Orders

#: Seconds after which a run counts as stuck: it takes a hundredth of that.
PATIENCE = 120


@dataclass(frozen=True)
class Question:
    """The engine of `variant` in some size: for how many steps, and how much is to be done.

    `sample` random orders check the reduction; `count` the schedules that each run stands for.
    """

    variant: Variant
    slots: int
    run_ahead: int
    steps: int = STEPS
    sample: int = 0
    count: bool = False
    limit: int = MOST_RUNS

    @property
    def protocol(self) -> Protocol:
        """What the engine is an instance of."""
        return replace(self.variant.protocol, slots=self.slots, run_ahead=self.run_ahead)


@dataclass(frozen=True)
class EngineResult:
    """What the engine comes to in every order of its host threads.

    `buffers` race in some order. `wrong`: with nothing retiring before it must, a request gets other tokens
    than from a serial engine.
    """

    question: Question
    explored: Explored
    buffers: tuple[str, ...]
    wrong: bool

    @property
    def verdict(self) -> str:
        """`race`; `clean` if all orders are; `unknown` if some were left out, or put nothing to the test."""
        if self.buffers:
            return "race"
        clean = {verdict for verdict, _ in self.explored.outcomes} == {"clean"}
        trusted = self.explored.complete and not self.explored.strangers
        return "clean" if clean and trusted else "unknown"

    def agrees(self, status: Status) -> bool:
        """Does the engine what a method says of its protocol? Wrong tokens speak against `clean`, too."""
        said: dict[Status, str] = {"proved": "clean", "refuted": "race"}
        return said.get(status) == self.verdict and not (self.wrong and status == "proved")


def explore_engine(questions: Iterable[Question], workers: int = 1) -> Iterator[EngineResult]:
    """The answers, in order, from `workers` processes that have no threads but those of the engine.

    Raises:
        UsageError: this system cannot fork.
    """
    if not hasattr(os, "fork"):
        raise UsageError("racecheck prove: --engine runs forks of a process; run it on Linux or macOS")
    context = multiprocessing.get_context("forkserver")
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
        yield from pool.map(_answer, questions)


# -- in a process of its own -------------------------------------------------------------------------


def _answer(question: Question) -> EngineResult:
    explored = _in_all_orders(question)
    raced = sorted({buffer for _, buffers in explored.outcomes for buffer in buffers})
    return EngineResult(question, explored, tuple(raced), _wrong(question))


def _in_all_orders(question: Question) -> Explored:
    lag = Orders()
    with racecheck.virtual_cuda(lag), racecheck.audit() as audit:
        engine = build(question.variant, question.slots, question.run_ahead)
        gc.collect()
        gc.freeze()  # the collector must not touch every page of a fork, nor run when it likes
        gc.disable()
        try:
            run = partial(_run, engine, lag, audit, question)
            return every_order(run, limit=question.limit, sample=question.sample, count=question.count)
        finally:
            gc.enable()
            gc.unfreeze()


def _run(
    engine: Engine,
    lag: Orders,
    audit: Audit,
    question: Question,
    path: Sequence[int],
    draw: random.Random | None,
) -> Seen:
    def serve() -> Seen:
        lag.begin(path, draw)
        with lag.watching():
            engine.run(question.variant.requests(), question.steps)
        lag.check()
        return Seen(lag.noted(), (audit.verdict, tuple(sorted(audit.buffers))), lag.asked)

    seen: Seen = _in_fork(serve)
    return seen


def _in_fork(work: Callable[[], Any]) -> Any:
    """What `work` returns in a fork of this process; what it raises is raised here."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.alarm(PATIENCE)
            try:
                answer: Any = work()
            except Exception as error:
                answer = error if isinstance(error, UsageError) else RuntimeError(repr(error))
            with os.fdopen(writer, "wb") as out:
                pickle.dump(answer, out)
            code = 0
        finally:
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader, "rb") as back:
        sent = back.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status:
        raise RuntimeError(f"a run of the engine ended with exit code {status} and said nothing")
    answer = pickle.loads(sent)
    if isinstance(answer, Exception):
        raise answer
    return answer


def _wrong(question: Question) -> bool:
    """Are tokens wrong when the device is as late as it may be?"""
    usual = replace(question, variant=VARIANTS[0], slots=1, run_ahead=0)
    right = _tokens(usual, question.variant, "eager")
    late = _tokens(question, question.variant, "latest")
    return any(late[request] != right[request] for request in right)


def _tokens(question: Question, served: Variant, lag: str) -> Tokens:
    with racecheck.virtual_cuda(lag):
        engine = build(question.variant, question.slots, question.run_ahead)
        return engine.run(served.requests(), question.steps)
