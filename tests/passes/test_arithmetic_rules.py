"""Rules for arithmetic, logic, comparison and conversion, and where they must not be applied."""

from __future__ import annotations

import numpy as np
import pytest

from hloom.passes.rules import arithmetic, comparison, conversion, structure
from hloom.shape.element_type import ElementType
from tests.native_runs import agree
from tests.rule_checks import ANYTHING, FLOATS, INTEGERS, REAL, SMALL_FLOATS, Example, check, check_refused


def spread(number: str, kind: str = "T") -> str:
    """``c``: an array T[40] of one number."""
    return f"n = {kind}[] constant({number}); c = {kind}[40] broadcast(n), dimensions={{}}; "


def divided(divisor: str) -> str:
    """``z`` and ``m``: zeros, and the remainders of x and a number."""
    zeros = "o = T[] constant(0); z = T[40] broadcast(o), dimensions={}; "
    return spread(divisor) + zeros + "m = T[40] remainder(x, c); "


def quotient_rounded_down(divisor: str) -> str:
    """``x // c``, with a correction of the quotient that is rounded towards zero."""
    return divided(divisor) + (
        "q = T[40] divide(x, c); u = T[] constant(-1); ones = T[40] broadcast(u), dimensions={}; "
        "less = T[40] add(q, ones); a = pred[40] compare(x, z), direction=LT; "
        "b = pred[40] compare(m, z), direction=NE; p = pred[40] and(a, b); r = T[40] select(p, less, q)"
    )


def remainder_rounded_down(divisor: str) -> str:
    """``x % c``, with a correction of the remainder that has the sign of x."""
    return divided(divisor) + (
        "p = pred[40] compare(m, z), direction=LT; s = T[40] add(m, c); r = T[40] select(p, s, m)"
    )


SIGNED = ("s8", "s16", "s32", "s64", "s4")
X = "x: T[40]"
XY = "x: T[40], y: T[40]"

EXAMPLES = {
    "constant_on_the_right": [
        Example(X, spread("3") + "r = T[40] multiply(c, x)", REAL),
        Example("p: pred[40]", spread("true", "pred") + "r = pred[40] xor(c, p)"),
    ],
    "add_zero": [
        Example(X, spread("0") + "r = T[40] add(x, c)", INTEGERS),
        Example(X, spread("-0") + "r = T[40] add(x, c)", FLOATS),
        Example(X, spread("0") + "a = T[40] abs(x); r = T[40] add(a, c)", FLOATS),
        Example(X, spread("0") + "e = T[40] exponential(x); r = T[40] add(e, c)", FLOATS),
        Example(X, spread("0") + "e = T[40] multiply(x, x); r = T[40] add(e, c)", (*FLOATS, "f8e5m2")),
        Example("x: T[4,40]", spread("0") + "s = T[40] reduce(x, n), dimensions={0}, to_apply=sum;"
                "r = T[40] add(s, c)", FLOATS),
        Example("p: pred[40], i: s32[40]", spread("0", "f32") + "f = f32[40] convert(i);"
                "s = f32[40] select(p, f, c); r = f32[40] add(s, c)"),
    ],
    "subtract_zero": [
        Example(X, spread("0") + "r = T[40] subtract(x, c)", (*INTEGERS, *FLOATS, "f8e5m2")),
    ],
    "multiply_by_one": [
        Example(X, spread("1") + "r = T[40] multiply(x, c)", REAL),
        Example(X, spread("1") + "r = T[40] divide(x, c)", (*FLOATS, "s32", "u16")),
        Example(X, spread("1") + "r = T[40] power(x, c)", (*FLOATS, "s32", "u16")),
    ],
    "multiply_by_minus_one": [
        Example(X, spread("-1") + "r = T[40] multiply(x, c)", (*FLOATS, "f8e5m2", "s8", "s4")),
        Example(X, spread("-1") + "r = T[40] divide(x, c)", (*FLOATS, "s8")),
    ],
    "extreme_of_limit": [
        Example(X, spread("-inf") + "r = T[40] maximum(x, c)", FLOATS),
        Example(X, spread("inf") + "r = T[40] minimum(x, c)", FLOATS),
        Example(X, spread("-128") + "r = T[40] maximum(x, c)", ("s8",)),
        Example(X, spread("65535") + "r = T[40] minimum(x, c)", ("u16",)),
        Example(X, spread("false") + "r = T[40] maximum(x, c)", ("pred",)),
    ],
    "same_twice": [
        Example(X, "r = T[40] maximum(x, x)", ANYTHING),
        Example(X, "r = T[40] and(x, x)", (*INTEGERS, "pred")),
    ],
    "logic_with_constant": [
        Example("x: pred[40]", spread(value, "pred") + f"r = pred[40] {opcode}(x, c)")
        for value in ("true", "false") for opcode in ("and", "or", "multiply", "add")
    ] + [
        Example(X, spread("-1") + "r = T[40] and(x, c)", ("s32", "s4")),
        Example(X, spread("65535") + "r = T[40] or(x, c)", ("u16",)),
        Example(X, spread("0") + "r = T[40] xor(x, c)", INTEGERS),
    ],
    "shift_by_zero": [
        Example(X, spread("0") + f"r = T[40] {opcode}(x, c)", INTEGERS)
        for opcode in ("shift-left", "shift-right-logical", "shift-right-arithmetic")
    ],
    "integer_times_zero": [Example(X, spread("0") + "r = T[40] multiply(x, c)", INTEGERS)],
    "integer_minus_itself": [
        Example(X, "r = T[40] subtract(x, x)", INTEGERS),
        Example(X, "r = T[40] xor(x, x)", (*INTEGERS, "pred")),
    ],
    "integer_constants_together": [
        Example(X, f"m = T[] constant(3); n = T[] constant(6); a = T[40] broadcast(m), dimensions={{}};"
                f"b = T[40] broadcast(n), dimensions={{}}; i = T[40] {opcode}(x, a); "
                f"r = T[40] {opcode}(i, b)",
                INTEGERS)
        for opcode in ("add", "multiply", "and", "or", "xor")
    ],
    "integer_difference_again": [
        Example(XY, "d = T[40] subtract(x, y); r = T[40] add(d, y)", INTEGERS),
        Example(XY, "d = T[40] subtract(x, y); r = T[40] add(y, d)", ("s8",)),
    ],
    "integer_subtract_constant": [Example(X, spread("5") + "r = T[40] subtract(x, c)", INTEGERS)],
    "integer_remainder_of_one": [Example(X, spread("1") + "r = T[40] remainder(x, c)", INTEGERS)],
    "twice_undone": [
        Example(X, "n = T[40] negate(x); r = T[40] negate(n)", (*FLOATS, *INTEGERS, "f8e5m2fnuz", "c64")),
        Example(X, "n = T[40] not(x); r = T[40] not(n)", (*INTEGERS, "pred")),
    ],
    "abs_again": [
        Example(X, "n = T[40] negate(x); r = T[40] abs(n)", (*FLOATS, "s8")),
        Example(X, "n = T[40] abs(x); r = T[40] abs(n)", (*FLOATS, "s8")),
    ],
    "add_negated": [
        Example(XY, "n = T[40] negate(y); r = T[40] add(x, n)", (*FLOATS, *INTEGERS, "f8e5m2")),
        Example(XY, "n = T[40] negate(x); r = T[40] add(n, y)", FLOATS),
    ],
    "subtract_negated": [
        Example(XY, "n = T[40] negate(y); r = T[40] subtract(x, n)", (*FLOATS, *INTEGERS)),
        Example(X, spread("-0") + "r = T[40] subtract(c, x)", FLOATS),
        Example(X, spread("0") + "r = T[40] subtract(c, x)", INTEGERS),
    ],
    "both_negated": [
        Example(XY, f"a = T[40] negate(x); b = T[40] negate(y); r = T[40] {opcode}(a, b)", FLOATS)
        for opcode in ("multiply", "divide")
    ],
    "constant_takes_the_sign": [
        Example(X, spread("2.5") + "a = T[40] negate(x); r = T[40] multiply(a, c)", FLOATS),
        Example(X, spread("3") + "a = T[40] negate(x); r = T[40] multiply(a, c)", INTEGERS),
    ],
    "divide_by_power_of_two": [
        Example(X, spread(number) + "r = T[40] divide(x, c)", FLOATS) for number in ("8", "-0.25", "1024")
    ] + [Example(X, spread("1.7014118346046923e+38") + "r = T[40] divide(x, c)", ("f64",))],
    "power_of_constant_exponent": [
        Example(X, spread("2") + "r = T[40] power(x, c)", ("f32", "bf16", "f16", "s32", "u16")),
        Example(X, spread("0") + "r = T[40] power(x, c)", (*FLOATS, "s32")),
    ],
    "power_as_products": [
        Example(X, spread(number) + "r = T[40] power(x, c)", types)
        for number, types in (("3", ("f32", "bf16", "s32")), ("4", ("f64", "f16", "u16")), ("2", ("f64",)))
    ],
    "power_as_reciprocal": [Example(X, spread("-1") + "r = T[40] power(x, c)", FLOATS)],
    "power_by_root": [
        Example(X, spread(value) + "r = T[40] power(x, c)", ("f32", "f64")) for value in ("1.5", "-1.5")
    ],
    "part_of_complex": [
        Example("x: f32[40], y: f32[40]", f"z = c64[40] complex(x, y); r = f32[40] {part}(z)")
        for part in ("real", "imag")
    ] + [Example("x: f32[40]", f"r = f32[40] {part}(x)") for part in ("real", "imag")],
    "complex_of_parts": [Example("x: c64[40]", "a = f32[40] real(x); b = f32[40] imag(x); "
                                 "r = c64[40] complex(a, b)")],
    "clamp_without_a_bound": [
        Example("x: T[40], h: T[]", "l = T[] constant(-inf); r = T[40] clamp(l, x, h)", FLOATS),
        Example("x: T[40], l: T[40]", spread("127") + "r = T[40] clamp(l, x, c)", ("s8",)),
    ],
    # comparison
    "compare_with_itself": [
        Example(X, f"r = pred[40] compare(x, x), direction={d}", INTEGERS) for d in ("EQ", "NE", "LT", "GE")
    ] + [Example(X, "r = pred[40] compare(x, x), direction=LE, type=TOTALORDER", ("f32",))],
    "compare_constant_on_the_right": [
        Example(X, spread("1") + f"r = pred[40] compare(c, x), direction={d}", REAL)
        for d in ("EQ", "NE", "LT", "GT", "LE", "GE")
    ],
    "compare_of_pred": [
        Example("p: pred[40]", spread(v, "pred") + f"r = pred[40] compare(p, c), direction={d}")
        for v in ("true", "false") for d in ("EQ", "NE")
    ],
    "compare_of_bounded": [
        Example(XY, spread("0") + f"s = T[40] multiply(x, y); m = T[40] {bounded}(s, c); "
                    f"p = pred[40] compare(s, c), direction={d}; r = T[40] select(p, x, m)", REAL)
        for bounded, directions in (("maximum", ("GT", "LE")), ("minimum", ("LT", "GE"))) for d in directions
    ],
    "compare_of_sign": [
        Example(X, spread(n) + f"s = T[40] sign(x); r = pred[40] compare(s, c), direction={d}", SIGNED)
        for n in ("-1", "0", "1") for d in ("EQ", "NE")
    ] + [
        Example(X, spread("0") + "s = T[40] sign(x); r = pred[40] compare(s, c), direction=GE", SIGNED)
    ],
    "less_and_unequal": [
        Example(XY, f"a = pred[40] compare(x, y), direction={d}; b = pred[40] compare(x, y), direction=NE; "
                    f"r = pred[40] and({operands})", REAL)
        for d in ("LT", "GT", "LE", "GE") for operands in ("a, b", "b, a")
    ] + [
        Example(XY, "a = pred[40] compare(x, y), direction=LE, type=TOTALORDER; "
                    "b = pred[40] compare(x, y), direction=NE, type=TOTALORDER; r = pred[40] and(a, b)",
                FLOATS),
    ],
    "sign_of_indivisible": [
        Example(XY, bound + f"a = pred[40] compare(x, c), direction={d}; z = T[] constant(0); "
                    "zeros = T[40] broadcast(z), dimensions={}; m = T[40] remainder(x, y); "
                    f"b = pred[40] compare(m, zeros), direction=NE; r = pred[40] and({operands})", SIGNED)
        for bound, d in ((spread("1"), "LT"), (spread("-1"), "GT")) for operands in ("a, b", "b, a")
    ],
    "quotient_by_power_of_two": [
        Example(X, quotient_rounded_down(n), types)
        for n, types in (("1", SIGNED), ("4", SIGNED), ("64", SIGNED[:4]), ("16384", ("s32",)))
    ],
    "remainder_by_power_of_two": [
        Example(X, remainder_rounded_down(n), types)
        for n, types in (("1", SIGNED), ("4", SIGNED), ("64", SIGNED[:4]), ("16384", ("s32",)))
    ],
    "not_of_compare": [
        Example(XY, f"a = pred[40] compare(x, y), direction={d}; r = pred[40] not(a)", INTEGERS)
        for d in ("EQ", "NE", "LT", "GT", "LE", "GE")
    ] + [
        Example(XY, "a = pred[40] compare(x, y), direction=EQ; r = pred[40] not(a)", FLOATS),
        Example(XY, "a = pred[40] compare(x, y), direction=LT, type=TOTALORDER; r = pred[40] not(a)", FLOATS),
    ],
    "select_decided": [
        Example(XY, spread(v, "pred") + "r = T[40] select(c, x, y)", ANYTHING) for v in ("true", "false")
    ] + [Example("x: T[40], p: pred[]", "r = T[40] select(p, x, x)")],
    "select_of_not": [
        Example("p: pred[40], x: T[40], y: T[40]", "n = pred[40] not(p); r = T[40] select(n, x, y)", ANYTHING)
    ],
    "select_of_pred": [
        Example("p: pred[40]", f"a = pred[] constant({a}); b = pred[] constant({b});"
                "x = pred[40] broadcast(a), dimensions={}; y = pred[40] broadcast(b), dimensions={};"
                "r = pred[40] select(p, x, y)")
        for a, b in (("true", "false"), ("false", "true"))
    ] + [
        Example("p: pred[], x: pred[40]", spread("false", "pred") + "r = pred[40] select(p, x, c)"),
        Example("p: pred[40], x: pred[40]", spread("true", "pred") + "r = pred[40] select(p, c, x)"),
    ],
    "select_of_same_choice": [
        Example("p: pred[40], x: f32[40], y: f32[40], z: f32[40]",
                "i = f32[40] select(p, x, y); r = f32[40] select(p, i, z)"),
        Example("p: pred[40], x: f32[40], y: f32[40], z: f32[40]",
                "i = f32[40] select(p, x, y); r = f32[40] select(p, z, i)"),
    ],
    "size_of_static_dimension": [Example("x: f32[4,10]", "r = s32[] get-dimension-size(x), dimensions={1}")],
    # conversion
    "convert_to_the_same": [Example(X, "r = T[40] convert(x)", ANYTHING)],
    "convert_twice": [
        Example("x: bf16[40]", "a = f32[40] convert(x); r = bf16[40] convert(a)"),
        Example("x: f16[40]", "a = f32[40] convert(x); r = s8[40] convert(a)"),
        Example("x: f8e4m3fn[40]", "a = f32[40] convert(x); r = f16[40] convert(a)"),
        Example("x: s8[40]", "a = f32[40] convert(x); r = bf16[40] convert(a)"),
        Example("x: u8[40]", "a = s32[40] convert(x); r = u64[40] convert(a)"),
        Example("x: s64[40]", "a = s32[40] convert(x); r = s8[40] convert(a)"),
        Example("x: f32[40]", "a = c64[40] convert(x); r = f64[40] convert(a)"),
        Example("x: pred[40]", "a = s32[40] convert(x); r = f32[40] convert(a)"),
        Example("x: s8[40]", "a = f32[40] convert(x); r = s32[40] convert(a)"),
    ],
    "bitcast_convert_twice": [
        Example("x: f32[40]", "a = s32[40] bitcast-convert(x); r = f32[40] bitcast-convert(a)"),
        Example("x: f32[40]", "a = s32[40] bitcast-convert(x); r = u32[40] bitcast-convert(a)"),
        Example("x: f32[40]", "a = u8[40,4] bitcast-convert(x); r = f32[40] bitcast-convert(a)"),
    ],
    "bitcast_convert_to_the_same": [Example("x: f32[40]", "r = f32[40] bitcast-convert(x)")],
    "reduce_precision_of_fewer_bits": [
        Example("x: f32[40]", "r = f32[40] reduce-precision(x), exponent_bits=8, mantissa_bits=23"),
        Example("x: f32[40]", "a = f32[40] reduce-precision(x), exponent_bits=5, mantissa_bits=10;"
                "r = f32[40] reduce-precision(a), exponent_bits=5, mantissa_bits=10"),
    ],
    "copy_of_anything": [Example(X, "r = T[40] copy(x)", ANYTHING)],
    # structure
    "element_of_tuple": [
        Example("x: f32[4], y: s32[]", "t = (f32[4], s32[]) tuple(x, y); r = s32[] get-tuple-element(t), "
                "index=1")
    ],
    "tuple_of_elements": [
        Example("x: f32[4], y: f32[4]", "t = (f32[4], f32[4]) sort(x, y), dimensions={0}, to_apply=order;"
                "a = f32[4] get-tuple-element(t), index=0; b = f32[4] get-tuple-element(t), index=1;"
                "u = (f32[4], f32[4]) tuple(a, b); r = (f32[4], f32[4]) opt-barrier(u)")
    ],
    "barrier_of_nothing": [Example("x: f32[4]", "t = () tuple(); b = () opt-barrier(t); "
                                   "r = (f32[4], ()) tuple(x, b)")],
    "after_one": [
        Example("x: f32[4]", "t = token[] after-all(); u = token[] after-all(t);"
                "a = f32[4] add-dependency(x, u); r = f32[4] negate(a)")
    ],
}  # fmt: skip

REFUSED = {
    "add_zero": [Example(X, spread("0") + "r = T[40] add(x, c)", FLOATS)],
    "subtract_zero": [Example(X, spread("-0") + "r = T[40] subtract(x, c)", FLOATS)],
    "multiply_by_one": [Example("x: c64[40]", spread("(1, 0)", "c64") + "r = c64[40] multiply(x, c)")],
    "extreme_of_limit": [Example(X, spread("-3e38") + "r = T[40] maximum(x, c)", ("f32", "bf16"))],
    "integer_times_zero": [Example(X, spread("0") + "r = T[40] multiply(x, c)", FLOATS)],
    "integer_minus_itself": [Example(X, "r = T[40] subtract(x, x)", (*FLOATS, "c64"))],
    "integer_constants_together": [
        Example(X, spread("2") + "a = T[40] add(x, c); r = T[40] add(a, c)", FLOATS),
        Example(X, spread("2") + "a = T[40] multiply(x, c); r = T[40] multiply(a, c)", FLOATS),
    ],
    "integer_difference_again": [Example(XY, "d = T[40] subtract(x, y); r = T[40] add(d, y)", FLOATS)],
    "twice_undone": [Example(X, "n = T[40] negate(x); r = T[40] negate(n)", ("f8e8m0fnu",))],
    "divide_by_power_of_two": [
        Example(X, spread("3") + "r = T[40] divide(x, c)", FLOATS),
        Example(X, spread("1.7014118346046923e+38") + "r = T[40] divide(x, c)", ("f32",)),
        Example(X, spread("2") + "r = T[40] divide(x, c)", ("s32", *SMALL_FLOATS)),
    ],
    "power_as_products": [Example(X, spread("0.5") + "r = T[40] power(x, c)", FLOATS)],
    "compare_with_itself": [Example(X, "r = pred[40] compare(x, x), direction=EQ", (*FLOATS, "c64"))],
    "compare_of_sign": [
        Example(X, spread("1") + "s = T[40] sign(x); r = pred[40] compare(s, c), direction=NE", FLOATS),
        Example(X, spread("1") + "s = T[40] sign(x); r = pred[40] compare(s, c), direction=LT", SIGNED),
    ],
    "quotient_by_power_of_two": [Example(X, quotient_rounded_down(n), SIGNED) for n in ("3", "-4", "0")],
    "remainder_by_power_of_two": [Example(X, remainder_rounded_down(n), SIGNED) for n in ("3", "-4", "0")],
    "not_of_compare": [
        Example(XY, f"a = pred[40] compare(x, y), direction={d}; r = pred[40] not(a)",
                FLOATS) for d in ("LT", "GE")
    ],
    "convert_twice": [
        Example("x: f32[40]", "a = bf16[40] convert(x); r = f32[40] convert(a)"),
        Example("x: f64[40]", "a = f32[40] convert(x); r = bf16[40] convert(a)"),
        Example("x: s32[40]", "a = f32[40] convert(x); r = s32[40] convert(a)"),
        Example("x: s8[40]", "a = u8[40] convert(x); r = s32[40] convert(a)"),
        Example("x: f32[40]", "a = f8e4m3fn[40] convert(x); r = f32[40] convert(a)"),
    ],
    "reduce_precision_of_fewer_bits": [
        Example("x: bf16[40]", "r = bf16[40] reduce-precision(x), exponent_bits=8, mantissa_bits=6")
    ],
    "tuple_of_elements": [
        Example("t: (f32[4], f32[4])", "a = f32[4] get-tuple-element(t), index=0; "
                "b = f32[4] get-tuple-element(t), index=1;"
                "u = (f32[4], f32[4]) tuple(b, a); r = (f32[4], f32[4]) opt-barrier(u)")
    ],
}  # fmt: skip

RULES = {r.name: r for m in (arithmetic, comparison, conversion, structure) for r in m.RULES}


def test_every_rule_has_examples() -> None:
    assert RULES.keys() == EXAMPLES.keys()


@pytest.mark.parametrize("name", RULES)
def test_both_sides_are_the_same(name: str) -> None:
    for example in EXAMPLES[name]:
        check(RULES[name], example)


@pytest.mark.parametrize("name", REFUSED)
def test_the_rule_is_not_applied_where_sides_differ(name: str) -> None:
    for example in REFUSED[name]:
        check_refused(RULES[name], example)


BINARY = ("add", "subtract", "multiply", "divide", "remainder", "power", "maximum", "minimum", "atan2")


@pytest.mark.parametrize("kind", ["f32", "f64", "f16"])
@pytest.mark.parametrize("constant", ["inf", "-inf", "nan", "-0"])
def test_constants_that_rules_must_not_take_for_numbers(kind: str, constant: str) -> None:
    """Every operation of an array and a constant on either side, compiled."""
    lines = [f"x = {kind}[9] parameter(0)", f"c = {kind}[] constant({constant})"]
    lines.append(f"b = {kind}[9] broadcast(c), dimensions={{}}")
    for opcode in BINARY:
        lines.append(f"{opcode}_right = {kind}[9] {opcode}(x, b)")
        lines.append(f"{opcode}_left = {kind}[9] {opcode}(b, x)")
    names = [f"{opcode}_{side}" for opcode in BINARY for side in ("right", "left")]
    lines.append(f"ROOT r = ({', '.join([f'{kind}[9]'] * len(names))}) tuple({', '.join(names)})")
    values = np.array([1, -1, 0, -0.0, 2.5, -3, np.inf, -np.inf, np.nan])
    agree("\n".join(lines), values.astype(ElementType.parse(kind).dtype), rounded=True)
