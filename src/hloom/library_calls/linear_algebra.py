"""Linear algebra: solves and factors of cuBLAS and cuSOLVER, and the calls of XlaBuilder's QR and Eigh.

XLA expands ``Qr``, ``Eigh`` and reflectors into loops; here they become LAPACK calls. Eigenvectors may differ
from XLA's in sign or phase.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import hloom.ops as ops
from hloom.builder.builder import XlaOp
from hloom.library_calls.emulation import LibraryCall, Results, emulates
from hloom.shape.element_type import C64, C128, F32, F64, ElementType
from hloom.shape.shape import Shape

_PREFIXES: Final = {F32: "s", F64: "d", C64: "c", C128: "z"}


@emulates("__cublas$triangularSolve", operands=2)
def triangular_solve(call: LibraryCall) -> Results:
    """Return the solution of a triangular system."""
    a, b = call.operands[:2]
    settings = call.settings("triangular_solve_options")
    transposed = settings.word("transpose_a", "")
    call.require(transposed in ("NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"), f"transpose_a is {transposed!r}")
    is_left, lower, unit = map(settings.flag, ("left_side", "lower", "unit_diagonal"))
    return [ops.TriangularSolve(a, b, is_left, lower, unit, transposed)]


@emulates("__cusolver$cholesky")
def cholesky(call: LibraryCall) -> Results:
    """Return the Cholesky factor, NaN if there is none; the status after the workspace is always 0."""
    return [ops.Cholesky(call.operands[0], call.settings("cholesky_options").flag("lower"))]


@emulates("Qr", results=2)
def qr(call: LibraryCall) -> Results:
    """Return R in the upper triangle with the Householder reflectors below it, and their factors tau."""
    return _called("geqrf", "geqrf", call.operands, [shape.dimensions for shape in call.shapes])


@emulates("ProductOfElementaryHouseholderReflectors", operands=2)
def reflectors(call: LibraryCall) -> Results:
    """Return the leading columns of Q from the reflectors and factors that ``Qr`` returns."""
    return _called("orgqr", "ungqr", call.operands, [call.shapes[0].dimensions])


@emulates("Eigh", results=2)
def eigh(call: LibraryCall) -> Results:
    """Return the eigenvectors of a Hermitian matrix, and its eigenvalues in ascending order.

    The configuration is ``lower,sort,max_iter,tol``; eigenvalues are sorted whatever ``sort`` is.
    """
    fields = call.instruction.backend_config.split(",")
    call.require(
        len(fields) == 4 and fields[0] in ("0", "1"), "its configuration is not lower,sort,max_iter,tol"
    )
    triangle = ord("L" if fields[0] == "1" else "U")
    options = f"{{mode = {ord('V')} : ui8, uplo = {triangle} : ui8}}"
    sizes = call.operands[0].shape.dimensions
    return _called("syevd", "heevd", call.operands, [sizes, sizes[:-1], sizes[:-2]], options)[:2]


def _called(
    real: str, unitary: str, operands: Sequence[XlaOp], sizes: Sequence[Sequence[int]], options: str = "{}"
) -> list[XlaOp]:
    """Call a LAPACK routine, in f32 or wider; return its results, of the given ``sizes``.

    ``real`` and ``unitary`` name the routine for real and for complex matrices. The second result of an
    eigenvalue routine is real, the third is the status.
    """
    kind = operands[0].shape.element_type
    kind = kind if kind in _PREFIXES else F32
    name = unitary if kind.is_complex else real
    of_values = kind.component if name in ("syevd", "heevd") else kind
    kinds: list[ElementType] = [kind, of_values, ElementType.parse("s32")]
    result = ops.CustomCall(
        f"lapack_{_PREFIXES[kind]}{name}_ffi",
        *(ops.ConvertElementType(x, kind) for x in operands),
        shape=Shape.tuple_([Shape(k, tuple(n)) for k, n in zip(kinds, sizes, strict=False)])
        if len(sizes) > 1
        else Shape(kind, tuple(sizes[0])),
        api_version="API_VERSION_TYPED_FFI",
        opaque=options,
    )
    return [ops.GetTupleElement(result, n) for n in range(len(sizes))] if len(sizes) > 1 else [result]
