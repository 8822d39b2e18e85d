"""The talker node of qwen3-tts: its resources, its runners, and the forward of each walk.

prefill   eager runner: embed the prompt, all layers, sample group 0, then the captured region
decode    main runner: the same for one position, with the region's loop inline, as one graph
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from racecheck.engine.config import EngineConfig, Parts
from racecheck.engine.layers import Weights
from racecheck.engine.request import Batch
from racecheck.engine.resources import Resource
from racecheck.engine.runners import Streams
from racecheck.engine.state import NextInput
from racecheck.engine.talker import CodePredictor, Talker


class TalkerNode:
    """One node: a step of it is `declare`, `plan`, `launch` and, once waited for, `commit`."""

    def __init__(self, config: EngineConfig, parts: Parts, streams: Streams) -> None:
        spec = config.spec
        self._streams = streams
        self._build_model(config)
        self._build_resources(config, parts)
        self._rotation = parts.rotation()
        outer = (self.kv, self.attention, self.position, self.talker_sampler)
        region = (self.code_predictor_sampler,)
        slots = partial(_num_slots, config)
        self.resources: Sequence[Resource] = outer + region
        self.main = parts.main(
            name="main", streams=streams, resources=outer + region, num_slots=slots("main", outer + region),
            label="talker_decode", buckets=spec.buckets, body=self._decode,
        )  # fmt: skip
        self.piecewise = parts.piecewise(
            name="piecewise", streams=streams, resources=region, num_slots=slots("piecewise", region),
            label="code_predictor_loop", buckets=_covering(spec.buckets, config.prefill_limit),
            inputs=self._region_inputs(config), body=self._code_predictor_loop,
        )  # fmt: skip
        self.eager = parts.eager(
            name="eager", streams=streams, resources=outer, num_slots=slots("eager", outer),
            regions=(self.piecewise,), body=self._prefill,
        )  # fmt: skip
        self._runners = {"prefill": self.eager, "decode": self.main}

    def _build_model(self, config: EngineConfig) -> None:
        spec, weights = config.spec, Weights(config.weight_seed, config.spec.dtype)
        self._groups = spec.groups
        self._talker = Talker(spec, weights)
        self._code_predictor = CodePredictor(spec, weights)
        self._next_input = NextInput(spec)
        # Graphs write their frames here, not to memory of their own pool, which a replay may reuse.
        self.codes = torch.zeros(spec.max_batch, spec.groups, dtype=torch.int64, device="cuda")

    def _build_resources(self, config: EngineConfig, parts: Parts) -> None:
        spec = config.spec
        # Buffers are shared by the runners, so they have a slot for the one that uses most.
        num_slots = max(2, config.run_ahead + 1, *config.slots.values())
        self.kv = parts.kv(spec, num_slots)
        self.attention = parts.attention(spec, num_slots)
        self.position = parts.position(spec, num_slots)
        self.talker_sampler = parts.sampler(
            "talker_sampler", num_slots, spec, spec.talker_sampling, spec.talker.vocab, range(1)
        )
        self.code_predictor_sampler = parts.sampler(
            "code_predictor_sampler", num_slots, spec, spec.code_predictor_sampling,
            spec.code_predictor.vocab, range(1, spec.groups),
        )  # fmt: skip

    def _region_inputs(self, config: EngineConfig) -> tuple[Tensor, ...]:
        batch, hidden = config.spec.max_batch, config.spec.talker.hidden
        return (
            torch.zeros(batch, hidden, dtype=config.spec.dtype, device="cuda"),  # the talker's hidden state
            torch.zeros(batch, dtype=torch.int64, device="cuda"),  # code of group 0
            torch.zeros(batch, dtype=torch.int64, device="cuda"),  # position
        )

    def capture(self) -> None:
        """Capture all graphs; the device must be idle."""
        self.piecewise.capture()
        self.main.capture()

    def admit(self, batch: Batch) -> None:
        """Write the device rows of a prefill's requests, in order behind the steps before it."""
        with torch.cuda.stream(self._streams.compute):
            for entry in batch.entries:
                self._next_input.admit(entry.request, entry.row)
                for resource in self.resources:
                    resource.admit(entry.request, entry.row)

    def plan(self, batch: Batch) -> int:
        """Declare and stage `batch`; returns its turn of the rotation, to launch it with.

        `NoGraphError` leaves the node as it was: a step that cannot run takes no turn and no pages.
        """
        runner = self._runners[batch.walk]
        runner.check(batch.size)
        turn = self._rotation.take()
        for resource in self.resources:
            resource.declare_step(batch)
        runner.plan(batch, turn)
        return turn

    def launch(self, batch: Batch, turn: int) -> None:
        """Queue the forward; its frames will be in `codes[:B]`, in the compute stream's order."""
        self._runners[batch.walk].launch(batch, turn)

    def commit(self, batch: Batch) -> None:
        """`batch` is complete and waited for."""
        for resource in self.resources:
            resource.commit(batch.step)

    def release(self, request_id: str) -> None:
        """Give up a request that will not run to its end."""
        for resource in self.resources:
            resource.release(request_id)

    def _prefill(self, batch: Batch, turn: int, slot: int) -> None:
        """The eager forward over T packed prompt tokens of B requests."""
        rows = self.talker_sampler.rows(slot, batch.size)  # [B]
        position = self.position.ids(slot, batch.num_tokens)  # [T]
        schedule = self.attention.schedule(slot, batch.num_tokens, batch.size)
        attend = self.attention.begin(self.kv, slot, schedule)
        token_rows = self.talker_sampler.token_rows(slot, schedule.token_request)  # [T]
        x = self._talker.embed_text(self._next_input.text(token_rows, position))
        hidden = self._talker.forward(x, position, attend)  # [T, E]
        hidden = hidden.index_select(0, schedule.last_token)  # [B, E]
        position = position.index_select(0, schedule.last_token)  # [B]
        first = self._sample_first(hidden, rows, position)
        self.piecewise.run(batch, turn, hidden, first, position)
        self._next_input.store(rows, self.codes[: batch.size])

    def _decode(self, bucket: int, slot: int) -> None:
        """The captured forward over one position of each of B = `bucket` requests."""
        rows = self.talker_sampler.rows(slot, bucket)  # [B]
        position = self.position.ids(slot, bucket)  # [B]
        attend = self.attention.begin(self.kv, slot, self.attention.schedule(slot, bucket, bucket))
        x = self._talker.embed_text(self._next_input.text(rows, position))
        x = x + self._talker.embed_frame(self._next_input.frame(rows))
        hidden = self._talker.forward(x, position, attend)  # [B, E]
        first = self._sample_first(hidden, rows, position)
        self._code_predictor_loop(slot, hidden, first, position)
        self._next_input.store(rows, self.codes[:bucket])

    def _sample_first(self, hidden: Tensor, rows: Tensor, position: Tensor) -> Tensor:
        """Code of group 0, int64 [B]."""
        draw = self.talker_sampler.begin(rows, position)
        return self.talker_sampler.sample(draw, self._talker.logits(hidden), 0)

    def _code_predictor_loop(self, slot: int, hidden: Tensor, first: Tensor, position: Tensor) -> None:
        """Codes of all groups into `codes[:B]`: hidden [B, E], first [B], position [B]."""
        sampler, batch = self.code_predictor_sampler, hidden.shape[0]
        draw = sampler.begin(sampler.rows(slot, batch), position)
        self._code_predictor.forward(0, hidden)
        codes = [first]
        for group in range(1, self._groups):
            x = self._talker.embed_code(group - 1, codes[-1])
            hidden = self._code_predictor.forward(group, x)
            codes.append(sampler.sample(draw, self._code_predictor.logits(group, hidden), group - 1))
        self.codes[:batch].copy_(torch.stack(codes, 1))


def _num_slots(config: EngineConfig, runner: str, resources: Sequence[Resource]) -> int:
    """The slots `runner` rotates through: as configured, else what its resources need."""
    forced = any(resource.force_double_buffer for resource in resources)
    return config.slots.get(runner, max(2, config.run_ahead + 1) if forced else 1)


def _covering(buckets: Sequence[int], limit: int) -> tuple[int, ...]:
    """The buckets up to the first that holds `limit` requests."""
    smaller = sum(bucket < limit for bucket in buckets)
    return tuple(sorted(buckets)[: smaller + 1])
