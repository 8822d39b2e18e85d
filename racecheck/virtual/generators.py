"""Random generators that say "cuda": CPU generators, so that a seed gives the numbers of a CPU run."""

from __future__ import annotations

from typing import Any

import torch

from racecheck.virtual.refusals import refusal

_PHILOX = "virtual random numbers are a CPU run's, which have no Philox offset; use get_state and set_state"


class Generator(torch.Generator):
    """`torch.Generator(device)`: a CPU generator that says "cuda" when asked for one."""

    _device: torch.device

    def __new__(cls, device: Any = "cpu") -> Generator:
        """A generator for `device`; both kinds draw the same numbers from the same seed."""
        wanted = torch.device(device)
        self = super().__new__(cls, "cpu" if wanted.type == "cuda" else wanted)  # type: ignore[call-arg]
        self._device = torch.device("cuda", wanted.index or 0) if wanted.type == "cuda" else wanted
        return self

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        """The device asked for."""
        return self._device

    def clone_state(self) -> Generator:
        """A generator that draws the same numbers from here on."""
        twin = Generator(self._device)
        twin.set_state(self.get_state())
        return twin

    get_offset = refusal("Generator.get_offset", _PHILOX)
    set_offset = refusal("Generator.set_offset", _PHILOX)

    def graphsafe_get_state(self) -> Generator:
        """The state as a generator; captured work draws anew at each replay anyway."""
        return self.clone_state()

    def graphsafe_set_state(self, state: torch.Generator) -> Generator:
        """Go on from the state of another generator."""
        self.set_state(state.get_state())
        return self
