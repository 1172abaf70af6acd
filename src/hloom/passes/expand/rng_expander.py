"""rng-expander: expand random distributions into random bits and arithmetic."""

from __future__ import annotations

import math

from hloom.analysis.instructions import operation_of
from hloom.ir.instruction import HloInstruction
from hloom.operations.arithmetic import Add, And, Multiply, Remainder, ShiftRightLogical, Subtract
from hloom.operations.comparison import Select
from hloom.operations.movement import Concatenate
from hloom.operations.random import Rng, RngBitGenerator, RngGetAndUpdateState
from hloom.operations.structure import GetTupleElement
from hloom.operations.transcendental import Cosine, Logarithm, SquareRoot
from hloom.passes.op_expander import OpExpander
from hloom.passes.writing import Writer
from hloom.shape.element_type import F64, U64
from hloom.shape.shape import Shape


class RngExpander(OpExpander, name="rng-expander", of=Rng):
    """``rng(a, b)`` → Philox bits from the device's state, transformed to uniform or normal (Box-Muller).

    Computed as in `hloom.operations.random`: in f64, rounded once.
    """

    def expand(self, i: HloInstruction, w: Writer) -> HloInstruction | None:
        """Return the numbers of a static rng with two parameters."""
        return _Expansion(i, w).run() if i.shape.is_static and len(i.operands) == 2 else None


class _Expansion:
    """The expansion of one rng."""

    def __init__(self, instruction: HloInstruction, w: Writer) -> None:
        self.instruction = instruction
        self.w = w
        self.shape = instruction.shape.without_layout()
        self.sizes = self.shape.dimensions

    def run(self) -> HloInstruction:
        """Add the random numbers."""
        if operation_of(self.instruction, Rng).distribution == "rng_normal":
            return self.normal()
        return self.uniform() if self.shape.element_type.is_floating else self.integers()

    def words(self) -> HloInstruction:
        """Generate one 64-bit word per element."""
        w = self.w
        count = math.prod(self.sizes)
        counter = w.op(RngGetAndUpdateState(delta=count), shape=Shape(U64, (2,)))
        key = w.full(0, Shape(U64, (1,)))
        state = w.op(Concatenate(dimensions=(0,)), key, counter)
        shape = Shape.tuple_([state.shape, Shape(U64, (count,))])
        pair = w.op(RngBitGenerator(algorithm="rng_philox"), state, shape=shape)
        return w.reshape(w.op(GetTupleElement(index=1), pair), self.sizes)

    def unit(self) -> HloInstruction:
        """Generate uniform numbers in [0, 1) of 53 bits."""
        w = self.w
        words = self.words()
        high_bits = w.op(ShiftRightLogical(), words, w.full(11, words.shape))
        wide = w.convert(high_bits, F64)
        return w.op(Multiply(), wide, w.full(2.0**-53, wide.shape))

    def spread(self, scalar: HloInstruction) -> HloInstruction:
        """Broadcast a parameter in f64."""
        return self.w.broadcast(self.w.convert(scalar, F64), self.sizes)

    def normal(self) -> HloInstruction:
        """Compute mean + deviation * sqrt(-2 log(1 - u)) * cos(2 pi v)."""
        w = self.w
        first, second = self.unit(), self.unit()
        one = w.full(1, first.shape)
        logarithm = w.op(Logarithm(), w.op(Subtract(), one, first))
        radius = w.op(SquareRoot(), w.op(Multiply(), w.full(-2, first.shape), logarithm))
        angle = w.op(Multiply(), w.full(2 * math.pi, first.shape), second)
        standard = w.op(Multiply(), radius, w.op(Cosine(), angle))
        mean, deviation = map(self.spread, self.instruction.operands)
        return w.convert(w.op(Add(), mean, w.op(Multiply(), deviation, standard)), self.shape.element_type)

    def uniform(self) -> HloInstruction:
        """Compute low + (high - low) * u, or low where rounding reaches the excluded bound."""
        w = self.w
        low, high = map(self.spread, self.instruction.operands)
        scaled = w.op(Multiply(), w.op(Subtract(), high, low), self.unit())
        values = w.convert(w.op(Add(), low, scaled), self.shape.element_type)
        a, b = (w.broadcast(o, self.sizes) for o in self.instruction.operands)
        reached = w.op(And(), w.compare(values, "GE", b), w.compare(a, "LT", b))
        return w.op(Select(), reached, a, values)

    def integers(self) -> HloInstruction:
        """Compute low + word modulo (high - low), or low where the interval is empty."""
        w = self.w
        a, b = self.instruction.operands
        low, high = w.convert(a, U64), w.convert(b, U64)
        width = w.op(Select(), w.compare(a, "LT", b), w.op(Subtract(), high, low), w.scalar(1, U64))
        words = self.words()
        offsets = w.op(Remainder(), words, w.broadcast(width, self.sizes))
        values = w.op(Add(), w.broadcast(low, self.sizes), offsets)
        return w.convert(values, self.shape.element_type)
