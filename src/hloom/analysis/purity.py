"""Operations whose result follows from their operands alone."""

from __future__ import annotations

from typing import Final

import hloom.operations  # noqa: F401  # pyright: ignore[reportUnusedImport]  (declares the operations)
from hloom.ir.instruction import HloInstruction
from hloom.ir.operation import REGISTRY

ELEMENTWISE: Final = frozenset(opcode for opcode, operation in REGISTRY.items() if operation.elementwise)
"""Each element of the result follows from the operands' elements of the same index."""
MOVEMENT: Final = frozenset(
    ("bitcast", "bitcast-convert", "broadcast", "concatenate", "dynamic-slice", "dynamic-update-slice",
     "gather", "iota", "pad", "reshape", "reverse", "slice", "transpose")
)  # fmt: skip
"""Elements are put in other places."""
CONTRACTION: Final = frozenset(("convolution", "dot"))
"""Sums of products."""
COMBINATION: Final = frozenset(("reduce", "reduce-window", "scatter", "select-and-scatter", "sort"))
"""Elements are combined by a computation."""
PURE: Final = ELEMENTWISE | MOVEMENT | CONTRACTION | COMBINATION
"""All of these."""
FREE: Final = frozenset(
    ("parameter", "constant", "iota", "broadcast", "reshape", "bitcast", "tuple", "get-tuple-element", "copy")
)
"""Operations that cost nothing, or next to nothing wherever they stand."""


def has_side_effect(instruction: HloInstruction) -> bool:
    """Whether an instruction, or anything it calls, does more than compute a value."""
    if instruction.operation.side_effect or getattr(
        instruction.operation, "custom_call_has_side_effect", False
    ):
        return True
    return any(has_side_effect(i) for c in instruction.called_computations for i in c.instructions)
