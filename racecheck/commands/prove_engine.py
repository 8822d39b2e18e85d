"""`racecheck prove --engine`: the engine's own code, in every order of its host threads."""

from __future__ import annotations

import json as jsonlib
import os
from collections.abc import Iterator

from racecheck.errors import UsageError
from racecheck.prove.answer import Answer, ask, z3_method
from racecheck.prove.protocol import Protocol

#: More slots and a longer run-ahead need more steps than are run.
MOST_SLOTS, MOST_RUN_AHEAD = 3, 2
#: Random orders that check the reduction.
SAMPLE = 20


def prove_engine(protocol: Protocol, method: str, table: bool, json: bool) -> int:
    """Explore the engine of `protocol`, or those of all cells, and hold it to what `method` says."""
    from racecheck.prove.engine import Question, explore_engine, variant_of
    from racecheck.prove.engine.text import as_dict, told

    if protocol.slots > MOST_SLOTS or protocol.run_ahead > MOST_RUN_AHEAD:
        raise UsageError(
            f"racecheck prove: --engine runs few steps: up to {MOST_SLOTS} --slots and a --run-ahead of "
            f"{MOST_RUN_AHEAD}"
        )
    if table:
        return _table(protocol, method, json)
    variant = variant_of(protocol)
    answer = ask(protocol, method)
    question = Question(variant, protocol.slots, protocol.run_ahead, sample=SAMPLE, count=True)
    (result,) = explore_engine([question])
    print(jsonlib.dumps(as_dict(result, answer), indent=2) if json else "\n".join(told(result, answer)))
    if not result.agrees(answer.status):
        return 3
    return answer.exit_code


def _table(protocol: Protocol, method: str, json: bool) -> int:
    from racecheck.prove.engine import VARIANTS, EngineResult, Question, explore_engine
    from racecheck.prove.engine.text import FORMAT, as_dict, table

    if protocol != Protocol():
        raise UsageError(
            "racecheck prove: --table sets all options itself; leave out all but --method and --json"
        )
    if method != "explore":
        z3_method()
    questions = [
        Question(variant, slots, run_ahead)
        for variant in VARIANTS
        for run_ahead in range(MOST_RUN_AHEAD + 1)
        for slots in range(1, MOST_SLOTS + 1)
    ]
    done: list[tuple[EngineResult, Answer]] = []

    def pairs() -> Iterator[tuple[EngineResult, Answer]]:
        for result in explore_engine(questions, os.cpu_count() or 1):
            done.append((result, ask(result.question.protocol, method)))
            yield done[-1]

    if json:
        print(jsonlib.dumps({"format": FORMAT, "cells": [as_dict(*pair) for pair in pairs()]}, indent=2))
    else:
        for line in table(pairs()):
            print(line, flush=True)
    agreed = sum(result.agrees(answer.status) for result, answer in done)
    if not json:
        print(f"\nR: run-ahead, S: slots. Engine and model agree: cells {agreed} of {len(done)}.")
    return 0 if agreed == len(done) else 3
