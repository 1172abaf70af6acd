"""The formats of float types: widths of fields, range, and which special values exist.

Everything is read off the type's numpy dtype, so a type that has one is known to the whole program.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np

from hloom.records import dataclass
from hloom.shape.element_type import ElementType

# ml_dtypes' description of a type; its annotations are incomplete for pyright.
_finfo: Any = ml_dtypes.finfo


@dataclass(frozen=True, slots=True)
class FloatFormat:
    """The field widths, the range and the special values of a float type.

    Attributes:
        bits: width of the whole.
        exponent_bits, mantissa_bits: widths of the fields, the implicit bit not counted.
        smallest_exponent, largest_exponent: of normal numbers 2^e to 2^(e+1).
        largest: the largest finite number.
        has_infinity: whether there are infinities; then NaNs have payloads, as in IEEE 754.
        has_nan: whether there is a NaN.
        has_negative_zero: whether -0 differs from 0.
    """

    bits: int
    exponent_bits: int
    mantissa_bits: int
    smallest_exponent: int
    largest_exponent: int
    largest: float
    has_infinity: bool
    has_nan: bool
    has_negative_zero: bool

    @property
    def magnitude(self) -> int:
        """Return the mask of all bits but the sign."""
        return (1 << (self.bits - 1)) - 1


@cache
def float_format(element_type: ElementType) -> FloatFormat:
    """Return the format of a real float type."""
    dtype = element_type.numpy_dtype
    information = _finfo(dtype)
    with np.errstate(all="ignore"):
        infinity, nan, zero = np.array([math.inf, math.nan, -0.0]).astype(dtype).astype(np.float64).tolist()
    return FloatFormat(
        bits=element_type.bits,
        exponent_bits=int(information.nexp),
        mantissa_bits=int(information.nmant),
        smallest_exponent=int(information.minexp),
        largest_exponent=int(information.maxexp) - 1,
        largest=float(information.max),
        has_infinity=math.isinf(infinity),
        has_nan=math.isnan(nan),
        has_negative_zero=zero == 0 and math.copysign(1.0, zero) < 0,
    )
