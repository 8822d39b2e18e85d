"""Sampling without random numbers: the noise is a hash of (seed, position, group, vocabulary index).

So a request gets the same tokens in any batch, at any run-ahead, on any replay; and a wrong gather index,
which hands it another request's seed and temperature, gives it other tokens.
"""

from __future__ import annotations

import torch
from torch import Tensor

from racecheck.engine.models.spec import SamplingSpec

# Odd 64-bit multipliers from the SplitMix64 and Murmur3 finalisers, as signed integers.
_SEED, _POSITION = 0x9E3779B97F4A7C15 - 2**64, 0xD1B54A32D192ED03 - 2**64
_MIX_1, _MIX_2 = 0xBF58476D1CE4E5B9 - 2**64, 0x94D049BB133111EB - 2**64


def noise_cells(groups: range, vocab: int) -> Tensor:
    """A fixed random 64-bit constant for every (group, vocabulary index): int64 [G, V], on the device."""
    index = torch.arange(groups.start * vocab, groups.stop * vocab, dtype=torch.int64) + 1
    return _mix(index * _SEED).view(len(groups), vocab).to("cuda")


def negated_gumbel(seed: Tensor, position: Tensor, cells: Tensor) -> Tensor:
    """Minus Gumbel(0, 1) noise, float32 and finite: seed [B], position [B], cells [G, V] -> [B, G, V]."""
    key = torch.add(seed * _SEED, position, alpha=_POSITION)  # [B]
    mixed = _mix(key[:, None, None] + cells)  # [B, G, V]
    # 23 signed bits and a half step: never 0 or 1, and exact in float32.
    uniform = (mixed >> 41).float() * 2.0**-23 + (0.5 + 2.0**-24)
    return (-uniform.log()).log()


def penalise(logits: Tensor, seen: Tensor, penalty: float) -> Tensor:
    """Lower the logits [B, V] of tokens that are marked in seen [B, V] (bool)."""
    lowered = torch.minimum(logits / penalty, logits * penalty)
    return torch.where(seen, lowered, logits)


def sample(logits: Tensor, noise: Tensor, temperature: Tensor, spec: SamplingSpec) -> Tensor:
    """Tokens int64 [B] from float32 logits [B, V], negated noise [B, V] and temperature [B, 1]."""
    logits = logits / temperature
    least = least_kept(logits, spec.top_k, spec.top_p)
    if least is not None:
        logits = logits.masked_fill(logits < least, -torch.inf)
    return (logits - noise).argmax(-1)


def least_kept(logits: Tensor, top_k: int, top_p: float) -> Tensor | None:
    """The smallest logit [B, 1] that top-k, then top-p of what that leaves, keeps; ties with it stay too.

    None when all stay. Top-p keeps a token while the likelier ones have less than `top_p` together.
    """
    vocab = logits.shape[-1]
    count = min(top_k or vocab, vocab)
    if count == vocab and top_p >= 1.0:
        return None
    best = (logits.sort(-1, descending=True) if count == vocab else logits.topk(count, -1)).values
    if top_p >= 1.0:
        return best[:, -1:]
    share = torch.softmax(best, -1)  # [B, count], falling
    likelier = share.cumsum(-1) - share
    return best.masked_fill(likelier >= top_p, torch.inf).amin(-1, keepdim=True)


def _mix(z: Tensor) -> Tensor:
    """Two rounds of multiply and xor-shift on int64, which wraps alike on every device."""
    z = (z ^ (z >> 30)) * _MIX_1
    return (z ^ (z >> 27)) * _MIX_2
