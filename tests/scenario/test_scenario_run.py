from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from samples import SCENARIO, make_evidence, make_finding, write_scenario

import racecheck
import racecheck.scenario.reference
from racecheck.detect.evidence import BufferEvidence, Evidence
from racecheck.errors import ScenarioError, UsageError
from racecheck.report import Expected
from racecheck.scenario.load import ScenarioFile, load
from racecheck.scenario.plan import Overrides, check, check_device, plan_all, plan_rows
from racecheck.scenario.run import References, run_row

ROOT = Path(__file__).parents[2]


@pytest.fixture
def small(tmp_path: Path) -> ScenarioFile:
    """The sample scenario."""
    return load(write_scenario(tmp_path))


class World:
    """Stands for engine, device and audit: what they will do, and what they were asked to do."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.verdict = "clean"
        self.tokens: dict[str, list[tuple[int, ...]]] = {"r0": [(1, 2), (3, 4)], "r1": [(5, 6)], "r2": []}
        self.failure: Exception | None = None
        self.evidence = make_evidence()

    @contextmanager
    def virtual_cuda(self, lag: str, exact: bool, devices: int) -> Iterator[None]:
        """Remember the lag, and if the run is exact."""
        self.calls.append(("lag", lag, "exact") if exact else ("lag", lag))
        yield

    @contextmanager
    def audit(self, run_ahead: int) -> Iterator[Any]:
        """An audit that comes to `verdict` when it ends."""
        result = SimpleNamespace(
            verdict="inconclusive", findings=[], evidence=Evidence(), premises=None, pictures=[]
        )
        try:
            yield result
        finally:
            result.verdict = self.verdict
            if self.verdict == "race":
                result.findings = [make_finding()]
            if self.verdict != "inconclusive":
                result.evidence = self.evidence

    def engine(self, config: Any) -> Any:
        """An engine that produces `tokens`; the serial one always the right ones."""
        self.calls.append(("engine", config.run_ahead, dict(config.slots), config.weight_seed))

        def run(requests: Any, steps: int, on_step: Any) -> Any:
            self.calls.append(("run", steps))
            if on_step is not None:
                on_step(None)
            if config.run_ahead and self.failure is not None:
                raise self.failure
            return self.tokens if config.run_ahead else World().tokens

        return SimpleNamespace(run=run)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """Engine, device and audit replaced."""
    world = World()
    monkeypatch.setattr(racecheck, "virtual_cuda", world.virtual_cuda, raising=False)
    monkeypatch.setattr(racecheck, "audit", world.audit, raising=False)
    monkeypatch.setattr(racecheck.scenario.reference, "Engine", world.engine)
    return world


# -- which rows ----------------------------------------------------------------------------------


def test_a_scenario_runs_what_it_lists(small: ScenarioFile) -> None:
    """One row for each runner and slot count with an expectation."""
    rows = [(row.runner, row.slots, row.expected) for row in plan_rows(small, Overrides())]
    assert rows == [
        ("main", 1, Expected("race")),
        ("main", 2, Expected("clean")),
        ("piecewise", 1, Expected("race", "sampler.rows")),
    ]


def test_slots_make_a_probe_of_each_runner(small: ScenarioFile) -> None:
    """A probe expects nothing, also where the scenario would."""
    rows = [(row.runner, row.slots, row.expected) for row in plan_rows(small, Overrides(slots=2))]
    assert rows == [("main", 2, None), ("piecewise", 2, None)]


def test_overrides_win(small: ScenarioFile) -> None:
    """Every setting of the command replaces the scenario's own; without one that stands."""
    [row] = plan_rows(small, Overrides(runner="piecewise", lag="eager", seed=9, steps=5))
    assert (row.runner, row.lag, row.seed, row.steps, row.device) == ("piecewise", "eager", 9, 5, "virtual")
    [row] = plan_rows(small, Overrides(runner="piecewise"))
    assert (row.lag, row.seed, row.steps) == ("latest", 0, 12)


@pytest.mark.parametrize(
    ("overrides", "options"),
    [
        (Overrides(), ""),
        (Overrides(lag="latest", seed=0, steps=12), ""),
        (Overrides(lag="seed:3", seed=9, steps=5, exact=True), " --lag seed:3 --seed 9 --steps 5 --exact"),
        (Overrides(device="cuda"), " --device cuda"),
    ],
)
def test_the_command_that_runs_a_row_again(
    small: ScenarioFile, monkeypatch: pytest.MonkeyPatch, overrides: Overrides, options: str
) -> None:
    """Only what differs from the scenario; the path from the working directory, if it is below that."""
    row = plan_rows(small, overrides)[0]
    monkeypatch.chdir(small.path.parent)
    assert row.command() == f"racecheck run small.toml --runner main --slots 1{options}"
    monkeypatch.chdir("/")
    (small.path.parent / "deep").mkdir()
    monkeypatch.chdir(small.path.parent / "deep")
    assert row.command() == f"racecheck run {small.path} --runner main --slots 1{options}"


def test_a_runner_that_no_scenario_has(small: ScenarioFile) -> None:
    """Nothing to run is a mistake; the line names what there is."""
    with pytest.raises(
        UsageError, match=r"^--runner eager: no scenario here .*; write one of main, piecewise$"
    ):
        plan_all([small], Overrides(runner="eager"))


def test_other_slots_cover_the_run_ahead(tmp_path: Path) -> None:
    """Two slots race at run-ahead two; a row of one runner must not be about the others then."""
    file = load(write_scenario(tmp_path, SCENARIO.replace("steps = 12", "steps = 12\nrun_ahead = 2")))
    assert plan_rows(file, Overrides(runner="main", slots=2))[0].all_slots() == {
        "main": 2, "piecewise": 3, "eager": 3,
    }  # fmt: skip


def test_rows_run_walks_otherwise(tmp_path: Path) -> None:
    """As their runner's table says; the others as the model has it."""
    moved = SCENARIO.replace("[runners.main.", '[runners.main]\nwalks = { "a.b" = "eager" }\n[runners.main.')
    rows = plan_rows(load(write_scenario(tmp_path, moved)), Overrides())
    assert [dict(row.walks) for row in rows] == [{"a.b": "eager"}] * 2 + [{}]


def test_a_walk_that_does_not_exist(tmp_path: Path) -> None:
    """The line of the scenario that names it, and the walks there are."""
    moved = SCENARIO.replace("[runners.main.", '[runners.main]\nwalks = { "a.b" = "eager" }\n[runners.main.')
    file = load(write_scenario(tmp_path, moved))
    with pytest.raises(
        ScenarioError, match=r"small.toml:15: runners.main.walks: .*'a.b'; its walks are .*talker.decode"
    ):
        run_row(plan_rows(file, Overrides())[0], References())


def test_the_other_runners_are_kept_safe(small: ScenarioFile) -> None:
    """A row is about one runner: the others get at least two slots, and never fewer than it."""
    one, three = (plan_rows(small, Overrides(runner="main", slots=n))[0] for n in (1, 3))
    assert one.all_slots() == {"main": 1, "piecewise": 2, "eager": 2}
    assert three.all_slots() == {"main": 3, "piecewise": 3, "eager": 3}


def test_a_model_that_does_not_exist(tmp_path: Path) -> None:
    """The line of the scenario that names it, and the models there are."""
    path = write_scenario(tmp_path, SCENARIO.replace('"qwen3-tts"', '"qwen9"'))
    with pytest.raises(ScenarioError, match=r"small.toml:3: model: .*qwen9.*; .*qwen3-tts"):
        check(load(path))


def test_no_gpu_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """`--device cuda` without a GPU is a mistake of usage, and nothing runs."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    check_device("virtual")
    with pytest.raises(UsageError, match=r"^--device cuda: .*; write --device virtual"):
        check_device("cuda")


def test_a_gpu_cannot_be_told_to_lag() -> None:
    """Rather than ignoring the option."""
    with pytest.raises(UsageError, match=r"^--lag eager: only the virtual device .*; leave the lag out$"):
        check_device("cuda", "eager")


def test_exact_runs_need_a_machine_whose_code_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Page protection is machine code."""
    check_device("virtual", exact=True)
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    check_device("virtual")
    with pytest.raises(UsageError, match=r"^--exact: .* not on linux on riscv64; leave it out"):
        check_device("virtual", exact=True)


# -- one row -------------------------------------------------------------------------------------


def test_a_row_is_audited_against_a_serial_reference(small: ScenarioFile, world: World) -> None:
    """First the serial reference with nothing late, then the row with its own lag and slots."""
    plan = plan_rows(small, Overrides(runner="main", slots=1, seed=4))[0]
    row = run_row(plan, References())
    others = {"main": 1, "piecewise": 2, "eager": 2}
    assert world.calls == [
        ("lag", "eager"), ("engine", 0, {}, 4), ("run", 12),
        ("lag", "latest"), ("engine", 1, others, 4), ("run", 12),
    ]  # fmt: skip
    assert (row.verdict, row.requests, row.witness, row.ok) == ("clean", 2, [], True)
    assert (row.steps, row.steps_run) == (12, 1)


def test_only_the_row_is_exact(small: ScenarioFile, world: World) -> None:
    """The reference is not judged, so it does not pay for it."""
    run_row(plan_rows(small, Overrides(runner="main", slots=1, exact=True))[0], References())
    assert [call for call in world.calls if call[0] == "lag"] == [
        ("lag", "eager"),
        ("lag", "latest", "exact"),
    ]


def test_the_reference_is_computed_once(small: ScenarioFile, world: World) -> None:
    """Rows that differ in runner, slots or lag share it; another seed or length needs its own."""
    references = References()
    plan = plan_rows(small, Overrides())[0]
    for same in (plan, replace(plan, slots=2), replace(plan, lag="eager"), replace(plan, runner="eager")):
        run_row(same, references)
    serial = [call for call in world.calls if call[:2] == ("engine", 0)]
    assert len(serial) == 1
    for other in (replace(plan, seed=1), replace(plan, steps=3)):
        run_row(other, references)
    assert len([call for call in world.calls if call[:2] == ("engine", 0)]) == 3


def test_wrong_tokens_are_a_witness(small: ScenarioFile, world: World) -> None:
    """What differs is named by request and frame."""
    world.verdict, world.tokens = "race", {"r0": [(1, 2), (3, 9)], "r1": [(5, 6)], "r2": []}
    row = run_row(plan_rows(small, Overrides())[0], References())
    assert [(w.request, w.position, w.expected, w.found) for w in row.witness] == [("r0", 1, (3, 4), (3, 9))]
    assert (row.verdict, row.buffer, row.ok) == ("race", "sampler.rows", True)


def test_a_clean_verdict_with_wrong_tokens_is_not_ok(small: ScenarioFile, world: World) -> None:
    """The oracle of the oracle: tokens must not differ where every access is ordered."""
    world.tokens = {"r0": [(1, 2), (3, 9)], "r1": [(5, 6)], "r2": []}
    row = run_row(plan_rows(small, Overrides(slots=2))[0], References())
    assert row.verdict == "clean"
    assert not row.ok


def test_a_lost_token_is_a_witness(small: ScenarioFile, world: World) -> None:
    """Where neither run was cut off, both must be of one length."""
    world.tokens = {"r0": [(1, 2)], "r1": [(5, 6)], "r2": []}
    row = run_row(plan_rows(small, Overrides(slots=2))[0], References())
    assert [(w.request, w.position, w.expected, w.found) for w in row.witness] == [("r0", 1, (3, 4), ())]
    cut = run_row(plan_rows(small, Overrides(slots=2, steps=1))[0], References())
    assert not cut.witness


def test_a_cancelled_request_may_get_less(tmp_path: Path, world: World) -> None:
    """How much depends on when its client left; what it got must be right all the same."""
    leaves = "max = 4 }\ncancel = { every = 1, after = { min = 1, max = 2 } }"
    file = load(write_scenario(tmp_path, SCENARIO.replace("max = 4 }", leaves)))
    world.tokens = {"r0": [(1, 2)], "r1": [], "r2": []}
    assert not run_row(plan_rows(file, Overrides(slots=2))[0], References()).witness
    world.tokens = {"r0": [(1, 9)], "r1": [], "r2": []}
    assert run_row(plan_rows(file, Overrides(slots=2))[0], References()).witness


def test_nothing_rewritten_is_inconclusive(small: ScenarioFile, world: World) -> None:
    """The row says why."""
    world.verdict = "inconclusive"
    row = run_row(plan_rows(small, Overrides(slots=2))[0], References())
    assert row.untested
    assert "No staging buffer was rewritten" in str(row.reason)


def test_a_buffer_never_rewritten_is_inconclusive(small: ScenarioFile, world: World) -> None:
    """Clean needs evidence for every staged buffer; the row names those that have none."""
    world.verdict = "clean"
    assert run_row(plan_rows(small, Overrides(slots=2))[0], References()).verdict == "clean"
    world.evidence.buffers["kv.page_table"] = BufferEvidence()
    row = run_row(plan_rows(small, Overrides(slots=2))[0], References())
    assert row.verdict == "inconclusive"
    assert "kv.page_table" in str(row.reason)


def test_a_run_that_a_race_broke_is_a_race(small: ScenarioFile, world: World) -> None:
    """A corrupted index may end the run: the race is reported, not the index."""
    world.verdict, world.failure = "race", IndexError("index 7 is out of bounds")
    row = run_row(plan_rows(small, Overrides())[0], References())
    assert (row.verdict, row.requests) == ("race", 0)
    assert "IndexError" in str(row.reason)


def test_a_run_that_breaks_without_a_race_is_an_error(small: ScenarioFile, world: World) -> None:
    """A bug must not pass for a verdict."""
    world.failure = IndexError("index 7 is out of bounds")
    with pytest.raises(IndexError):
        run_row(plan_rows(small, Overrides())[0], References())


def test_a_real_gpu_is_watched_and_its_reference_waits_after_each_step(
    small: ScenarioFile, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No virtual device: the row is audited under a watch; the reference has its runner and run-ahead."""
    from racecheck.cuda import watch

    @contextmanager
    def watched(operators: bool, exact: bool) -> Iterator[None]:
        world.calls.append(("watch", operators))
        yield

    monkeypatch.setattr(watch, "require", lambda devices: None)
    monkeypatch.setattr(watch, "watch", watched)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: world.calls.append(("wait",)))
    row = run_row(plan_rows(small, Overrides(device="cuda", runner="main", slots=1, seed=4))[0], References())
    enough = {"main": 3, "piecewise": 3, "eager": 3}
    assert world.calls == [
        ("engine", 1, enough, 4), ("run", 12), ("wait",),
        ("watch", True), ("engine", 1, {"main": 1, "piecewise": 2, "eager": 2}, 4), ("run", 12),
    ]  # fmt: skip
    assert (row.verdict, row.requests, row.lag) == ("clean", 2, None)


def test_progress_is_told_for_every_step(small: ScenarioFile, world: World) -> None:
    """Of the reference, too, told apart."""
    steps: list[str] = []
    run_row(plan_rows(small, Overrides())[0], References(), steps.append)
    assert steps == ["reference", "row"]


# -- the real thing ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "runner", "slots"),
    [
        ("qwen3-tts", "piecewise", 1),
        ("orpheus", "main", 1),
        ("orpheus", "main", 2),
        ("qwen3-omni", "piecewise", 1),
    ],
)
def test_shipped_rows_come_to_what_they_expect(name: str, runner: str, slots: int) -> None:
    """The cheap ones of each scenario: the buffers that race, and what the slots cost."""
    file = load(ROOT / "scenarios" / f"{name}.toml")
    [plan] = [row for row in plan_rows(file, Overrides(runner=runner)) if row.slots == slots]
    row = run_row(plan, REFERENCES)
    assert row.ok, row.problem or row.reason
    assert row.verdict == ("race" if slots == 1 else "clean")
    if row.findings:
        assert row.findings[0].certain
        assert row.findings[0].repair
    assert {cost.slots for cost in row.costs if runner in cost.needs} <= {plan.slots, plan.other_slots}


REFERENCES = References()


@pytest.mark.parametrize(("slots", "verdict"), [(1, "race"), (2, "clean")])
def test_several_ranks_are_one_row(tmp_path: Path, slots: int, verdict: str) -> None:
    """Both run in this process, are audited together, and serve what one serves; steps are counted once."""
    file = load(write_scenario(tmp_path, SCENARIO.replace("steps = 12", "steps = 30\nranks = 2")))
    [plan] = plan_rows(file, Overrides(runner="main", slots=slots))
    row = run_row(plan, References())
    threads = {finding.second.chain for finding in row.findings if finding.kind == "race"}
    assert all(chain.startswith(("thread rank ", "stream ")) for chain in threads)
    assert (row.verdict, bool(threads)) == (verdict, slots == 1), row.reason
    assert row.witness == [] or slots == 1
    assert 0 < row.steps_run <= 30
