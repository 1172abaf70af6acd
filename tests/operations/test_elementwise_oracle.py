"""Elementwise operations against XLA:CPU where it does what the specification says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests import agreement, oracle
from tests.evaluation import evaluate
from tests.one_operation import array

INTEGER_OPERATIONS = [
    "add",
    "subtract",
    "multiply",
    "divide",
    "remainder",
    "maximum",
    "minimum",
    "and",
    "or",
    "xor",
    "shift-left",
    "shift-right-logical",
    "shift-right-arithmetic",
]
FLOAT_OPERATIONS = ["add", "subtract", "multiply", "divide", "remainder"]


def program(kind: str, size: int, lines: list[str]) -> str:
    """A program of two parameters of a type whose result is the tuple of the lines' values."""
    text = f"HloModule m\nENTRY e {{\n  x = {kind}[{size}] parameter(0)\n  y = {kind}[{size}] parameter(1)\n"
    for number, line in enumerate(lines):
        text += f"  r{number} = {line}\n"
    shapes = ", ".join(line.split(" ")[0] for line in lines)
    names = ", ".join(f"r{number}" for number in range(len(lines)))
    return f"{text}  ROOT t = ({shapes}) tuple({names})\n}}"


def agree(text: str, *operands: Any) -> None:
    for found, wanted in zip(evaluate(text, *operands), oracle.run(text, *operands), strict=True):
        assert found.dtype == wanted.dtype
        agreement.equal(found.astype(np.float64), wanted.astype(np.float64))


@pytest.mark.parametrize("kind", ["s8", "u8", "s32", "u32", "s64", "u64"])
def test_integers(kind: str) -> None:
    bits = int(kind[1:])
    ends = [0, 1, 2, 2**bits - 1, 2**bits - 2, 2 ** (bits - 1), 2 ** (bits - 1) - 1, bits - 1, bits, bits + 1]
    patterns = np.array(ends, object)
    values = patterns.astype(f"u{bits // 8}").view(array(kind, 0).dtype)
    x, y = np.repeat(values, len(values)), np.tile(values, len(values))
    shape = f"{kind}[{len(x)}]"
    lines = [f"{shape} {opcode}(x, y)" for opcode in INTEGER_OPERATIONS]
    lines += [f"pred[{len(x)}] compare(x, y), direction={d}" for d in ("LT", "GE", "EQ")]
    lines += [f"{shape} {opcode}(x)" for opcode in ("negate", "not", "popcnt", "count-leading-zeros")]
    agree(program(kind, len(x), lines), x, y)


@pytest.mark.parametrize("kind", ["f32", "f64", "bf16", "f16"])
def test_floats(kind: str) -> None:
    values = array(kind, [0.0, -0.0, 1, -1.5, 3, 1e-3, -7e4, np.inf, -np.inf, np.nan, 2.5, 0.1])
    x, y = np.repeat(values, len(values)), np.tile(values, len(values))
    size = len(x)
    lines = [f"{kind}[{size}] {opcode}(x, y)" for opcode in FLOAT_OPERATIONS]
    for opcode in (
        "abs",
        "negate",
        "sign",
        "floor",
        "ceil",
        "round-nearest-even",
        "round-nearest-afz",
        "sqrt",
    ):
        lines.append(f"{kind}[{size}] {opcode}(x)")
    for direction in ("LT", "GE", "EQ", "NE"):
        lines.append(f"pred[{size}] compare(x, y), direction={direction}")
        lines.append(f"pred[{size}] compare(x, y), direction={direction}, type=TOTALORDER")
    lines.append(f"{kind}[{size}] reduce-precision(x), exponent_bits=4, mantissa_bits=3")
    agree(program(kind, size, lines), x, y)


@pytest.mark.parametrize("kind", ["s8", "u32", "s64", "f32", "f64", "f16", "pred", "f8e4m3fn"])
def test_conversions(kind: str) -> None:
    values = [0, 1, 2, 100, 127, 200, 1000, 2**24 + 1, 2**31, 2**40]
    if kind[0] == "f":
        values += [0.5, -1.5, -1e9, 448.0, 465.0, np.inf, -np.inf, np.nan]
    x = array(kind, np.array(values, np.float64 if kind[0] == "f" else np.int64))
    targets = [
        "s8",
        "s16",
        "s32",
        "s64",
        "u8",
        "u32",
        "u64",
        "pred",
        "f16",
        "bf16",
        "f32",
        "f64",
        "f8e5m2",
        "f8e4m3fn",
    ]
    lines = [f"{target}[{len(x)}] convert(x)" for target in targets]
    agree(program(kind, len(x), lines), x, x)
