"""Decode steps of the models over a small paged cache, for the tests of the model package."""

from __future__ import annotations

import torch

from racecheck.engine.models import CodePredictor, LanguageModel, PagedLatent, Talker, Weights
from racecheck.engine.models.layers import MASKED, attention
from racecheck.engine.models.sampling import negated_gumbel, noise_cells, penalise, sample


def filled(count, dtype, rows, *size):
    """`count` caches [rows, *size] whose leading rows are the same for any `rows` up to 8."""
    draw = torch.Generator().manual_seed(5)
    return [torch.randn(8, *size, generator=draw)[:rows].to(dtype).to("cuda") for _ in range(count)]


class Paged:
    """Keys and values of rows that hold one page each, addressed as the engine's attention does."""

    def __init__(self, spec, rows, position, dtype):
        stack, limits = spec.stack, spec.limits
        self.heads, self.length = stack.kv_heads, limits.max_length
        caches = filled(2 * stack.layers, dtype, rows, self.heads, self.length, stack.head_dim)
        self.caches = [cache.flatten(0, 1) for cache in caches]
        row_heads = torch.arange(self.heads).to("cuda") + self.heads * torch.arange(rows).to("cuda")[:, None]
        self.write_slots = row_heads * self.length + position[:, None]
        self.pages = row_heads.flatten()
        hidden = torch.arange(self.length, device="cuda") > position[:, None]
        self.bias = (hidden * MASKED).to(dtype).repeat_interleave(self.heads, 0)[:, None]

    def __call__(self, layer, q, k, v):
        """Write k and v, attend in `layer`."""
        keys, values = self.caches[2 * layer : 2 * layer + 2]
        return attention(q, self._update(keys, k), self._update(values, v), self.bias)

    def _update(self, cache, new):
        cache.flatten(0, 1).index_put_((self.write_slots,), new)
        return cache.index_select(0, self.pages)


def paged_latent(spec, rows, position, dtype):
    """A `PagedLatent` over rows that hold one page each."""
    latent, length = spec.stack.latent, spec.limits.max_length
    caches = filled(spec.stack.layers, dtype, rows, length, latent.rank + latent.rope)
    pages = torch.arange(rows).to("cuda")
    hidden = torch.arange(length, device="cuda") > position[:, None]
    bias = (hidden * MASKED).to(dtype)[:, None]
    return PagedLatent(caches, latent.rank, pages * length + position, pages, bias)


class Picker:
    """Samples as the engine's sampler does, with a temperature and a seed for every row."""

    def __init__(self, sampling, vocab, groups, rows):
        self.sampling = sampling
        self.cells = noise_cells(groups, vocab)
        self.temperature = (0.6 + 0.1 * torch.arange(rows)[:, None]).to("cuda")
        self.seed = (1000 + torch.arange(rows)).to("cuda")
        self.seen = torch.zeros(rows, vocab, dtype=torch.bool, device="cuda")

    def noise(self, position):
        """Negated noise [rows, groups, V]."""
        return negated_gumbel(self.seed, position, self.cells)

    def pick(self, logits, noise):
        """Tokens [rows]."""
        logits = logits.float()
        if self.sampling.penalty != 1.0:
            logits = penalise(logits, self.seen, self.sampling.penalty)
        return sample(logits, noise, self.temperature, self.sampling)


def language_model_step(spec, rows, dtype):
    """Call for one decode step of a `DecoderSpec`: () -> (hidden [rows, E], tokens [rows])."""
    model = LanguageModel(spec, Weights(0, dtype))
    tokens, position = (torch.arange(rows).to("cuda") + first for first in (3, 7))
    make = Paged if spec.stack.latent is None else paged_latent
    attend = make(spec, rows, position, dtype)
    picker = Picker(spec.sampling, spec.stack.vocab, range(1), rows)

    def step():
        hidden = model.forward(model.embed(tokens), position, attend)
        return hidden, picker.pick(model.logits(hidden), picker.noise(position)[:, 0])

    return step


def talker_step(spec, rows, dtype):
    """Call for one decode step of a `TalkerSpec`: () -> (hidden [rows, E], frames [rows, groups])."""
    weights = Weights(0, dtype)
    talker, predictor = Talker(spec, weights), CodePredictor(spec, weights)
    text, position = (torch.arange(rows).to("cuda") + first for first in (3, 7))
    frame = torch.stack([text + group for group in range(spec.groups)], 1)
    attend = Paged(spec, rows, position, dtype)
    first = Picker(spec.sampling, spec.stack.vocab, range(1), rows)
    others = Picker(spec.code_sampling, spec.code_predictor.vocab, range(1, spec.groups), rows)

    def step():
        x = talker.embed_text(text) + talker.embed_frame(frame)
        hidden = talker.forward(x, position, attend)
        codes = [first.pick(talker.logits(hidden), first.noise(position)[:, 0])]
        noise = others.noise(position)
        predictor.forward(0, hidden)
        for group in range(1, spec.groups):
            states = predictor.forward(group, talker.embed_code(group - 1, codes[-1]))
            codes.append(others.pick(predictor.logits(group, states), noise[:, group - 1]))
        return hidden, torch.stack(codes, 1)

    return step


def step_of(spec, node, rows, dtype=torch.float32):
    """The decode step of one node ("decoder", "thinker" or "talker") of a model."""
    make = talker_step if node == "talker" else language_model_step
    return make(getattr(spec, node), rows, dtype)
