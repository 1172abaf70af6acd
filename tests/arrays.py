"""Constructors by element type, of arrays too: ``f32([1, 2])``; numpy declares them for scalars only."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

f16: Final[Any] = np.float16
f32: Final[Any] = np.float32
f64: Final[Any] = np.float64
s8: Final[Any] = np.int8
s32: Final[Any] = np.int32
s64: Final[Any] = np.int64
u8: Final[Any] = np.uint8
u16: Final[Any] = np.uint16
u32: Final[Any] = np.uint32
u64: Final[Any] = np.uint64
c64: Final[Any] = np.complex64
c128: Final[Any] = np.complex128
