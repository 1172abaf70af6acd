"""Rules for conversions, parts of complex numbers, powers, reshapes of size 1 and tuples."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from hloom.ir.instruction import HloInstruction
from hloom.ir.window import WindowDimension
from hloom.operations.arithmetic import Add, And, Complex, Divide, Maximum, Multiply, Or, Power, Subtract, Xor
from hloom.operations.conversion import BitcastConvert, Convert, Copy
from hloom.operations.reshaping import Reshape
from hloom.operations.structure import GetTupleElement, Tuple
from hloom.operations.unary import Abs, Imag, Negate, Not, Real
from hloom.operations.window_reduction import ReduceWindow
from hloom.proofs.symbolic.rules import RuleBook, Sketch
from hloom.shape.element_type import (
    BF16,
    C64,
    F16,
    F32,
    F64,
    PRED,
    S8,
    S32,
    S64,
    U8,
    U32,
    ElementType,
)
from hloom.shape.shape import Shape

RULES: Final = RuleBook("conversion")
NUMBERS: Final = (F32, S32)
Programs = Iterator[HloInstruction]


# -- conversions


@RULES.state(F32, BF16, S32, PRED, axes="N")
def convert_to_the_same(w: Sketch) -> Programs:
    """Convert(A) ⇒ A, to its own type."""
    a = w.array("A", *w.sizes("n", "N"))
    yield w.op(Convert(), a, shape=a.shape)
    yield a


def _there_and_back(narrow: ElementType, wide: ElementType) -> None:
    def statement(w: Sketch) -> Programs:
        n = w.sizes("n", "N")
        a = w.array("A", *n)
        yield w.convert(w.convert(a, wide), narrow)
        yield a

    statement.__name__ = f"convert_{narrow.name}_to_{wide.name}_and_back"
    statement.__doc__ = f"Convert(Convert(A, {wide.name}), {narrow.name}) ⇒ A."
    RULES.state(narrow, axes="N")(statement)


for _narrow, _wide in ((BF16, F32), (F16, F32), (F32, F64), (S8, S32), (S32, S64), (U8, BF16)):
    _there_and_back(_narrow, _wide)


@RULES.state(F32, axes="N")
def bitcast_convert_twice(w: Sketch) -> Programs:
    """BitcastConvert(BitcastConvert(A, u32), s32) ⇒ BitcastConvert(A, s32)."""
    n = w.sizes("n", "N")
    a = w.array("A", *n)
    bits = w.op(BitcastConvert(), a, shape=Shape(U32, n))
    yield w.op(BitcastConvert(), bits, shape=Shape(S32, n))
    yield w.op(BitcastConvert(), a, shape=Shape(S32, n))


@RULES.state(*NUMBERS, axes="N")
def copy_of_anything(w: Sketch) -> Programs:
    """Copy(A) ⇒ A."""
    a = w.array("A", *w.sizes("n", "N"))
    yield w.op(Copy(), a)
    yield a


# -- complex numbers


@RULES.state(axes="N")
def real_of_complex(w: Sketch) -> Programs:
    """Real(Complex(A, B)) ⇒ A."""
    n = w.sizes("n", "N")
    a, b = w.array("A", *n), w.array("B", *n)
    yield w.op(Real(), w.op(Complex(), a, b))
    yield a


@RULES.state(axes="N")
def imaginary_of_complex(w: Sketch) -> Programs:
    """Imag(Complex(A, B)) ⇒ B."""
    n = w.sizes("n", "N")
    a, b = w.array("A", *n), w.array("B", *n)
    yield w.op(Imag(), w.op(Complex(), a, b))
    yield b


@RULES.state(C64, axes="N")
def complex_of_parts(w: Sketch) -> Programs:
    """Complex(Real(A), Imag(A)) ⇒ A."""
    a = w.array("A", *w.sizes("n", "N"))
    yield w.op(Complex(), w.op(Real(), a), w.op(Imag(), a))
    yield a


# -- powers and signs


def _power(exponent: int, name: str) -> None:
    def statement(w: Sketch) -> Programs:
        n = w.sizes("n", "N")
        a, one = w.array("A", *n), w.constant(1, *n)
        square = w.op(Multiply(), a, a)
        results = {
            -1: lambda: w.op(Divide(), one, a),
            0: lambda: one,
            1: lambda: a,
            2: lambda: square,
            3: lambda: w.op(Multiply(), square, a),
        }
        yield w.op(Power(), a, w.constant(exponent, *n))
        yield results[exponent]()

    statement.__name__, statement.__doc__ = (
        f"power_{name}",
        f"Power(A, {exponent}) ⇒ a product or a quotient.",
    )
    RULES.state(axes="N")(statement)


for _exponent, _name in ((-1, "minus_one"), (0, "zero"), (1, "one"), (2, "two"), (3, "three")):
    _power(_exponent, _name)


@RULES.state(*NUMBERS, axes="N")
def abs_of_negative(w: Sketch) -> Programs:
    """Abs(Negate(A)) ⇒ Abs(A)."""
    a = w.array("A", *w.sizes("n", "N"))
    yield w.op(Abs(), w.op(Negate(), a))
    yield w.op(Abs(), a)


@RULES.state(*NUMBERS, axes="N")
def abs_twice(w: Sketch) -> Programs:
    """Abs(Abs(A)) ⇒ Abs(A)."""
    a = w.array("A", *w.sizes("n", "N"))
    yield w.op(Abs(), w.op(Abs(), a))
    yield w.op(Abs(), a)


@RULES.state(*NUMBERS, axes="N")
def add_of_negative(w: Sketch) -> Programs:
    """Add(A, Negate(B)) ⇒ Sub(A, B)."""
    n = w.sizes("n", "N")
    a, b = w.array("A", *n), w.array("B", *n)
    yield w.op(Add(), a, w.op(Negate(), b))
    yield w.op(Subtract(), a, b)


@RULES.state(S32, U8, axes="N")
def difference_again(w: Sketch) -> Programs:
    """Add(Sub(A, B), B) ⇒ A, of integers."""
    n = w.sizes("n", "N")
    a, b = w.array("A", *n), w.array("B", *n)
    yield w.op(Add(), w.op(Subtract(), a, b), b)
    yield a


# -- logic


@RULES.state(S32, PRED, axes="N")
def xor_of_itself(w: Sketch) -> Programs:
    """Xor(A, A) ⇒ 0."""
    n = w.sizes("n", "N")
    a = w.array("A", *n)
    yield w.op(Xor(), a, a)
    yield w.constant(0, *n)


@RULES.state(S32, PRED, axes="N")
def and_of_itself(w: Sketch) -> Programs:
    """And(A, A) ⇒ A."""
    a = w.array("A", *w.sizes("n", "N"))
    yield w.op(And(), a, a)
    yield a


@RULES.state(S32, PRED, axes="N")
def or_of_itself(w: Sketch) -> Programs:
    """Or(A, A) ⇒ A."""
    a = w.array("A", *w.sizes("n", "N"))
    yield w.op(Or(), a, a)
    yield a


@RULES.state(S32, PRED, axes="N")
def not_of_or(w: Sketch) -> Programs:
    """And(Not(A), Not(B)) ⇒ Not(Or(A, B))."""
    n = w.sizes("n", "N")
    a, b = w.array("A", *n), w.array("B", *n)
    yield w.op(And(), w.op(Not(), a), w.op(Not(), b))
    yield w.op(Not(), w.op(Or(), a, b))


@RULES.state(PRED, axes="N")
def select_of_true_and_false(w: Sketch) -> Programs:
    """Select(P, True, False) ⇒ P."""
    n = w.sizes("n", "N")
    p = w.array("P", *n)
    yield w.select(p, w.constant(True, *n), w.constant(False, *n))
    yield p


@RULES.state(PRED, axes="N")
def select_of_false_and_true(w: Sketch) -> Programs:
    """Select(P, False, True) ⇒ Not(P)."""
    n = w.sizes("n", "N")
    p = w.array("P", *n)
    yield w.select(p, w.constant(False, *n), w.constant(True, *n))
    yield w.op(Not(), p)


@RULES.state(*NUMBERS, axes="N")
def select_of_same_choice(w: Sketch) -> Programs:
    """Select(P, Select(P, A, B), C) ⇒ Select(P, A, C)."""
    n = w.sizes("n", "N")
    p, (a, b, c) = w.array("P", *n, kind=PRED), (w.array(name, *n) for name in "ABC")
    yield w.select(p, w.select(p, a, b), c)
    yield w.select(p, a, c)


@RULES.state(S32, U8, axes="N")
def not_of_less(w: Sketch) -> Programs:
    """Not(Lt(A, B)) ⇒ Ge(A, B), of integers."""
    n = w.sizes("n", "N")
    a, b = w.array("A", *n), w.array("B", *n)
    yield w.op(Not(), w.compare(a, "LT", b))
    yield w.compare(a, "GE", b)


# -- reshapes, tuples, windows of one element, sorts of one element


@RULES.state(axes="NM")
def reshape_twice(w: Sketch) -> Programs:
    """Reshape(Reshape(A)) ⇒ Reshape(A), of dimensions of size 1."""
    n, m = w.sizes("n", "N"), w.sizes("m", "M")
    w.require(len(n) + len(m) < 4)
    a = w.array("A", *n, 1, *m)
    inner = w.op(Reshape(), a, shape=Shape(w.kind, (*n, *m)))
    yield w.op(Reshape(), inner, shape=Shape(w.kind, (1, *n, *m)))
    yield w.op(Reshape(), a, shape=Shape(w.kind, (1, *n, *m)))


@RULES.state(axes="N")
def element_of_tuple(w: Sketch) -> Programs:
    """GetTupleElement(Tuple(A, B), 1) ⇒ B."""
    n = w.sizes("n", "N")
    a, b = w.array("A", *n), w.array("B", *n)
    yield w.op(GetTupleElement(index=1), w.op(Tuple(), a, b))
    yield b


@RULES.state(*NUMBERS, axes="N")
def window_of_one(w: Sketch) -> Programs:
    """ReduceWindow(X) ⇒ X, of windows of one element."""
    n = w.sizes("n", "N")
    w.require(len(n) > 0)
    x = w.array("X", *n)
    start = w.constant(Maximum().neutral_element(w.kind) or 0)
    combiner = w.combiner(Maximum(), w.kind)
    window = ReduceWindow(window=tuple(WindowDimension(1) for _ in n))
    yield w.op(window, x, start, computations=[combiner])
    yield x
