"""Kernels that decide whether the bf16 dot-product instruction, which flushes subnormal numbers, is exact."""

from __future__ import annotations

import ctypes

import ml_dtypes
import numpy as np
import pytest

from hloom.codegen.llvm import Module, print_module
from hloom.codegen.target import host
from hloom.cpu.jit.llvm import generate, simplified_names
from hloom.cpu.jit.loader import LoadedObject
from hloom.cpu.kernels.dot.gemm_pairs import (
    LANES,
    PIECE,
    Magnitudes,
    emit_large_enough,
    emit_smallest,
    pieces,
)

COUNTS = (LANES, 3 * LANES + 5, PIECE + 1)
LEAST = -126 + 14
"""Exponent of products of normal bf16 numbers, of 8 bits each, whose last bits are worth at least 2^-126."""


def exact(*operands: np.ndarray) -> bool:
    """Return the answer for two operands."""
    module = Module(host())
    for n, x in enumerate(operands):
        emit_smallest(module, f"smallest{n}", x.size)
    counts = [pieces(x.size) for x in operands]
    emit_large_enough(module, "enough", *map(Magnitudes, counts))
    for function in module.functions.values():
        function.internal = False
    code = generate(print_module(module), host(), simplified=simplified_names(module))
    loaded = LoadedObject([code], lambda name: None, module.data)
    pointer, integer = ctypes.c_void_p, ctypes.c_int64
    smallest = ctypes.CFUNCTYPE(None, pointer, pointer, integer, integer)
    enough = ctypes.CFUNCTYPE(None, pointer, pointer, pointer, integer, integer)(loaded.symbols["enough"])
    found, answer = np.zeros(sum(counts), np.uint16), np.full(1, 7, np.uint8)
    for n, (x, place) in enumerate(zip(operands, (0, counts[0]), strict=True)):
        smallest(loaded.symbols[f"smallest{n}"])(x.ctypes.data, found[place:].ctypes.data, 0, counts[n])
    enough(found.ctypes.data, found[counts[0] :].ctypes.data, answer.ctypes.data, 0, 1)
    return bool(answer[0])


def operand(count: int, place: int, exponent: int) -> np.ndarray:
    """Return ones and zeros of both signs, and at one place a number of a smaller exponent."""
    x = np.resize(np.array([1, -1, 0, -0.0, 1.5]), count)
    x[place] = -(2.0**exponent)
    return x.astype(ml_dtypes.bfloat16)


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("place", [0, -1])
def test_the_smallest_numbers_decide(count: int, place: int) -> None:
    for a in (-100, LEAST // 2, -3):
        assert exact(operand(count, place, a), operand(COUNTS[1], 7, LEAST - a))
        assert not exact(operand(count, place, a), operand(COUNTS[1], 7, LEAST - a - 1))


def test_subnormal_numbers_are_never_exact() -> None:
    """The instruction takes them for zeros, however large the other operand is."""
    large = np.full(LANES, 2.0**100).astype(ml_dtypes.bfloat16)
    assert not exact(operand(LANES, 3, -127), large)
    assert not exact(large, operand(LANES, 3, -130))
    assert exact(operand(LANES, 3, -126), large)


def test_products_with_zeros_alone_are_exact() -> None:
    assert exact(np.zeros(LANES, ml_dtypes.bfloat16), operand(LANES, 3, -10))
