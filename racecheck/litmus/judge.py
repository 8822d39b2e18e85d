"""The verdict on a litmus program, with its reasons."""

from __future__ import annotations

from dataclasses import dataclass

from racecheck.detect import Detector, Finding
from racecheck.litmus import program as p
from racecheck.litmus.compile import Compiler
from racecheck.litmus.values import Interpreter
from racecheck.trace import records as r


@dataclass
class Judgement:
    """What racecheck says of a program; `agrees` with the file's own expectation or not."""

    program: p.Program
    verdict: p.Verdict
    findings: list[Finding]
    trace: list[r.Record]
    diverged: tuple[int, dict[int, str | None]] | None = (
        None  # where ranks first differ, and what each issues
    )

    @property
    def agrees(self) -> bool:
        """Is the verdict the expected one?"""
        return self.verdict == self.program.expect


_VERDICTS: dict[str, p.Verdict] = {"race": "RACE", "stale": "STALE", "hang": "HANG"}


def judge(program: p.Program) -> Judgement:
    """Detect races, then stale operands, then diverging ranks; the first that applies is the verdict."""
    trace = build_trace(program)
    detector = Detector()
    for record in trace:
        detector.feed(record)
    return Judgement(
        program, _VERDICTS.get(detector.verdict, "SAFE"), detector.findings, trace, detector.diverged()
    )


def build_trace(program: p.Program) -> list[r.Record]:
    """The program as records, each stale operand right after the statement that finds it."""
    stale: dict[int, list[tuple[p.Want, str]]] = {}
    for statement, want, found in Interpreter(program).mismatches():
        stale.setdefault(id(statement), []).append((want, found))
    compiler = Compiler(program)
    trace: list[r.Record] = []
    last: p.Statement | None = None

    def flush() -> None:
        for want, found in stale.get(id(last), ()):
            assert last is not None
            loc = r.Loc(program.file, last.line, "litmus")
            span = compiler.span(want.ref)
            trace.append(r.Stale(thread=last.thread, loc=loc, span=span, wanted=want.value, found=found))

    for statement, record in compiler.records():
        if statement is not last:
            flush()
            last = statement
        trace.append(record)
    flush()
    return trace
