"""Computations under construction in generated modules, with error bounds of their values.

A value is exact, or has an absolute error bound that grows with every operation on it. Exact values may be
any, including infinities and NaN; inexact ones are bounded, so that errors stay small.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import field

import numpy as np

from hloom.fuzzing.generators.conversion import shape_of
from hloom.fuzzing.generators.draw import Array, Draw
from hloom.records import dataclass
from hloom.shape.element_type import ElementType
from hloom.shape.float_format import float_format

FLOATS = ("f32", "f64", "bf16", "f16")
INTEGERS = ("s32", "s8", "u8", "s16", "u16", "u32", "s64", "u64")
SIZES = (1, 2, 3, 4, 5, 7, 8, 9, 13, 16, 17, 31, 33, 64, 65, 100, 127, 130)


@dataclass(frozen=True)
class ArrayValue:
    """An array in a generated computation.

    Attributes:
        name, element_type, sizes: its name, element type and dimensions in the text.
        limit: the largest magnitude of an inexact value's elements.
        error: the absolute error bound of every element; 0 if the value is exact.
    """

    name: str
    element_type: str
    sizes: tuple[int, ...]
    limit: float = math.inf
    error: float = 0.0

    @property
    def shape(self) -> str:
        """Return the shape as text."""
        return shape_of(self.element_type, self.sizes)

    @property
    def exact(self) -> bool:
        """Return whether the value has only one correct result, bit for bit."""
        return self.error == 0.0

    @property
    def is_float(self) -> bool:
        """Return whether the element type is a real floating-point type."""
        return self.element_type in FLOATS

    @property
    def count(self) -> int:
        """Return the number of elements."""
        return math.prod(self.sizes)


def roundoff(element_type: str) -> float:
    """Return a bound of the relative error of a few roundings in a float type."""
    return 8.0 * 2.0 ** -float_format(ElementType.parse(element_type)).mantissa_bits


@dataclass
class ModuleText:
    """A module under construction.

    Attributes:
        draw: the random choices.
        most: the maximum number of elements of an array.
        sizes: the sizes from which dimensions are drawn.
        computations: the text of the computations finished so far.
        count: the number of names given so far.
        shared: the names of computations that may be called from several places, by element type and opcode.
        order: draws control dependencies; None for a module without any.
        fusions: whether fusions are written as such, or as calls.
    """

    draw: Draw
    most: int
    sizes: tuple[int, ...]
    computations: list[str] = field(default_factory=list[str])
    count: int = 0
    shared: dict[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])
    order: Draw | None = None
    fusions: bool = True

    def ordered(self, lines: Sequence[str]) -> list[str]:
        """Return the lines of a computation, with control dependencies on earlier lines added to some."""
        lines = list(lines)
        later = [n for n, line in enumerate(lines) if n and " parameter(" not in line]
        if self.order is None or not later:
            return lines
        for n in self.order.subset(later, min(len(later), self.order.integer(0, 4))):
            before = self.order.subset(range(n), min(n, self.order.integer(1, 2)))
            names = ", ".join(lines[m].split(" = ")[0] for m in before)
            lines[n] += f", control-predecessors={{{names}}}"
        return lines

    def fresh(self, letter: str = "v") -> str:
        """Return a new name."""
        self.count += 1
        return f"@{letter}{self.count}"


class ModuleScope:
    """A computation under construction in a module.

    Attributes:
        values: the arrays that operations may use.
        depth: the number of enclosing computations.
    """

    def __init__(self, writer: ModuleText, depth: int = 0) -> None:
        self.writer, self.draw, self.depth = writer, writer.draw, depth
        self.lines: list[str] = []
        self.values: list[ArrayValue] = []

    # -- writing

    def line(self, shape: str, expression: str) -> str:
        """Add an instruction, and return its name."""
        name = self.writer.fresh()
        self.lines.append(f"{name} = {shape} {expression}")
        return name

    def add(
        self, expression: str, element_type: str, sizes: Sequence[int], of: Sequence[ArrayValue] = (),
        limit: float | None = None, error: float | None = None,
    ) -> ArrayValue:  # fmt: skip
        """Add an instruction, and return its value.

        Args:
            expression: the text after the shape.
            element_type, sizes: the shape of the result.
            of: the operands; error and limit are by default their largest.
            limit: the largest magnitude of the elements.
            error: the absolute error bound of the elements.
        """
        name = self.line(shape_of(element_type, tuple(sizes)), expression)
        if error is None:
            error = max((v.error for v in of), default=0.0)
        if limit is None:
            limit = max((v.limit for v in of), default=math.inf) if error else math.inf
        value = ArrayValue(name, element_type, tuple(sizes), limit, error)
        self.values.append(value)
        return value

    def constant(self, element_type: str, number: float | int | str) -> str:
        """Add a scalar constant, and return its name."""
        return self.line(f"{element_type}[]", f"constant({number})")

    def full(self, element_type: str, sizes: Sequence[int], number: float | int | str) -> str:
        """Add an array with one number in every element, and return its name."""
        scalar = self.constant(element_type, number)
        return self.line(shape_of(element_type, tuple(sizes)), f"broadcast({scalar}), dimensions={{}}")

    def function(self, parameters: Sequence[str], *lines: str) -> str:
        """Add a computation (a, b, ...) -> last line, of scalars or arrays, and return its name."""
        name = self.writer.fresh("f")
        text = [f"  {chr(97 + i)} = {shape} parameter({i})" for i, shape in enumerate(parameters)]
        text += [f"  {line}" for line in lines[:-1]] + [f"  ROOT {lines[-1]}"]
        self.writer.computations.append(f"{name} {{\n" + "\n".join(text) + "\n}\n")
        return name

    def binary(self, element_type: str, opcode: str) -> str:
        """Return the name of a computation that applies one operation to two scalars.

        Add one if necessary.
        """
        existing = self.writer.shared.get((element_type, opcode))
        if existing is not None and self.draw.chance(0.6):
            return existing
        added = self.function([f"{element_type}[]"] * 2, f"r = {opcode}(a, b)")
        self.writer.shared[element_type, opcode] = added
        return added

    def finish(self, root: str) -> str:
        """End a nested computation with the given root, and return the computation's name."""
        name = self.writer.fresh("f")
        self.lines = self.writer.ordered(self.lines)
        lines = [("ROOT " if line.startswith(f"{root} =") else "") + line for line in self.lines]
        self.writer.computations.append(f"{name} {{\n  " + "\n  ".join(lines) + "\n}\n")
        return name

    # -- choosing

    def any(self, fits: Callable[[ArrayValue], bool] = lambda v: True) -> ArrayValue | None:
        """Return a value that fits, more often a newer one; None if none fits."""
        fitting = [v for v in self.values if fits(v)]
        if not fitting:
            return None
        if self.draw.chance(0.5):
            fitting = [v for v in fitting if v.count >= 8] or fitting
        return self.draw.one(fitting[-6:] if self.draw.chance(0.6) else fitting)

    def some(self) -> ArrayValue:
        """Return any value."""
        value = self.any()
        assert value is not None
        return value

    def like(self, value: ArrayValue) -> ArrayValue:
        """Return an exact value of the same type and dimensions as another; add one if necessary."""

        def fits(v: ArrayValue) -> bool:
            return (v.element_type, v.sizes, v.exact) == (value.element_type, value.sizes, True)

        existing = self.any(fits)
        if existing is not None and self.draw.chance(0.8):
            return existing
        other = self.any(lambda v: v.sizes == value.sizes and v.exact and v.element_type != "c64")
        if other is not None and value.element_type not in ("c64", "pred") and self.draw.chance(0.6):
            return self.add(f"convert({other.name})", value.element_type, value.sizes)
        if value.sizes and value.element_type not in ("pred", "c64") and self.draw.chance(0.4):
            axis = self.draw.integer(0, len(value.sizes) - 1)
            return self.add(f"iota(), iota_dimension={axis}", value.element_type, value.sizes)
        scalar = self.any(lambda v: not v.sizes and v.exact and v.element_type == value.element_type)
        if scalar is not None and self.draw.chance(0.5):
            return self.add(f"broadcast({scalar.name}), dimensions={{}}", value.element_type, value.sizes)
        number: object = self.draw.integer(0, 3)
        if value.element_type == "pred":
            number = self.draw.one(["true", "false"])
        elif value.element_type == "c64":
            number = f"({number}, {self.draw.integer(-2, 2)})"
        name = self.full(value.element_type, value.sizes, str(number))
        filled = ArrayValue(name, value.element_type, value.sizes)
        self.values.append(filled)
        return filled

    # -- values of small size

    def tamed(self, value: ArrayValue) -> ArrayValue:
        """Add an exact float, limited to whole numbers in [-4, 4] without -0, and return it.

        Sums and products of such numbers are exact.
        """
        element_type, sizes = value.element_type, value.sizes
        finite = self.line(shape_of("pred", sizes), f"is-finite({value.name})")
        one = self.full(element_type, sizes, 1)
        finite_value = self.line(value.shape, f"select({finite}, {value.name}, {one})")
        low, high = self.constant(element_type, -4), self.constant(element_type, 4)
        rounded = self.line(value.shape, f"round-nearest-even({finite_value})")
        near = self.line(value.shape, f"clamp({low}, {rounded}, {high})")
        return self.settled(near, element_type, sizes)

    def settled(self, name: str, element_type: str, sizes: Sequence[int]) -> ArrayValue:
        """Add a value with +0 for every zero, and return it.

        The sign of a sum of zeros depends on the order.
        """
        zero = self.full(element_type, sizes, 0)
        is_zero = self.line(shape_of("pred", tuple(sizes)), f"compare({name}, {zero}), direction=EQ")
        return self.add(f"select({is_zero}, {zero}, {name})", element_type, sizes)

    def smooth(self, fits: Callable[[ArrayValue], bool] = lambda v: True) -> ArrayValue | None:
        """Return a float value of limited magnitude that fits, or None if no float fits.

        It counts as inexact; an exact one is limited first.
        """
        value = self.any(lambda v: v.is_float and fits(v))
        if value is None or not value.exact:
            return value
        limited = self.tamed(value)
        return ArrayValue(
            limited.name, limited.element_type, limited.sizes, 4.0, roundoff(limited.element_type)
        )

    def bounded(self, value: ArrayValue) -> ArrayValue:
        """Return the value if its magnitude is at most 16.

        Else add its hyperbolic tangent and return that.
        """
        if value.limit <= 16:
            return value
        error = min(2.0, value.error + roundoff(value.element_type))
        return self.add(f"tanh({value.name})", value.element_type, value.sizes, [value], 1.0, error)

    def sizes(self, low: int = 0, high: int = 3) -> tuple[int, ...]:
        """Return random dimensions, of a rank from `low` to `high`, for a new array."""
        draw = self.draw
        while True:
            dimensions = tuple(
                0 if draw.chance(0.01) else draw.one(self.writer.sizes)
                for _ in range(draw.integer(low, high))
            )
            if math.prod(dimensions) <= self.writer.most:
                return dimensions

    def argument(self, element_type: str, sizes: Sequence[int]) -> Array:
        """Return random values for an argument of the module."""
        draw = self.draw
        kind = draw.one([draw.small_values, draw.small_values, draw.ordinary_values, draw.any_values])
        return np.asarray(kind(element_type, tuple(sizes)))
