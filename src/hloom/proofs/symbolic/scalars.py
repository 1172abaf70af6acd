"""Equality of elements without conditions: by congruence, by z3's bit vectors and floats, or over the reals.

Over bits, integers and predicates are bit vectors, floats of IEEE formats are z3's (one NaN, both zeros,
rounding to nearest even). Exactly, floats are real numbers and integers unbounded ones. Operations without a
meaning here, and elements of other types, are functions and values of which nothing is known.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from hloom.analysis.values import is_ieee
from hloom.operations.arithmetic import (
    Add,
    And,
    Complex,
    Divide,
    Maximum,
    Minimum,
    Multiply,
    Or,
    Power,
    Remainder,
    ShiftLeft,
    ShiftRightArithmetic,
    ShiftRightLogical,
    Subtract,
    Xor,
)
from hloom.operations.comparison import Clamp, Compare, Select
from hloom.operations.conversion import Convert, ReducePrecision
from hloom.operations.transcendental import Exponential, SquareRoot
from hloom.operations.unary import Abs, Imag, Negate, Not, Real
from hloom.proofs.symbolic.facts import Facts
from hloom.proofs.symbolic.polynomial import Polynomial
from hloom.proofs.symbolic.questions import Formula, check, formula, solver_library
from hloom.proofs.symbolic.terms import Access, Apply, IndexValue, Scalar, Term
from hloom.shape.element_type import ElementType
from hloom.shape.float_format import float_format

Meaning: TypeAlias = Callable[["Scalars", Apply, Sequence[Formula]], Formula]
"""The value of an operation; None where it has no meaning for the operands' types."""

_LARGEST_POWER: Final = 4
NOT_NEGATIVE_ZERO: Final = b"not -0"
"""Part of the name of a leaf that is not -0."""


class Scalars:
    """Elements as z3 expressions.

    Attributes:
        exact: whether numbers are real and unbounded.
    """

    def __init__(self, facts: Facts, *, exact: bool) -> None:
        self.z3 = solver_library()
        self.facts = facts
        self.exact = exact
        self.leaves: dict[Term, Formula] = {}
        self.axioms: list[Formula] = []

    def are_equal(self, a: Term, b: Term) -> bool:
        """Return whether two elements are equal for all elements of the parameters."""
        if a == b:
            return True
        x, y = self.value(a), self.value(b)
        if x.sort() != y.sort():
            return False
        solver = self.z3.SimpleSolver()
        solver.add(*self.axioms)
        if self.exact:
            self.facts.assert_into(solver)
        if self.axioms and check(solver) == self.z3.unsat:
            return False
        solver.add(x != y)
        return bool(check(solver) == self.z3.unsat)

    # -- sorts

    def sort(self, kind: ElementType) -> Formula:
        """Return the sort of the elements of a type."""
        z3 = self.z3
        if kind.is_predicate:
            return z3.BoolSort()
        if kind.is_integer:
            return z3.IntSort() if self.exact else z3.BitVecSort(kind.bits)
        if kind.is_floating and self.exact:
            return z3.RealSort()
        if kind.is_floating and is_ieee(kind):
            form = float_format(kind)
            return z3.FPSort(form.exponent_bits, form.mantissa_bits + 1)
        return z3.DeclareSort(kind.name)

    def value(self, term: Term) -> Formula:
        """Return an element as a z3 expression."""
        if term not in self.leaves:
            self.leaves[term] = self._value(term)
        return self.leaves[term]

    def _value(self, term: Term) -> Formula:
        match term:
            case Apply():
                operands = [self.value(o) for o in term.operands]
                meaning = MEANINGS.get(type(term.operation))
                result = meaning(self, term, operands) if meaning is not None else None
                return self._function(term, operands) if result is None else result
            case Scalar():
                return self.number(term)
            case IndexValue() if self.exact and term.element_type.is_integer:
                return formula(self.facts.normal(term.index))
            case _:
                leaf = self.z3.FreshConst(self.sort(term.element_type))
                if isinstance(term, Access) and NOT_NEGATIVE_ZERO in term.array and self.is_float(leaf):
                    self.axioms.append(self.z3.Not(self.is_negative_zero(leaf)))
                return leaf

    def number(self, term: Scalar) -> Formula:
        """Return a number."""
        kind, z3 = term.element_type, self.z3
        value = np.frombuffer(term.value, kind.numpy_dtype)[0]
        sort = self.sort(kind)
        if kind.is_predicate:
            return z3.BoolVal(bool(value))
        if kind.is_integer:
            return z3.IntVal(int(value)) if self.exact else z3.BitVecVal(int(value), kind.bits)
        if kind.is_floating and self.exact and np.isfinite(float(value)):
            numerator, denominator = float(value).as_integer_ratio()
            return z3.RealVal(numerator) / z3.RealVal(denominator)
        if kind.is_floating and is_ieee(kind) and not self.exact:
            return z3.FPVal(float(value), sort) if np.isfinite(float(value)) else self._special(value, sort)
        return z3.Const(f"{kind.name} {term.value.hex()}", sort)

    def _special(self, value: Any, sort: Formula) -> Formula:
        number = float(value)
        if np.isnan(number):
            return self.z3.fpNaN(sort)
        return self.z3.fpInfinity(sort, bool(number < 0))

    def _function(self, term: Apply, operands: Sequence[Formula]) -> Formula:
        """Return the value of a function of which nothing is known but whether operands can be exchanged."""
        types = " ".join(o.element_type.name for o in term.operands)
        name = f"{term.operation!r} {types}"
        sorts = [*(o.sort() for o in operands), self.sort(term.element_type)]
        function = self.z3.Function(name, *sorts)
        if term.operation.commutative and len(operands) == 2 and operands[0].sort() == operands[1].sort():
            self.axioms.append(function(*operands) == function(*operands[::-1]))
        result = function(*operands)
        if term.operation.never_negative_zero and self.is_float(result):
            self.axioms.append(self.z3.Not(self.is_negative_zero(result)))
        return result

    # -- kinds of numbers

    def is_float(self, value: Formula) -> bool:
        """Return whether a value is one of z3's floats."""
        return bool(self.z3.is_fp(value))

    def is_negative_zero(self, value: Formula) -> Formula:
        """Return that a float is -0."""
        return self.z3.And(self.z3.fpIsZero(value), self.z3.fpIsNegative(value))

    def is_number(self, value: Formula) -> bool:
        """Return whether a value is an integer, a bit vector or a real number."""
        return bool(self.z3.is_arith(value) or self.z3.is_bv(value))

    def compare(self, direction: str, a: Formula, b: Formula, kind: ElementType) -> Formula:
        """Return a comparison in IEEE order, or of integers of a type."""
        z3 = self.z3
        if self.is_float(a):
            table = {
                "EQ": z3.fpEQ,
                "NE": z3.fpNEQ,
                "LT": z3.fpLT,
                "LE": z3.fpLEQ,
                "GT": z3.fpGT,
                "GE": z3.fpGEQ,
            }
            return table[direction](a, b)
        if direction in ("EQ", "NE"):
            return (a == b) if direction == "EQ" else a != b
        if z3.is_bool(a):
            a, b = (z3.If(x, 1, 0) for x in (a, b))
        elif z3.is_bv(a) and kind.is_unsigned:
            return {"LT": z3.ULT, "LE": z3.ULE, "GT": z3.UGT, "GE": z3.UGE}[direction](a, b)
        return {"LT": a < b, "LE": a <= b, "GT": a > b, "GE": a >= b}[direction]


def is_same_polynomial(a: Term, b: Term) -> bool:
    """Return whether two integers are the same sum of products, modulo the range of their type."""
    kind = a.element_type
    if not kind.is_integer:
        return False
    difference = _polynomial(a) - _polynomial(b)
    return all(coefficient % (1 << kind.bits) == 0 for _, coefficient in difference.terms)


def _polynomial(term: Term) -> Polynomial:
    """Return an integer as a polynomial in its leaves."""
    match term:
        case Apply(operation=Add(), operands=(x, y)):
            return _polynomial(x) + _polynomial(y)
        case Apply(operation=Subtract(), operands=(x, y)):
            return _polynomial(x) - _polynomial(y)
        case Apply(operation=Multiply(), operands=(x, y)):
            return _polynomial(x) * _polynomial(y)
        case Apply(operation=Negate(), operands=(x,)):
            return -_polynomial(x)
        case Scalar():
            return Polynomial.constant(int(np.frombuffer(term.value, term.element_type.numpy_dtype)[0]))
        case _:
            return Polynomial.variable(repr(term))


# -- meanings of operations


def _sum(s: Scalars, term: Apply, x: Sequence[Formula]) -> Formula:
    z3 = s.z3
    if z3.is_bool(x[0]):
        return z3.Or(*x)
    if s.is_float(x[0]):
        return z3.fpAdd(z3.RNE(), *x)
    return x[0] + x[1] if s.is_number(x[0]) else None


def _difference(s: Scalars, term: Apply, x: Sequence[Formula]) -> Formula:
    if s.is_float(x[0]):
        return s.z3.fpSub(s.z3.RNE(), *x)
    return x[0] - x[1] if s.is_number(x[0]) else None


def _product(s: Scalars, term: Apply, x: Sequence[Formula]) -> Formula:
    z3 = s.z3
    if z3.is_bool(x[0]):
        return z3.And(*x)
    if s.is_float(x[0]):
        return z3.fpMul(z3.RNE(), *x)
    return x[0] * x[1] if s.is_number(x[0]) else None


def _quotient(s: Scalars, term: Apply, x: Sequence[Formula]) -> Formula:
    z3 = s.z3
    if s.is_float(x[0]):
        return z3.fpDiv(z3.RNE(), *x)
    if z3.is_bv(x[0]):
        if term.element_type.is_unsigned:
            return z3.UDiv(*x)
        return z3.If(x[1] == 0, z3.BitVecVal(-1, term.element_type.bits), x[0] / x[1])
    if z3.is_int(x[0]):
        return _truncated(s, x)
    if not z3.is_real(x[0]):
        return None
    s.axioms.append(x[1] != 0)
    return x[0] / x[1]


def _truncated(s: Scalars, x: Sequence[Formula]) -> Formula:
    """Return the integer quotient rounded towards 0; by 0 it is all bits set."""
    z3, (a, b) = s.z3, x
    size = z3.If(a < 0, -a, a) / z3.If(b < 0, -b, b)
    return z3.If(b == 0, -1, z3.If((a < 0) == (b < 0), size, -size))


def _remainder(s: Scalars, term: Apply, x: Sequence[Formula]) -> Formula:
    z3 = s.z3
    if z3.is_bv(x[0]):
        return z3.URem(*x) if term.element_type.is_unsigned else z3.SRem(*x)
    if z3.is_int(x[0]):
        return z3.If(x[1] == 0, x[0], x[0] - _truncated(s, x) * x[1])
    return None


def _extreme(s: Scalars, term: Apply, x: Sequence[Formula]) -> Formula:
    if term.operands[0] == term.operands[1]:
        return x[0]
    return _larger(s, x, term.element_type, smaller=isinstance(term.operation, Minimum))


def _larger(s: Scalars, x: Sequence[Formula], kind: ElementType, *, smaller: bool) -> Formula:
    """Return the larger or smaller number; NaN if either is, +0 as the larger zero."""
    z3, (a, b) = s.z3, x
    if z3.is_bool(a):
        return z3.And(a, b) if smaller else z3.Or(a, b)
    if s.is_float(a):
        rounding = z3.RNE()
        zero = z3.fpNeg(z3.fpSub(rounding, z3.fpNeg(a), b)) if smaller else z3.fpAdd(rounding, a, b)
        ordered = z3.If(z3.fpLEQ(a, b) if smaller else z3.fpGEQ(a, b), a, b)
        nan = z3.Or(z3.fpIsNaN(a), z3.fpIsNaN(b))
        zeros = z3.And(z3.fpIsZero(a), z3.fpIsZero(b))
        return z3.If(nan, z3.fpNaN(a.sort()), z3.If(zeros, zero, ordered))
    if not s.is_number(a):
        return None
    return z3.If(s.compare("LE" if smaller else "GE", a, b, kind), a, b)


def _clamped(s: Scalars, term: Apply, x: Sequence[Formula]) -> Formula:
    low, value, high = x
    larger = _larger(s, (value, low), term.element_type, smaller=False)
    return None if larger is None else _larger(s, (larger, high), term.element_type, smaller=True)


def _negated(s: Scalars, term: Apply, x: Sequence[Formula]) -> Formula:
    if s.is_float(x[0]):
        return s.z3.fpNeg(x[0])
    if s.is_number(x[0]):
        return -x[0]
    inner = term.operands[0]
    if term.element_type.is_complex and isinstance(inner, Apply) and isinstance(inner.operation, Negate):
        return s.value(inner.operands[0])
    return None


def _magnitude(s: Scalars, term: Apply, x: Sequence[Formula]) -> Formula:
    z3 = s.z3
    if s.is_float(x[0]):
        return z3.fpAbs(x[0])
    if term.element_type.is_unsigned and z3.is_bv(x[0]):
        return x[0]
    return z3.If(x[0] < 0, -x[0], x[0]) if s.is_number(x[0]) else None


def _power(s: Scalars, term: Apply, x: Sequence[Formula]) -> Formula:
    """Return a power with a small constant exponent as a product."""
    exponent = term.operands[1]
    if not isinstance(exponent, Scalar) or not s.is_number(x[0]):
        return None
    value = _value_of(exponent)
    if value == -1 and s.z3.is_real(x[0]):
        return 1 / x[0]
    if abs(value) == 1.5 and s.z3.is_real(x[0]):
        product = x[0] * _root(s, term, x[:1])
        return product if value > 0 else 1 / product
    if value != int(value) or not 0 <= value <= _LARGEST_POWER:
        return None
    result: Formula = x[0] - x[0] + 1
    for _ in range(int(value)):
        result = result * x[0]
    return result


def _root(s: Scalars, term: Apply, x: Sequence[Formula]) -> Formula:
    """Return the square root; of real numbers that have one."""
    z3 = s.z3
    if s.is_float(x[0]):
        return z3.fpSqrt(z3.RNE(), x[0])
    if not z3.is_real(x[0]):
        return None
    root = z3.Function("root", z3.RealSort(), z3.RealSort())(x[0])
    s.axioms += [x[0] >= 0, root >= 0, root * root == x[0]]
    return root


def _reduced(s: Scalars, term: Apply, x: Sequence[Formula]) -> Formula:
    """Return a float with fewer bits: first a shorter mantissa, then a smaller range."""
    z3, operation = s.z3, term.operation
    assert isinstance(operation, ReducePrecision)
    if not s.is_float(x[0]):
        return x[0] if s.exact else None
    form, value, sort = float_format(term.element_type), x[0], x[0].sort()
    if operation.mantissa_bits < form.mantissa_bits:
        if not operation.mantissa_bits:
            return None
        shorter = z3.FPSort(form.exponent_bits, operation.mantissa_bits + 1)
        value = z3.fpToFP(z3.RNE(), z3.fpToFP(z3.RNE(), value, shorter), sort)
    if operation.exponent_bits < form.exponent_bits:
        bias = (1 << (operation.exponent_bits - 1)) - 1
        size, negative = z3.fpAbs(value), z3.fpIsNegative(value)
        zero = z3.If(negative, z3.fpMinusZero(sort), z3.fpPlusZero(sort))
        infinity = z3.If(negative, z3.fpMinusInfinity(sort), z3.fpPlusInfinity(sort))
        small = z3.fpLT(size, z3.FPVal(2.0 ** (1 - bias), sort))
        value = z3.If(small, zero, z3.If(z3.fpGEQ(size, z3.FPVal(2.0 ** (bias + 1), sort)), infinity, value))
    return value


def _selected(s: Scalars, term: Apply, x: Sequence[Formula]) -> Formula:
    return s.z3.If(*x) if x[1].sort() == x[2].sort() else None


def _compared(s: Scalars, term: Apply, x: Sequence[Formula]) -> Formula:
    operation = term.operation
    assert isinstance(operation, Compare)
    kind = term.operands[0].element_type
    if s.exact and any(isinstance(o, Scalar) and _is_infinite(o) for o in term.operands):
        a, b = (_rank(o) for o in term.operands)
        return s.z3.BoolVal(
            {"EQ": a == b, "NE": a != b, "LT": a < b, "LE": a <= b, "GT": a > b, "GE": a >= b}[
                operation.direction
            ]
        )
    if operation.comparison_type == "TOTALORDER" and kind.is_floating:
        return _ordered(s, operation.direction, x)
    comparable = s.z3.is_bool(x[0]) or s.is_float(x[0]) or s.is_number(x[0])
    return s.compare(operation.direction, x[0], x[1], kind) if comparable else None


def _is_infinite(term: Term) -> bool:
    return isinstance(term, Scalar) and term.element_type.is_floating and abs(_value_of(term)) == math.inf


def _rank(term: Term) -> float:
    """Return where an element is among the infinities and the real numbers."""
    return _value_of(term) if isinstance(term, Scalar) and _is_infinite(term) else 0.0


def _value_of(term: Scalar) -> float:
    return float(np.frombuffer(term.value, term.element_type.numpy_dtype)[0])


def _ordered(s: Scalars, direction: str, x: Sequence[Formula]) -> Formula:
    """Return a comparison of floats in a total order, of which only that is known."""
    rank = s.z3.Function(f"rank of {x[0].sort()}", x[0].sort(), s.z3.IntSort())
    s.axioms += [(rank(x[0]) == rank(x[1])) == (x[0] == x[1])]
    return s.compare(direction, rank(x[0]), rank(x[1]), ElementType.from_dtype(np.dtype(np.int64)))


def _logical(name: str) -> Meaning:
    def meaning(s: Scalars, term: Apply, x: Sequence[Formula]) -> Formula:
        z3 = s.z3
        if z3.is_bool(x[0]):
            return {"and": z3.And, "or": z3.Or, "xor": z3.Xor, "not": z3.Not}[name](*x)
        if not z3.is_bv(x[0]):
            return None
        return (
            ~x[0]
            if name == "not"
            else x[0] & x[1]
            if name == "and"
            else x[0] | x[1]
            if name == "or"
            else x[0] ^ x[1]
        )

    return meaning


def _shifted(s: Scalars, term: Apply, x: Sequence[Formula]) -> Formula:
    z3 = s.z3
    if not z3.is_bv(x[0]):
        return None
    if isinstance(term.operation, ShiftRightArithmetic):
        return x[0] >> x[1]
    return x[0] << x[1] if isinstance(term.operation, ShiftLeft) else z3.LShR(x[0], x[1])


def _part(s: Scalars, term: Apply, x: Sequence[Formula]) -> Formula:
    """Return a part of a complex number that is composed of both, and reals themselves."""
    inner = term.operands[0]
    is_real = isinstance(term.operation, Real)
    if isinstance(inner, Apply) and isinstance(inner.operation, Complex):
        return s.value(inner.operands[0 if is_real else 1])
    if inner.element_type.is_complex:
        return None
    return x[0] if is_real else s.number(_zero(term.element_type))


def _composed(s: Scalars, term: Apply, x: Sequence[Formula]) -> Formula:
    match term.operands:
        case (Apply(operation=Real(), operands=(a,)), Apply(operation=Imag(), operands=(b,))) if a == b:
            return s.value(a)
        case _:
            return None


def _zero(kind: ElementType) -> Scalar:
    return Scalar(np.zeros((), kind.numpy_dtype).tobytes(), kind)


def _converted(s: Scalars, term: Apply, x: Sequence[Formula]) -> Formula:
    """Return integers cut or extended, floats rounded to nearest even; other conversions are unknown."""
    z3 = s.z3
    before, after = term.operands[0].element_type, term.element_type
    if before is after:
        return x[0]
    inner = term.operands[0]
    if before.is_complex and isinstance(inner, Apply) and isinstance(inner.operation, Convert):
        (real,) = inner.operands
        if real.element_type.is_floating and 2 * real.element_type.bits == before.bits:
            return s.value(Apply(term.operation, (real,), after))
    if s.exact:
        return _converted_exactly(s, before, after, x[0])
    sort = s.sort(after)
    if before.is_predicate:
        ahead = np.asarray([0, 1]).astype(after.numpy_dtype)
        zero, one = (s.number(Scalar(v.tobytes(), after)) for v in ahead)
        return z3.If(x[0], one, zero)
    if z3.is_bv(x[0]) and after.is_integer:
        if after.bits <= before.bits:
            return z3.Extract(after.bits - 1, 0, x[0])
        extend = z3.ZeroExt if before.is_unsigned else z3.SignExt
        return extend(after.bits - before.bits, x[0])
    if s.is_float(x[0]) and z3.is_fp_sort(sort):
        return z3.fpToFP(z3.RNE(), x[0], sort)
    if z3.is_bv(x[0]) and z3.is_fp_sort(sort):
        turn = z3.fpUnsignedToFP if before.is_unsigned else z3.fpSignedToFP
        return turn(z3.RNE(), x[0], sort)
    return None


def _converted_exactly(s: Scalars, before: ElementType, after: ElementType, x: Formula) -> Formula:
    if before.is_predicate and (after.is_integer or after.is_floating):
        return s.z3.If(x, *((1, 0) if after.is_integer else (s.z3.RealVal(1), s.z3.RealVal(0))))
    if before.is_integer and after.is_integer:
        return x
    if before.is_integer and after.is_floating:
        return s.z3.ToReal(x)
    return x if before.is_floating and after.is_floating else None


def _exponential(s: Scalars, term: Apply, x: Sequence[Formula]) -> Formula:
    """Return the exponential, of sums as products where numbers are real."""
    if not s.exact or not s.z3.is_real(x[0]):
        return None
    function = s.z3.Function("exponential", s.z3.RealSort(), s.z3.RealSort())
    inner = term.operands[0]
    if isinstance(inner, Apply) and isinstance(inner.operation, Add):
        a, b = (function(s.value(o)) for o in inner.operands)
        s.axioms.append(function(x[0]) == a * b)
    return function(x[0])


MEANINGS: Final[Mapping[type, Meaning]] = {
    Abs: _magnitude,
    Add: _sum,
    And: _logical("and"),
    Clamp: _clamped,
    Compare: _compared,
    Complex: _composed,
    Convert: _converted,
    Divide: _quotient,
    Exponential: _exponential,
    Imag: _part,
    Maximum: _extreme,
    Minimum: _extreme,
    Multiply: _product,
    Negate: _negated,
    Not: _logical("not"),
    Or: _logical("or"),
    Power: _power,
    Real: _part,
    ReducePrecision: _reduced,
    Remainder: _remainder,
    Select: _selected,
    ShiftLeft: _shifted,
    ShiftRightArithmetic: _shifted,
    ShiftRightLogical: _shifted,
    SquareRoot: _root,
    Subtract: _difference,
    Xor: _logical("xor"),
}
