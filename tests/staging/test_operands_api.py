"""`holds` and `wants` in programs: what an engine says of its operands, and where it is wrong."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import racecheck
from racecheck.trace.records import Label, Want


@pytest.fixture(autouse=True)
def device():
    """A late virtual device."""
    with racecheck.virtual_cuda(lag="latest"):
        yield


def audited(program: Callable[[], object]) -> racecheck.Audit:
    """The audit of `program`."""
    with racecheck.audit() as audit:
        program()
        torch.cuda.synchronize()
    return audit


def stale(audit: racecheck.Audit) -> list[str]:
    """What each stale operand of the run is told as, with the buffer."""
    assert {finding.kind for finding in audit.findings} <= {"stale"}
    return [f"{finding.buffer}: {finding.missing}" for finding in audit.findings]


# -- engines -------------------------------------------------------------------------------------


def decode(promoted: Callable[[int], int]) -> None:
    """Plan a step ahead into two slots; step n runs with the plan of slot `promoted(n) % 2`."""
    plan = racecheck.PinnedBuffer("plan", (4,), torch.int64, slots=2)
    table = torch.arange(8, device="cuda")
    done: list[torch.cuda.Event] = []
    for step in range(4):
        with racecheck.mark(step=step):
            lease = plan.lease(step % 2)
            lease.write([step] * 4, holds=f"plan {step}")
            lease.copy()
            slot = promoted(step) % 2
            plan.wants(slot, f"plan {step}")
            table[plan.device_view(slot)].sum()
            done.append(torch.cuda.current_stream().record_event())
        if step:
            done[step - 1].synchronize()


def test_a_plan_is_promoted_by_its_own_step():
    """Every step runs with the plan made for it."""
    assert audited(lambda: decode(lambda step: step)).verdict == "clean"


def test_a_plan_promoted_by_another_step_is_stale():
    """Step 2 promotes what was planned for step 1: slot, consumer and writer are named."""
    audit = audited(lambda: decode(lambda step: 1 if step == 2 else step))
    assert stale(audit) == ["plan (device): the consumer needs plan 2 and finds plan 1"]
    (finding,) = audit.findings
    assert (finding.slot, finding.first.mark.step, finding.second.mark.step) == (1, 1, 2)
    assert finding.first.what == "h2d copy writes"
    assert finding.reasons[0].startswith("plan 1 was said of these bytes at test_operands_api.py:")
    assert finding.second.loc.function == "decode"
    with pytest.raises(racecheck.RaceFound, match="stale/consumer-vs-h2d-write on plan"):
        audit.assert_clean()


def captured(work: Callable[[], object], pool: object = None) -> tuple[torch.cuda.CUDAGraph, object]:
    """A graph of `work`, and what that returned."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool):
        out = work()
    return graph, out


def replay_a_walk(leased: str) -> None:
    """Walk B replays walk A's capture; it leases its rows from the buffer `leased`."""
    buffers = {name: racecheck.PinnedBuffer(f"walk {name}", (4,), torch.int64) for name in "AB"}
    graph, _ = captured(lambda: buffers["A"].device_view(0).sum())
    lease = buffers[leased].lease(0)
    lease.write([1, 2, 3, 4], holds="rows of walk B")
    lease.copy()
    buffers["A"].wants(0, "rows of walk B")  # what the capture reads
    graph.replay()


def test_the_captured_buffer_is_leased():
    """The graph reads what the walk wrote."""
    assert stale(audited(lambda: replay_a_walk("A"))) == []


def test_an_aliass_own_buffer_is_leased():
    """The walk fills its own bucket, and the graph reads another one."""
    assert stale(audited(lambda: replay_a_walk("B"))) == [
        "walk A (device): the consumer needs rows of walk B and finds nothing that anybody labelled"
    ]


def region_output(*, kept: bool) -> None:
    """Two regions captured into one pool; the first one's output is read by a third graph, and maybe kept."""
    pool = torch.cuda.graph_pool_handle()
    x, y = torch.ones(128, device="cuda"), torch.zeros(128, device="cuda")
    read_back = torch.zeros(128, device="cuda")

    def region(source: torch.Tensor) -> torch.Tensor:
        out = torch.empty(128, device="cuda")
        out.copy_(source)
        return out

    outputs = []
    first, _ = captured(lambda: outputs.append(region(x)), pool)
    consumer, _ = captured(lambda: read_back.copy_(outputs[0]), pool)
    if not kept:
        outputs.clear()
    second, _ = captured(lambda: y + 1, pool)
    for step in range(2):
        racecheck.holds(x, f"hidden {step}")
        first.replay()
        second.replay()
        consumer.replay()
        racecheck.wants(read_back, f"hidden {step}")
        read_back.sum()


def test_a_regions_output_that_is_kept_stays():
    """Its block is not handed out to the other region."""
    assert stale(audited(lambda: region_output(kept=True))) == []


def test_a_regions_output_in_a_shared_pool_is_overwritten():
    """Freed at its capture, the block is the other region's too: its replay takes the operand away."""
    (told,) = stale(audited(lambda: region_output(kept=False)))
    assert told.endswith("the consumer needs hidden 0 and finds what was written over hidden 0")


def commit(padding_row: int) -> None:
    """Two requests in rows 0 and 1 of a state of four; the batch is padded to three with `padding_row`."""
    state = torch.zeros(4, 2, device="cuda")
    for row in (0, 1):
        racecheck.holds(state[row], f"request {row}, step 0")
    rows = torch.tensor([0, 1, padding_row], device="cuda")
    state.index_copy_(0, rows, torch.ones(3, 2, device="cuda"))
    for row, what in ((0, "request 0, step 1"), (1, "request 1, step 1"), (padding_row, "padding")):
        racecheck.holds(state[row], what)
    for row in (0, 1):
        racecheck.wants(state[row], f"request {row}, step 1")
    state.sum()


def test_padding_goes_to_a_row_of_its_own():
    """Nobody needs that row."""
    assert stale(audited(lambda: commit(3))) == []


def test_padding_written_over_a_real_row_is_stale():
    """The row of request 0 holds padding."""
    (told,) = stale(audited(lambda: commit(0)))
    assert told.endswith("the consumer needs request 0, step 1 and finds padding")


# -- tensors -------------------------------------------------------------------------------------


def rest(program: Callable[[torch.Tensor], object]) -> list[str]:
    """What is stale after `program` did something to a labelled device tensor of 8 by 2."""

    def run() -> None:
        tensor = torch.zeros(8, 2, device="cuda")
        racecheck.holds(tensor, "x")
        program(tensor)
        racecheck.wants(tensor, "x")

    return stale(audited(run))


INDICES = [0, 3]


@pytest.mark.parametrize(
    "write",
    [
        lambda t: t.index_copy_(0, torch.tensor(INDICES, device="cuda"), torch.ones(2, 2, device="cuda")),
        lambda t: t.index_add_(0, torch.tensor(INDICES, device="cuda"), torch.ones(2, 2, device="cuda")),
        lambda t: t.index_fill_(0, torch.tensor(INDICES, device="cuda"), 1.0),
        lambda t: t.index_put_((torch.tensor(INDICES, device="cuda"),), torch.ones(2, 2, device="cuda")),
        lambda t: t.__setitem__(torch.tensor(INDICES, device="cuda"), torch.ones(2, device="cuda")),
        lambda t: t.masked_fill_(t > 1, 1.0),
        lambda t: t.scatter_(0, torch.zeros(1, 2, dtype=torch.int64, device="cuda"), 1.0),
        lambda t: t.scatter_add_(0, torch.zeros(1, 2, dtype=torch.int64, device="cuda"), t[:1].clone()),
        lambda t: t.sum(),
    ],
)
def test_operations_that_write_here_and_there_keep_labels(write):
    """Which rows they touch, only the data tells."""
    assert rest(write) == []


@pytest.mark.parametrize(
    "write",
    [
        lambda t: t.add_(1),
        lambda t: t.zero_(),
        lambda t: t[3].fill_(1.0),
        lambda t: t[:, 0].copy_(torch.ones(8, device="cuda")),
        lambda t: t.copy_(torch.ones(8, 2)),
        lambda t: torch.add(t, 1, out=t),
    ],
)
def test_operations_that_write_known_bytes_take_labels_away(write):
    """All of what they are given, or the view of it."""
    assert len(rest(write)) == 1


def test_views_name_their_own_elements():
    """A column is many ranges, and each counts."""

    def run() -> None:
        tensor = torch.zeros(8, 4, device="cuda")
        racecheck.holds(tensor, "rest")
        racecheck.holds(tensor[:, 1], "column")
        racecheck.wants(tensor[:, 1], "column")
        racecheck.wants(tensor[:, 2:], "rest")
        racecheck.wants(tensor[:0], "nothing is needed of no bytes")
        racecheck.wants(tensor[2:4], "rest")

    (told,) = stale(audited(run))
    assert told.endswith("the consumer needs rest and finds column")


def test_more_ranges_than_a_trace_keeps_apart_are_kept_apart():
    """A label must not spill over the bytes between."""

    def run() -> None:
        tensor = torch.zeros(5000, 2, device="cuda")
        racecheck.holds(tensor[:, 0], "even")
        racecheck.holds(tensor[:, 1], "odd")
        racecheck.wants(tensor[:, 0], "even")

    assert stale(audited(run)) == []


def test_conversions_and_clones_carry_one_label():
    """Another dtype, another layout, a copy on the device."""

    def run() -> None:
        tensor = torch.zeros(4, 4, device="cuda")
        racecheck.holds(tensor, "x")
        racecheck.wants(tensor.clone(), "x")
        racecheck.wants(tensor.to(torch.float16), "x")
        racecheck.wants(tensor.t().contiguous(), "x")
        pinned = torch.zeros(4, 4).pin_memory()
        pinned.copy_(tensor)
        racecheck.wants(pinned, "x")

    assert stale(audited(run)) == []


@pytest.mark.parametrize(
    ("to_device", "source", "target"),
    [
        (True, lambda t: t.t(), lambda t: t),  # gathered, and goes through pageable memory
        (False, lambda t: t.t(), lambda t: t),
        (True, lambda t: t, lambda t: t.t()),  # scattered by the device
        (True, lambda t: t.view(2, 2, 4).transpose(0, 1), lambda t: t.view(2, 2, 4)),
        (False, lambda t: t.view(2, 2, 4).transpose(0, 1), lambda t: t.view(2, 2, 4)),
    ],
)
def test_a_copy_that_turns_its_bytes_round_carries_no_parts(to_device, source, target):
    """Which bytes lie where the order of addresses does not tell: a label of all of them stays, no other."""

    def run(whole: bool) -> None:
        sides = [torch.zeros(4, 4).pin_memory(), torch.zeros(4, 4, device="cuda")]
        src, dst = sides if to_device else reversed(sides)
        for row in range(4):
            racecheck.holds(src[row], "plan" if whole else f"row {row}")
        target(dst).copy_(source(src), non_blocking=True)
        torch.cuda.synchronize()
        racecheck.wants(dst if whole else dst[1], "plan" if whole else "row 1")

    assert stale(audited(lambda: run(whole=True))) == []
    (told,) = stale(audited(lambda: run(whole=False)))
    assert told.endswith("needs row 1 and finds nothing that anybody labelled")


def test_a_write_through_numpy_comes_before_the_label():
    """It is found by its bytes, and not only after the label that describes it."""

    def run() -> None:
        pinned = torch.zeros(4).pin_memory()
        target = torch.zeros(4, device="cuda")
        for step in range(3):
            pinned.numpy()[:] = step + 1
            racecheck.holds(pinned, f"plan {step}")
            target.copy_(pinned)
            racecheck.wants(target, f"plan {step}")

    assert stale(audited(run)) == []


def test_a_write_through_numpy_takes_the_label_away():
    """Bytes that nobody spoke of after they changed."""

    def run() -> None:
        pinned = torch.zeros(4).pin_memory()
        target = torch.zeros(4, device="cuda")
        target.copy_(pinned)
        racecheck.holds(pinned, "plan 0")
        pinned.numpy()[:] = 1
        target.copy_(pinned)
        racecheck.wants(target, "plan 0")

    (told,) = stale(audited(run))
    assert told.endswith("finds what was written over plan 0")


def test_a_dead_tensors_label_dies_with_it():
    """The block is another object's now."""

    def run() -> None:
        tensor = torch.zeros(8, device="cuda")
        racecheck.holds(tensor, "x")
        address = tensor.data_ptr()
        del tensor
        again = torch.empty(8, device="cuda")
        assert again.data_ptr() == address
        racecheck.wants(again, "x")

    (told,) = stale(audited(run))
    assert told.endswith("finds what was written over x")


def test_nothing_is_captured():
    """Said inside a capture, it is said once, at the capture."""

    def run() -> None:
        tensor = torch.zeros(8, device="cuda")

        def work() -> None:
            tensor.add_(1)
            racecheck.holds(tensor, "x")

        graph, _ = captured(work)
        racecheck.wants(tensor, "x")
        graph.replay()
        racecheck.wants(tensor, "x")

    (told,) = stale(audited(run))
    assert told.endswith("finds what was written over x")


def test_records_say_where_and_in_which_step():
    """The line of the caller, also through a staging buffer."""

    def run() -> None:
        rows = racecheck.PinnedBuffer("rows", (4, 2), torch.int64, slots=2)
        with racecheck.mark(step=7):
            rows.lease(1).write([[1, 2]], holds="a")
            rows.wants(1, "b")

    audit = audited(run)
    said = [record for record in audit.trace if isinstance(record, (Label, Want))]
    assert [type(record) for record in said] == [Label, Want]
    assert {(record.loc.function, record.mark.step, record.thread) for record in said} == {("run", 7, "main")}
    assert [record.span[1] - record.span[0] for record in said] == [16, 64]


def fewer_rows(wanted: int | None) -> None:
    """Two steps of three and two rows in one slot of four; the consumer reads `wanted` rows, or all."""
    rows = racecheck.PinnedBuffer("rows", (4,), torch.int64)
    for step, count in enumerate((3, 2)):
        lease = rows.lease(0)
        lease.write(list(range(count)), holds=f"plan {step}")
        lease.copy()
        racecheck.wants(rows.device_view(0)[: count if wanted is None else wanted], f"plan {step}")
        rows.wait_copied(0)


def test_rows_that_were_not_written_hold_what_they_held():
    """A bucket that is larger than its batch reads rows of an earlier step, unless padding was written."""
    assert stale(audited(lambda: fewer_rows(None))) == []
    told = stale(audited(lambda: fewer_rows(3)))
    assert told == ["rows (device): the consumer needs plan 1 and finds plan 0"]


def test_what_cannot_be_said():
    """One line each; the value is looked at also when nobody listens."""
    tensor = torch.zeros(4, device="cuda")
    with pytest.raises(TypeError, match=r"^holds: the value must be text, not 7; write a name for it$"):
        racecheck.holds(tensor, 7)
    with racecheck.audit(), pytest.raises(TypeError, match=r"^wants: \[1\] is no tensor; name the tensor"):
        racecheck.wants([1], "x")
    for say in (racecheck.holds, racecheck.wants):
        with (
            racecheck.audit(),
            pytest.raises(TypeError, match=r"nobody follows pageable .*; say it of the pin"),
        ):
            say(torch.zeros(4), "x")
        with racecheck.audit():
            say(torch.zeros(0), "nothing at all")


def test_without_a_listener_nothing_happens():
    """Code that says what it holds runs anywhere."""
    tensor = torch.zeros(4)
    racecheck.holds(tensor, "x")
    racecheck.wants(tensor, "y")
