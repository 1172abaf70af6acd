"""Linear equations: trsm and gtsv."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hloom.runtime.lapack.library import Array, Call, leading, register


@register("trsm", operands=[2, 2])
def triangular(call: Call, operands: Sequence[Array], results: Sequence[Array]) -> None:
    """Compute (a, b) -> (x) with op(a) x = b or x op(a) = b."""
    (a, b), (x,) = operands, results
    x[...] = b
    one = np.ones(1, call.dtype)
    letters = (call.letter(name) for name in ("side", "uplo", "trans_x", "diag"))
    call.run("trsm", *letters, *x.shape, one, a, leading(a), x, leading(x))


@register("gtsv", operands=[1, 1, 1, 2])
def tridiagonal(call: Call, operands: Sequence[Array], results: Sequence[Array]) -> None:
    """Compute (lower, diagonal, upper, b) -> (the overwritten operands with x in b, info).

    LAPACK's lower diagonal begins at the operand's second element; its upper one excludes the last.
    """
    *left, info = results
    for result, operand in zip(left, operands, strict=True):
        result[...] = operand
    lower, diagonal, upper, x = left
    call.run("gtsv", *x.shape, lower[1:], diagonal, upper, x, leading(x), info)
