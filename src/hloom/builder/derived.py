"""Builder functions derived from the declarations of operations without a handwritten one."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from hloom.builder.broadcasting import broadcast_operands
from hloom.builder.builder import XlaOp
from hloom.builder.operands import as_ops, pair
from hloom.ir.operation import REGISTRY


def derived_function(name: str) -> Callable[..., XlaOp] | None:
    """Return the function ``Name`` of the declared operation ``name``; None if there is no such operation.

    It takes the operands, then attributes, ``computations`` and ``shape`` by name, as `XlaBuilder.emit` does.
    Two operands of an elementwise operation are broadcast, as in the page's functions.
    """
    opcode = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name).lower()
    declared = REGISTRY.get(opcode)
    if declared is None or not name[:1].isupper():
        return None
    binary = declared.elementwise and declared.arity() == 2

    def function(*operands: Any, **attributes: Any) -> XlaOp:
        if binary and len(operands) == 2:
            inputs = list(
                broadcast_operands(name, *pair(*operands), attributes.pop("broadcast_dimensions", None))
            )
        else:
            inputs = as_ops(*operands)
        return inputs[0].builder.emit(opcode, inputs, **attributes)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = declared.__doc__
    return function
