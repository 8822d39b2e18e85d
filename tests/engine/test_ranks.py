"""Ranks do the same, or it is found at once which of them did not."""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from rank_job import KilledMain, config, judged, requests

import racecheck
from racecheck.engine import Engine, NoGraphError, Parts
from racecheck.engine.engine import Tokens
from racecheck.engine.errors import CollectiveMismatch, RankLost
from racecheck.engine.launch import run_ranks
from racecheck.engine.ranks import Group, LocalGroup
from racecheck.engine.ranks.group import Call, Gone, difference
from racecheck.engine.runners import GraphKey
from racecheck.engine.speculation import Speculation
from racecheck.errors import UsageError
from racecheck.faults.ranks import BreakingMain, FailingMain, LeaderAhead
from racecheck.judge import Audit
from racecheck.trace import Trace, subscribe
from racecheck.trace.records import Collective
from racecheck.virtual import virtual_cuda

#: A test that hangs fails with this many seconds; none is near it.
PATIENCE = 60


@pytest.fixture(scope="module")
def alone() -> Tokens:
    """What the workload gets from one serial rank on a prompt device."""
    with virtual_cuda(lag="eager"):
        return Engine(config(run_ahead=0)).run(requests())


def audited(parts: Parts | None = None) -> tuple[Audit, list[Tokens] | Exception]:
    """The verdict on two ranks, and what they got or came to grief with."""
    with virtual_cuda(devices=2), racecheck.audit() as audit:
        try:
            return audit, run_ranks(config((2, 4)), requests(), 2, parts=parts)
        except CollectiveMismatch as error:
            return audit, error


def together(*programs: Callable[[LocalGroup], Any]) -> list[Any]:
    """Run a program on each rank of a group, which it leaves in the end: what each returns or raises."""

    def run(group: LocalGroup, program: Callable[[LocalGroup], Any]) -> Any:
        with group:
            return program(group)

    groups = LocalGroup.create(len(programs))
    with ThreadPoolExecutor(len(programs)) as pool:
        ran: list[Future[Any]] = [pool.submit(run, *pair) for pair in zip(groups, programs, strict=True)]
        return [future.exception(PATIENCE) or future.result() for future in ran]


# -- equal ranks ---------------------------------------------------------------------------------


def test_two_ranks_serve_what_one_serves(alone: Tokens) -> None:
    """Equal tokens, a clean verdict, and equal sequences of calls for capture, plans, launches, results."""
    audit, tokens = audited()
    assert tokens == [alone, alone]
    assert audit.verdict == "clean", audit.report()
    calls = [record for record in audit.trace if isinstance(record, Collective)]
    first, second = ([call.name for call in calls if call.rank == rank] for rank in range(2))
    assert first == second
    kinds = [name.partition(" ")[0] for name in first]
    assert {"capture", "failed", "plan", "launch", "results"} == set(kinds)
    assert kinds.count("launch") == kinds.count("results")


def test_three_ranks(alone: Tokens) -> None:
    """The number is free."""
    with virtual_cuda(devices=3):
        assert run_ranks(config(), requests(), 3) == [alone] * 3


def test_a_group_of_one_says_nothing(alone: Tokens) -> None:
    """There is nobody to differ from, so its trace has no collectives."""
    trace = Trace()
    with virtual_cuda(), subscribe(trace):
        assert run_ranks(config(), requests(), 1) == [alone]
    assert not [record for record in trace if isinstance(record, Collective)]


def test_results_are_rank_0s(alone: Tokens) -> None:
    """A rank with other weights hands out the tokens of rank 0, and goes on from them."""
    with virtual_cuda(devices=2):
        engines: dict[int, Engine] = {}

        def serve(group: LocalGroup) -> Tokens:
            torch.cuda.set_device(group.rank)
            engine = engines[group.rank] = Engine(config(weight_seed=group.rank), None, group)
            return engine.run(requests())

        tokens = together(serve, serve)
        history = [engine.model.talker.history.frames.cpu() for _, engine in sorted(engines.items())]  # type: ignore[attr-defined]
    assert tokens == [alone, alone]
    assert history[0][1:].any()
    assert torch.equal(history[0][1:], history[1][1:])  # row 0 is padding's


def test_steps_and_on_step(alone: Tokens) -> None:
    """Both bound and count a run as on one rank; steps are counted once."""
    steps = []
    with virtual_cuda(devices=2):
        first, second = run_ranks(
            config(), requests(), 2, steps=5, on_step=lambda batch: steps.append(batch.step)
        )
    assert steps == [0, 1, 2, 3, 4]
    assert first == second
    assert 0 < sum(map(len, first.values())) < sum(map(len, alone.values()))


# -- failed captures -----------------------------------------------------------------------------


def test_a_failed_capture_is_dropped_by_agreement(alone: Tokens) -> None:
    """No rank keeps the graph, the next larger bucket serves, and the verdict is clean."""
    audit, tokens = audited(Parts(main=FailingMain))
    assert tokens == [alone, alone]
    assert audit.verdict == "clean", audit.report()


class AllFail(FailingMain):
    """No capture works on rank 1."""

    def is_victim(self, key: GraphKey) -> bool:
        """Each is."""
        return True


def test_without_a_larger_bucket_there_is_no_graph() -> None:
    """Every rank says so, the one whose captures worked too."""
    with virtual_cuda(devices=2), racecheck.audit() as audit, pytest.raises(NoGraphError):
        run_ranks(config(), requests(), 2, parts=Parts(main=AllFail))
    assert audit.verdict != "hang"


def test_capture_break_is_a_hang() -> None:
    """The rank that left the loop, the barrier it skipped, and both lines."""
    audit, error = audited(Parts(main=BreakingMain))
    assert audit.verdict == "hang"
    (finding,) = audit.findings
    assert (
        "rank 0 issues capture talker.decode 2 x 2 in 1 at racecheck/engine/runners/graphs.py:"
        in finding.missing
    )
    assert "rank 1 issues failed captures of talker.decode" in finding.missing
    assert (finding.first.loc.function, finding.second.loc.function) == ("try_capture", "_capture")
    assert "rank 0 calls 'capture talker.decode 2 x 2 in 1' at racecheck/engine/runners/graphs.py:" in str(
        error
    )
    assert "rank 1 skips it and calls 'failed captures of talker.decode' at racecheck/" in str(error)


def test_leader_ahead_is_a_hang() -> None:
    """Rank 0 announces a plan that rank 1 does not know of."""
    audit, error = audited(Parts(speculation=LeaderAhead))
    assert audit.verdict == "hang"
    (finding,) = audit.findings
    assert finding.first.what.startswith("rank 0 issues plan ahead")
    assert finding.first.loc.file == "racecheck/engine/speculation.py"
    assert finding.second.what.startswith("rank 1 issues plan ")
    assert finding.second.loc.file == "racecheck/engine/worker.py"
    assert finding.first.mark.step == finding.second.mark.step is not None
    assert "rank 1 skips it" in str(error)


# -- the meeting place ---------------------------------------------------------------------------


def test_names_that_differ_are_an_error_on_every_rank() -> None:
    """Nobody waits; the lower rank counts as right, and the message has both lines."""
    errors = together(lambda group: group.barrier("a"), lambda group: group.broadcast("b"))
    assert [type(error) for error in errors] == [CollectiveMismatch] * 2
    line = r"\S*test_ranks.py:\d+"
    for error in errors:
        assert re.match(
            f"collective 1: rank 0 calls 'a' at {line}; rank 1 skips it and calls 'b' at {line}. All",
            str(error),
        )


def test_most_ranks_are_right() -> None:
    """Of three the odd one is named, also if it is rank 0; of two rank 0 is right."""
    x, a = Call("x"), Call("a")
    assert "rank 1 calls 'a' at an unknown line; rank 0 skips it" in str(difference(7, {0: x, 1: a, 2: a}))
    assert "rank 0 calls 'x' at an unknown line; rank 1 skips it" in str(difference(7, {0: x, 1: a}))
    assert "rank 1 calls 'a' at an unknown line; rank 0 skips it and has left" in str(
        difference(7, {0: Gone(x), 1: a})
    )
    assert difference(7, {0: x, 1: x}) is None
    assert difference(7, {0: Gone(x), 1: Gone()}) is None


def test_a_rank_that_leaves_frees_the_others() -> None:
    """Its own error stays its own; the message says what it did last."""

    def fails(group: LocalGroup) -> None:
        group.barrier("start")
        raise ValueError("mine")

    def waits(group: LocalGroup) -> None:
        group.barrier("start")
        group.union("next", {1})

    own, *others = together(fails, waits, waits)
    assert isinstance(own, ValueError)
    for error in others:
        assert re.match(r"collective 2: rank [12] calls 'next' at", str(error))
        assert "rank 0 skips it and has left; its last call was 'start' at" in str(error)


def test_a_rank_that_never_came() -> None:
    """It leaves without any call."""
    _, error = together(lambda group: None, lambda group: group.barrier("a"))
    assert "rank 0 skips it and has left without any call" in str(error)


def test_an_error_of_one_rank_is_what_the_run_raises() -> None:
    """Not the mismatch that follows from it on the others."""

    class Fails(Speculation):
        def start(self, *args: Any) -> None:
            if self._group.rank == 1:
                raise ValueError("mine")
            super().start(*args)

    with virtual_cuda(devices=2), racecheck.audit() as audit, pytest.raises(ValueError, match="mine"):
        run_ranks(config(), requests(), 2, parts=Parts(speculation=Fails))
    assert audit.verdict == "hang"
    assert "rank 1 skips it and issues nothing more" in audit.findings[-1].missing


def test_a_union_is_everybodys() -> None:
    """Each rank brings its own, and gets all."""
    brought = [{1}, set(), {1, 3}]
    programs = [lambda group, keys=keys: group.union("keys", keys) for keys in brought]
    assert together(*programs) == [{1, 3}] * 3
    assert Group().union("keys", {1}) == {1}


@pytest.mark.parametrize("lag", ["latest", "eager", "seed:3"])
def test_a_broadcast_is_ordered_by_streams(lag: str) -> None:
    """Every rank gets what rank 0 had then, although rank 0 writes the next values without waiting."""
    with virtual_cuda(lag=lag, devices=3), racecheck.audit() as audit:

        def program(group: LocalGroup) -> list[list[int]]:
            torch.cuda.set_device(group.rank)
            got = []
            with torch.cuda.stream(torch.cuda.Stream()):
                tensor = torch.zeros(4, dtype=torch.int64, device="cuda")
                for turn in range(3):
                    tensor.fill_(10 * turn + group.rank)
                    group.broadcast(f"turn {turn}", tensor)
                    got.append(tensor.clone())
                return [value.tolist() for value in got]

        assert together(program, program, program) == [[[0] * 4, [10] * 4, [20] * 4]] * 3
    assert not audit.findings


def test_refusals() -> None:
    """More ranks than devices, none at all, or a group nobody knows."""
    with virtual_cuda(devices=2):
        with pytest.raises(UsageError, match=r"3 ranks in one process need 3 devices, and there are 2"):
            run_ranks(config(), requests(), 3)
        with pytest.raises(UsageError, match="ranks must be 1 or more, not 0"):
            run_ranks(config(), requests(), 0)
        with pytest.raises(UsageError, match="no group 'mpi'"):
            run_ranks(config(), requests(), 2, group="mpi")


# -- processes -----------------------------------------------------------------------------------


def processes(folder: Path, parts: Parts | None = None) -> list[Tokens]:
    """Two processes over gloo, each with a virtual device and an audit of its own."""
    return run_ranks(config((2, 4)), requests(), 2, parts=parts, group="gloo", around=partial(judged, folder))


def verdicts(folder: Path) -> list[str]:
    """What each process's audit came to, by rank."""
    return [path.read_text() for path in sorted(folder.iterdir())]


def test_two_processes_serve_what_one_serves(alone: Tokens, tmp_path: Path) -> None:
    """Over gloo, with tensors by way of the host."""
    assert processes(tmp_path) == [alone, alone]
    assert verdicts(tmp_path) == ["clean: "] * 2


def test_a_mismatch_of_processes_is_found_at_once(tmp_path: Path) -> None:
    """Both calls and their lines, and each process comes to the verdict by itself."""
    with pytest.raises(CollectiveMismatch) as raised:
        processes(tmp_path, Parts(main=BreakingMain))
    assert "rank 0 calls 'capture talker.decode 2 x 2 in 1' at racecheck/" in str(raised.value)
    assert "rank 1 skips it and calls 'failed captures of talker.decode' at racecheck/" in str(raised.value)
    for verdict in verdicts(tmp_path):
        assert re.match(r"hang: collective \d+: rank 0 issues capture talker.decode 2 x 2 in 1 at", verdict)
        assert verdict.endswith("rank 1 issues failed captures of talker.decode instead")


def test_a_killed_process_ends_the_others(tmp_path: Path) -> None:
    """Its exit code is told."""
    with pytest.raises(RankLost, match="rank 1 has ended with exit code -9"):
        processes(tmp_path, Parts(main=KilledMain))


def test_an_error_of_a_process_is_what_the_run_raises(tmp_path: Path) -> None:
    """As in one process."""
    with pytest.raises(NoGraphError):
        processes(tmp_path, Parts(main=AllFail))
