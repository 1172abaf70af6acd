"""For each known difference one small case that shows it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from hloom.fuzzing.generators.case import Case
from hloom.fuzzing.generators.families import draw_case
from hloom.shape.shape import Shape
from tests.arrays import c64, c128, f16, f32, s8, s32, u8


def made(
    operation: str, line: str, *arguments: Any, computations: Sequence[str] = (), folded: bool = False,
    shapes: Sequence[str] = (), roots: Sequence[str] = ("@v0",),
) -> Case:  # fmt: skip
    """Return a case of one instruction (or several lines)."""
    arrays = tuple(np.asarray(a) for a in arguments)
    stated = tuple(shapes) or tuple(Shape.of(a).to_string(layout=False) for a in arrays)
    lines = tuple(line.split("\n"))
    return Case(
        "example/0",
        operation,
        stated,
        arrays,
        lines,
        tuple(roots),
        tuple(computations),
        folded=folded,
    )


def unary(opcode: str, kind: str, *numbers: Any, **options: Any) -> Case:
    """Return a case of one operation of one array."""
    return made(f"{opcode} {kind}", f"@v0 = {opcode}(@p0)", *numbers, **options)


def binary(opcode: str, kind: str, lhs: Any, rhs: Any, **options: Any) -> Case:
    """Return a case of one operation of two arrays."""
    return made(f"{opcode} {kind}", f"@v0 = {opcode}(@p0, @p1)", lhs, rhs, **options)


def combine(opcode: str, kind: str, result: str = "") -> str:
    """Return a computation of two scalars."""
    text = f"@f0 {{\n  a = {kind}[] parameter(0)\n  b = {kind}[] parameter(1)\n"
    return text + f"  ROOT r = {result or kind}[] {opcode}\n}}\n"


NUMBERS = np.random.default_rng(0)
VECTORS = [np.abs(NUMBERS.normal(size=5) * 2).astype(np.float16) for _ in range(4)]
STATISTICS = "\n".join(f"@v{n + 1} = get-tuple-element(@v0), index={n}" for n in range(3))
TRAINING = "@v0 = batch-norm-training(@p0, @p1, @p2), epsilon=0.001, feature_index=1\n" + STATISTICS

EXAMPLES: dict[str, Case] = {
    "subnormals": binary("add", "f32", f32([1e-40, 1]), f32([0, 1])),
    "accuracy of functions": unary("tanh", "f64", np.array([18.375])),
    "condition of complex logistic": unary(
        "logistic", "c128", c128([complex(-3.660497048589581e-19, 3.141592653589793)])
    ),
    "integer division by zero": made("divide s32", "@v0 = divide(@p0, @p0)", s32([0, 1])),
    "roundings of narrow sums": made(
        "reduce add f8e5m2", "@v0 = reduce(@p0, @p1), dimensions={0}, to_apply=@f0",
        np.array([1, *[0.125] * 4], ml_dtypes.float8_e5m2), np.array(0, ml_dtypes.float8_e5m2),
        computations=[combine("add(a, b)", "f8e5m2")],
    ),
    "fused and reordered roundings": made(
        "expression", "@v0 = multiply(@p0, @p0)\n@v1 = subtract(@v0, @p1)", f32([1 + 2.0**-12]),
        f32([1 + 2.0**-11]), roots=("@v1",),
    ),
    "roundings without bound": made(
        "module", "@v0 = multiply(@p0, @p0)\n@v1 = subtract(@v0, @p1)\n@v2 = f32[2] scatter(@v1, @p2, @p3), "
        "update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, "
        "index_vector_dim=1, to_apply=@f0",
        f32([1 + 2.0**-12, 1]), f32([1 + 2.0**-11, 1]), s32([[1]]), f32([7]), roots=("@v2",),
        computations=["@f0 {\n  a = f32[] parameter(0)\n  ROOT b = f32[] parameter(1)\n}\n"],
    ),
    "subnormals of f16": draw_case("sort", 2026, 4),
    "signs of sums that are zero": made(
        "dot f32", "@v0 = dot(@p0, @p1), lhs_contracting_dims={0}, rhs_contracting_dims={0}",
        f32([-0.0, -0.0]),
        f32([1, 1]),
    ),
    "maxima of constant zeros": made(
        "fusion", "@v0 = f32[1] fusion(@p0, @p0), kind=kLoop, calls=@f0", f32([0]), folded=True,
        computations=[
            "@f0 {\n  a = f32[1] parameter(0)\n  b = f32[1] parameter(1)\n  m = f32[1] add(a, b)\n"
            "  n = f32[1] negate(m)\n  ROOT r = f32[1] maximum(n, a)\n}\n"
        ],
    ),
    "zeros in place of NaN": binary(
        "divide", "f4e2m1fn", np.array([0, 1], ml_dtypes.float4_e2m1fn),
        np.array([0, 2], ml_dtypes.float4_e2m1fn),
    ),
    "integer power": binary("power", "s32", s32([3, -1, 3]), s32([100, -3, 2])),
    "bits of narrow integers": unary("popcnt", "s4", np.array([-1, 3], ml_dtypes.int4)),
    "the largest f4e2m1fn as an integer": made(
        "convert f4e2m1fn s32", "@v0 = s32[2] convert(@p0)", np.array([6, 1], ml_dtypes.float4_e2m1fn)
    ),
    "negative numbers as f8e8m0fnu": made(
        "convert bf16 f8e8m0fnu", "@v0 = f8e8m0fnu[2] convert(@p0)", np.array([-2, 4], ml_dtypes.bfloat16),
        folded=True,
    ),
    "total order of constants": made(
        "compare total f8e5m2", "@v0 = compare(@p0, @p1), direction=LT, type=TOTALORDER",
        u8([0x7E, 0xFE, 0x7E, 0x3C]).view(ml_dtypes.float8_e5m2),
        u8([0x3C, 0x3C, 0xFE, 0xFE]).view(ml_dtypes.float8_e5m2), folded=True,
    ),
    "leading zeros of constants": unary("count-leading-zeros", "s8", s8([-1, 1, -128]), folded=True),
    "rounding of constants in f8e3m4": unary(
        "round-nearest-afz", "f8e3m4", np.array([1.5, -2, 0.25], ml_dtypes.float8_e3m4), folded=True
    ),
    "integer convolutions of constants": made(
        "convolution s8", "@v0 = s8[1,1,2] convolution(@p0, @p1), window={size=1}, dim_labels=b0f_0io->b0f",
        s8([[[100]]]), s8([[[100, -100]]]), folded=True,
    ),
    "unsigned indices that are constants": made(
        "dynamic-slice u8", "@v0 = s32[1] dynamic-slice(@p0, @p1), dynamic_slice_sizes={1}",
        np.arange(1000, 1300, dtype=np.int32), np.uint8(200), folded=True,
    ),
    "subnormal constants of reduced precision": made(
        "reduce-precision f16", "@v0 = f16[2] reduce-precision(@p0), exponent_bits=5, mantissa_bits=10",
        f16([1e-6, 1]), folded=True,
    ),
    "NaN without mantissa": made(
        "reduce-precision f32", "@v0 = f32[2] reduce-precision(@p0), exponent_bits=8, mantissa_bits=0",
        f32([np.nan, 1]), folded=True,
    ),
    "terms of normalizations": draw_case("batch-norm", 143, 26112201),
    "range of complex quotients": binary("divide", "c64", c64([3 - 100j]), c64([3.4e38 + 1.7e38j])),
    "narrow normalizations": made(
        "batch-norm-inference f16",
        "@v0 = batch-norm-inference(@p0, @p1, @p2, @p3, @p4), epsilon=0.001, feature_index=1",
        NUMBERS.normal(size=(25, 5)).astype(np.float16) * np.float16(2), *VECTORS,
    ),
    "variance": made(
        "batch-norm-training f32", TRAINING, f32([[1000], [1001], [1002]]), f32([1]), f32([0]),
        roots=("@v1", "@v2", "@v3"),
    ),
    "condition of complex powers": binary(
        "power", "c64", c64([-16.070082 - 40.261333j]), c64([-17.565865 + 19.951982j])
    ),
    "branch cut of square roots": unary("sqrt", "c64", c64([complex(-4, -0.0), complex(-4, 0.0)])),
    "range of complex powers": binary(
        "power", "c64", c64([-1.71694e-16]), c64([2.5 - 4j])
    ),
    "range of complex atan2": binary("atan2", "c64", c64([1e30 + 1e30j]), c64([1 + 2j])),
    "rounding in complex atan2": binary(
        "atan2", "c64", c64([1e-4 + 1e-5j, 0.3 + 1j]), c64([1 + 2j, 1])
    ),
    "range of logistic in f16": unary("logistic", "f16", f16([-14])),
    "overflow of complex products": binary(
        "multiply", "c128", c128([6e220 + 3j]), c128([-2e153 - 9e307j])
    ),
    "infinite complex quotients": binary(
        "divide", "c64", c64([complex(-0.0, np.inf)]), c64([3e38 + 0.5j])
    ),
    "overflow of complex circular functions": unary("sine", "c64", c64([1000j, 0.5 + 89j])),
    "small parts of complex circular functions": unary("sine", "c64", c64([1e-30j])),
    "range of complex logarithms": unary("log-plus-one", "c64", c64([-1 + 1e-30j])),
    "complex numbers with NaN": unary("sine", "c64", c64([complex(0, np.nan)])),
    "overflow of narrow sums": made(
        "reduce add f8e4m3fn", "@v0 = reduce(@p0, @p1), dimensions={0}, to_apply=@f0",
        np.array([400, 400, -400], ml_dtypes.float8_e4m3fn), np.array(0, ml_dtypes.float8_e4m3fn),
        computations=[combine("add(a, b)", "f8e4m3fn")],
    ),
    "subnormal parts": unary("sqrt", "c64", c64([complex(-1, -1e-40)])),
    "scatter without index": draw_case("scatter", 28, 7),
    "slices of what is not there": draw_case("dynamic", 15, 7),
    "which of equals is selected": draw_case("select-and-scatter", 77, 7),
}  # fmt: skip
