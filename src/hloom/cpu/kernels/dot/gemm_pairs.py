"""Test of whether the bf16 dot-product instruction is exact for given operands.

If the smallest nonzero magnitudes of both operands have exponents with a large enough sum, all products, and
so all their sums, are multiples of the smallest normal f32 number. No intermediate value is subnormal then,
and that the instruction flushes subnormal numbers to zero has no effect. Else the product is computed in
f32.
"""

from __future__ import annotations

from typing import Final

from hloom.codegen.llvm import I8, I16, I32, I64, PTR, Function, Module, Value
from hloom.codegen.llvm.memory import masked_load
from hloom.codegen.loops import LoopKernel
from hloom.codegen.target import Target, multiplies_pairs
from hloom.cpu.kernels.dot.gemm import Gemm
from hloom.records import dataclass
from hloom.shape import element_type as et

PIECE: Final = 1 << 14
"""Number of elements that one task tests."""
LANES: Final = 32
LEAST_WORK: Final = 1 << 18
"""Number of products below which the test does not pay."""
FEWEST_LINES: Final = 16
"""Fewest columns and steps of a product for AMX: those of one tile register."""
FEWEST_ROWS: Final = 5
"""Fewest rows: reading B as it is takes less time for four."""
EXPONENTS: Final = 2 * 127 + 2 * 7 - 126
"""Least sum of the factors' exponent fields: the last bits of products are worth at least 2^-126."""


def is_pairs(gemm: Gemm, target: Target) -> bool:
    """Return whether a product may use the bf16 dot-product instruction if a test at run time allows it."""
    bf16 = gemm.a_type is et.BF16 and gemm.b_type is et.BF16 and gemm.kind is et.F32
    if not bf16 or not multiplies_pairs(target):
        return False
    if target.has("amx-bf16"):
        return fits_amx(gemm, target)
    return gemm.work >= LEAST_WORK and gemm.m >= 4 and gemm.n >= 4


def fits_amx(gemm: Gemm, target: Target) -> bool:
    """Return whether a product of bf16 numbers, or of integers of 8 bits, is to be computed in AMX tiles."""
    if gemm.m < FEWEST_ROWS or min(gemm.n, gemm.k) < FEWEST_LINES or gemm.work < LEAST_WORK:
        return False
    types = {gemm.a_type, gemm.b_type}
    if gemm.kind is et.F32:
        return types == {et.BF16} and not target.reproducible and target.has("amx-bf16")
    return gemm.kind in (et.S32, et.U32) and types <= {et.S8, et.U8} and target.has("amx-int8")


def pieces(count: int) -> int:
    """Return the number of pieces, `PIECE` elements each, in which ``count`` elements are tested.

    Each piece is the task of one thread.
    """
    return -(-count // PIECE)


def emit_smallest(module: Module, name: str, count: int) -> LoopKernel:
    """Emit a kernel that finds the smallest nonzero magnitude in each piece of a bf16 array.

    Its parameters are (array, found, begin, end). A piece is `PIECE` of the array's ``count`` elements. For
    each piece, the kernel stores to ``found`` the bit pattern of the magnitude minus 1, as u16; 0xFFFF if all
    elements are zero.
    """
    f = module.function(name, [PTR, PTR, I64, I64])
    source, found, begin, end = f.parameters
    wide = I16.vector(LANES)
    most = f.constant(wide, 0xFFFF - 0x10000)
    with f.loop(begin, end) as loop:
        low = loop.index * PIECE
        high = f.intrinsic("smin", low + PIECE, f.constant(I64, count))
        whole = low + ((high - low) & -LANES)

        def smaller(bits: Value, least: Value) -> Value:
            return f.intrinsic("umin", (bits & 0x7FFF) - 1, least)

        with f.loop(low, whole, LANES, [most]) as inner:
            inner.next(smaller(f.load(wide, f.offset(source, inner.index, I16)), inner.values[0]))
        least = inner.values[0]
        if count % LANES:
            numbers = f.constant(I64.vector(LANES), list(range(LANES))) + whole.splat(LANES)
            inside = numbers.compare("slt", high.splat(LANES))
            rest = masked_load(wide, f.offset(source, whole, I16), inside)
            least = smaller(rest, least)
        f.store(f.intrinsic("vector.reduce.umin", least, result=I16), f.offset(found, loop.index, I16))
    f.finish()
    return LoopKernel(name, pieces(count), 1, count // 8)


@dataclass(frozen=True, slots=True)
class Magnitudes:
    """Layout in memory of the least magnitudes of the parts of a bf16 array.

    A part's least nonzero magnitude is stored as its bit pattern minus 1, a u16; see `emit_smallest`.

    Attributes:
        count: the number of parts of one matrix, whose magnitudes are adjacent.
        batches: the number of matrices.
        distance: bytes from the magnitudes of one matrix to those of the next.
    """

    count: int
    batches: int = 1
    distance: int = 0


def emit_large_enough(module: Module, name: str, *factors: Magnitudes) -> LoopKernel:
    """Emit a kernel that tests whether a bf16 product is free of subnormal values.

    Its parameters are (least magnitudes of A, those of B, answer, begin, end). The byte ``answer`` becomes 1
    if no operand, product or sum can be a subnormal f32 number, else 0.
    """
    f = module.function(name, [PTR, PTR, PTR, I64, I64])
    *arrays, answer, begin, end = f.parameters
    with f.loop(begin, end):
        pairs = zip(arrays, factors, strict=True)
        least = [least_exponent(emit_least(array, magnitudes)) for array, magnitudes in pairs]
        f.store(are_exact(*least).cast("zext", I8), answer)
    f.finish()
    return LoopKernel(name, 1, 1, sum(factor.batches * factor.count for factor in factors))


def emit_least(array: Value, magnitudes: Magnitudes) -> Value:
    """Emit the least of the magnitudes at the address ``array``: a bit pattern minus 1, as u16."""
    f = Function.of(array)
    with f.loop(0, magnitudes.batches, 1, [f.constant(I16, -1)]) as batch:
        run = f.offset(array, batch.index * magnitudes.distance)
        with f.loop(0, magnitudes.count, 1, batch.values) as loop:
            value = f.load(I16, f.offset(run, loop.index, I16))
            loop.next(f.intrinsic("umin", value, loop.values[0]))
        batch.next(*loop.values)
    return batch.values[0]


def least_exponent(least: Value) -> Value:
    """Emit the exponent field of a least magnitude, whose bit pattern minus 1 is ``least``."""
    return (least.cast("zext", I32) + 1).logical_shift_right(7)


def are_exact(first: Value, second: Value) -> Value:
    """Emit whether products of factors with these least exponents are free of subnormal values."""
    enough = (first + second).compare("sge", EXPONENTS)
    return enough & first.compare("sgt", 0) & second.compare("sgt", 0)
