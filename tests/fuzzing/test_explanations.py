"""Known differences explain single elements: inside of each limit, and not outside."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from hloom.evaluate.evaluator import Evaluator
from hloom.fuzzing import explanations as e
from hloom.fuzzing.explanations import Difference
from hloom.fuzzing.flushing import flushed
from hloom.fuzzing.generators.case import Case
from hloom.fuzzing.generators.draw import Array
from hloom.fuzzing.known import DIFFERENCES
from hloom.ir.xla_version import V0_12, XlaVersion
from hloom.shape.shape import Shape
from tests.arrays import c64, f16, f32, f64, s8, s32, u8

EPS = 2.0**-23
NAN, INF = np.nan, np.inf
LARGEST_EXPONENT = float(np.log(np.float64(np.finfo(np.float32).max)))
BF16, F8E8M0, F4, S4 = (
    ml_dtypes.bfloat16, ml_dtypes.float8_e8m0fnu, ml_dtypes.float4_e2m1fn, ml_dtypes.int4,
)  # fmt: skip


def difference(
    ours: Array, theirs: Array, *arguments: Array, line: str = "@v0 = negate(@p0)", bound: float = 0.0,
    again: Callable[[Any], Array] | None = None, where: Array | None = None, **fields: Any,
) -> Difference:  # fmt: skip
    """Return the difference of two results of a program; every element differs if nothing else is stated."""
    shapes = tuple(Shape.of(a).to_string(layout=False) for a in arguments)
    case = Case("by hand/0", "negate f32", shapes, arguments, tuple(line.split("\n")), ("@v0",))
    mask = np.ones(ours.shape, bool) if where is None else where
    return Difference(
        dataclasses.replace(case, **fields), ours, theirs, mask, again or (lambda arguments: ours),
        np.full(ours.shape, bound),
    )  # fmt: skip


Row = tuple[Callable[[Difference], Array], Difference, list[bool]]
T, F = True, False

DISTANCES: list[Row] = [
    # Of 1 / d, the distance is at most 64 eps of the square: 64 eps at 1, 1024 eps at 4.
    (e.within_the_square, difference(f32([1, 1, 4, 4]), f32([1 + 64 * EPS, 1 + 65 * EPS, 4 + 1024 * EPS,
     4 + 1028 * EPS])), [T, F, T, F]),
    (e.within_the_square, difference(c64([1j]), c64([1j - 64j * EPS])), [T]),
    (e.within_64_units_of_one, difference(c64([0, 0, 3, 3]), c64([64 * EPS, 65 * EPS, 3 - 2 * np.pi,
     3.01 - 2 * np.pi])), [T, F, T, F]),
    (e.within_64_units_of_the_largest_square, difference(f32([1, 1]), f32([1 + 256 * EPS, 1 + 257 * EPS]),
     f32([2, -1])), [T, F]),
    (e.within_64_units_of_the_largest_square, difference(f32([1, 1]), f32([1 + 64 * EPS, 1 + 65 * EPS]),
     f32([0.5, -0.25])), [T, F]),
    (e.within_64_units_of_the_largest_square, difference(f32([1, 1]), f32([1 + 512 * EPS, 1 + 513 * EPS]),
     f32([0.5, -3])), [T, F]),
    (e.within_the_roundings_of_a_sum, difference(f32([2, 2]), f32([2 + 12 * EPS, 2 + 14 * EPS]),
     f32([1, -1, 1, 1]), again=lambda arguments: f32([arguments[0].sum()] * 2)), [T, F]),
    (e.within_the_roundings_of_a_sum, difference(f32([2, 2]), f32([2 + 12 * EPS, 2 + 14 * EPS]),
     f32([1, -1, 1, 1]), s32([-7]), again=lambda a: f32([a[0].sum() - 7 - a[1].sum()] * 2)), [T, F]),
    (e.neither_finite_nor_far, difference(f32([0, 0, 0, 0, 1e4]), f32([94, -96, INF, NAN, 1e4 + 90])),
     [T, F, T, T, T]),
    (e.conjugate, difference(c64([1 + 2j, 1 + 2j, 1 + 2j]), c64([1 - 2j, 1 - 2j + 8j * EPS,
     1 - 2j + 10j * EPS])),
     [T, T, F]),
    (e.on_the_other_side, difference(f32([1, 1, 1, 1, 1, 10]), f32([-1, 8.2, 8.3, INF, NAN, -9])),
     [T, T, F, T, T, F]),
    (e.on_the_other_side, difference(f32([100, 100]), f32([-100 - 64 * 64 * EPS, -100 - 65 * 64 * EPS])),
     [T, F]),
    (e.near_the_poles, difference(c64([1, 1]), c64([1 + 154 * EPS, 1 + 155 * EPS]), c64([1, 1]), c64([1, 1])),
     [T, F]),
    (e.near_the_poles, difference(c64([3, 3]), c64([3 - 2 * np.pi, 3.01 - 2 * np.pi]), c64([1, 1]),
     c64([1, 1])), [T, F]),
    (e.near_the_poles, difference(c64([1, 1]), c64([1.01, 1.01]), c64([1j, 1 + 2j]), c64([1, 1])), [T, F]),
    (e.no_larger_than_computed, difference(f32([0] * 4), f32([8, -8, 8.1, 0]), f32([1, -2, NAN])),
     [T, T, F, T]),
    (e.no_larger_than_computed, difference(u8([0] * 4), u8([12, 13, 244, 243]), u8([3])), [T, F, T, F]),
    (e.no_larger_than_computed, difference(s8([0] * 2), s8([-4, -5]), s8([1])), [T, F]),
]  # fmt: skip

OF_ARGUMENTS: list[Row] = [
    (e.subnormal_keys_in_f16, difference(f32([0] * 2), f32([1] * 2), f32([2.0**-15, -(2.0**-15), 1])), [T,
     T]),
    (e.subnormal_keys_in_f16, difference(f32([0]), f32([1]), f32([2.0**-15, 0, 2.0**-14])), [F]),
    (e.subnormal_keys_in_f16, difference(f32([0] * 2), f32([1] * 2), f32([2.0**-15] * 2), where=np.array([T,
     F])),
     [T, F]),
    (e.six_bits_of_the_exponent, difference(s32([0] * 4), s32([0] * 4), s32([2] * 4), s32([-1, 0, 63, 64])),
     [T, F, F, T]),
    (e.of_constants, difference(f32([0, 0]), f32([1, 1]), f32([1]), where=np.array([T, F]), folded=True),
     [T, F]),
    (e.of_constants, difference(f32([0, 0]), f32([1, 1]), f32([1])), [F, F]),
    (e.everywhere, difference(f32([0, 0]), f32([1, 1]), where=np.array([T, F])), [T, F]),
    (e.largest_number, difference(s32([0] * 4), s32([0] * 4), np.array([6, -6, 4, 0], F4)), [T, T, F, F]),
    (e.below_zero, difference(f32([0] * 3), f32([0] * 3), f32([-1, 0, 1])), [T, F, F]),
    (e.on_the_branch_cut, difference(c64([0] * 5), c64([0] * 5), c64([complex(-1, -0.0), complex(-1, 0.0),
     complex(0, -0.0), complex(1, -0.0), complex(-1, -1)])), [T, F, F, F, F]),
    (e.infinite_arguments, difference(c64([0] * 4), c64([0] * 4), c64([complex(INF, 0), complex(0, -INF), 0,
     0]),
     c64([0, 0, complex(0, INF), NAN])), [T, T, T, F]),
    (e.overflowing_hyperbolic_functions, difference(c64([0] * 4), c64([0] * 4),
     c64([88.5j, 88.8j, -88.8j, 100])), [F, T, T, F]),
    (e.overflowing_hyperbolic_functions, difference(c64([0] * 2), c64([0] * 2),
     c64([LARGEST_EXPONENT * 1j, LARGEST_EXPONENT * (1 - 2 * EPS) * 1j])), [T, F]),
    (e.subnormal_parts, difference(c64([0] * 4), c64([0] * 4), c64([1e-39, 1j * 1e-39, 0, 2.0**-126]),
     c64([1, 1, 1e-39j, 1])), [T, T, T, F]),
    (e.beyond_the_actual_size, difference(s32([0, 5]), s32([3, 3]), s32([1, 2]), np.asarray(0, np.int32)),
     [T, F]),
    (e.beyond_the_actual_size, difference(s32([0, 5]), s32([3, 3]), s32([1, 2]), np.asarray(1, np.int32)),
     [F, F]),
    (e.overflowing_exponential, difference(f16([0] * 3), f16([0] * 3), f16([-11.1, -11.05, 12])), [T, F, F]),
    (e.overflowing_products, difference(c64([0] * 4), c64([0] * 4), c64([1e20 + 1e20j, 1e20 + 1e20j, 1e20,
     complex(INF, 1)]), c64([1e20 + 1e20j, 1e20, 1e20 + 1j, 1e20 + 1e20j])), [T, F, F, F]),
    (e.overflowing_products, difference(c64([0] * 2), c64([0] * 2), c64([1e30 + 1j, 1 + 1e30j]),
     c64([1e30 + 1j, 1e30 + 1e30j])), [F, F]),
    (e.squares_out_of_range, difference(c64([0] * 4), c64([0] * 4), c64([4.6e18, 4.7e18, 4.3e-19, 4.4e-19]),
     c64([1] * 4)), [F, T, T, F]),
    (e.squares_out_of_range, difference(c64([0] * 4), c64([0] * 4), c64([0, INF, 4.7e18j, 1]), c64([1, 1, 1,
     NAN])),
     [F, T, T, T]),
    (e.nan_or_zeros, difference(f32([0] * 4), f32([0] * 4), f32([NAN, 0, 0, 1]), f32([1, -0.0, 1, NAN])),
     [T, T, F, T]),
    (e.factors_out_of_range, difference(c64([0] * 4), c64([0] * 4), c64([1e10] * 4), c64([3, 4, -3, -4])),
     [F, T, F, T]),
    (e.factors_out_of_range, difference(c64([0] * 4), c64([0] * 4), c64([-1] * 4), c64([27.7j, 27.9j,
     -28.2j, -28.3j])),
     [F, T, F, T]),
]  # fmt: skip

OF_VALUES: list[Row] = [
    (e.among_the_arguments, difference(s32([0] * 3), s32([5, 6, 7]), s32([5, 6]), u8([7])), [T, T, F]),
    (e.among_the_arguments, difference(s32([0]), s32([5]), s32([]), u8([5])), [F]),
    (e.among_the_arguments, difference(s32([0]), s32([5]), s32([]), s32([5])), [T]),
    (e.in_another_order, difference(f32([1, 2, 3]), f32([3, 1, 2])), [T, T, T]),
    (e.in_another_order, difference(f32([1, 2, 2]), f32([2, 1, 1])), [F, F, F]),
    (e.in_another_order, difference(f32([0, 1]), f32([1, -0.0])), [F, F]),
    (e.six_bit_power, difference(s32([0] * 4), s32([3**36 % 2**32 - 2**32, 1, 0, 1]), s32([3, 1, -1, -1]),
     s32([100, -3, -3, -3])), [3**36 % 2**32 >= 2**31, T, T, F]),
    (e.six_bit_power, difference(s32([0] * 3), s32([1, 2, 8]), s32([2, 2, 2]), s32([64, 65, 2])), [T, T, F]),
    (e.six_bit_power, difference(u8([0] * 3), u8([0, 1, 16]), u8([2, 1, 2]), u8([128, 200, 132])), [T, T, T]),
    (e.bits_of_the_byte, difference(np.array([4, 4], S4), np.array([-8, 4], S4), np.array([-1, -1], S4)),
     [T, F]),
    (e.bits_of_the_byte, difference(np.array([2, 2], S4), np.array([2, 3], S4), np.array([3, 3], S4)), [T,
     F]),
    (e.as_infinity, difference(s32([6] * 3), s32([2**31 - 1, -(2**31), 6]), np.array([6, -6, 6], F4)), [T,
     T, F]),
    (e.without_sign, difference(f32([NAN] * 6), np.array([2, 4, 1, 8, 0.5, 2], F8E8M0), f32([-2] * 6)),
     [T, T, T, F, F, T]),
    (e.without_sign, difference(f32([NAN] * 3), np.array([4, 4, 4], F8E8M0), f32([-(2.0**127) * 1.1,
     -(2.0**-127), -(2.0**127)])), [T, T, F]),
    (e.in_a_wider_type, difference(s8([0] * 5), s8([0, -8, -24, -56, 8]), s8([-1] * 5)), [T, T, T, T, F]),
    (e.in_a_wider_type, difference(s8([0] * 2), s8([0, 3]), s8([1, 16])), [F, F]),
    (e.of_one_update, difference(f32([9]), f32([3]), f32([1]), s32([0]), f32([2]),
     operation="scatter add f32"),
     [T]),
    (e.of_one_update, difference(f32([9] * 4), f32([1, 2, 3, 6]), f32([1] * 4), f32([2, 5]),
     operation="scatter add f32"), [T, T, T, T]),
    (e.of_one_update, difference(f32([9] * 3), f32([1, 5, 6]), f32([1] * 3), f32([2, 5]),
     operation="scatter replace f32"), [T, T, F]),
    (e.same_total, difference(s8([100, 100]), s8([-28, -28]), operation="select-and-scatter GE add"), [T, T]),
    (e.same_total, difference(s8([1, 2]), s8([2, 2]), operation="select-and-scatter GE add"), [F, F]),
    (e.same_total, difference(f32([1, 2]), f32([2, 1 + EPS]), operation="select-and-scatter GE add"), [T, T]),
    (e.same_total, difference(f32([1, 2]), f32([2, 1 + 4 * EPS]), operation="select-and-scatter GE add"),
     [F, F]),
    (e.same_total, difference(f32([-1, -2]), f32([-2, -1]), operation="select-and-scatter GE add"), [T, T]),
    (e.same_total, difference(f32([3, 2]), f32([1, 3]), operation="select-and-scatter GE maximum"), [T, T]),
    (e.saturated, difference(s8([0] * 3), s8([127, -128, 5])), [T, T, F]),
    (e.vanished, difference(f16([2.0**-15, 2.0**-14, -(2.0**-15)]), f16([0, 0, 1])), [T, F, F]),
    (e.vanished, difference(np.array([2.0**-127, 2.0**-126], BF16), np.array([0, 0], BF16)), [T, F]),
    (e.no_number, difference(c64([0] * 3), c64([complex(NAN, 0), complex(0, NAN), INF])), [T, T, F]),
    (e.not_a_number, difference(f32([0] * 3), f32([NAN, INF, 0])), [T, F, F]),
    (e.infinity_for_no_number, difference(c64([complex(NAN, 1), complex(1, NAN), complex(NAN, 1), complex(1,
     1)]),
     c64([complex(INF, 1), complex(1, -INF), complex(INF, 2), complex(INF, 1)])), [T, T, F, F]),
    (e.infinity_for_no_number, difference(c64([complex(NAN, 1)] * 2), c64([complex(INF, 1.5), complex(NAN,
     2)]),
     bound=0.5), [T, F]),
    (e.zero_or_not_finite, difference(c64([1] * 4), c64([0, INF, complex(0, NAN), 1])), [T, T, T, F]),
    (e.not_finite, difference(c64([1] * 4), c64([0, INF, complex(0, NAN), 1])), [F, T, T, F]),
    (e.zeros, difference(f32([0.0, 1, NAN]), f32([-0.0, 2, NAN])), [T, F, F]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("selector", "of", "explained"),
    [pytest.param(*row, id=row[0].__name__) for row in (*DISTANCES, *OF_ARGUMENTS, *OF_VALUES)],
)
def test_what_is_explained(
    selector: Callable[[Difference], Array], of: Difference, explained: list[bool]
) -> None:
    assert np.broadcast_to(selector(of), of.ours.shape).tolist() == explained


# -- explanations that run the program again

HALVED = "@h = f32[] constant(0.5)\n@b = f32[2] broadcast(@h), dimensions={}\n@v0 = multiply(@p0, @b)"


def of_program(line: str, theirs: Array, *arguments: Array, bound: float = 0.0, **fields: Any) -> Difference:
    """Return the difference of a program's result on the evaluator from another value."""
    first = difference(theirs, theirs, *arguments, line=line, **fields)
    entry = first.case.unfolded.module.entry

    def again(arguments: Any) -> Array:
        results: Any = Evaluator().run(entry, arguments)
        return np.asarray(results[0])

    ours = again(arguments)
    return dataclasses.replace(first, ours=ours, again=again, bound=np.full(ours.shape, bound))


@pytest.mark.parametrize(
    ("line", "arguments", "theirs", "bound", "explained"),
    [
        # An argument and a result that are subnormal; sums of them.
        ("@v0 = add(@p0, @p1)", (f32([1e-40, 1e-40]), f32([0, 1e-30])), f32([0, 1e-30]), 0.0, [T, T]),
        ("@v0 = add(@p0, @p1)", (f32([1e-40, 1e-40]), f32([0, 1e-30])), f32([-0.0, 2e-30]), 0.0, [T, F]),
        # Zeros of other signs are explained only together with a subnormal number.
        ("@v0 = add(@p0, @p1)", (f32([0, 1]), f32([0, 1])), f32([-0.0, 2]), 0.0, [F, T]),
        ("@v0 = multiply(@p0, @p1)", (f32([1e-20, 1]), f32([1e-20, 3])), f32([-0.0, 4]), 0.0, [T, F]),
        ("@v0 = multiply(@p0, @p1)", (f32([1e-20, 1]), f32([1e-20, 3])), f32([-0.0, 4]), 1.0, [T, T]),
        # A number that is subnormal inside.
        ("@a = multiply(@p0, @p0)\n@v0 = divide(@a, @p0)", (f32([1e-20, 2]),), f32([0, 2]), 0.0, [T, T]),
        # Not of predicates.
        ("@v0 = and(@p0, @p1)", (np.array([T, T]), np.array([T, F])), np.array([F, F]), 0.0, [F, T]),
    ],
)  # fmt: skip
def test_flushed_subnormals(
    line: str, arguments: tuple[Array, ...], theirs: Array, bound: float, explained: list[bool]
) -> None:
    assert e.flushes(of_program(line, theirs, *arguments, bound=bound)).tolist() == explained


def test_numbers_are_flushed_below_the_smallest_normal_of_the_computing_type() -> None:
    """Narrow floats are computed in f32, c64 in parts of f32."""
    for dtype, least in ((f32, 2.0**-126), (f64, 2.0**-1022), (BF16, 2.0**-126)):
        assert flushed(np.array([least, -least, least / 2, -least / 2], dtype)).tolist() == [
            least,
            -least,
            0,
            0,
        ]
        assert np.signbit(flushed(np.array([-least / 2, least / 2], dtype)).astype(np.float64)).tolist() == [
            T,
            F,
        ]
    assert flushed(f16([2.0**-24])).tolist() == [2.0**-24]
    assert flushed(c64([1e-40 + 1j, 1 - 1e-40j])).tolist() == [1j, 1]
    assert flushed(s8([1])).tolist() == [1]


FUSED = "@a = multiply(@p0, @p0)\n@v0 = subtract(@a, @p1)"


def test_roundings_of_fused_operations() -> None:
    """A product that is not rounded before it is added to, but not the same value, nor one far away."""
    x, y = f32([1 + 2.0**-12] * 3), f32([1] * 3)
    of = of_program(FUSED, f32([2.0**-11 + 2.0**-24, 2.0**-11, 2.0**-10]), x, y)
    assert e.rounded_once_more(of).tolist() == [T, F, F]
    assert e.without_bound(of).tolist() == [F, F, F]
    two = of_program(FUSED, f32([2.0**-11 + 2.0**-24, 2.0**-11, 2.0**-10]), x, y, partitions=2)
    assert not e.rounded_once_more(two).any()
    assert not e.without_bound(two).any()


def test_roundings_that_have_no_bound() -> None:
    """A scatter that takes the last of floats, which have errors."""
    line = (
        f"{FUSED.replace('@v0', '@b')}\n@v0 = f32[2] scatter(@b, @p2, @p3), update_window_dims={{}}, "
        "inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=@f0"
    )
    replaced = ("@f0 {\n  a = f32[] parameter(0)\n  ROOT b = f32[] parameter(1)\n}\n",)
    arguments = f32([1 + 2.0**-12, 1]), f32([1 + 2.0**-11, 1]), s32([[1]]), f32([7])
    where = np.array([T, F])
    of = of_program(line, f32([5, 5]), *arguments, computations=replaced)
    assert e.without_bound(dataclasses.replace(of, where=where)).tolist() == [T, F]
    assert not e.rounded_once_more(of).any()
    integers = dataclasses.replace(of, ours=s32([1, 2]), where=where)
    assert not e.without_bound(integers).any()


@pytest.mark.parametrize(("units", "explained"), [(3.9, T), (4.1, F)])
@pytest.mark.parametrize("axis", [0, 1])
def test_terms_of_a_normalization_that_cancel(units: float, explained: bool, axis: int) -> None:
    """x s + (offset - mean s) with s = scale / sqrt(variance + epsilon): terms 6, 10 and 7."""
    line = f"@v0 = batch-norm-inference(@p0, @p1, @p2, @p3, @p4), epsilon=1e-1, feature_index={axis}"
    x, features = f64([[3, 3]]) if axis else f64([[3], [3]]), f64([1, 1])
    columns = (-4 * features, -7 * features, 5 * features, 3.9 * features)
    ours = np.full(x.shape, 1.0)
    of = difference(ours, ours + units * 23 * 2.0**-52, x, *columns, line=line)
    assert e.within_the_terms_of_a_scaled_sum(of).reshape(-1).tolist() == [explained] * 2


def test_each_step_of_a_narrow_normalization_is_rounded() -> None:
    line = "@v0 = batch-norm-inference(@p0, @p1, @p2, @p3, @p4), epsilon=0.5, feature_index=1"
    x, column = f16([[1, 2], [3, 4]]), f16([1, 2])
    module = difference(x, x, x, *[column] * 4, line=line).case.module
    results: Any = Evaluator().run(module.entry, (x, *[column] * 4))
    (ours,) = results
    of = difference(ours, ours, x, *[column] * 4, line=line)
    assert e.rounded_at_every_step(of).all()
    eps = 2.0**-10
    near = dataclasses.replace(of, theirs=(ours.astype(np.float64) * (1 + 2 * eps)).astype(np.float16))
    assert e.rounded_at_every_step(near).any()
    assert not e.rounded_at_every_step(dataclasses.replace(of, theirs=ours + f16(1))).any()
    assert not e.rounded_at_every_step(dataclasses.replace(of, ours=ours + f16(1))).any()


@pytest.mark.parametrize(
    ("x", "y", "ours", "theirs", "explained"),
    [
        # The exponent is 10 (log 2 + pi) = 38.3 large, and 32 eps of it 1230 eps wide: 1.46e-4 of the value.
        (2, 10, 1024, 1024.149, T), (2, 10, 1024, 1024.151, F),
        (2, 10j, 1, 1 + 1.46e-4j, T), (2, 10j, 1, 1 + 1.47e-4j, F),
        (1, 1e6, 1, 5, T), (0.5, 10, 2.0**-10, 2.0**-10 + 1.42e-7, T), (0.5, 10, 2.0**-10,
     2.0**-10 + 1.44e-7, F),
        (2, 128, 3.4028e38, INF, T), (2, 10, 1, INF, F), (0, 0, 1, 5, T),
    ],
)  # fmt: skip
def test_powers_whose_exponents_are_rounded(
    x: complex, y: complex, ours: complex, theirs: complex, explained: bool
) -> None:
    of = difference(c64([ours]), c64([theirs]), c64([x]), c64([y]))
    assert e.ill_conditioned_power(of.case, of.ours, of.theirs).tolist() == [explained]


def test_zeros_in_place_of_numbers_that_are_none() -> None:
    """0 / 0 has no value in a type without NaN; -1 / 1 and 0 / 1 have one."""
    arguments = np.array([0, 0, 1], F4), np.array([0, 2, 0.5], F4)
    of = of_program("@v0 = divide(@p0, @p1)", np.array([-0.0, -0.0, 2], F4), *arguments)
    assert e.no_number_in_f32(of).tolist() == [T, F, F]
    assert e.no_number_in_f32(dataclasses.replace(of, ours=np.array([1, 0, 0], F4))).tolist() == [F, F, F]
    folded = dataclasses.replace(of, case=dataclasses.replace(of.case, folded=True))
    assert e.no_number_in_f32(folded).tolist() == [T, F, F]


# -- known differences


def test_a_known_difference_ends_with_a_version() -> None:
    known = {d.name: d for d in DIFFERENCES}
    mended = known["scatter without index"]
    assert mended.is_of(XlaVersion(0, 11)) and not mended.is_of(V0_12)
    assert known["subnormals"].is_of(V0_12)


def test_a_known_difference_is_of_operations_within_its_limit() -> None:
    """The largest f4e2m1fn as an integer: only its value for infinity is XLA's."""
    (known,) = [d for d in DIFFERENCES if d.name == "the largest f4e2m1fn as an integer"]
    of = difference(s32([6, 6, 1]), s32([2**31 - 1, 5, 2**31 - 1]), np.array([6, 6, 1], F4))
    assert known.of(of).tolist() == [T, F, F]
    for operation, about in (("convert f4e2m1fn s32", T), ("convert f8e5m2 s32", F)):
        assert known.about(dataclasses.replace(of.case, operation=operation)) is about
