"""An answer for people: why it holds, or how it fails, one line an action."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from racecheck.prove.answer import Answer
from racecheck.prove.protocol import Protocol
from racecheck.prove.verdict import Counterexample, Result, Step
from racecheck.words import counted

STYLES = {"proved": "green", "refuted": "bold red", "unknown": "yellow"}


def render(answer: Answer, console: Console) -> None:
    """Print `answer` to `console`, as wide as that is."""
    console.print(_heading(answer))
    found = answer.counterexample
    if found is not None:
        console.print(Padding(_timeline(found), (1, 0, 1, 0)))
    facts = Table.grid(padding=(0, 2))
    for name, text in _facts(answer):
        facts.add_row(name, text)
    console.print(facts)


def _heading(answer: Answer) -> Text:
    p = answer.protocol
    slots = f"{p.slots} slot{'s' * (p.slots > 1)}"
    status = {
        "proved": "proved for every number of steps",
        "refuted": "refuted",
        "unknown": "unknown: the methods contradict each other" if answer.disagree else "unknown",
    }[answer.status]
    return Text.assemble(f"{slots}, run-ahead {p.run_ahead}: ", (status, STYLES[answer.status]))


def _timeline(found: Counterexample) -> Table:
    table = Table(box=None, pad_edge=False, header_style="")
    streams = ["Stream"] if found.protocol.one_stream else ["Plan stream", "Compute stream"]
    bucket = [] if found.protocol.shared_counter else ["Bucket"]
    for name in ["#", "Step", *bucket, "Slot"]:
        table.add_column(name, justify="right")
    for name in ["Host", *streams]:
        table.add_column(name)
    for i, step in enumerate(found.steps):
        mark = {found.reader: "  <- first", len(found.steps) - 1: "  <- second"}.get(i, "")
        column, words = _action(step, found.protocol)
        texts = [""] * (1 + len(streams))
        texts[min(column, len(streams))] = words + mark
        numbers = [i + 1, step.step, *([step.bucket] if bucket else []), step.slot]
        table.add_row(*map(str, numbers), *texts, style="bold" if mark else "")
    return table


def _action(step: Step, protocol: Protocol) -> tuple[int, str]:
    """Column (0 host, 1 plan stream, 2 compute stream) and words."""
    waited = " after its copies" if protocol.drop_wait else " at once"
    return {
        "own-wait": (0, "wait for the slot's event"),
        "write": (0, "write"),
        "copy": (1, "copy reads"),
        "submit": (2, "replay reads"),
        "drop": (0, "drop the plan" + waited),
        "wait": (0, "completion wait"),
        "skip": (0, "complete without a wait"),
    }[step.action]


def _facts(answer: Answer) -> Iterator[tuple[str, str]]:
    found, broken = answer.counterexample, answer.protocol.broken()
    if found is not None:
        yield "race", _race(found)
        yield "missing", _missing(found)
    for each in broken:
        yield "broken", each
    if not broken:
        yield "premises", "a to f all hold"
    if found is not None and answer.protocol.slots < answer.protocol.d:
        yield "too few", too_few(answer.protocol)
    for result in answer.results:
        yield from _method(result)


def too_few(protocol: Protocol) -> str:
    """Why the number of slots is not enough even if all premises hold."""
    have, need = protocol.slots, protocol.d
    return f"{have} slot{'s' * (have > 1)}; with all premises it takes d = run-ahead + 1 = {need}"


def _reader(found: Counterexample) -> str:
    return f"the {'replay' if found.first.action == 'submit' else 'copy'} of step {found.first.step}"


def _race(found: Counterexample) -> str:
    write = f"the write of step {found.second.step} to slot {found.second.slot}"
    return f"{write} is not ordered after {_reader(found)}, which reads it"


def _missing(found: Counterexample) -> str:
    covered = "none" if found.covered is None else f"that for step {found.covered}"
    return f"a wait of the host that covers {_reader(found)}; its last completion wait is {covered}"


def _method(result: Result) -> Iterator[tuple[str, str]]:
    if result.status == "unknown":
        yield result.method, f"unknown: {result.reason}"
    elif result.method == "explore":
        seen = f"{counted(result.states, 'state')} visited"
        yield "explore", f"all {seen}, no write races" if result.status == "proved" else f"race found, {seen}"
    elif result.status == "proved" and not result.invariant:
        yield "z3", "no invariant is needed: the wait before a write covers its readers, whatever came before"
    elif result.status == "proved":
        yield "z3", "induction: what follows holds at first, every move keeps it, and it excludes a race"
        yield from (("", f"- {words}") for words in result.invariant)
    else:
        yield "z3", "race found"
