"""Compaction: active lanes of a vector move to the front, as by AVX-512's VPCOMPRESS."""

from __future__ import annotations

from functools import cache
from typing import Final

from hloom.codegen.llvm import I8, I32, I64, Function, Value, make_type
from hloom.codegen.target import Target, has_avx512

_ORDERS: Final = "compaction_orders"
_LANES: Final = 8
"""Lanes of a register of AVX2."""


def compaction_lanes(target: Target) -> int:
    """Return the number of 32-bit lanes that the target compacts at a time; 0 if it cannot."""
    return 16 if has_avx512(target) else _LANES if target.has("avx2") else 0


def compress(value: Value, mask: Value) -> Value:
    """Move the active lanes of 32-bit numbers to the front, in order; the others are undefined.

    Vectors have `compaction_lanes`. AVX2 permutes them by a table of the orders for all masks.
    """
    f, type = Function.of(value), value.type
    if has_avx512(f.target):
        return f.call(type, f"llvm.experimental.vector.compress.{type.suffix}", value, mask, f.poison(type))
    if _ORDERS not in f.module.globals:
        f.module.constant_bytes(_ORDERS, _orders())
    row = mask.bitcast(make_type(f"i{_LANES}")).cast("zext", I64)
    order = f.load(I8.vector(_LANES), f.offset(f.address(_ORDERS), row, I64), align=1)
    return f.call(type, "llvm.x86.avx2.permd", value, order.cast("zext", I32.vector(_LANES)))


@cache
def _orders() -> bytes:
    """Return the numbers of the lanes of each mask, eight bytes a mask, filled up with zeros."""
    rows = ([lane for lane in range(_LANES) if mask >> lane & 1] for mask in range(1 << _LANES))
    return b"".join(bytes(row).ljust(_LANES, b"\0") for row in rows)
