"""Array elements, masked loads and stores, gathers, scatters, prefetches, memcpy and memset."""

from __future__ import annotations

from hloom.codegen.llvm.module import Function
from hloom.codegen.llvm.types import I1, I32, I64, Type
from hloom.codegen.llvm.values import Operand, Value


def load_element(type: Type, array: Value, index: Operand) -> Value:
    """Load an element of an array."""
    f = Function.of(array)
    return f.load(type, f.offset(array, index, type))


def store_element(array: Value, index: Operand, value: Value) -> None:
    """Store an element of an array."""
    f = Function.of(array)
    f.store(value, f.offset(array, index, value.type))


def masked_load(type: Type, pointer: Value, mask: Value, default: Operand = 0) -> Value:
    """Load the active lanes; the others are ``default``."""
    f = pointer.function
    name = f"llvm.masked.load.{type.suffix}.p0"
    return f.call(type, name, pointer, f.constant(I32, type.size), mask, f.operand(type, default))


def masked_store(value: Value, pointer: Value, mask: Value) -> None:
    """Store the active lanes."""
    f, type = pointer.function, value.type
    if type.bits < 64 and not type.is_float:
        # LLVM 22 miscompiles a truncation stored under a constant mask of one lane: it stores the wide value,
        # over the neighbors. The comparison keeps it from folding the mask: it knows that stack memory is not
        # null, but not that the addresses of programs are below 2**63.
        mask = mask & pointer.compare("sge", 0).splat(type.lanes)
    f.call(None, f"llvm.masked.store.{type.suffix}.p0", value, pointer, f.constant(I32, type.size), mask)


def gather(type: Type, pointers: Value, mask: Value | None = None) -> Value:
    """Load each lane from its own address; inactive lanes are 0."""
    f = pointers.function
    condition = mask or f.constant(I1.vector(type.lanes), 1)
    name = f"llvm.masked.gather.{type.suffix}.{pointers.type.suffix}"
    return f.call(type, name, pointers, f.constant(I32, type.size), condition, f.constant(type, 0))


def scatter(value: Value, pointers: Value, mask: Value | None) -> None:
    """Store each active lane to its own address, in lane order."""
    f, type = pointers.function, value.type
    condition = mask or f.constant(I1.vector(type.lanes), 1)
    name = f"llvm.masked.scatter.{type.suffix}.{pointers.type.suffix}"
    f.call(None, name, value, pointers, f.constant(I32, type.size), condition)


def prefetch(pointer: Value, *, writes: bool = False, first_level: bool = False) -> None:
    """Fetch a line into the second-level cache to read it, or into the first-level one, as for writes.

    The address may be any.
    """
    f = pointer.function
    level = 3 if writes or first_level else 2
    access, level, data = (f.constant(I32, number) for number in (writes, level, 1))
    f.call(None, "llvm.prefetch.p0", pointer, access, level, data)


def copy_bytes(target: Value, source: Value, size: Operand) -> None:
    """Emit memcpy: the ranges must not overlap."""
    f = target.function
    f.call(None, "llvm.memcpy.p0.p0.i64", target, source, f.operand(I64, size), f.constant(I1, 0))


def fill_bytes(target: Value, byte: Value, size: Operand) -> None:
    """Emit memset."""
    f = target.function
    f.call(None, "llvm.memset.p0.i64", target, byte, f.operand(I64, size), f.constant(I1, 0))
