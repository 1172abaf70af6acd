"""Triangular solves of cuBLAS and Cholesky factors of cuSOLVER."""

from __future__ import annotations

import hloom.ops as ops
from hloom.library_calls.emulation import LibraryCall, Results, emulates


@emulates("__cublas$triangularSolve", operands=2)
def triangular_solve(call: LibraryCall) -> Results:
    """The solution of a system with a triangular matrix."""
    a, b = call.operands[:2]
    settings = call.settings("triangular_solve_options")
    transposed = settings.word("transpose_a", "")
    call.require(transposed in ("NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"), f"transpose_a is {transposed!r}")
    left, lower, unit = map(settings.flag, ("left_side", "lower", "unit_diagonal"))
    return [ops.TriangularSolve(a, b, left, lower, unit, transposed)]


@emulates("__cusolver$cholesky")
def cholesky(call: LibraryCall) -> Results:
    """The factor; the status behind the workspace is 0, and a factor that does not exist is NaN."""
    return [ops.Cholesky(call.operands[0], call.settings("cholesky_options").flag("lower"))]
