"""A sampler: device-resident rows of per-request parameters, read through one staged row of indices."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from racecheck.engine.models.sampling import negated_gumbel, noise_cells, penalise, sample
from racecheck.engine.models.spec import SamplingSpec
from racecheck.engine.request import Batch, Request
from racecheck.engine.resources.base import Extent, Layout, Resource, padded
from racecheck.engine.resources.position import DUMMY_ROW
from racecheck.staging import holds, named, wants


class Draw(NamedTuple):
    """What one forward pass samples with, gathered once."""

    rows: Tensor  # [B] device row of each request, padded with the dummy row
    temperature: Tensor  # [B, 1]
    noise: Tensor  # [B, groups, V] negated Gumbel noise


class Sampler(Resource):
    """Stages `<name>.gather_indices` [max_batch]: the device row of each request of the batch.

    Device rows (`max_requests` and the dummy): temperature, seed and, with a penalty, the tokens seen.
    `groups` are the code groups it samples, which enter the noise.
    """

    def __init__(self, name: str, extent: Extent, sampling: SamplingSpec, vocab: int, groups: range) -> None:
        super().__init__(name)
        self._requests = extent.requests
        self._sampling = sampling
        self._temperature = named(torch.ones(extent.rows, 1, device="cuda"), f"{name}.rows.temperature")
        self._seed = named(torch.zeros(extent.rows, dtype=torch.int64, device="cuda"), f"{name}.rows.seed")
        self._seen = named(
            torch.zeros(extent.rows, vocab, dtype=torch.bool, device="cuda"), f"{name}.rows.seen"
        )
        states = (self._temperature, self._seed, self._seen)
        self._states = list(zip(*(state.unbind(0) for state in states), strict=True))  # of each row
        self._true = torch.ones((), dtype=torch.bool, device="cuda")
        self._cells = noise_cells(groups, vocab)  # [groups, V]

    def build(self) -> None:
        """Stage the gather indices."""
        self._gather_indices = self.stage("gather_indices", (self._requests,), torch.int64)

    def admit(self, request: Request, row: int) -> None:
        """Set the row by kernels with immediate arguments: no staging, so nothing to race with."""
        self._temperature[row].fill_(request.temperature)
        self._seed[row].fill_(request.seed)
        self._seen[row].fill_(False)
        for state in self._states[row]:
            holds(state, settings_of(request))

    def layout(self, batch: Batch) -> Layout:
        """The batch's rows, then the row of padding, which a prompt that goes on gets, too."""
        padding = self.padding_row(batch)
        rows = [padding if entry.partial else entry.row for entry in batch.entries]
        return (padded(rows, self._requests, padding, torch.int64),)

    def expect(self, batch: Batch, label: str, slot: int) -> None:
        """The rows are those of the batch's requests, too."""
        super().expect(batch, label, slot)
        for entry in batch.entries:
            for state in () if entry.partial else self._states[entry.row]:
                wants(state, settings_of(entry.request))

    def padding_row(self, batch: Batch) -> int:
        """Where the padding rows of a bucket read and write: a row that no request has."""
        return DUMMY_ROW

    def rows(self, slot: int, requests: int) -> Tensor:
        """The slot's gather indices on the device, int64 [B]."""
        return self._gather_indices.device_view(slot)[:requests]

    def track(self, rows: Tensor, tokens: Tensor) -> None:
        """Count prompt tokens as given, where the penalty is on them too: rows [T], tokens [T]."""
        if self._sampling.penalise_prompt:
            self._seen.index_put_((rows, tokens), self._true)

    def begin(self, rows: Tensor, position: Tensor) -> Draw:
        """Gather parameters and compute the noise for one forward pass: rows [B], position [B]."""
        noise = negated_gumbel(self._seed.index_select(0, rows), position, self._cells)
        return Draw(rows, self._temperature.index_select(0, rows), noise)

    def sample(self, draw: Draw, logits: Tensor, group: int) -> Tensor:
        """Tokens int64 [B] from logits [B, V]; `group` counts this sampler's groups from 0."""
        logits, penalty = logits.float(), self._sampling.penalty
        if penalty != 1.0:
            logits = penalise(logits, self._seen.index_select(0, draw.rows), penalty)
        tokens = sample(logits, draw.noise[:, group], draw.temperature, self._sampling)
        if penalty != 1.0:
            self._seen.index_put_((draw.rows, tokens), self._true)
        return tokens


def settings_of(request: Request) -> str:
    """What the rows of `request` hold."""
    return f"settings of {request.id}"
