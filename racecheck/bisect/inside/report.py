"""What a report of `racecheck run --json` says of its rows, as far as they can be run again from it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, Field, ValidationError

from racecheck.errors import NothingFound, UsageError
from racecheck.report.json import FORMAT
from racecheck.scenario import source
from racecheck.scenario.load import load
from racecheck.scenario.model import MOST_SLOTS, MOST_STEPS, Runner, check_lag
from racecheck.scenario.plan import RowPlan, check, check_device
from racecheck.words import few

#: Bytes of a report; one with thousands of findings has a tenth.
LARGEST = 256 << 20
_MAKE = "make one by `racecheck run SCENARIO --json > FILE`"


class RowKey(BaseModel):
    """Which row of its report this is, or belongs to."""

    scenario: str
    runner: Runner
    slots: Annotated[int, Field(ge=1, le=MOST_SLOTS)]

    @property
    def key(self) -> tuple[str, str, int]:
        """What no two rows have in common."""
        return self.scenario, self.runner, self.slots

    @property
    def names(self) -> tuple[str, str]:
        """As pytest calls it: without and with its scenario."""
        name = f"{self.runner}-slots-{self.slots}"
        return name, f"{self.scenario}::{name}"


class ToldRow(RowKey):
    """A row's settings, whether it is as expected, and how many findings it has."""

    file: str
    lag: Annotated[str, AfterValidator(check_lag)] | None
    seed: Annotated[int, Field(ge=0, lt=2**32)]
    steps: Annotated[int, Field(ge=1, le=MOST_STEPS)]
    exact: bool = False
    ok: bool
    findings: int

    def plan(self, report: Path) -> RowPlan:
        """The row to run, from its scenario as it is now; `UsageError` if that is another one."""
        found = source.find_portable(self.file, (Path.cwd(), report.parent))
        if found is None:
            raise UsageError(
                source.shown(f"{report}: {self.file} is neither here nor by the report; go where it is")
            )
        file = load(found)
        check(file)
        check_device("virtual", self.lag, self.exact)
        scenario = file.scenario
        if scenario.name != self.scenario or self.runner not in scenario.runners:
            raise UsageError(source.shown(f"{found}: is not the scenario of {report}; make the report anew"))
        return RowPlan(
            file=file,
            runner=self.runner,
            slots=self.slots,
            walks=scenario.runners[self.runner].walks,
            expected=None,
            device="virtual",
            lag=self.lag,
            seed=self.seed,
            steps=self.steps,
            exact=self.exact,
        )


class ToldFinding(RowKey):
    """A finding, and its row."""

    fingerprint: str
    certain: bool


class ToldReport(BaseModel):
    """The report."""

    rows: list[ToldRow]
    findings: list[ToldFinding]


def read_report(path: Path) -> ToldReport:
    """The report at `path`; `UsageError` (one line) if it is none, or of another racecheck."""
    data = source.read_bytes(path, "a report of racecheck run --json", LARGEST)
    try:
        plain = json.loads(data)
    except (ValueError, RecursionError):
        plain = None
    made = plain.get("format") if isinstance(plain, dict) else None
    if made != FORMAT:
        said = f"is {made!r:.40}, which cannot be run again" if made else "is no report"
        raise UsageError(source.shown(f"{path}: {said}; {_MAKE}"))
    try:
        return ToldReport.model_validate(plain)
    except ValidationError as error:
        key = ".".join(map(str, error.errors()[0]["loc"]))
        wrong = f"{key} is missing, or is not what this racecheck writes"
        raise UsageError(source.shown(f"{path}: {wrong}; make the report anew")) from None


def choose_row(path: Path, report: ToldReport, asked: str | None) -> ToldRow:
    """The row that `asked` names; by default the first with findings, of those not as expected if any is.

    Raises:
        UsageError: there is no such row.
        NothingFound: it has no finding.
    """
    rows = report.rows
    if asked is not None:
        rows = [row for number, row in enumerate(rows, 1) if asked in (str(number), *row.names)]
        if len(rows) != 1:
            wrong = "several rows are called so" if rows else "there is no such row"
            known = few(row.names[bool(rows)] for row in rows or report.rows)
            number = f"a number from 1 to {len(report.rows)}"
            raise UsageError(f"--row {asked}: {wrong}; write one of {known}, or {number}")
    found = [row for row in rows if row.findings]
    if not found:
        where = path if asked is None else f"{path}, row {asked}"
        raise NothingFound(source.shown(f"{where}: has no finding; name a run that shows one"))
    return next((row for row in found if not row.ok), found[0])
