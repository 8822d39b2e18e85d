"""Operators that PyTorch calls on a GPU only, in terms of those it has on the CPU.

The fused recurrent cells are chosen by C++ code for any device that is not the CPU. The workspaces hold
what the backward needs, in the order of aten/src/ATen/native/cuda/RNN.cu: LSTM i, f, g, o; GRU r, z, n, h and
the hidden side's n.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten


def _lstm_cell(
    gates: Tensor, hidden: Tensor, cx: Tensor, bias: Tensor | None = None, hidden_bias: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    total = gates + hidden
    if bias is not None and hidden_bias is not None:
        total = total + bias + hidden_bias
    i, f, g, o = total.chunk(4, 1)  # each [batch, hidden]
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    cy = f * cx + i * g
    return o * cy.tanh(), cy, torch.cat([i, f, g, o], 1)


def _lstm_cell_backward(
    grad_hy: Tensor | None, grad_cy: Tensor | None, cx: Tensor, cy: Tensor, workspace: Tensor, has_bias: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    i, f, g, o = workspace.chunk(4, 1)
    hy = torch.zeros_like(cy) if grad_hy is None else grad_hy
    bent = cy.tanh()
    gc = hy * o * (1 - bent * bent) + (0 if grad_cy is None else grad_cy)
    grads = torch.cat(
        [gc * g * i * (1 - i), gc * cx * f * (1 - f), gc * i * (1 - g * g), hy * bent * o * (1 - o)], 1
    )
    return grads, gc * f, grads.sum(0) if has_bias else None


def _gru_cell(
    gates: Tensor, hidden: Tensor, hx: Tensor, bias: Tensor | None = None, hidden_bias: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    if bias is not None and hidden_bias is not None:
        gates, hidden = gates + bias, hidden + hidden_bias
    (ir, iz, in_), (hr, hz, hn) = gates.chunk(3, 1), hidden.chunk(3, 1)
    r, z = (ir + hr).sigmoid(), (iz + hz).sigmoid()
    n = (in_ + r * hn).tanh()
    return n + z * (hx - n), torch.cat([r, z, n, hx, hn], 1)


def _gru_cell_backward(
    grad_hy: Tensor, workspace: Tensor, has_bias: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None]:
    r, z, n, hx, hn = workspace.chunk(5, 1)
    gz = grad_hy * (hx - n) * z * (1 - z)
    gn = grad_hy * (1 - z) * (1 - n * n)
    gr = gn * hn * r * (1 - r)
    gates, hidden = torch.cat([gr, gz, gn], 1), torch.cat([gr, gz, gn * r], 1)
    biases = (gates.sum(0), hidden.sum(0)) if has_bias else (None, None)
    return gates, hidden, grad_hy * z, *biases


SUBSTITUTES: dict[Any, Callable[..., Any]] = {
    aten._thnn_fused_lstm_cell.default: _lstm_cell,
    aten._thnn_fused_lstm_cell_backward_impl.default: _lstm_cell_backward,
    aten._thnn_fused_gru_cell.default: _gru_cell,
    aten._thnn_fused_gru_cell_backward.default: _gru_cell_backward,
}
