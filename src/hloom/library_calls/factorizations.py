"""Orthogonal factors and eigenvalues as XlaBuilder's library asks for them: ``Qr``, ``Eigh`` and reflectors.

XLA expands these calls; here they are the calls of LAPACK with the same results. An eigenvector may have
another sign (or phase) than XLA's.
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


@emulates("Qr", results=2)
def qr(call: LibraryCall) -> Results:
    """The upper triangle of R with the reflectors below it, and their factors tau."""
    return _called("geqrf", "geqrf", call.operands, [shape.dimensions for shape in call.shapes])


@emulates("ProductOfElementaryHouseholderReflectors", operands=2)
def reflectors(call: LibraryCall) -> Results:
    """The first columns of the product of the reflectors that ``Qr`` has returned."""
    return _called("orgqr", "ungqr", call.operands, [call.shapes[0].dimensions])


@emulates("Eigh", results=2)
def eigh(call: LibraryCall) -> Results:
    """The eigenvectors of a Hermitian matrix and its eigenvalues in ascending order.

    The configuration is ``lower,sort,max_iter,tol``; the eigenvalues are sorted without asking, too.
    """
    fields = call.instruction.backend_config.split(",")
    call.require(
        len(fields) == 4 and fields[0] in ("0", "1"), "its configuration is not lower,sort,max_iter,tol"
    )
    vectors, values = (shape.dimensions for shape in call.shapes[:2])
    triangle = ord("L" if fields[0] == "1" else "U")
    options = f"{{mode = {ord('V')} : ui8, uplo = {triangle} : ui8}}"
    return _called("syevd", "heevd", call.operands, [vectors, values, vectors[:-2]], options)[:2]


def _called(
    real: str, unitary: str, operands: Sequence[XlaOp], sizes: Sequence[Sequence[int]], options: str = "{}"
) -> list[XlaOp]:
    """Call a routine of LAPACK in f32 at least; return its results, of ``sizes`` each.

    The second result of an eigenvalue routine is real, and the third is the status.
    """
    kind = operands[0].shape.element_type
    kind = kind if kind in _PREFIXES else F32
    name = unitary if kind.is_complex else real
    of_values = kind.component if name in ("syevd", "heevd") else kind
    kinds: list[ElementType] = [kind, of_values, ElementType.parse("s32")]
    found = ops.CustomCall(
        f"lapack_{_PREFIXES[kind]}{name}_ffi",
        *(ops.ConvertElementType(x, kind) for x in operands),
        shape=Shape.tuple_([Shape(k, tuple(n)) for k, n in zip(kinds, sizes, strict=False)])
        if len(sizes) > 1
        else Shape(kind, tuple(sizes[0])),
        api_version="API_VERSION_TYPED_FFI",
        opaque=options,
    )
    return [ops.GetTupleElement(found, n) for n in range(len(sizes))] if len(sizes) > 1 else [found]
