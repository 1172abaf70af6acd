"""The laws of elementwise operations on terms: integers against numpy, others as equations of terms."""

from __future__ import annotations

import ast
from typing import Any

import numpy as np
import pytest

from hloom.ir.affine import Index, Variable
from hloom.ir.operation import REGISTRY, Operation
from hloom.operations.arithmetic import Add, Divide, Maximum, Minimum, Multiply, Remainder, Subtract
from hloom.operations.comparison import Compare
from hloom.operations.conversion import Convert
from hloom.operations.unary import Negate
from hloom.proofs.relations.equality import Equality
from hloom.proofs.relations.indices import Quotients, negated, reduced
from hloom.proofs.relations.laws import Laws
from hloom.proofs.relations.terms import Element, Number, Term, Terms
from hloom.shape.element_type import BF16, C64, F16, F32, F64, PRED, S8, S32, S64, U8, ElementType
from tests.proofs.test_relation_terms import Interpreter

EXTENT = 7
INTEGERS = [
    (Add(), S32), (Subtract(), S32), (Multiply(), S32), (Divide(), S32), (Remainder(), S32), (Maximum(), S32),
    (Minimum(), S32), (Add(), S8), (Subtract(), S8), (Add(), U8), (Subtract(), U8), (Multiply(), U8),
    *((Compare(direction=way), kind) for way in ("EQ", "NE", "LT", "LE", "GT", "GE") for kind in (S32, U8)),
]  # fmt: skip
"""Operations on two integers."""


class Wrapping(Interpreter):
    """Computes elements of narrow types too."""

    def number(self, term: Term, numbers: Any) -> int:
        if isinstance(term, Element) and term.function.head[0] == "wrapped":
            ((operand,), _) = self.terms.opened(term)
            kind = ElementType.parse(term.function.head[1])
            return int(np.asarray(self.number(operand, numbers)).astype(kind.numpy_dtype))
        return super().number(term, numbers)


def numbers_of(terms: Terms, term: Term, x: Variable) -> list[int]:
    read = Wrapping(terms)
    return [read.number(term, {x: n}) for n in range(x.extent)]


@pytest.mark.parametrize(("operation", "kind"), INTEGERS, ids=str)
@pytest.mark.parametrize("other", ["constant", "index"])
def test_operations_on_indices(operation: Operation, kind: ElementType, other: str) -> None:
    """Of ``c + k x`` and another, either in the range of the type, for each x; results wrap."""
    run: Any = type("Run", (), {"shape": None, "dtype": kind.numpy_dtype})()
    result_kind = PRED if isinstance(operation, Compare) else kind
    decided = 0
    for constant, slope in ((0, 1), (3, 2), (2, 18), (100, 4), (-5, 1), (-120, 3), (6, -1), (250, 0)):
        for number in (0, 1, 2, 3, 7, 100, 127, 200, -1, -3):
            terms, x = Terms(), Variable(EXTENT, "x")
            laws = Laws(terms, reals=False)
            a = Index(constant, [(x, slope)])
            b = Index(number, [(x, 1)] if other == "index" else [])
            low, high = kind.limits
            if min(a.minimum(), b.minimum()) < low or max(a.maximum(), b.maximum()) > high:
                continue
            for first, second in ((a, b), (b, a)):
                term = laws.apply(operation, result_kind, (kind, kind), (Number(first), Number(second)))
                if isinstance(term, Element) and not isinstance(term.function.head[0], str):
                    continue  # a function of which nothing is known
                values = [
                    np.array([v.constant + sum(c * n for _, c in v.terms) for n in range(EXTENT)])
                    for v in (first, second)
                ]
                arrays = [v.astype(kind.numpy_dtype) for v in values]
                with np.errstate(all="ignore"):
                    expected = np.asarray(operation.evaluate(run, *arrays)).astype(np.int64).tolist()
                assert numbers_of(terms, term, x) == expected, (first, second)
                decided += 1
    assert decided > 20 or (other == "index" and isinstance(operation, Multiply | Divide | Remainder))


CONVERSIONS = [(S32, S8), (S32, U8), (S32, S64), (S8, S32), (U8, S8), (S32, PRED), (S8, U8)]
LINES = [(0, 1), (-3, 1), (100, 5), (-120, 2), (200, 9), (1, 0)]


@pytest.mark.parametrize(
    ("before", "after", "constant", "slope"),
    [
        (before, after, constant, slope)
        for before, after in CONVERSIONS
        for constant, slope in LINES
        if before.limits[0] <= constant and constant + slope * (EXTENT - 1) <= before.limits[1]
    ],
)
def test_conversions_of_indices(before: ElementType, after: ElementType, constant: int, slope: int) -> None:
    terms, x = Terms(), Variable(EXTENT, "x")
    index = Index(constant, [(x, slope)])
    term = Laws(terms, reals=False).apply(Convert(), after, (before,), (Number(index),))
    values = np.array([constant + slope * n for n in range(EXTENT)]).astype(before.numpy_dtype)
    assert numbers_of(terms, term, x) == values.astype(after.numpy_dtype).astype(np.int64).tolist()


def test_negated_indices() -> None:
    terms, x = Terms(), Variable(EXTENT, "x")
    term = Laws(terms, reals=False).apply(Negate(), S32, (S32,), (Number(Index(2, [(x, -1)])),))
    assert numbers_of(terms, term, x) == [n - 2 for n in range(EXTENT)]


# -- equations of terms

NAMES = {"abc": F32, "pqr": PRED, "mn": S32, "h": BF16, "g": F16, "d": F64, "z": C64}
KINDS = {"f32": F32, "f64": F64, "bf16": BF16, "f16": F16, "s32": S32, "pred": PRED}


class Reader:
    """Applies laws to an expression of elements a, b, c: f32, p, q, r: pred, m, n: s32 and others."""

    def __init__(self, *, reals: bool) -> None:
        self.terms = Terms()
        self.laws = Laws(self.terms, reals=reals)

    def value(self, node: ast.expr) -> tuple[Term, ElementType]:
        if isinstance(node, ast.Name):
            kind = next(kind for names, kind in NAMES.items() if node.id in names)
            return self.terms.close(("argument", node.id), ()), kind
        assert isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        name = node.func.id
        if name in KINDS and not isinstance(node.args[0], ast.Name | ast.Call):
            return self.laws.constant(ast.literal_eval(node.args[0]), KINDS[name]), KINDS[name]
        operands, kinds = zip(*map(self.value, node.args), strict=True)
        if name in KINDS:
            return self.laws.apply(Convert(), KINDS[name], kinds, operands), KINDS[name]
        operation = REGISTRY[name.rstrip("_").replace("_", "-")]()
        return self.laws.apply(operation, kinds[-1], kinds, operands), kinds[-1]


BITS = """
copy(a) = a
add(a, b) = add(b, a)
multiply(h, h) = multiply(h, h)
maximum(a, a) = a
maximum(a, f32(-1e999)) = a
minimum(f32(1e999), a) = a
and_(p, pred(True)) = p
and_(pred(False), p) = pred(False)
or_(p, pred(False)) = p
or_(pred(True), p) = pred(True)
and_(m, s32(-1)) = m
or_(s32(0), m) = m
not_(not_(p)) = p
select(pred(True), a, b) = a
select(pred(False), a, b) = b
select(p, a, a) = a
clamp(a, b, c) = minimum(maximum(a, b), c)
multiply(a, f32(1)) = a
multiply(f32(1), a) = a
divide(a, f32(1)) = a
add(m, s32(0)) = m
add(s32(0), m) = m
multiply(m, s32(0)) = s32(0)
multiply(m, s32(1)) = m
subtract(m, s32(0)) = m
add(f32(2), f32(3)) = f32(5)
sine(f32(0)) = f32(0)
f32(a) = a
bf16(f32(h)) = h
f16(f32(g)) = g
f32(f64(a)) = a
f32(s32(3)) = f32(3)
"""
IN_REALS = """
add(a, f32(0)) = a
add(f32(-0.0), a) = a
subtract(a, f32(0)) = a
multiply(f32(0), a) = f32(0)
f32(-0.0) = f32(0)
"""
WRONG = """
subtract(a, b) = subtract(b, a)
add(a, b) = add(a, a)
maximum(a, b) = a
maximum(a, f32(1e999)) = a
and_(p, pred(False)) = p
or_(p, pred(True)) = p
and_(p, pred(True)) = pred(True)
or_(p, pred(False)) = pred(False)
and_(m, s32(1)) = m
not_(p) = p
not_(m) = m
select(pred(True), a, b) = b
select(p, a, b) = a
multiply(a, f32(2)) = a
divide(a, f32(2)) = a
divide(f32(1), a) = a
subtract(f32(0), a) = a
subtract(a, f32(1)) = a
add(a, f32(1)) = a
multiply(a, f32(0)) = a
f32(bf16(a)) = a
bf16(f16(h)) = h
f32(d) = d
add(p, pred(False)) = not_(p)
"""


def holds(equation: str, *, reals: bool) -> bool:
    """Return whether both sides are equal terms."""
    reader = Reader(reals=reals)
    left, right = (reader.value(ast.parse(side, mode="eval").body)[0] for side in equation.split(" = "))
    return Equality(reader.terms).holds(left, right)


def rows(table: str) -> list[str]:
    return table.strip().splitlines()


@pytest.mark.parametrize("equation", rows(BITS))
def test_terms_that_are_equal_bit_by_bit(equation: str) -> None:
    assert holds(equation, reals=False)
    assert holds(equation, reals=True)


@pytest.mark.parametrize("equation", rows(IN_REALS))
def test_terms_that_are_equal_over_the_reals(equation: str) -> None:
    assert not holds(equation, reals=False)
    assert holds(equation, reals=True)


@pytest.mark.parametrize("equation", rows(WRONG))
def test_terms_that_are_not_equal(equation: str) -> None:
    assert not holds(equation, reals=False)
    assert not holds(equation, reals=True)


@pytest.mark.parametrize(
    ("kind", "bits", "reals"),
    [(S32, True, True), (F32, False, True), (F64, False, True), (C64, False, True), (BF16, False, False),
     (PRED, False, False)],
)  # fmt: skip
def test_types_whose_sums_and_products_are_those_of_a_ring(
    kind: ElementType, bits: bool, reals: bool
) -> None:
    assert Laws(Terms(), reals=False).forms_ring(kind) is bits
    assert Laws(Terms(), reals=True).forms_ring(kind) is reals


# -- quotients and conditions


def test_quotients_are_simple() -> None:
    """Exact ones have no quotient; one of a quotient is one of its dividend; common steps are divided."""
    quotients = Quotients()
    x, y = Variable(12, "x"), Variable(4, "y")

    def index(constant: int, *terms: tuple[Variable, int]) -> Index:
        return Index(constant, list(terms))

    assert quotients.divide(index(3, (x, 2)), 1) == index(3, (x, 2))
    assert quotients.divide(index(4, (x, 8)), 4) == index(1, (x, 2))
    assert quotients.divide(index(3, (y, 1)), 8) == index(0)
    assert quotients.divide(index(0, (x, 4), (y, 1)), 4) == index(0, (x, 1))
    assert quotients.divide(index(5, (x, 4), (y, 1)), 4) != index(1, (x, 1))
    half = quotients.divide(index(0, (x, 1)), 2)
    assert half == quotients.quotient(index(0, (x, 1)), 2)
    assert quotients.divide(half, 3) == quotients.quotient(index(0, (x, 1)), 6)
    assert quotients.divide(half + 1, 3) == quotients.divide(index(2, (x, 1)), 6)
    assert quotients.divide(index(0, (x, 6), (y, 1)), 12) == quotients.quotient(index(0, (x, 1)), 2)
    assert quotients.divide(index(0, (x, 2), (y, 1)), 24) != half


@pytest.mark.parametrize(
    ("constant", "coefficients", "expected"),
    [
        (7, (2, 4), (3, (1, 2))),
        (-1, (3, 6), (-1, (1, 2))),
        (5, (2, 3), (5, (2, 3))),
        (4, (-2, 4), (2, (-1, 2))),
    ],
)
def test_conditions_are_divided_by_the_common_divisor(
    constant: int, coefficients: tuple[int, int], expected: tuple[int, tuple[int, int]]
) -> None:
    variables = Variable(5, "x"), Variable(5, "y")
    result = reduced(Index(constant, list(zip(variables, coefficients, strict=True))))
    assert result == Index(expected[0], list(zip(variables, expected[1], strict=True)))
    assert negated(result) == Index(
        -expected[0] - 1, [(v, -c) for v, c in zip(variables, expected[1], strict=True)]
    )
