"""Element types by PJRT's numbers, which differ from HLO's."""

from __future__ import annotations

from typing import Final

from hloom.shape.element_type import ElementType

TOKEN: Final = 23
_NAMES: Final = """
pred s8 s16 s32 s64 u8 u16 u32 u64 f16 f32 f64 bf16 c64 c128 f8e5m2 f8e4m3fn f8e4m3b11fnuz f8e5m2fnuz
f8e4m3fnuz s4 u4 token s2 u2 f8e4m3 f8e3m4 f8e8m0fnu f4e2m1fn s1 u1
"""
"""Names in the order of PJRT's numbers, which begin with 1."""
TYPES: Final = {n: ElementType.parse(name) for n, name in enumerate(_NAMES.split(), 1) if name != "token"}
NUMBERS: Final = {element_type: number for number, element_type in TYPES.items()}
