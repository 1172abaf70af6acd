"""Rules for conversions, parts of complex numbers, powers, reshapes of size 1 and tuples."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from hloom.ir.instruction import HloInstruction
from hloom.ir.window import WindowDimension
from hloom.operations.arithmetic import Maximum
from hloom.operations.conversion import BitcastConvert, Convert
from hloom.operations.reshaping import Reshape
from hloom.operations.structure import GetTupleElement, Tuple
from hloom.operations.window_reduction import ReduceWindow
from hloom.proofs.symbolic.formulas import state_formulas
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


state_formulas(
    RULES,
    *NUMBERS,
    copy_of_anything="Copy(A) ⇒ A",
    abs_of_negative="Abs(Negate(A)) ⇒ Abs(A)",
    abs_twice="Abs(Abs(A)) ⇒ Abs(A)",
    add_of_negative="Add(A, Negate(B)) ⇒ Subtract(A, B)",
    select_of_same_choice="Select(P, Select(P, A, B), C) ⇒ Select(P, A, C)",
)
state_formulas(
    RULES,
    real_of_complex="Real(Complex(A, B)) ⇒ A",
    imaginary_of_complex="Imag(Complex(A, B)) ⇒ B",
    power_minus_one="Power(A, -1) ⇒ Divide(1, A)",
    power_zero="Power(A, 0) ⇒ 1",
    power_one="Power(A, 1) ⇒ A",
    power_two="Power(A, 2) ⇒ Multiply(A, A)",
    power_three="Power(A, 3) ⇒ Multiply(Multiply(A, A), A)",
)
state_formulas(RULES, C64, complex_of_parts="Complex(Real(A), Imag(A)) ⇒ A")
state_formulas(
    RULES,
    S32,
    U8,
    difference_again="Add(Subtract(A, B), B) ⇒ A",
    not_of_less="Not(Lt(A, B)) ⇒ Ge(A, B)",
)
state_formulas(
    RULES,
    S32,
    PRED,
    xor_of_itself="Xor(A, A) ⇒ 0",
    and_of_itself="And(A, A) ⇒ A",
    or_of_itself="Or(A, A) ⇒ A",
    not_of_or="And(Not(A), Not(B)) ⇒ Not(Or(A, B))",
)
state_formulas(
    RULES,
    PRED,
    select_of_true_and_false="Select(P, True, False) ⇒ P",
    select_of_false_and_true="Select(P, False, True) ⇒ Not(P)",
)


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
