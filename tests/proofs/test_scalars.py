"""The meaning of an operation for the solver is what the evaluator computes, number by number."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from hloom.evaluate.evaluator import Evaluator
from hloom.ir.module import HloModule
from hloom.ir.operation import Operation
from hloom.operations.arithmetic import Add, Complex, Divide, Maximum, Minimum, Multiply, Power, Subtract
from hloom.operations.comparison import Compare, Select
from hloom.operations.conversion import Convert
from hloom.operations.transcendental import Cosine, Exponential, Sine, SquareRoot
from hloom.operations.unary import Abs, Imag, Negate, Not, Real
from hloom.proofs.symbolic.facts import Facts
from hloom.proofs.symbolic.polynomial import Polynomial
from hloom.proofs.symbolic.terms import Access, Apply, Scalar, Term
from hloom.shape.element_type import BF16, C64, F8E4M3FN, F32, PRED, S8, S32, U8, ElementType

pytest.importorskip("z3", reason="z3 is not installed")

import z3

from hloom.proofs.symbolic.scalars import NOT_NEGATIVE_ZERO, Scalars, is_same_polynomial

INF, NAN = np.inf, np.nan
NUMBERS: dict[str, list[Any]] = {
    "pred": [False, True],
    "s8": [0, 1, -1, 2, 7, 8, 100, 127, -128],
    "u8": [0, 1, 2, 7, 8, 128, 255],
    "f32": [0.0, -0.0, 1.0, -1.5, 3.0, 1e-40, 3e38, INF, -INF, NAN],
    "f16": [0.0, -0.0, 1.0, -1.5, 1e-7, 65504.0, 1.001, INF, -INF, NAN],
}
EXACTLY: dict[str, list[Any]] = {
    "s32": [0, 1, -1, 2, -2, 7, -7], "f32": [1.0, -1.0, 0.5, -2.0, 4.0], "pred": [False, True],
}  # fmt: skip
INTEGERS, FLOATS, ALL = ["s8", "u8"], ["f32", "f16"], ["pred", "s8", "u8", "f32", "f16"]
TABLE: list[tuple[str, list[str], str]] = [
    *((f"{opcode}(a, b)", [*INTEGERS, *FLOATS], "") for opcode in ("subtract", "divide")),
    *((f"{opcode}(a, b)", ALL, "") for opcode in ("add", "multiply", "maximum", "minimum")),
    ("remainder(a, b)", INTEGERS, ""),
    *((f"{opcode}(a, b)", ["pred", *INTEGERS], "") for opcode in ("and", "or", "xor")),
    *((f"shift-{way}(a, b)", INTEGERS, "") for way in ("left", "right-arithmetic", "right-logical")),
    ("not(a)", ["pred", *INTEGERS], ""),
    ("negate(a)", ["s8", *FLOATS], ""),
    ("abs(a)", ["s8", *FLOATS], ""),
    ("sqrt(a)", FLOATS, ""),
    *((f"compare(a, b), direction={way}", ALL, "pred") for way in ("EQ", "NE", "LT", "LE", "GT", "GE")),
    ("clamp(a, b, c)", [*INTEGERS, "f16"], ""),
    ("convert(a)", ["pred", *INTEGERS], "s32"),
    ("convert(a)", ["pred", *INTEGERS], "f32"),
    ("convert(a)", INTEGERS, "s4"),
    ("convert(a)", INTEGERS, "u8"),
    ("convert(a)", ["pred"], "u8"),
    ("convert(a)", FLOATS, "f64"),
    ("convert(a)", FLOATS, "bf16"),
    ("reduce-precision(a), exponent_bits=8, mantissa_bits=5", FLOATS, ""),
    ("reduce-precision(a), exponent_bits=4, mantissa_bits=23", FLOATS, ""),
    ("reduce-precision(a), exponent_bits=5, mantissa_bits=3", FLOATS, ""),
    ("real(a)", ["f32"], ""),
    ("imag(a)", ["f32"], ""),
]
IN_REALS: list[tuple[str, list[str], str]] = [
    *((f"{opcode}(a, b)", ["s32", "f32"], "") for opcode in ("add", "subtract", "multiply", "divide")),
    *((f"{opcode}(a, b)", ["s32", "f32"], "") for opcode in ("maximum", "minimum")),
    ("remainder(a, b)", ["s32"], ""),
    ("negate(a)", ["s32", "f32"], ""),
    ("abs(a)", ["s32", "f32"], ""),
    *((f"compare(a, b), direction={way}", ["s32", "f32"], "pred") for way in ("EQ", "NE", "LT", "LE", "GT",
     "GE")),
    ("convert(a)", ["s32", "pred"], "f32"),
    ("convert(a)", ["pred"], "s32"),
    ("convert(a)", ["s32"], "s64"),
    ("convert(a)", ["f32"], "f64"),
    ("reduce-precision(a), exponent_bits=8, mantissa_bits=3", ["f32"], ""),
]  # fmt: skip


def scalar(value: Any, kind: ElementType) -> Scalar:
    return Scalar(np.asarray(value).astype(kind.numpy_dtype).tobytes(), kind)


def operation_of(text: str, kind: str, result: str, rows: Sequence[Sequence[Any]]) -> tuple[Operation, Any]:
    """Return an operation of arrays, and its results on rows of numbers."""
    count = len(rows[0])
    shape, target = f"{kind}[{len(rows)}]", f"{result or kind}[{len(rows)}]"
    parameters = "".join(f"  {'abc'[n]} = {shape} parameter({n})\n" for n in range(count))
    module = HloModule.from_text(f"HloModule m\nENTRY e {{\n{parameters}  ROOT r = {target} {text}\n}}")
    dtype = ElementType.parse(kind).numpy_dtype
    with np.errstate(all="ignore"):
        arguments = [np.array(column).astype(dtype) for column in zip(*rows, strict=True)]
        return module.entry.root.operation, Evaluator().run(module.entry, arguments)


def check(table_row: tuple[str, str, str], numbers: Sequence[Any], *, exact: bool) -> None:
    """Check an operation on all tuples of some numbers; reals are not divided by 0."""
    text, kind, result = table_row
    count = len(text[text.index("(") + 1 : text.index(")")].split(", "))
    rows = list(itertools.product(numbers if count < 3 else numbers[::2], repeat=count))
    operation, values = operation_of(text, kind, result, rows)
    before, after = ElementType.parse(kind), ElementType.parse(result or kind)
    scalars = Scalars(Facts(), exact=exact)
    for row, value in zip(rows, values, strict=True):
        term = Apply(operation, tuple(scalar(x, before) for x in row), after)
        mine, theirs = scalars.value(term), scalars.value(scalar(value, after))
        assert mine.sort() == theirs.sort(), (text, kind, row)
        assert z3.is_true(z3.simplify(mine == theirs)), (text, kind, row, value, z3.simplify(mine))


@pytest.mark.parametrize("row", [(t, k, r) for t, kinds, r in TABLE for k in kinds], ids=" ".join)
def test_operations_on_bits(row: tuple[str, str, str]) -> None:
    check(row, NUMBERS[row[1]], exact=False)


@pytest.mark.parametrize("row", [(t, k, r) for t, kinds, r in IN_REALS for k in kinds], ids=" ".join)
def test_operations_on_unbounded_numbers(row: tuple[str, str, str]) -> None:
    check(row, EXACTLY[row[1]], exact=True)


# -- terms of unknown numbers

X, Y = Access((0,), Polynomial(), F32), Access((1,), Polynomial(), F32)
K, J = Access((2,), Polynomial(), S8), Access((3,), Polynomial(), S8)
Z = Access((4,), Polynomial(), C64)
P = Access((5,), Polynomial(), PRED)


def f32(value: float) -> Scalar:
    return scalar(value, F32)


def apply(operation: Operation, *operands: Term, kind: ElementType | None = None) -> Apply:
    return Apply(operation, operands, kind or operands[0].element_type)


def power(x: Term, exponent: float) -> Apply:
    return apply(Power(), x, scalar(exponent, x.element_type))


def product(*factors: Term) -> Term:
    return factors[0] if len(factors) == 1 else apply(Multiply(), product(*factors[:-1]), factors[-1])


ROOT = apply(SquareRoot(), X)
EQUAL: list[tuple[Term, Term, bool | None, bool]] = [
    # Terms, whether they are equal over bits (None: products of floats take long), and over the reals.
    (X, X, True, True),
    (X, Y, False, False),
    (X, K, False, False),
    (apply(Add(), X, Y), apply(Add(), Y, X), True, True),
    (apply(Add(), X, f32(0)), X, False, True),
    (apply(Subtract(), X, X), f32(0), False, True),
    (apply(Add(), K, J), apply(Add(), J, K), True, True),
    (apply(Subtract(), apply(Add(), K, J), K), J, True, True),
    (apply(Divide(), product(K, scalar(2, S8)), scalar(2, S8)), K, False, True),
    (apply(Divide(), product(X, Y), Y), X, None, True),
    (apply(Maximum(), X, X), X, True, True),
    (apply(Maximum(), X, Y), apply(Maximum(), Y, X), True, True),
    (apply(Minimum(), X, Y), apply(Maximum(), X, Y), False, False),
    # Powers with small constant exponents are products; others are unknown.
    (power(K, 0), scalar(1, S8), True, True),
    (power(K, 1), K, True, True),
    (power(K, 3), product(K, K, K), True, True),
    (power(X, 4), product(X, X, X, X), None, True),
    (power(X, 5), product(X, X, X, X, X), None, False),
    (power(X, -1), apply(Divide(), f32(1), X), None, True),
    (power(X, -2), apply(Divide(), f32(1), product(X, X)), None, False),
    (power(X, 1.5), product(X, ROOT), None, True),
    (power(X, -1.5), apply(Divide(), f32(1), product(X, ROOT)), None, True),
    (power(X, 2.5), product(X, X, ROOT), None, False),
    (apply(Power(), X, Y), apply(Power(), Y, X), False, False),
    (product(ROOT, ROOT), X, None, True),
    (apply(SquareRoot(), product(X, X)), apply(Abs(), X), None, True),
    # Exponentials of sums are products where numbers are real.
    (apply(Exponential(), apply(Add(), X, Y)), product(apply(Exponential(), X), apply(Exponential(), Y)),
     False, True),
    (apply(Exponential(), X), apply(Exponential(), Y), False, False),
    # Complex numbers are their parts.
    (apply(Real(), apply(Complex(), X, Y, kind=C64), kind=F32), X, True, True),
    (apply(Imag(), apply(Complex(), X, Y, kind=C64), kind=F32), Y, True, True),
    (apply(Complex(), apply(Real(), Z, kind=F32), apply(Imag(), Z, kind=F32), kind=C64), Z, True, True),
    (apply(Complex(), apply(Imag(), Z, kind=F32), apply(Real(), Z, kind=F32), kind=C64), Z, False, False),
    (apply(Negate(), apply(Negate(), Z)), Z, True, True),
    (apply(Negate(), Z), Z, False, False),
    (apply(Convert(), apply(Convert(), X, kind=C64), kind=BF16), apply(Convert(), X, kind=BF16), True, True),
    # Functions of which nothing is known have equal values of equal operands.
    (apply(Cosine(), apply(Add(), K, J)), apply(Cosine(), apply(Add(), J, K)), True, True),
    (apply(Cosine(), X), apply(Sine(), X), False, False),
    (apply(Add(), Z, apply(Negate(), Z)), apply(Add(), apply(Negate(), Z), Z), True, True),
    (apply(Subtract(), Z, apply(Negate(), Z)), apply(Subtract(), apply(Negate(), Z), Z), False, False),
    # Comparisons with infinities are those of ranks over the reals.
    (apply(Compare(direction="LT"), X, f32(np.inf), kind=PRED), scalar(True, PRED), False, True),
    (apply(Compare(direction="GE"), f32(-np.inf), X, kind=PRED), scalar(False, PRED), False, True),
    (apply(Compare(direction="EQ"), f32(np.inf), X, kind=PRED), scalar(False, PRED), False, True),
    # A total order has all numbers, each equal to itself alone.
    (apply(Compare(direction="LE", comparison_type="TOTALORDER"), X, X, kind=PRED), scalar(True, PRED),
     True, True),
    (apply(Compare(direction="LT", comparison_type="TOTALORDER"), X, Y, kind=PRED),
     apply(Not(), apply(Compare(direction="GE", comparison_type="TOTALORDER"), X, Y, kind=PRED)), True, True),
    (apply(Compare(direction="LT"), X, Y, kind=PRED),
     apply(Not(), apply(Compare(direction="GE"), X, Y, kind=PRED)), False, True),
    (apply(Select(), P, X, Y), apply(Select(), apply(Not(), P), Y, X), True, True),
    (apply(Select(), P, X, X, kind=F32), X, True, True),
]  # fmt: skip


@pytest.mark.parametrize(("a", "b", "bits", "reals"), EQUAL)
def test_equal_terms(a: Term, b: Term, bits: bool | None, reals: bool) -> None:
    if bits is not None:
        assert Scalars(Facts(), exact=False).are_equal(a, b) is bits
    assert Scalars(Facts(), exact=True).are_equal(a, b) is reals


def test_leaves_that_are_not_negative_zero() -> None:
    """X + 0 is X unless X is -0."""
    x = Access((0, NOT_NEGATIVE_ZERO), Polynomial(), F32)
    assert Scalars(Facts(), exact=False).are_equal(apply(Add(), x, f32(0)), x)
    assert Scalars(Facts(), exact=False).are_equal(apply(Add(), X, f32(-0.0)), X)


@pytest.mark.parametrize(
    ("kind", "bits", "reals"),
    [
        (PRED, "Bool", "Bool"), (S8, "BitVec(8)", "Int"), (U8, "BitVec(8)", "Int"), (S32, "BitVec(32)",
     "Int"),
        (F32, "FPSort(8, 24)", "Real"), (BF16, "FPSort(8, 8)", "Real"), (F8E4M3FN, "f8e4m3fn", "Real"),
        (C64, "c64", "c64"),
    ],
)  # fmt: skip
def test_sorts(kind: ElementType, bits: str, reals: str) -> None:
    """Types that are no IEEE format are sorts of their own."""
    assert str(Scalars(Facts(), exact=False).sort(kind)) == bits
    assert str(Scalars(Facts(), exact=True).sort(kind)) == reals


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        (product(K, apply(Add(), J, scalar(1, S8))), apply(Add(), K, product(J, K)), True),
        (apply(Subtract(), K, J), apply(Add(), K, apply(Negate(), J)), True),
        (product(K, scalar(64, S8)), apply(Negate(), product(K, scalar(-64, S8))), True),
        (product(K, scalar(64, S8), scalar(4, S8)), scalar(0, S8), True),
        (product(K, scalar(64, S8), scalar(2, S8)), scalar(0, S8), False),
        (apply(Subtract(), K, J), apply(Subtract(), J, K), False),
        (apply(Maximum(), K, J), apply(Maximum(), K, J), True),
        (product(X, Y), product(Y, X), False),
    ],
)
def test_sums_of_products_of_integers_are_equal_modulo_their_range(a: Term, b: Term, same: bool) -> None:
    assert is_same_polynomial(a, b) is same
