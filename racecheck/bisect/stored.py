"""What a stored finding must hold: a state file may have been edited, or be another racecheck's."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, Field


class _Location(BaseModel):
    file: str
    line: int
    function: str


class _Access(BaseModel):
    role: str
    what: str
    location: _Location


class _Keys(BaseModel):
    """The keys that bisecting reads; a finding has more."""

    kind: Literal["race", "stale", "hang"]
    rule: str
    buffer: str
    fingerprint: str
    accesses: Annotated[list[_Access], Field(min_length=2, max_length=2)]
    missing_edge: str
    reasons: list[str]
    repair: str | None
    allocated: _Location | None = None


def _checked(finding: dict[str, Any]) -> dict[str, Any]:
    _Keys.model_validate(finding)
    return finding


#: A finding as in racecheck's JSON, left as it is.
Finding = Annotated[dict[str, Any], AfterValidator(_checked)]
#: The full name of a commit or tree.
Name = Annotated[str, Field(pattern=r"^([0-9a-f]{40}|[0-9a-f]{64})$")]
