"""cuDNN's layer normalization ``__cudnn$norm``, forward.

Operands: x of shape (rows, normalized dimensions ...); scale and bias of the normalized dimensions. Results:
the normalized array; the means and 1 / sqrt(variance + epsilon) of the rows (training); a workspace.
"""

from __future__ import annotations

import hloom.ops as ops
from hloom.library_calls.arithmetic import normalized
from hloom.library_calls.emulation import LibraryCall, Results, emulates
from hloom.shape.element_type import F32


@emulates("__cudnn$norm", operands=3)
def layer_norm(call: LibraryCall) -> Results:
    """Return x normalized along all dimensions but the first, scaled and shifted; see the module."""
    settings = call.settings("cudnn_norm_backend_config")
    kind = settings.word("kind", "LAYER_FWD_INFER")
    call.require(kind in ("LAYER_FWD_INFER", "LAYER_FWD_TRAIN"), f"the kind {kind}")
    x, scale, bias = (ops.ConvertElementType(operand, F32) for operand in call.operands[:3])
    sizes = x.shape.dimensions
    inner = list(range(1, len(sizes)))
    value, mean, factor = normalized(x, inner, settings.number("epsilon"))
    scale, bias = (ops.BroadcastInDim(ops.Reshape(v, sizes[1:]), sizes, inner) for v in (scale, bias))
    result = value * scale + bias
    if kind == "LAYER_FWD_INFER":
        return [result]
    return [result, *(ops.Reshape(v, s.dimensions) for v, s in zip((mean, factor), call.shapes[1:3]))]
