"""Symbolic indices in code: their values, the conditions on them, and choices by conditions."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import field
from typing import TYPE_CHECKING, TypeAlias

from hloom.analysis.values import affine_position
from hloom.codegen.bits import bits_of, from_bits, joined, lowest
from hloom.codegen.llvm import I32, I64, Function, Value
from hloom.codegen.types import Element, constant, parts, register_type, round_to, wrap
from hloom.ir.affine import Index, Indices, Variable
from hloom.ir.indexing import Indexing, Relocation, Stretches
from hloom.records import dataclass
from hloom.shape import element_type as et
from hloom.shape.element_type import ElementType
from hloom.shape.literal import Literal

if TYPE_CHECKING:
    from hloom.codegen.tables import RegisterTable
    from hloom.ir.instruction import HloInstruction

Key: TypeAlias = "tuple[HloInstruction, Indices, Value | None]"
"""An element, and the mask under which it was emitted."""
Leaves: TypeAlias = "tuple[HloInstruction, Indices]"
"""The elements of all leaves of a tuple at an index."""
Column: TypeAlias = "tuple[Value, Index, int, int, int]"
"""Every n-th element of a row."""
Condition: TypeAlias = "tuple[Index, int] | frozenset[Value]"
"""A bounds check, or a conjunction."""
Segment: TypeAlias = "tuple[HloInstruction, Index, int]"
"""An array, the linear index of an element, and the number of elements from there on."""
Division: TypeAlias = "tuple[Index, int]"
"""A dividend and a divisor."""


@dataclass(slots=True)
class Scope:
    """Emitted values that dominate the current position, by what they are values of.

    Attributes:
        elements, leaves: elements of arrays; of all leaves of tuples.
        columns: every n-th element of a row; see `hloom.codegen.elements.Elements`.
        conditions: bounds checks, and conjunctions of conditions.
        divisions: quotients and remainders of indices.
        relocations: indices of arrays, by scalar indices into stretches.
        tables: adjacent elements of arrays in registers.
    """

    elements: dict[Key, Element] = field(default_factory=dict[Key, Element])
    leaves: dict[Leaves, list[Element]] = field(default_factory=dict[Leaves, list[Element]])
    columns: dict[Column, Value] = field(default_factory=dict[Column, Value])
    conditions: dict[Condition, Value] = field(default_factory=dict[Condition, Value])
    divisions: dict[Division, tuple[Index, Index]] = field(
        default_factory=dict[Division, tuple[Index, Index]]
    )
    relocations: dict[Relocation, Index] = field(default_factory=dict[Relocation, Index])
    tables: dict[Segment, RegisterTable] = field(default_factory=dict[Segment, "RegisterTable"])


class EmittedIndexing(Indexing[Value, Element]):
    """Emits the indices, conditions and choices of element declarations into a function.

    Attributes:
        function: the function to which code is appended.
        lanes: lanes of vectors; 0 for scalar code.
        mask: lanes (or the scalar condition) for which loads are allowed; None: all.
    """

    def __init__(self, function: Function, lanes: int) -> None:
        super().__init__()
        self.function = function
        self.lanes = lanes
        self.scopes = [Scope()]
        self._conjuncts: dict[Value, frozenset[Value]] = {}
        self._dividends: dict[Variable, tuple[Index, Division]] = {}

    @contextmanager
    def scope(self) -> Generator[None]:
        """Forget values emitted inside (a loop body, a branch), since they do not dominate later code."""
        self.scopes.append(Scope())
        yield
        self.scopes.pop()

    @contextmanager
    def with_lanes(self, lanes: int) -> Generator[None]:
        """Emit vectors of another length inside; values that were emitted before are not used there."""
        outer = self.lanes, self.scopes
        self.lanes, self.scopes = lanes, [Scope()]
        yield
        self.lanes, self.scopes = outer

    # -- conditions

    @contextmanager
    def masked(self, condition: Value | None) -> Generator[None]:
        """Restrict loads inside to lanes for which the condition holds too."""
        outer = self.mask
        self.mask = self.both(outer, condition)
        yield
        self.mask = outer

    def compare(self, index: Index, size: int) -> Value:
        """Emit the bounds check, by one comparison of unsigned numbers."""
        return self._condition((index, size), lambda: self.index_value(index).compare("ult", size))

    def conjunction(self, a: Value, b: Value) -> Value:
        """Return the conjunction of two conditions; one value for the same conditions in any order."""
        conjuncts = self._conjuncts.get(a, frozenset([a])) | self._conjuncts.get(b, frozenset([b]))

        def emit() -> Value:
            first, second = self.together([a, b])
            assert isinstance(first, Value) and isinstance(second, Value)
            return first & second

        condition = a if len(conjuncts) == 1 else self._condition(conjuncts, emit)
        self._conjuncts[condition] = conjuncts
        return condition

    def _condition(self, key: tuple[Index, int] | frozenset[Value], emit: Callable[[], Value]) -> Value:
        """Return a condition that is known in this scope, or emit it."""
        for scope in self.scopes:
            if key in scope.conditions:
                return scope.conditions[key]
        condition = self.scopes[-1].conditions[key] = emit()
        return condition

    # -- indices as values

    def parts(self, index: Index) -> tuple[Value, int, Value | None]:
        """Return (value in lane 0, stride from lane to lane, remaining per-lane part) of an index."""
        f = self.function
        scalar: Value | None = None
        vector: Value | None = None
        coefficient = 0
        for variable, factor in index.terms:
            value = variable.value
            assert isinstance(value, Value), f"{variable} is outside its loop"
            if variable.is_lane and self.lanes:
                coefficient += factor
            product = value if factor == 1 else value * factor
            if value.type.lanes:
                vector = product if vector is None else vector + product
            else:
                scalar = product if scalar is None else scalar + product
        if scalar is None:
            scalar = f.constant(I64, index.constant)
        elif index.constant:
            scalar = scalar + index.constant
        return scalar, coefficient, vector

    def index_value(self, index: Index) -> Value:
        """Return an index as i64: a scalar if all lanes agree, else a vector."""
        scalar, coefficient, vector = self.parts(index)
        if not coefficient and vector is None:
            return scalar
        total = scalar.splat(self.lanes)
        if coefficient:
            total = total + self.function.constant(
                I64.vector(self.lanes), [coefficient * lane for lane in range(self.lanes)]
            )
        return total if vector is None else total + vector

    def opaque(self, value: Value, extent: int) -> Index:
        """Return an index whose value, in [0, extent), is computed, not affine: a scalar or vector of i64."""
        return Index.of(Variable(extent, "o", value))

    def division(self, index: Index, divisor: int) -> tuple[Index, Index]:
        """Divide unsigned numbers; the quotient is clamped where the index may be negative."""
        key = index, divisor
        for scope in self.scopes:
            if key in scope.divisions:
                return scope.divisions[key]
        largest = max(index.maximum() // divisor, 0)
        value = self.index_value(index)
        quotient = value.unsigned_divide(divisor)
        remainder = self.opaque(value - quotient * divisor, divisor)
        if index.minimum() < 0:
            quotient = self.function.intrinsic("umin", quotient, self.function.constant(value.type, largest))
        parts = self.scopes[-1].divisions[key] = self.opaque(quotient, largest + 1), remainder
        if index.minimum() >= 0:
            self._dividends |= {r: (parts[0], key) for r, _ in remainder.terms}
        return parts

    def undivided(self, index: Index) -> Index:
        """Return an index with divisions undone: ``quotient * divisor + remainder`` is the dividend.

        An array that is contiguous across divided dimensions is so loaded and stored by vectors.
        """
        for remainder, coefficient in index.terms:
            if remainder in self._dividends:
                quotient, (dividend, divisor) = self._dividends[remainder]
                again = quotient * divisor + Index.of(remainder)
                rest = index - again * coefficient
                if all(v not in dict(rest.terms) for v, _ in again.terms):
                    return self.undivided(rest + dividend * coefficient)
        return index

    def relocated(self, index: Index, stretches: Stretches, size: int) -> Index | None:
        """Select the stretch of a scalar index; lanes that may lie in several give None."""
        if self.lanes and index.lane_coefficient:
            return None
        key = index, stretches, size
        for scope in self.scopes:
            if key in scope.relocations:
                return scope.relocations[key]
        value = self.index_value(index)
        *before, last = stretches
        source = value * last.step + last.start
        for limit, start, step in reversed(before):
            source = value.compare("slt", limit).select(value * step + start, source)
        self.scopes[-1].relocations[key] = self.opaque(source, size)
        return self.scopes[-1].relocations[key]

    def position(self, element: Element, element_type: ElementType, extent: int) -> Index:
        """Clamp an integer of any type; numbers of up to 32 bits in 32 bits, which gathers take."""
        assert isinstance(element, Value)
        signed = element_type.is_signed
        wide = I64 if element.type.scalar is I64 or extent > 1 << 31 else I32
        value = element if element.type.scalar is wide else element.cast("sext" if signed else "zext", wide)
        last = self.function.constant(value.type, extent - 1)
        if signed:
            value = self.function.intrinsic("smax", value, self.function.constant(value.type, 0))
        value = self.function.intrinsic("smin" if signed else "umin", value, last)
        return self.opaque(value if wide is I64 else value.cast("zext", I64), extent)

    def known_position(self, i: HloInstruction, indices: Indices, extent: int) -> Index | None:
        return affine_position(i, indices, extent)

    # -- scalars and vectors

    def wide(self, value: Value) -> Value:
        """Broadcast a scalar to every lane."""
        return value if value.type.lanes or not self.lanes else value.splat(self.lanes)

    def together(self, values: Sequence[Element]) -> list[Element]:
        """Broadcast scalars to vectors if one of the values is a vector."""
        if not self.lanes:
            return list(values)
        flat = [v for e in values for v in (e if isinstance(e, tuple) else (e,))]
        if not any(v.type.lanes for v in flat):
            return list(values)
        return [(self.wide(e[0]), self.wide(e[1])) if isinstance(e, tuple) else self.wide(e) for e in values]

    def choose(self, condition: Value, yes: Element, no: Element) -> Element:
        """Select ``yes`` if the condition holds, else ``no``."""
        if isinstance(yes, tuple) or isinstance(no, tuple):
            assert isinstance(yes, tuple) and isinstance(no, tuple)
            first, second = self.choose(condition, yes[0], no[0]), self.choose(condition, yes[1], no[1])
            assert isinstance(first, Value) and isinstance(second, Value)
            return first, second
        c, y, n = self.together([condition, yes, no])
        assert isinstance(c, Value) and isinstance(y, Value) and isinstance(n, Value)
        return c.select(y, n)

    # -- elements

    def zero(self, element_type: ElementType) -> Element:
        """Return 0 for all lanes."""
        return constant(self.function, element_type, 0)

    def literal(self, element_type: ElementType, literal: Literal) -> Element:
        """Return the element for all lanes."""
        element = literal.array.reshape(-1)[0]
        number = complex(element) if element_type.is_complex else element
        return constant(self.function, element_type, number)

    def number(self, index: Index, element_type: ElementType) -> Element:
        """Convert an index as iota does: integers wrap, floats are rounded."""
        self.pin(index)
        value = self.index_value(index)
        register = register_type(element_type)
        if element_type.is_complex:
            real = value.cast("sitofp", register)
            return real, self.function.constant(real.type, 0.0)
        if element_type.is_floating:
            return round_to(value.cast("sitofp", register), element_type)
        return wrap(value.cast("trunc", register) if register is not I64 else value, element_type)

    def part(self, element: Element, number: Index, before: ElementType, after: ElementType) -> Element:
        """Shift the bits of an element; the halves of a c128's real or imaginary part are those of a c64."""
        self.pin(number)
        if isinstance(element, tuple):
            half = self.choose(self.index_value(number).compare("ne", 0), element[1], element[0])
            assert isinstance(half, Value)
            bits = bits_of(half, et.F64)
            low, high = bits.cast("trunc", I32), bits.logical_shift_right(32).cast("trunc", I32)
            return from_bits(low, et.F32), from_bits(high, et.F32)
        bits = bits_of(element, before)
        if number.is_constant:
            shifted = bits.logical_shift_right(number.constant * after.bits) if number.constant else bits
        else:
            shift = self.index_value(number) * after.bits
            bits, shift = parts(*self.together([bits, shift]))
            scalar = bits.type.scalar
            shifted = bits.logical_shift_right(shift if scalar is I64 else shift.cast("trunc", scalar))
        return from_bits(lowest(shifted, after), after)

    def joined(self, elements: Sequence[Element], before: ElementType, after: ElementType) -> Element:
        """Shift and join the bits of the elements."""
        return joined(elements, before, after)
