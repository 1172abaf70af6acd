"""composite-functions: composite calls of functions that have an operation, such as ``chlo.erfc``.

A composite call may be evaluated by its decomposition or by what its name says. The decompositions of CHLO's
functions are written in many operations, with errors that grow with the argument.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from hloom.ir.instruction import HloInstruction
from hloom.ir.operation import Operation
from hloom.operations.control_flow import Call
from hloom.operations.transcendental import ComplementaryErrorFunction
from hloom.passes.op_expander import OpExpander
from hloom.passes.writing import Writer

FUNCTIONS: Final[Mapping[str, Operation]] = {"chlo.erfc": ComplementaryErrorFunction()}
"""Operations by the names of composites."""


class CompositeFunctions(OpExpander, name="composite-functions", of=Call):
    """``call(x), is_composite=true, frontend_attributes={composite.name="chlo.erfc"}`` → ``erfc(x)``.

    Within the errors of the decomposition.
    """

    def expand(self, i: HloInstruction, w: Writer) -> HloInstruction | None:
        name = (i.frontend_attributes or {}).get("composite.name", "")
        if not (isinstance(i.operation, Call) and i.operation.is_composite and name in FUNCTIONS):
            return None
        (x,) = i.operands
        if x.shape != i.shape:
            return None
        function = w.op(FUNCTIONS[name], x)
        function.sharding = i.sharding
        function.metadata = i.metadata or i.called_computations[0].root.metadata
        return function
