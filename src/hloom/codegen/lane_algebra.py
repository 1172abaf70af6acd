"""Arithmetic on elements in lanes, for algorithms that process many matrices (or columns) at once."""

from __future__ import annotations

from collections.abc import Sequence

from hloom.codegen.elements import Elements, View
from hloom.codegen.llvm import I32, I64, Type, Value
from hloom.codegen.llvm.memory import scatter as scatter_lanes
from hloom.codegen.types import Element, register_type, storage_type
from hloom.ir.affine import Index, Indices, linearize
from hloom.shape import element_type as et
from hloom.shape.element_type import ElementType


def parts(element: Element) -> tuple[Value, ...]:
    """Return the registers of an element."""
    return element if isinstance(element, tuple) else (element,)


def element(registers: Sequence[Value]) -> Element:
    """Return one or two registers as an element."""
    return (registers[0], registers[1]) if len(registers) == 2 else registers[0]


def conjugate(element: Element) -> Element:
    """Return the complex conjugate; a real number is unchanged."""
    return (element[0], -element[1]) if isinstance(element, tuple) else element


def real_part(element: Element) -> Value:
    """Return the real part."""
    return element[0] if isinstance(element, tuple) else element


def minus_product(e: Elements, total: Element, a: Element, b: Element) -> Element:
    """Return total - a * b."""
    total, a, b = e.together([total, a, b])
    f = e.function
    if isinstance(total, tuple) and isinstance(a, tuple) and isinstance(b, tuple):
        real = f.fma(a[1], b[1], f.fma(-a[0], b[0], total[0]))
        return real, f.fma(-a[1], b[0], f.fma(-a[0], b[1], total[1]))
    assert isinstance(total, Value) and isinstance(a, Value) and isinstance(b, Value)
    return f.fma(-a, b, total)


def quotient(e: Elements, a: Element, b: Element) -> Element:
    """Return a / b; complex by the larger part of b (Smith, "Complex division", CACM 5(8), 1962)."""
    a, b = e.together([a, b])
    if not isinstance(a, tuple) or not isinstance(b, tuple):
        assert isinstance(a, Value) and isinstance(b, Value)
        return a / b
    f = e.function
    larger = f.intrinsic("fabs", b[0]).compare("oge", f.intrinsic("fabs", b[1]))
    high, low = larger.select(b[0], b[1]), larger.select(b[1], b[0])
    ratio = low / high
    scale = f.fma(low, ratio, high)
    first = (f.fma(a[1], ratio, a[0]), f.fma(-a[0], ratio, a[1]))
    second = (f.fma(a[0], ratio, a[1]), f.fma(a[1], ratio, -a[0]))
    return larger.select(first[0], second[0]) / scale, larger.select(first[1], second[1]) / scale


def by_real(a: Element, divisor: Value) -> Element:
    """Return a divided by a real number."""
    if isinstance(a, tuple):
        return a[0] / divisor, a[1] / divisor
    return a / divisor


def pivot_size(e: Elements, x: Element) -> Value:
    """Return the size of x for the choice of a pivot: |x|, or |re| + |im| if complex, as in LAPACK."""
    real, *imaginary = (e.function.intrinsic("fabs", e.wide(part)) for part in parts(x))
    return real + imaginary[0] if imaginary else real


def is_zero(x: Element) -> Value:
    """Return whether an element is 0."""
    result, *others = (part.compare("oeq", 0.0) for part in parts(x))
    return result & others[0] if others else result


def number(e: Elements, kind: ElementType, value: complex) -> Element:
    """Return a constant in every lane."""
    register = register_type(kind).vector(e.lanes)
    real = e.function.constant(register, float(value.real))
    return (real, e.function.constant(register, float(value.imag))) if kind.is_complex else real


def scatter(e: Elements, view: View, indices: Indices, value: Element) -> None:
    """Store an element, or lanes at arbitrary addresses."""
    linear = linearize(indices, view.dimensions)
    coefficient = linear.lane_coefficient if e.lanes else 0
    if coefficient in (0, 1):
        e.store(view, indices, value)
        return
    f = e.function
    stored = storage_type(view.element_type)
    registers = parts(value)
    for k, register in enumerate(registers):
        offset = e.index_value(linear * len(registers) + k)
        mask = e.lane_mask() if e.mask is not None else None
        scatter_lanes(e.wide(register), f.offset(view.pointer, offset, stored), mask)


class Scratch:
    """Elements of a matrix on the stack, all lanes of each."""

    def __init__(self, e: Elements, kind: ElementType, sizes: Sequence[int]) -> None:
        self.e, self.kind, self.sizes = e, kind, sizes
        self.type: Type = register_type(kind).vector(e.lanes)
        self.count = 2 if kind.is_complex else 1
        total = self.count
        for size in sizes:
            total *= size
        self.pointer = e.function.allocate(self.type, total)

    def _place(self, indices: Sequence[Value], part: int) -> Value:
        f = self.e.function
        linear: Value | None = None
        for index, size in zip(indices, self.sizes, strict=True):
            linear = index if linear is None else linear * size + index
        if linear is None:
            linear = f.constant(I64, 0)
        return f.offset(self.pointer, linear * self.count + part, self.type)

    def get(self, *indices: Value) -> Element:
        """Return the element at an index."""
        f = self.e.function
        align = self.type.size
        registers = [f.load(self.type, self._place(indices, k), align=align) for k in range(self.count)]
        return (registers[0], registers[1]) if self.count == 2 else registers[0]

    def set(self, element: Element, *indices: Value) -> None:
        """Change the element at an index."""
        f = self.e.function
        for k, part in enumerate(parts(element)):
            f.store(self.e.wide(part), self._place(indices, k), align=self.type.size)


class FailedSteps:
    """In each lane, which step of an algorithm was the first to fail, counted from 1; 0 if none did."""

    def __init__(self, e: Elements) -> None:
        self.e, self._numbers = e, Scratch(e, et.S32, [])

    def clear(self) -> None:
        """Emit code to record that no step has failed."""
        self._numbers.set(self.e.function.constant(I32.vector(self.e.lanes), 0))

    def note(self, has_failed: Value, k: Value) -> None:
        """Emit code to record step ``k`` as failed, in lanes of ``has_failed`` that did not fail before."""
        earlier = self.numbers
        step = (k + 1).cast("trunc", I32).splat(self.e.lanes)
        self._numbers.set((has_failed & earlier.compare("eq", 0)).select(step, earlier))

    @property
    def numbers(self) -> Value:
        return real_part(self._numbers.get())

    @property
    def none(self) -> Value:
        """Return the mask of the lanes in which no step has failed."""
        return self.numbers.compare("eq", 0)


def copy_matrix(scratch: Scratch, view: View, matrix: Index, *, stores: bool) -> None:
    """Load the matrices of all lanes of a batch, or store them."""
    f, e = scratch.e.function, scratch.e
    height, width = scratch.sizes
    with f.loop(0, height) as rows, f.loop(0, width) as columns, e.scope():
        i, j = rows.index, columns.index
        indices = (matrix, e.opaque(i, height), e.opaque(j, width))
        if stores:
            scatter(e, view, indices, scratch.get(i, j))
        else:
            scratch.set(e.load(view, indices), i, j)
