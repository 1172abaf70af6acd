"""The functions of the operation-semantics page: ``hloom.ops.Clamp(lo, x, hi)`` and all others.

Every function appends to the program of its operands and returns the new value; functions without operands
take the builder first. Names, arguments and their order are the page's; XlaBuilder's further functions
are included. A number, list or array in place of a value becomes a constant.

::

    b = hloom.XlaBuilder("f")
    x = hloom.ops.Parameter(b, 0, hloom.Shape.parse("f32[4]"), "x")
    computation = b.build(x * 2 + hloom.ops.Sin(x))
"""

import re
from collections.abc import Callable
from typing import Any

from hloom.builder import (
    collectives,
    contraction,
    control_flow,
    data_movement,
    elementwise,
    indexing,
    reduction,
)
from hloom.builder.broadcasting import broadcast_operands
from hloom.builder.builder import XlaOp
from hloom.builder.collectives import *
from hloom.builder.contraction import *
from hloom.builder.control_flow import *
from hloom.builder.data_movement import *
from hloom.builder.elementwise import *
from hloom.builder.indexing import *
from hloom.builder.operands import as_ops
from hloom.builder.reduction import *
from hloom.ir.operation import REGISTRY

__all__: list[str] = []
__all__ += collectives.__all__
__all__ += contraction.__all__
__all__ += control_flow.__all__
__all__ += data_movement.__all__
__all__ += elementwise.__all__
__all__ += indexing.__all__
__all__ += reduction.__all__


def __getattr__(name: str) -> Callable[..., XlaOp]:
    """Derive the function ``Name`` of a declared operation ``name`` that has none of its own.

    It takes the operands, then attributes, ``computations`` and ``shape`` by name, as `XlaBuilder.emit` does.
    Two operands of an elementwise operation are broadcast, as in the page's functions.
    """
    opcode = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name).lower()
    declared = REGISTRY.get(opcode)
    if declared is None or not name[:1].isupper():
        raise AttributeError(f"module 'hloom.ops' has no function {name!r}")
    binary = declared.elementwise and declared.arity() == 2

    def function(*operands: Any, **attributes: Any) -> XlaOp:
        inputs = as_ops(*operands)
        if binary and len(inputs) == 2:
            mapping = attributes.pop("broadcast_dimensions", None)
            inputs = [*broadcast_operands(name, inputs[0], inputs[1], mapping)]
        return inputs[0].builder.emit(opcode, inputs, **attributes)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = declared.__doc__
    return function
