"""Elements of results as terms: an interpreter of what operations declare about their elements.

The declarations are those that kernels are planned and emitted from (`hloom.ir.indexing`); here indices are
polynomials in sizes and loop variables.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, Final

from hloom.analysis.combiners import grouping
from hloom.analysis.values import combiner
from hloom.errors import HloError
from hloom.ir.affine import Index, Indices
from hloom.ir.computation import HloComputation
from hloom.ir.indexing import Indexing, Steps
from hloom.ir.instruction import HloInstruction
from hloom.operations.arithmetic import Add, Multiply
from hloom.operations.combiners import Grouping
from hloom.operations.comparison import Clamp
from hloom.operations.contraction import Dot
from hloom.operations.conversion import BitcastConvert, Convert, Copy
from hloom.operations.convolution import Convolution
from hloom.operations.dynamic_slicing import DynamicSlice, DynamicUpdateSlice
from hloom.operations.gather_scatter import Scatter
from hloom.operations.movement import Concatenate
from hloom.operations.reduction import Reduce
from hloom.operations.reshaping import Reshape
from hloom.operations.sorting import Sort
from hloom.operations.structure import (
    AddDependency,
    Constant,
    GetDimensionSize,
    GetTupleElement,
    OptimizationBarrier,
    Parameter,
    Tuple,
)
from hloom.operations.window_reduction import ReduceWindow
from hloom.proofs.symbolic.bijections import ranges
from hloom.proofs.symbolic.facts import Facts, divided, within
from hloom.proofs.symbolic.polynomial import Polynomial
from hloom.proofs.symbolic.questions import Implication
from hloom.proofs.symbolic.sizes import Constraint, Size, Trail
from hloom.proofs.symbolic.terms import (
    Access,
    Apply,
    Choose,
    Guard,
    IndexValue,
    Scalar,
    Sum,
    Term,
    substituted,
)
from hloom.records import dataclass
from hloom.shape.element_type import ElementType
from hloom.shape.literal import Literal
from hloom.shape.shape import Shape

_ONE: Final = Polynomial.constant(1)


def polynomial_of(value: int | Index) -> Polynomial:
    """Return the polynomial of a size, or of an index."""
    if isinstance(value, SymbolicIndex):
        return value.polynomial
    if isinstance(value, Index):
        value = value.constant
    return value.polynomial if isinstance(value, Size) else Polynomial.constant(value)


class SymbolicIndex(Index):
    """An index that is a polynomial, with unknown bounds."""

    __slots__ = ("polynomial",)

    polynomial: Polynomial

    def __init__(self, polynomial: Polynomial) -> None:
        super().__init__(polynomial.value or 0)
        self.polynomial = polynomial

    def __hash__(self) -> int:
        return hash(self.polynomial)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Index) and self.polynomial == polynomial_of(other)

    def __add__(self, other: Index | int) -> SymbolicIndex:
        return SymbolicIndex(self.polynomial + polynomial_of(other))

    __radd__ = __add__

    def __sub__(self, other: Index | int) -> SymbolicIndex:
        return SymbolicIndex(self.polynomial - polynomial_of(other))

    def __rsub__(self, other: Index | int) -> SymbolicIndex:
        return SymbolicIndex(polynomial_of(other) - self.polynomial)

    def __mul__(self, factor: int) -> SymbolicIndex:
        return SymbolicIndex(self.polynomial * polynomial_of(factor))

    def minimum(self) -> int:
        """Return a number below every size."""
        return -1

    def maximum(self) -> int:
        """Return a number that no comparison takes for a bound."""
        return 0

    def divide(self, divisor: int) -> None:
        """Return None: quotients are variables."""


class _LinearIndex(SymbolicIndex):
    """The row-major linear index into an array, as the index along its last dimension, past its size."""

    __slots__ = ()


@dataclass(slots=True)
class IndexVariables:
    """Index variables that both programs share, and what defines them.

    Attributes:
        facts: what is known of sizes and of the variables.
        conditionals: the definitions.
    """

    facts: Facts = field(default_factory=Facts)
    conditionals: list[Implication] = field(default_factory=list[Implication])
    _quotients: dict[tuple[Polynomial, Polynomial], tuple[str, str]] = field(
        default_factory=dict[tuple[Polynomial, Polynomial], tuple[str, str]]
    )
    _starts: dict[tuple[Term, Polynomial], str] = field(default_factory=dict[tuple[Term, Polynomial], str])
    _sources: dict[tuple[object, ...], str] = field(default_factory=dict[tuple[object, ...], str])
    _integers: dict[Term, str] = field(default_factory=dict[Term, str])
    _numbers: Any = field(default_factory=itertools.count)

    def fresh(self, kind: str) -> str:
        """Return the name of a new variable."""
        return f"{kind}{next(self._numbers)}"

    def divide(self, index: Polynomial, divisor: Polynomial) -> tuple[Polynomial, Polynomial]:
        """Return quotient and remainder of an index by a size."""
        index, divisor = self.facts.normal(index), self.facts.normal(divisor)
        if divisor.value == 1:
            return index, Polynomial()
        multiple, residue = index.divide(divisor)
        if all(self.facts.entail(c) for c in within(residue, divisor)):
            return multiple, residue
        names = self._quotients.get((index, divisor))
        if names is None:
            names = self._quotients[index, divisor] = self.fresh("q"), self.fresh("r")
            quotient, remainder = map(Polynomial.variable, names)
            self.conditionals.append(divided(index, divisor, quotient, remainder))
            if multiple.terms:
                # A remainder in range is the remainder.
                equal = Constraint(quotient - multiple, is_equation=True)
                same = Constraint(remainder - residue, is_equation=True)
                self.conditionals.append(Implication(within(residue, divisor), (equal, same)))
        return Polynomial.variable(names[0]), Polynomial.variable(names[1])

    def digits(self, linear: Polynomial, sizes: Sequence[Polynomial]) -> list[Polynomial]:
        """Return the multi-index of a linear index."""
        linear, sizes = self.facts.normal(linear), [self.facts.normal(size) for size in sizes]
        total, minor = linear, list[Polynomial]()
        count = _product(sizes)
        for size in reversed(sizes[1:]):
            linear, remainder = self.divide(linear, size)
            minor.append(remainder)
        if sizes[1:]:
            self.conditionals.append(Implication(within(total, count), within(linear, sizes[0])))
        return [linear, *reversed(minor)]

    def integer(self, term: Term) -> Polynomial:
        """Return an integer element as a number."""
        if isinstance(term, Scalar):
            return Polynomial.constant(int(_number(term.value, term.element_type.numpy_dtype)))
        if term not in self._integers:
            name = self._integers[term] = self.fresh("value")
            value = Polynomial.variable(name)
            self.conditionals.append(Implication((), _range_of(value, term.element_type)))
            self.conditionals += self._meaning(term, value)
        return Polynomial.variable(self._integers[term])

    def _meaning(self, term: Term, value: Polynomial) -> list[Implication]:
        """Return what is known of an integer: a number, a sum that does not overflow, or a clamped one."""
        match term:
            case IndexValue(index=index):
                return [_equal_in_range(value, index, term.element_type)]
            case Apply(operation=Add(), operands=(x, y)):
                return [_equal_in_range(value, self.integer(x) + self.integer(y), term.element_type)]
            case Apply(operation=Clamp(), operands=operands):
                low, x, high = map(self.integer, operands)
                ordered = Constraint(high - low, is_equation=False)
                above, below = (Constraint(d, is_equation=False) for d in (x - low, high - x))
                return [
                    Implication((ordered, above, below), (Constraint(value - x, is_equation=True),)),
                    Implication((ordered, above.negation()), (Constraint(value - low, is_equation=True),)),
                    Implication((ordered, below.negation()), (Constraint(value - high, is_equation=True),)),
                ]
            case _:
                return []

    def start(self, term: Term, extent: Polynomial) -> Polynomial:
        """Return an integer element, clamped to [0, extent)."""
        term, extent = substituted(term, self.facts.definitions), self.facts.normal(extent)
        value = self.integer(term)
        if (term, extent) not in self._starts:
            name = self._starts[term, extent] = self.fresh("start")
            start, last = Polynomial.variable(name), extent - _ONE
            exists = Constraint(last, is_equation=False)
            self.conditionals += [
                Implication((exists,), within(start, extent)),
                Implication(
                    (exists, Constraint(-value, is_equation=False)), (Constraint(start, is_equation=True),)
                ),
                Implication(within(value, extent), (Constraint(start - value, is_equation=True),)),
                Implication(
                    (exists, Constraint(value - last, is_equation=False)),
                    (Constraint(start - last, is_equation=True),),
                ),
            ]
        return Polynomial.variable(self._starts[term, extent])

    def source(self, key: tuple[object, ...], extent: Polynomial) -> Polynomial:
        """Return a number in [0, extent), of which only is known on what it depends."""
        if key not in self._sources:
            self._sources[key] = self.fresh("source")
            self.conditionals.append(Implication((), within(Polynomial.variable(self._sources[key]), extent)))
        return Polynomial.variable(self._sources[key])


def _range_of(value: Polynomial, kind: ElementType) -> Guard:
    """Return the comparisons that hold of an integer of a type."""
    least, most = (Polynomial.constant(int(limit)) for limit in kind.limits)
    return Constraint(value - least, is_equation=False), Constraint(most - value, is_equation=False)


def _equal_in_range(value: Polynomial, number: Polynomial, kind: ElementType) -> Implication:
    """Return that an integer is a number if its type has that number."""
    return Implication(_range_of(number, kind), (Constraint(value - number, is_equation=True),))


def _number(value: bytes, dtype: Any) -> Any:
    import numpy as np

    return np.frombuffer(value, dtype)[0]


def _product(sizes: Sequence[Polynomial]) -> Polynomial:
    total = _ONE
    for size in sizes:
        total *= size
    return total


class SymbolicElements(Indexing[Guard, Term]):
    """Elements of the instructions of a program as terms.

    Attributes:
        trail: of the run; sizes of shapes and attributes are its own.
        positions: index variables, shared with other programs whose elements are compared.
    """

    def __init__(self, trail: Trail, positions: IndexVariables) -> None:
        super().__init__()
        self.trail = trail
        self.positions = positions

    # -- the walk

    def element(self, i: HloInstruction, indices: Indices, output: int | None = None) -> Term:
        """Return the element of an instruction at an index.

        Args:
            i: the instruction.
            indices: of the element.
            output: the number of the result, of an instruction with several.
        """
        operation = i.operation
        if isinstance(operation, Constant | Parameter | GetTupleElement):
            array = self._array(i)
            if array is not None:
                sizes = i.shape.dimensions
                coordinates = tuple(zip(map(polynomial_of, indices), map(polynomial_of, sizes), strict=True))
                linear = polynomial_of(self.linear(indices, sizes))
                return Access(array, linear, i.shape.element_type, coordinates)
        if isinstance(operation, GetTupleElement):
            return self.element(i.operands[0], indices, operation.index)
        if isinstance(operation, Tuple):
            assert output is not None
            return self.element(i.operands[output], indices)
        if isinstance(operation, GetDimensionSize):
            (d,) = operation.dimensions
            return IndexValue(polynomial_of(i.operands[0].shape.dimensions[d]), i.shape.element_type)
        if isinstance(operation, Concatenate) and not i.shape.dimensions[operation.dimensions[0]]:
            return self.zero(i.shape.element_type)
        if isinstance(operation, AddDependency | Copy | OptimizationBarrier):
            return self.element(i.operands[0], indices, output)
        if isinstance(operation, Reshape):
            source = self._without_divisions(i, indices)
            if source is not None:
                return self.element(i.operands[0], source)
        if isinstance(operation, Scatter) and 0 in i.operands[-1].shape.dimensions:
            return self.element(i.operands[output or 0], indices)
        if isinstance(operation, DynamicSlice) and len(i.operands) != 1 + i.shape.rank:
            raise HloError("start indices in one array are not modelled", rule="prove.operation")
        if isinstance(operation, DynamicUpdateSlice) and len(i.operands) != 2 + i.shape.rank:
            raise HloError("start indices in one array are not modelled", rule="prove.operation")
        if isinstance(operation, Sort):
            return self._sorted(i, operation, indices, output or 0)
        if operation.elementwise and i.called_computations:
            raise HloError(f"{i.opcode} is not modelled", rule="prove.operation")
        accumulation = self._sum(i, indices, output)
        if accumulation is not None:
            return accumulation
        return self._run(operation.element(self, i, indices))

    def _without_divisions(self, i: HloInstruction, indices: Indices) -> Indices | None:
        """Return the source of a reshape that only adds or drops dimensions of size 1; None for others."""
        normal = self.positions.facts.normal
        sizes, sources = (
            [normal(polynomial_of(size)) for size in shape.dimensions]
            for shape in (i.shape, i.operands[0].shape)
        )
        if any(isinstance(index, _LinearIndex) for index in indices):
            return None
        remaining = [(index, size) for index, size in zip(indices, sizes, strict=True) if size != _ONE]
        if [size for _, size in remaining] != [size for size in sources if size != _ONE]:
            return None
        others = (index for index, _ in remaining)
        return tuple(SymbolicIndex(Polynomial()) if size == _ONE else next(others) for size in sources)

    def _run(self, steps: Steps[Guard, Term] | Term) -> Term:
        """Compute the operand elements that steps request."""
        if isinstance(steps, Access | Scalar | IndexValue | Apply | Choose | Sum):
            return steps
        value: Term | None = None
        while True:
            try:
                read = next(steps) if value is None else steps.send(value)
            except StopIteration as end:
                return end.value
            value = self.element(read.instruction, read.indices)

    def _array(self, i: HloInstruction) -> tuple[int | bytes, ...] | None:
        """Return what names an array in memory: a parameter, a part of one, or a constant array."""
        match i.operation:
            case Parameter(parameter_number=number):
                return (number,)
            case GetTupleElement(index=index):
                source = self._array(i.operands[0])
                return None if source is None else (*source, index)
            case Constant(literal=literal) if not literal.shape.is_tuple and literal.array.size != 1:
                return (literal.array.tobytes(),)
            case _:
                return None

    # -- conditions and indices

    def inside(self, index: Index, size: int) -> Guard | None:
        """Return the condition 0 <= index < size."""
        return self.compare(index, size)

    def compare(self, index: Index, size: int) -> Guard:
        return within(polynomial_of(index), polynomial_of(size))

    def conjunction(self, a: Guard, b: Guard) -> Guard:
        return tuple(dict.fromkeys((*a, *b)))

    def linear(self, indices: Indices, dimensions: Sequence[int]) -> Index:
        """Return the row-major linear index."""
        total = Polynomial()
        for index, size in zip(indices, dimensions, strict=True):
            total = total * polynomial_of(size) + polynomial_of(index)
        return SymbolicIndex(total)

    def divide(self, index: Index, divisor: int) -> tuple[Index, Index]:
        """Return quotient and remainder of an index by a size."""
        return self.division(index, divisor)

    def is_one(self, number: int) -> bool:
        """Return whether a divisor is 1 whatever the sizes are: others, which may be 1, are not compared."""
        return polynomial_of(number).value == 1

    def division(self, index: Index, divisor: int) -> tuple[Index, Index]:
        quotient, remainder = self.positions.divide(polynomial_of(index), polynomial_of(divisor))
        return SymbolicIndex(quotient), SymbolicIndex(remainder)

    def reshaped(self, i: HloInstruction, linear: Index) -> Indices:
        """Return the index of the element of an array at a row-major linear index."""
        sizes = i.shape.dimensions
        if not sizes:
            return ()
        if self.is_read_in_order(i):
            return (*(SymbolicIndex(Polynomial()) for _ in sizes[1:]), _LinearIndex(polynomial_of(linear)))
        digits = self.positions.digits(polynomial_of(linear), [polynomial_of(size) for size in sizes])
        return tuple(map(SymbolicIndex, digits))

    def is_dense(self, i: HloInstruction) -> bool | None:
        """Return True for parameters and constant arrays."""
        return True if self._array(i) is not None else None

    def position(self, element: Term, element_type: ElementType, extent: int) -> Index:
        """Return an integer element as an index, clamped to [0, extent)."""
        return SymbolicIndex(self.positions.start(element, polynomial_of(extent)))

    # -- elements

    def choose(self, condition: Guard, yes: Term, no: Term) -> Term:
        return Choose(condition, yes, no)

    def zero(self, element_type: ElementType) -> Term:
        return scalar(0, element_type)

    def literal(self, element_type: ElementType, literal: Literal) -> Term:
        return Scalar(literal.array.tobytes(), element_type)

    def number(self, index: Index, element_type: ElementType) -> Term:
        return IndexValue(polynomial_of(index), element_type)

    def part(self, element: Term, number: Index, before: ElementType, after: ElementType) -> Term:
        return Apply(BitcastConvert(), (element, IndexValue(polynomial_of(number), after)), after)

    def joined(self, elements: Sequence[Term], before: ElementType, after: ElementType) -> Term:
        """Return bits as one element; the bits of an element, taken apart or not, are that element's."""
        match elements:
            case (Apply(operation=BitcastConvert(), operands=(x,)),):
                return self.joined((x,), x.element_type, after)
            case (Apply(operation=BitcastConvert(), operands=(x, IndexValue())), *_):
                if tuple(elements) == _parts(x, before, len(elements)):
                    return self.joined((x,), x.element_type, after)
            case _:
                pass
        return elements[0] if before is after else Apply(BitcastConvert(), tuple(elements), after)

    def elementwise(self, instruction: HloInstruction, operands: Sequence[Term]) -> Term:
        kind = instruction.shape.element_type
        if isinstance(instruction.operation, Convert) and operands[0].element_type is kind:
            return operands[0]
        return Apply(instruction.operation, tuple(operands), kind)

    def undeclared(self, i: HloInstruction, indices: Indices) -> Term:
        """Refuse an operation whose elements are not declared."""
        raise HloError(f"the elements of {i.opcode} are not modelled", rule="prove.operation")

    def _sorted(self, i: HloInstruction, sort: Sort, indices: Indices, output: int) -> Term:
        """Return the element that a sort moves to an index, from a position that only its keys determine."""
        (d,) = sort.dimensions
        comparator = i.called_computations[0]
        read = [p.operation for p in comparator.parameters if p.users or p.is_root]
        keys = sorted({p.parameter_number // 2 for p in read if isinstance(p, Parameter)})
        line = tuple(SymbolicIndex(Polynomial.variable(f"line{n}")) for n in range(len(indices)))
        arrays = [self.element(i.operands[key], line) for key in keys]
        order = _text(
            comparator, {2 * key + side: 2 * n + side for n, key in enumerate(keys) for side in (0, 1)}
        )
        extent = polynomial_of(i.operands[0].shape.dimensions[d])
        source = self.positions.source((order, *arrays, *map(polynomial_of, indices)), extent)
        return self.element(i.operands[output], (*indices[:d], SymbolicIndex(source), *indices[d + 1 :]))

    # -- accumulations

    def _sum(self, i: HloInstruction, indices: Indices, output: int | None) -> Term | None:
        """Return the term of an accumulation; None for other operations."""
        accumulation = i.operation.accumulation(self, i, indices)
        if accumulation is None:
            return None
        names = [self.positions.fresh("k") for _ in accumulation.extents]
        position = tuple(SymbolicIndex(Polynomial.variable(name)) for name in names)
        variables = tuple(zip(names, map(polynomial_of, accumulation.extents), strict=True))
        self.positions.facts = self.positions.facts.assume(*ranges(variables))
        initial = tuple(self.element(o, ()) for o in accumulation.initial)
        reads = accumulation.terms(position)
        elements = [self.element(read.instruction, read.indices) for read in reads]
        first = i.shape if output is None else i.shape.tuple_shapes[output]
        kind = first.element_type
        guard: Guard = ()
        match i.operation:
            case Dot() | Convolution():
                guard = next((read.condition for read in reads if read.condition is not None), ())
                combine, is_free = products(i), True
                elements = [Apply(Multiply(), tuple(elements), kind)]
            case Reduce() | ReduceWindow():
                combine, is_free = _combiner(i)
                if not elements:
                    elements = list(initial)
                elements = (
                    [
                        element if read.condition is None else Choose(read.condition, element, start)
                        for element, read, start in zip(elements, reads, initial, strict=True)
                    ]
                    if reads
                    else elements
                )
            case _:
                raise HloError(f"the sums of {i.opcode} are not modelled", rule="prove.operation")
        return Sum(combine, is_free, variables, guard, tuple(elements), initial, output or 0, kind)


def _parts(x: Term, part: ElementType, count: int) -> tuple[Term, ...]:
    """Return the bits of an element as elements of a narrower type."""
    numbers = (IndexValue(Polynomial.constant(n), part) for n in range(count))
    return tuple(Apply(BitcastConvert(), (x, number), part) for number in numbers)


def products(i: HloInstruction) -> str:
    """Return what determines how a dot or a convolution rounds its sums: types, precision, algorithm."""
    types = [o.shape.element_type.name for o in i.operands]
    fields = ("operand_precision", "precision_algorithm", "algorithm")
    options = [str(getattr(i.operation, name, "")) for name in fields]
    return " ".join(["products", *types, i.shape.element_type.name, *options])


def _combiner(i: HloInstruction) -> tuple[Any, bool]:
    """Return what a reduction applies, an operation or the text of a computation, and whether it is free."""
    operation = combiner(i)
    computation = i.called_computations[0]
    is_free = grouping(computation) is Grouping.FREE
    if operation is not None:
        return operation, is_free or isinstance(operation, Add | Multiply)
    return _text(computation), is_free


def _text(computation: HloComputation, parameters: Mapping[int, int] | None = None) -> str:
    """Return the text of a computation with numbers for names, and only some parameters, renumbered."""
    numbers: dict[HloInstruction, int] = {}
    lines: list[str] = []
    for x in computation.post_order():
        operation = x.operation
        if parameters is not None and isinstance(operation, Parameter):
            if operation.parameter_number not in parameters:
                continue
            operation = operation.replace(parameter_number=parameters[operation.parameter_number])
        numbers[x] = len(numbers)
        operands = ",".join(str(numbers[o]) for o in x.operands)
        lines.append(f"{numbers[x]} = {x.shape} {operation!r}({operands})")
    return "; ".join([*lines, f"root {numbers[computation.root]}"])


def scalar(value: complex, element_type: ElementType) -> Scalar:
    """Return a number of a type."""
    import numpy as np

    return Scalar(np.asarray(value).astype(element_type.numpy_dtype).tobytes(), element_type)


def result_shapes(i: HloInstruction) -> list[tuple[int | None, Shape]]:
    """Return the numbers and shapes of an instruction's array results."""
    if i.shape.is_tuple:
        return list(enumerate(i.shape.tuple_shapes))
    return [(None, i.shape)]
