"""A sampler: device-resident rows of per-request parameters, read through one staged row of indices.

Sampling draws no random numbers. Its noise is a hash of (seed, position, group, vocabulary index), so a
request gets the same tokens in any batch, at any run-ahead, on any replay; and a wrong gather index,
which hands a request another's seed and temperature, gives it other tokens.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from racecheck.engine.request import Batch, Request
from racecheck.engine.resources.base import Layout, Resource, padded
from racecheck.engine.spec import ModelSpec, SamplingSpec
from racecheck.staging import PinnedBuffer

# Padding rows of a bucket read and write row 0, which belongs to no request; requests get rows from 1.
DUMMY_ROW = 0

# Odd 64-bit multipliers from the SplitMix64 and Murmur3 finalisers, as signed integers.
_SEED, _POSITION = 0x9E3779B97F4A7C15 - 2**64, 0xD1B54A32D192ED03 - 2**64
_MIX_1, _MIX_2 = 0xBF58476D1CE4E5B9 - 2**64, 0x94D049BB133111EB - 2**64


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

    def __init__(
        self, name: str, num_slots: int, spec: ModelSpec, sampling: SamplingSpec, vocab: int, groups: range
    ) -> None:
        super().__init__(name, num_slots)
        self._batch = spec.max_batch
        self._top_k = min(sampling.top_k, vocab)
        self._penalty = sampling.penalty
        self._gather_indices = self.stage(
            PinnedBuffer(f"{self.name}.gather_indices", (self._batch,), torch.int64, slots=num_slots)
        )
        rows = 1 + spec.max_requests
        self._temperature = torch.ones(rows, 1, device="cuda")
        self._seed = torch.zeros(rows, dtype=torch.int64, device="cuda")
        self._seen = torch.zeros(rows, vocab, dtype=torch.bool, device="cuda")
        self._true = torch.ones((), dtype=torch.bool, device="cuda")
        self._cells = _cells(groups, vocab).to("cuda")  # [groups, V]

    def admit(self, request: Request, row: int) -> None:
        """Set the row by kernels with immediate arguments: no staging, so nothing to race with."""
        self._temperature[row].fill_(request.temperature)
        self._seed[row].fill_(request.seed)
        self._seen[row].fill_(False)

    def layout(self, batch: Batch) -> Layout:
        """The batch's rows, padded with the dummy row."""
        rows = [entry.row for entry in batch.entries]
        return (padded(rows, self._batch, DUMMY_ROW, torch.int64),)

    def plan(self, step: int, slot: int) -> None:
        """Stage the gather indices."""
        with self.planning(step, slot) as (rows,):
            lease = self._gather_indices.lease(slot)
            lease.write(rows)
            lease.copy()

    def rows(self, slot: int, batch_size: int) -> Tensor:
        """The slot's gather indices on the device, int64 [B]."""
        return self._gather_indices.device_view(slot)[:batch_size]

    def token_rows(self, slot: int, token_request: Tensor) -> Tensor:
        """The device row behind each packed token: token_request [T] -> int64 [T]."""
        return self._gather_indices.device_view(slot).index_select(0, token_request)

    def begin(self, rows: Tensor, position: Tensor) -> Draw:
        """Gather parameters and compute the noise for one forward pass: rows [B], position [B]."""
        seed = self._seed.index_select(0, rows)
        key = torch.add(seed * _SEED, position, alpha=_POSITION)  # [B]
        noise = _negated_gumbel(key[:, None, None] + self._cells)  # [B, groups, V]
        return Draw(rows, self._temperature.index_select(0, rows), noise)

    def sample(self, draw: Draw, logits: Tensor, group: int) -> Tensor:
        """Tokens int64 [B] from logits [B, V]; `group` counts this sampler's groups from 0."""
        logits = self._penalise(logits.float(), draw.rows) / draw.temperature
        least = torch.topk(logits, self._top_k).values[:, -1:]
        scores = logits.masked_fill(logits < least, -torch.inf)
        tokens = (scores - draw.noise[:, group]).argmax(-1)
        if self._penalty != 1.0:
            self._seen.index_put_((draw.rows, tokens), self._true)
        return tokens

    def _penalise(self, logits: Tensor, rows: Tensor) -> Tensor:
        if self._penalty == 1.0:
            return logits
        lowered = torch.minimum(logits / self._penalty, logits * self._penalty)
        return torch.where(self._seen.index_select(0, rows), lowered, logits)


def _cells(groups: range, vocab: int) -> Tensor:
    """A fixed random 64-bit constant for every (group, vocabulary index): int64 [groups, V]."""
    index = torch.arange(groups.start * vocab, groups.stop * vocab, dtype=torch.int64) + 1
    return _mix(index * _SEED).view(len(groups), vocab)


def _mix(z: Tensor) -> Tensor:
    """Two rounds of multiply and xor-shift on int64, which wraps alike on every device."""
    z = (z ^ (z >> 30)) * _MIX_1
    return (z ^ (z >> 27)) * _MIX_2


def _negated_gumbel(z: Tensor) -> Tensor:
    """Minus Gumbel(0, 1) noise from 64-bit cells, float32, finite."""
    # 23 signed bits and a half step: never 0 or 1, and exact in float32.
    uniform = (_mix(z) >> 41).float() * 2.0**-23 + (0.5 + 2.0**-24)
    return (-uniform.log()).log()
