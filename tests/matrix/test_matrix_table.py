from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from samples import make_finding, make_row, write_scenario

from racecheck.detect.evidence import BufferEvidence, Evidence
from racecheck.matrix import Cell, Entry, Matrix
from racecheck.matrix.measure import Measured, matrix_of
from racecheck.matrix.table import ACCIDENT, CLEAN, PROVED, RACE, UNTESTED
from racecheck.matrix.text import as_dict, markdown, render
from racecheck.report import Row
from racecheck.scenario.load import ScenarioFile, load
from racecheck.staging.cost import SlotCost


@pytest.fixture
def file(tmp_path: Path) -> ScenarioFile:
    """The sample scenario, whose run-ahead is one."""
    return load(write_scenario(tmp_path))


COSTS = (
    SlotCost(resource="sampler", slots=2, pinned=64, device=64, needs={"main": 2}),
    SlotCost(resource="kv", slots=2, pinned=2048, device=2048, needs={"main": 2, "eager": 2}),
    SlotCost(resource="results", slots=2, pinned=8, device=8, needs={"run-ahead": 2}),
)


def row(slots: int, runner: str = "main", raced: tuple[str, ...] = (), unused: tuple[str, ...] = ()) -> Row:
    """A row in which the buffers `raced`, and all but those and `unused` were rewritten in order."""
    evidence = Evidence()
    for name in ("sampler.rows", "kv.indices", "kv.indptr", "results.decode"):
        evidence.buffers[name] = BufferEvidence(rewrites=0 if name in unused else 4)
    findings = [make_finding(name) for name in raced]
    return make_row(
        "race" if raced else "clean", runner=runner, slots=slots, findings=findings, evidence=evidence,
        costs=COSTS,
    )  # fmt: skip


def cells(matrix: Matrix) -> dict[tuple[str, str], dict[int, str]]:
    """The verdicts by resource and runner."""
    return {
        (entry.resource, entry.runner): {slots: cell.verdict for slots, cell in entry.cells.items()}
        for entry in matrix.entries
    }


def entry(*verdicts: str) -> Entry:
    """An entry with so many slots tried, from one."""
    return Entry("kv", "main", {slots: Cell(verdict) for slots, verdict in enumerate(verdicts, 1)})


@pytest.mark.parametrize(
    ("verdicts", "needs"),
    [
        ((RACE, CLEAN, CLEAN), 2),
        ((CLEAN, CLEAN, CLEAN), 1),
        ((RACE, PROVED, PROVED), 2),
        ((CLEAN, RACE, CLEAN), 3),
        ((RACE, RACE, RACE), None),
        ((CLEAN, CLEAN, RACE), None),
        ((RACE, ACCIDENT, CLEAN), 3),
        ((RACE, UNTESTED, CLEAN), 3),
        ((RACE, "stale", "hang"), None),
    ],
)
def test_enough_is_what_all_larger_ones_are_too(verdicts: tuple[str, ...], needs: int | None) -> None:
    """The smallest setting that, with all larger ones tried, is clean; accidents and gaps are not."""
    assert entry(*verdicts).needs == needs


def test_findings_are_laid_to_the_resource_that_stages_the_buffer(file: ScenarioFile) -> None:
    """Host side and device twin alike; what does not race in the same row is clean."""
    matrix = matrix_of(file, [Measured(row(1, raced=("kv.indices", "kv.indptr (device)"))), Measured(row(2))])
    assert cells(matrix)["kv", "main"] == {1: "race", 2: "clean"}
    assert cells(matrix)["sampler", "main"] == {1: "clean", 2: "clean"}
    kv = next(each for each in matrix.entries if each.resource == "kv")
    assert kv.cells[1].buffers == ["kv.indices", "kv.indptr"]
    assert matrix.needs == {"sampler": 1, "kv": 2, "results": 2}
    assert matrix.runners == {"main": 2}


def test_a_runner_has_the_resources_that_it_rotates(file: ScenarioFile) -> None:
    """The eager runner does not rotate the sampler; if it raced all the same, that is shown."""
    usual = matrix_of(file, [Measured(row(2, "eager"))])
    assert list(cells(usual)) == [("kv", "eager"), ("results", "run-ahead")]
    raced = matrix_of(file, [Measured(row(2, "eager", raced=("sampler.rows",)))])
    assert cells(raced)["sampler", "eager"] == {2: "race"}


def test_a_ring_has_the_worst_of_all_rows(file: ScenarioFile) -> None:
    """Its places are a matter of the run-ahead, not of a runner."""
    rows = [Measured(row(1, raced=("results.decode (device)",))), Measured(row(2))]
    assert cells(matrix_of(file, rows))["results", "run-ahead"] == {2: "race"}


def test_a_buffer_that_is_never_rewritten_is_untested(file: ScenarioFile) -> None:
    """Clean would promise too much; the exit code says so."""
    matrix = matrix_of(file, [Measured(row(2, unused=("kv.indptr",)))])
    assert cells(matrix)["kv", "main"] == {2: "untested"}
    assert matrix.exit_code == 3
    assert matrix_of(file, [Measured(row(2))]).exit_code == 0
    assert matrix_of(file, [Measured(row(2, raced=("kv.indices",)))]).exit_code == 1


def test_safety_by_accident_is_no_safety(file: ScenarioFile) -> None:
    """The line is named, and more slots are asked for."""
    luck = {"kv.indices": ["blocking h2d at engine.py:7"]}
    matrix = matrix_of(file, [Measured(row(2), luck), Measured(row(3))])
    assert cells(matrix)["kv", "main"] == {2: ACCIDENT, 3: "clean"}
    assert matrix.needs["kv"] == 3
    assert "accident: it is safe only by the blocking h2d at engine.py:7" in markdown(matrix)


def test_proved_takes_premises_that_held_and_enough_slots(file: ScenarioFile) -> None:
    """One slot is clean by luck of the workload, an unknown premise proves nothing, a broken one is named."""
    rows = [Measured(row(1), broken=()), Measured(row(2), broken=()), Measured(row(3), broken=("a",))]
    matrix = matrix_of(file, rows)
    assert cells(matrix)["kv", "main"] == {1: "clean", 2: PROVED, 3: "clean"}
    assert "premise a was broken in a run" in markdown(matrix)
    assert cells(matrix_of(file, [Measured(row(2))]))["kv", "main"] == {2: "clean"}
    assert "nothing is called proved" in markdown(matrix_of(file, [Measured(row(2))]))


def test_an_engine_that_names_no_costs_has_resources_all_the_same(file: ScenarioFile) -> None:
    """What comes before the first dot of a buffer's name."""
    bare = replace(row(2), costs=())
    matrix = matrix_of(file, [Measured(bare)])
    assert [each.resource for each in matrix.entries] == ["kv", "results", "sampler"]
    assert as_dict(matrix)["entries"][0]["pinned_bytes_per_slot"] is None
    assert "| kv | main | clean | 2 | ? | ? |" in markdown(matrix)


def printed(matrix: Matrix, width: int) -> str:
    """The table on a console of this width."""
    file = io.StringIO()
    render([matrix], Console(file=file, width=width, color_system=None))
    return file.getvalue()


def test_a_narrow_table_has_its_bytes_below(file: ScenarioFile) -> None:
    """Columns that do not fit are not folded but listed."""
    matrix = matrix_of(file, [Measured(row(1, raced=("kv.indices",))), Measured(row(2))])
    wide, narrow = printed(matrix, 110), printed(matrix, 44)
    assert wide.splitlines()[3].split() == ["sampler", "main", "clean", "clean", "1", "64", "B", "64", "B"]
    assert "Pinned" not in narrow
    assert "kv: a slot is 2.0 KiB pinned, 2.0 KiB" in narrow
    assert max(map(len, narrow.splitlines())) <= 44


def test_markdown_and_data_say_the_same(file: ScenarioFile) -> None:
    """Verdicts, needs and bytes of every entry, and the smallest setting."""
    matrix = matrix_of(file, [Measured(row(1, raced=("kv.indices",))), Measured(row(2))])
    text, data = markdown(matrix), as_dict(matrix)
    assert "| kv | main | race | clean | 2 | 2.0 KiB | 2.0 KiB |" in text
    assert "smallest sufficient setting by resource: sampler 1, kv 2, results 2" in text
    assert "with those 4.1 KiB are pinned" in text
    assert data["needs_by_resource"] == {"sampler": 1, "kv": 2, "results": 2}
    assert data["entries"][1]["slots"]["1"] == {
        "verdict": "race", "buffers": ["kv.indices"], "accidents": [], "premises_broken": [],
    }  # fmt: skip
