"""What a GPU says of a litmus program: the verdict on the calls of a run, and what the bytes show."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from multiprocessing import get_context

import torch

from racecheck.cuda.gate import Gate
from racecheck.cuda.watch import require
from racecheck.errors import UnsupportedOperation
from racecheck.litmus import program as p
from racecheck.litmus.expressible import kinds, obstacle, untraced
from racecheck.litmus.judge import Judgement
from racecheck.litmus.lanes import Lanes, ask_for_queues
from racecheck.litmus.schedules import in_program_order
from racecheck.litmus.torch_program import Outcome
from racecheck.litmus.witness import Bench, Witness, verdict, warm_up, witness
from racecheck.provider import provider

UNFOLLOWED = "operands in pageable memory, which nobody follows"


@dataclass(frozen=True)
class Row:
    """A program: `ordering` is the verdict on a run's calls, or in words why there is none.

    `problem` says what went wrong; `skipped` why PyTorch cannot say the program. `fatal`: the GPU is lost to
    this process.
    """

    ok: bool
    ordering: str = ""
    witness: Witness | None = None
    skipped: str | None = None
    problem: str | None = None
    fatal: bool = False

    def __str__(self) -> str:
        return self.skipped or self.problem or f"by ordering {self.ordering}; {self.witness}"


@contextmanager
def gpu_bench() -> Iterator[Bench]:
    """The GPU of this process. Open it before anything else uses CUDA: its queues are set up once.

    What is expected is seen on the virtual device of another process: this one keeps to its GPU.

    Raises:
        UsageError: there is no GPU, cuda-bindings is missing, or streams hold each other up.
    """
    ask_for_queues()
    require()
    lanes = Lanes(Gate)
    with ProcessPoolExecutor(1, get_context("spawn")) as other:

        def expected(program: p.Program) -> Outcome:
            return other.submit(in_program_order, program).result()

        yield Bench(expected, nullcontext, lambda: provider("cuda"), lanes.of, Gate)


def row(judgement: Judgement, bench: Bench, tries: int) -> Row:
    """Run the program: once followed, and `tries` times behind gates. Whatever fails is in the row."""
    program = judgement.program
    reason = obstacle(program)
    if reason is not None:
        return Row(True, skipped=f"cannot be written in PyTorch: {reason}")
    try:
        expected = warm_up(program, bench)
        ordering = _unseen(judgement) or verdict(program, bench)
        shown = witness(program, bench, expected, tries)
    except UnsupportedOperation as error:
        return Row(True, skipped=str(error).removeprefix(f"{program.path}: "))
    except Exception as error:
        line = " ".join(str(error).split())[:300]
        return Row(False, problem=f"{type(error).__name__}: {line}", fatal=_is_fatal(error))
    followed = ordering == judgement.verdict or _unseen(judgement) is not None
    return Row(judgement.agrees and followed and _bears_out(judgement, shown), ordering, shown)


def _unseen(judgement: Judgement) -> str | None:
    """Why the calls of a run cannot tell what the program is judged for, or None."""
    program = judgement.program
    if judgement.verdict == "RACE":
        return untraced(program)
    kind = kinds(program)
    wanted = {kind[want.ref.name] for statement in program.statements for want in statement.wants}
    return UNFOLLOWED if judgement.verdict == "STALE" and "pageable" in wanted else None


def _bears_out(judgement: Judgement, shown: Witness) -> bool:
    """A race shows, unless it cannot be forced; nothing else does."""
    if judgement.verdict == "RACE":
        return bool(shown.wrong or shown.not_forced)
    return not shown.wrong and shown.inconclusive < shown.tries


def _is_fatal(error: Exception) -> bool:
    """A CUDA error stays: no later call of the process succeeds."""
    return isinstance(error, torch.AcceleratorError) or "CUDA error" in str(error)
