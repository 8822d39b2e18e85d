"""How many slots a runner rotates through, and so how many copies of its buffers a resource keeps."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from racecheck.engine.resources import Resource
from racecheck.errors import UsageError

#: Environment variable with a slot count for all runners, as real engines have one.
VARIABLE = "ENGINE_NUM_SLOTS"


class SlotPolicy:
    """Decides slot counts from what is configured, what the environment says and what resources need."""

    def __init__(
        self, configured: Mapping[str, int], run_ahead: int, environment: Mapping[str, str] = os.environ
    ) -> None:
        self._configured = configured
        self._run_ahead = run_ahead
        self._environment = environment

    def count(self, runner: str, resources: Iterable[Resource]) -> int:
        """Slots of `runner`, which plans `resources`: one will do if none forces double buffering.

        A count that was configured for this very runner is taken as it is, so that too few can be shown.
        """
        if runner in self._configured:
            return self._configured[runner]
        if not any(resource.force_double_buffer for resource in resources):
            return 1
        return max(self.floor(), self.from_environment() or 0)

    def floor(self) -> int:
        """As many as steps are in flight while one is planned: a serial host has waited for all others."""
        return self._run_ahead + 1

    def from_environment(self) -> int | None:
        """The count that `ENGINE_NUM_SLOTS` asks for."""
        text = self._environment.get(VARIABLE)
        if text is None:
            return None
        if not text.isdecimal() or int(text) < 1:
            raise UsageError(f"{VARIABLE}={text}: write a whole number of slots from 1, or unset it")
        return int(text)
