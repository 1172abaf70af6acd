"""Exact functions of one number: for every value of the narrow types, and by hand where it matters."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.arrays import c64, f32, f64
from tests.one_operation import FLOAT_TYPES, apply, array, every, nearest, numbers, same


def away_from_zero(value: float) -> float:
    return math.copysign(math.floor(abs(value) + 0.5), value) if math.isfinite(value) else value


EXACT = {
    "abs": abs,
    "negate": lambda v: -v,
    "sign": lambda v: v if v == 0 or v != v else math.copysign(1, v),
    "floor": lambda v: math.copysign(math.floor(v), v) if math.isfinite(v) else v,
    "ceil": lambda v: math.copysign(math.ceil(v), v) if math.isfinite(v) else v,
    "round-nearest-afz": away_from_zero,
    "round-nearest-even": lambda v: math.copysign(round(v), v) if math.isfinite(v) else v,
    "is-finite": math.isfinite,
    "real": lambda v: v,
    "imag": lambda v: 0.0,
}


@pytest.mark.parametrize("opcode", EXACT)
@pytest.mark.parametrize("kind", FLOAT_TYPES)
def test_every_narrow_float(opcode: str, kind: str) -> None:
    values = every(kind)
    wanted = [float(EXACT[opcode](v)) for v in numbers(values).tolist()]
    result = apply(opcode, values)
    same(result, wanted if opcode == "is-finite" else nearest(wanted, kind))


@pytest.mark.parametrize("kind", ["s1", "s2", "s4", "s8", "s16", "u1", "u2", "u4", "u8", "u16"])
def test_every_narrow_integer(kind: str) -> None:
    values = every(kind)
    bits = int(kind[1:])
    numbers = [int(v) for v in values]
    patterns = [n % (1 << bits) for n in numbers]

    def wrapped(wanted: list[int]) -> list[int]:
        half = (1 << bits) // 2 if kind[0] == "s" else 0
        return [(w + half) % (1 << bits) - half for w in wanted]

    def check(opcode: str, wanted: list[int]) -> None:
        assert [int(r) for r in apply(opcode, values)] == wrapped(wanted)

    check("negate", [-n for n in numbers])
    check("not", [~n for n in numbers])
    check("popcnt", [p.bit_count() for p in patterns])
    check("count-leading-zeros", [bits - p.bit_length() for p in patterns])
    if kind[0] == "s":
        check("abs", [abs(n) for n in numbers])
        check("sign", [(n > 0) - (n < 0) for n in numbers])


def test_wide_integers() -> None:
    for kind, bits in [("u32", 32), ("s32", 32), ("u64", 64), ("s64", 64)]:
        values = array(kind, np.array([0, 1, 5, 2 ** (bits - 1) - 1], np.uint64))
        assert apply("count-leading-zeros", values).tolist() == [bits, bits - 1, bits - 3, 1]
        assert apply("popcnt", values).tolist() == [0, 1, 2, bits - 1]
    assert apply("abs", array("s64", [-(2**63)])).tolist() == [-(2**63)]
    assert apply("negate", array("u32", [1])).tolist() == [2**32 - 1]


def test_not_of_a_predicate() -> None:
    assert apply("not", np.array([True, False])).tolist() == [False, True]


def test_halves() -> None:
    values = f64([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 0.49999999999999994, 2.0**52 + 1])
    same(apply("round-nearest-afz", values), [-3, -2, -1, 1, 2, 3, 0, 2.0**52 + 1])
    same(apply("round-nearest-even", values), [-2, -2, -0.0, 0, 2, 2, 0, 2.0**52 + 1])


def test_subnormals_are_kept() -> None:
    tiny = f32([1e-45, -1e-45])
    same(apply("abs", tiny), [tiny[0], tiny[0]])
    same(apply("ceil", tiny), [1, -0.0])
    same(apply("sign", tiny), [1, -1])


class TestComplex:
    def test_parts(self) -> None:
        value = c64([complex(1, -0.0), complex(np.inf, np.nan)])
        same(apply("real", value), [1, np.inf])
        same(apply("imag", value), [-0.0, np.nan])
        assert apply("real", np.complex128(1)).dtype == np.float64

    @pytest.mark.parametrize("kind", ["c64", "c128"])
    def test_modulus(self, kind: str) -> None:
        large = 1e38 if kind == "c64" else 1e308
        values = [
            3 + 4j,
            complex(np.inf, np.nan),
            complex(np.nan, -np.inf),
            complex(np.nan, 1),
            complex(large, 0),
        ]
        moduli = apply("abs", array(kind, values))
        same(moduli, np.array([5, np.inf, np.inf, np.nan, large]).astype(moduli.dtype))

    def test_modulus_does_not_overflow_on_the_way(self) -> None:
        same(apply("abs", c64([3e30 + 4e30j, 3e-40 + 4e-40j])), f32([5e30, 5e-40]))

    def test_sign(self) -> None:
        values = c64([3 + 4j, 0, complex(np.nan, 1), complex(1, np.nan), -3e38 - 3e38j])
        half = -math.sqrt(0.5)
        wanted = [0.6 + 0.8j, 0, complex(np.nan, np.nan), complex(np.nan, np.nan), complex(half, half)]
        result = apply("sign", values)
        same(result.real, c64(wanted).real)
        same(result.imag, c64(wanted).imag)

    def test_negation_flips_both_signs(self) -> None:
        result = apply("negate", c64([complex(0.0, -0.0)]))
        same(result.real, [-0.0])
        same(result.imag, [0.0])
