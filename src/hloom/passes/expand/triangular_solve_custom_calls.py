"""triangular-solve-custom-calls: solve triangular systems of LAPACK's custom calls by triangular-solve."""

from __future__ import annotations

from typing import Final

from hloom.errors import HloError
from hloom.ir.instruction import HloInstruction
from hloom.operations.custom_call import CustomCall
from hloom.operations.ffi_attributes import parse_attributes
from hloom.operations.lapack.calls import library_call
from hloom.operations.linear_algebra import TriangularSolve
from hloom.passes.op_expander import OpExpander
from hloom.passes.writing import Writer

MOST_BYTES: Final = 1 << 24
"""Bytes of matrices up to which the kernel of triangular-solve takes less time than calls of a library."""
_TRANSPOSES: Final = {"N": "NO_TRANSPOSE", "T": "TRANSPOSE", "C": "ADJOINT"}


class TriangularSolveCustomCalls(
    OpExpander, name="triangular-solve-custom-calls", of=CustomCall, mandatory=True
):
    """``custom-call(a, b)`` of target ``lapack_?trsm_ffi`` → ``triangular-solve(a, b)`` unless a is large."""

    def expand(self, i: HloInstruction, w: Writer) -> HloInstruction | None:
        solve = solve_of(i)
        return None if solve is None or not _is_fast(i) else w.op(solve, *i.operands)


def solve_of(i: HloInstruction) -> TriangularSolve | None:
    """Return the operation that a custom call of LAPACK's trsm computes; None for other instructions."""
    operation = i.operation
    if not isinstance(operation, CustomCall) or not operation.custom_call_target.endswith("trsm_ffi"):
        return None
    try:
        if library_call(i) is None:
            return None
    except HloError:
        return None  # The custom call raises the error if it is ever run.
    attributes = parse_attributes(i.backend_config)
    letters = {name: chr(attributes[name]) for name in ("side", "uplo", "trans_x", "diag")}
    return TriangularSolve(
        left_side=letters["side"] == "L",
        lower=letters["uplo"] == "L",
        unit_diagonal=letters["diag"] == "U",
        transpose_a=_TRANSPOSES[letters["trans_x"]],
    )


def _is_fast(i: HloInstruction) -> bool:
    """Return whether the kernel takes less time than the call."""
    *_, unknowns = i.operands[0].shape.dimensions
    matrix = unknowns * unknowns * i.operands[0].shape.element_type.bits // 8
    return 0 < matrix <= MOST_BYTES
