"""`torch.autocast("cuda")` on the virtual device: CUDA's lists of operators, at the backend's autocast key.

Source of the lists: aten/src/ATen/autocast_mode.h (AT_FORALL_LOWER_PRECISION_FP, AT_FORALL_FP32,
AT_FORALL_PROMOTE). Operators of `_FP32_RESULT` get a float32 result instead when none was asked for; casting
their input first gives the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from racecheck.virtual.tensor import BACKEND

_LOWER = """_convolution _convolution.deprecated conv1d conv2d conv3d conv_tbc conv_transpose1d
conv_transpose2d.input conv_transpose3d.input convolution prelu addmm addmv addr matmul einsum mm mv
linalg_vecdot linear addbmm baddbmm bmm chain_matmul linalg_multi_dot _thnn_fused_lstm_cell
_thnn_fused_gru_cell lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell scaled_dot_product_attention"""

_FP32 = """acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan
pow.Tensor_Scalar pow.Tensor_Tensor pow.Scalar softplus layer_norm native_layer_norm group_norm
cosine_similarity poisson_nll_loss cosine_embedding_loss nll_loss nll_loss2d hinge_embedding_loss kl_div
l1_loss smooth_l1_loss huber_loss mse_loss margin_ranking_loss multilabel_margin_loss soft_margin_loss
triplet_margin_loss multi_margin_loss binary_cross_entropy_with_logits dist pdist cdist renorm logsumexp"""

_FP32_RESULT = """prod prod.dim_int softmax.int log_softmax.int cumprod cumsum linalg_vector_norm
linalg_matrix_norm sum sum.dim_IntList"""

_WIDEST = """addcdiv addcmul atan2 bilinear cross dot grid_sampler index_put tensordot scatter_add
cat stack"""

_BELOW = torch._C.DispatchKeySet(
    torch._C.DispatchKey.AutocastPrivateUse1  # type: ignore[attr-defined]
)


def register_autocast() -> list[torch.library.Library]:
    """Register the rules; they hold as long as the result lives."""
    others = torch.library.Library("_", "IMPL")
    others.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
    library = torch.library.Library("aten", "IMPL")
    for names, rule in ((_LOWER, _lower), (_FP32, _fp32), (_FP32_RESULT, _fp32_result), (_WIDEST, _widest)):
        for name in names.split():
            packet, _, overload = name.partition(".")
            operator = getattr(getattr(torch.ops.aten, packet, None), overload or "default", None)
            if operator is not None:
                library.impl(name, _cast(operator, rule), "AutocastPrivateUse1")
    return [others, library]


def _cast(operator: Any, rule: Callable[[list[torch.dtype], Any], torch.dtype | None]) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        given = [
            leaf
            for leaf in tree_leaves((args, kwargs))
            if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() and leaf.dtype != torch.float64
        ]
        dtype = rule([leaf.dtype for leaf in given], kwargs.get("dtype"))

        def cast(leaf: Any) -> Any:
            return leaf.to(dtype) if any(leaf is one for one in given) else leaf

        with torch._C._ExcludeDispatchKeyGuard(_BELOW):
            if dtype is not None:
                args, kwargs = tree_map(cast, (args, kwargs))
            return operator(*args, **kwargs)

    return run


def _lower(dtypes: list[torch.dtype], wanted: Any) -> torch.dtype | None:
    return torch.get_autocast_dtype(BACKEND)


def _fp32(dtypes: list[torch.dtype], wanted: Any) -> torch.dtype | None:
    return torch.float32


def _fp32_result(dtypes: list[torch.dtype], wanted: Any) -> torch.dtype | None:
    return None if wanted is not None else torch.float32


def _widest(dtypes: list[torch.dtype], wanted: Any) -> torch.dtype | None:
    return torch.float32 if torch.float32 in dtypes else None


def virtual_init(real: Callable[..., None]) -> Callable[..., None]:
    """`torch.autocast.__init__`, with the backend in the place of "cuda"."""

    def __init__(self: Any, device_type: str, *args: Any, **kwargs: Any) -> None:
        real(self, BACKEND if device_type == "cuda" else device_type, *args, **kwargs)

    return __init__


def is_enabled(real: Callable[..., bool]) -> Callable[..., bool]:
    """`torch.is_autocast_enabled`: the answer for "cuda" is the backend's."""
    return lambda device_type="cuda": real(BACKEND if device_type == "cuda" else device_type)
