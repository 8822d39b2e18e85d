"""What `racecheck prove --engine` prints."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from racecheck.prove.answer import Answer
from racecheck.prove.engine.explore import EngineResult
from racecheck.words import counted

FORMAT = "racecheck-engine-proof/1"


def told(result: EngineResult, answer: Answer) -> Iterator[str]:
    """One configuration, in lines."""
    asked, found = result.question, result.explored
    verdicts = {
        "race": f"a race on {', '.join(result.buffers)}",
        "clean": "clean in every order of its host threads",
        "unknown": "orders were left out, so nothing is known",
    }
    yield (
        f"{counted(asked.slots, 'slot')}, run-ahead {asked.run_ahead}, {counted(asked.steps, 'step')} of the "
        f"engine: {verdicts[result.verdict]}"
    )
    yield ""
    whole = "which are all there are" if found.complete else "which are not all"
    yield (
        f"orders   {counted(found.runs, 'schedule')} run, {found.runs - found.classes} equivalent to another "
        f"that was run; classes of orders: {found.classes}, {whole}"
    )
    if found.represented:
        orders = _size(found.represented)
        yield f"         they stand for {orders} orders of the {found.steps} turns of 4 threads"
    if found.sampled:
        checks = counted(found.sampled, "random order")
        yield f"         {checks} as a check: {found.strangers} of another class"
    yield f"bytes    {'wrong' if result.wrong else 'right'} tokens with the device as late as it may be"
    yield f"model    {', '.join(f'{each.method} {each.status}' for each in answer.results)}"
    yield f"agree    {'yes' if result.agrees(answer.status) else 'no'}"


def table(pairs: Iterable[tuple[EngineResult, Answer]]) -> Iterator[str]:
    """All configurations, a line each."""
    yield f"{'Broken':27}  R  S  Engine   Model    Agree  Bytes  Run  Equivalent"
    for result, answer in pairs:
        asked, found = result.question, result.explored
        agree = "yes" if result.agrees(answer.status) else "NO"
        wrong = "wrong" if result.wrong else "right"
        yield (
            f"{asked.variant.name:27} {asked.run_ahead:2} {asked.slots:2}  {result.verdict:8} "
            f"{answer.status:8} {agree:6} {wrong:6} {found.runs:3} {found.runs - found.classes:11}"
        )


def as_dict(result: EngineResult, answer: Answer) -> Mapping[str, Any]:
    """One configuration as data."""
    asked, found = result.question, result.explored
    return {
        "format": FORMAT,
        "broken": asked.variant.name,
        "slots": asked.slots,
        "run_ahead": asked.run_ahead,
        "steps": asked.steps,
        "verdict": result.verdict,
        "buffers": list(result.buffers),
        "wrong_tokens": result.wrong,
        "runs": found.runs,
        "classes": found.classes,
        "complete": found.complete,
        "schedules": found.represented or None,
        "sampled": found.sampled,
        "strangers": found.strangers,
        "model": {each.method: each.status for each in answer.results},
        "agree": result.agrees(answer.status),
    }


def _size(number: int) -> str:
    """A number that may have hundreds of digits."""
    digits = str(number)
    return f"{number:,}" if len(digits) < 10 else f"{digits[0]}.{digits[1]}e{len(digits) - 1}"
