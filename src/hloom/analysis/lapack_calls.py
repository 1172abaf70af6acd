"""The arithmetic of calls of LAPACK: `lapack_sgetrf_ffi` and the like, by which JAX factors matrices on CPUs.

The counts are those of LAPACK's working note 41 and, for iterative methods (eigenvalues, singular values),
the estimates of Golub and Van Loan, Matrix Computations, for the usual number of iterations.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from hloom.ir.instruction import HloInstruction
from hloom.operations.custom_call import CustomCall
from hloom.regex import regex

_TARGET: Final = regex(r"lapack_([sdcz])(\w+?)_ffi")
_COMPLEX: Final = 4.0
"""Real operations for one complex operation, on average of additions and multiplications."""


def lapack_flops(i: HloInstruction) -> float | None:
    """Return the flops of a call of LAPACK over all of its batch; None for other calls."""
    operation = i.operation
    match = _TARGET.fullmatch(operation.custom_call_target) if isinstance(operation, CustomCall) else None
    count = _FLOPS.get(_REAL_NAMES.get(match[2], match[2])) if match is not None else None
    if match is None or count is None or not i.operands or i.operands[0].shape.rank < 2:
        return None
    *batch, rows, columns = i.operands[0].shape.dimensions
    others = [o.shape.dimensions for o in i.operands[1:2]]
    flops = count(float(rows), float(columns), others[0] if others else ())
    return flops * math.prod(batch) * (_COMPLEX if match[1] in "cz" else 1.0)


def _lu(m: float, n: float, _: tuple[int, ...]) -> float:
    long, short = max(m, n), min(m, n)
    return long * short**2 - short**3 / 3


def _qr(m: float, n: float, _: tuple[int, ...]) -> float:
    long, short = max(m, n), min(m, n)
    return 2 * long * short**2 - 2 * short**3 / 3


def _orthogonal(m: float, n: float, reflectors: tuple[int, ...]) -> float:
    k = float(reflectors[-1]) if reflectors else min(m, n)
    return 4 * m * n * k - 2 * (m + n) * k**2 + 4 * k**3 / 3


def _triangular(m: float, n: float, right: tuple[int, ...]) -> float:
    """Count a multiplication and an addition for half of the matrix, for each element of the right side."""
    return m * math.prod(right[-2:])


def _singular_values(m: float, n: float, _: tuple[int, ...]) -> float:
    long, short = max(m, n), min(m, n)
    return 4 * long**2 * short + 8 * long * short**2 + 9 * short**3


_REAL_NAMES: Final = {"ungqr": "orgqr", "heevd": "syevd", "hetrd": "sytrd"}
_FLOPS: Final[dict[str, Callable[[float, float, tuple[int, ...]], float]]] = {
    "getrf": _lu,
    "potrf": lambda n, _, others: n**3 / 3,
    "geqrf": _qr,
    "orgqr": _orthogonal,
    "trsm": _triangular,
    "gesdd": _singular_values,
    "gesvd": _singular_values,
    "syevd": lambda n, _, others: 9 * n**3,
    "geev": lambda n, _, others: 25 * n**3,
    "gees": lambda n, _, others: 25 * n**3,
    "sytrd": lambda n, _, others: 4 * n**3 / 3,
    "gehrd": lambda n, _, others: 10 * n**3 / 3,
}
"""Flops of a routine for a matrix of m × n and the sizes of the second operand."""
