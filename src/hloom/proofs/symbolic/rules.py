"""Rules for all sizes, stated by Python functions that write both programs (or see `formulas.py`)::

    @RULES.state(axes="N")
    def slice_of_concatenate(w: Sketch) -> Iterator[HloInstruction]:
        \"\"\"Slice(Concat(A, B)) ⇒ Slice(A), where the slice ends within A.\"\"\"
        n, start, limit, stride = w.sizes("n start limit stride", axes="N")
        m, k, a, b, c = w.sizes("m k a b c")
        w.require(b <= m)
        x, y = w.array("A", *n, m), w.array("B", *n, k)
        yield w.slice(w.concatenate(x, y, dimension=len(n)), (*start, a), (*limit, b), (*stride, c))
        yield w.slice(x, (*start, a), (*limit, b), (*stride, c))

It yields the result of the program before the rule, then that after it. Each class of ``axes`` stands for any
number of dimensions. Sizes are integers that may be computed with; what is required of them, and what the
shape rules of the first program require, is the precondition of the rule.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from hloom.errors import HloError, expect
from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.ir.operation import Operation
from hloom.ir.window import PaddingDimension, SliceDimension
from hloom.operations.arithmetic import Add
from hloom.operations.comparison import Clamp, Select
from hloom.operations.contraction import Dot
from hloom.operations.dynamic_slicing import DynamicSlice, DynamicUpdateSlice
from hloom.operations.movement import Broadcast, Concatenate, Pad, Reverse, Slice, Transpose
from hloom.operations.reduction import Reduce
from hloom.operations.structure import GetDimensionSize, Iota
from hloom.passes.writing import Body
from hloom.proofs.symbolic.sizes import Trail
from hloom.proofs.symbolic.verdicts import NO_CASE, InvalidSizes, Pair, RuleVerdict, check_sizes, judge
from hloom.proofs.verdict import Relation
from hloom.records import dataclass
from hloom.shape.element_type import F32, S32, ElementType
from hloom.shape.shape import Shape

HIGHEST_RANK: Final = 4
_FIRST: Final = 2
"""The number that every size has in the first run."""

Statement: TypeAlias = "Callable[[Sketch], Iterator[HloInstruction]]"


class Sketch(Body):
    """Writes a program whose sizes are symbols.

    Attributes:
        kind: the element type for which the rule is stated.
        counts: the number of dimensions of each class.
        trail: the sizes of the run.
    """

    def __init__(self, kind: ElementType, counts: Mapping[str, int], trail: Trail) -> None:
        super().__init__(HloModule("rule"), "entry", entry=True)
        self.kind, self.counts, self.trail = kind, counts, trail
        self.condition: HloInstruction | None = None

    # -- sizes

    def integers(self, names: str, axes: str = "") -> Any:
        """Return integers by name, with ``axes`` lists of them, one for each dimension of a class."""
        lists = [[self._symbol(f"{n}{d}") for d in self._dimensions(axes)] for n in names.split()]
        values: list[Any] = [numbers if axes else numbers[0] for numbers in lists]
        return values if len(values) > 1 else values[0]

    def _dimensions(self, axes: str) -> Sequence[int | str]:
        """Return the numbers of the dimensions of a class; one empty suffix for no class."""
        return range(self.counts[axes]) if axes else [""]

    def sizes(self, names: str, axes: str = "") -> Any:
        """Return integers that are not negative."""
        values = self.integers(names, axes)
        numbers = [self._symbol(f"{n}{d}") for n in names.split() for d in self._dimensions(axes)]
        self.require(number >= 0 for number in numbers)
        return values

    def _symbol(self, name: str) -> int:
        self.trail.values.setdefault(name, _FIRST)
        return self.trail.symbol(name)

    def require(self, *conditions: bool | Iterable[bool]) -> None:
        """Restrict the rule to sizes for which conditions hold, one after the other.

        Conditions for each of some dimensions are a generator: what comes after one that fails is not
        compared, so that failures are as many as conditions, not as their combinations.
        """
        for condition in conditions:
            if not (condition if isinstance(condition, bool) else all(condition)):
                raise InvalidSizes

    def given(self, condition: HloInstruction) -> None:
        """Restrict the rule to elements for which a predicate, of the result's dimensions, is true."""
        self.condition = condition

    # -- values

    def array(self, name: str, *sizes: int, kind: ElementType | None = None) -> HloInstruction:
        """Return a parameter."""
        if len(sizes) > HIGHEST_RANK:
            raise InvalidSizes
        return self.parameter(Shape(kind or self.kind, sizes), name)

    def constant(self, value: complex, *sizes: int, kind: ElementType | None = None) -> HloInstruction:
        """Return an array with one value everywhere."""
        return self.full(value, Shape(kind or self.kind, sizes))

    def indices(self, name: str, count: int) -> list[HloInstruction]:
        """Return parameters for the start indices of a dynamic slice."""
        return [self.parameter(Shape(S32), f"{name}{d}") for d in range(count)]

    def iota(self, dimension: int, *sizes: int, kind: ElementType | None = None) -> HloInstruction:
        """Return numbers that count along a dimension."""
        return self.op(Iota(iota_dimension=dimension), shape=Shape(kind or self.kind, sizes))

    def length(self, size: int) -> HloInstruction:
        """Return a size as a value of the program."""
        counted = self.iota(0, size, kind=S32)
        return self.op(GetDimensionSize(dimensions=(0,)), counted)

    # -- operations

    def apply(self, operation: Operation, *operands: HloInstruction) -> HloInstruction:
        """Apply an elementwise operation."""
        return self.op(operation, *operands)

    def op_broadcast(self, x: HloInstruction, sizes: Sequence[int], into: Sequence[int]) -> HloInstruction:
        """Broadcast, also where nothing changes."""
        shape = Shape(x.shape.element_type, tuple(sizes))
        return self.op(Broadcast(dimensions=tuple(into)), x, shape=shape)

    def slice(
        self,
        x: HloInstruction,
        starts: Sequence[int],
        limits: Sequence[int],
        strides: Sequence[int] | None = None,
    ) -> HloInstruction:
        """Return every stride-th element from start to before limit."""
        steps = strides if strides is not None else [1] * len(starts)
        ranges = itertools.starmap(SliceDimension, zip(starts, limits, steps, strict=True))
        return self.op(Slice(slice=tuple(ranges)), x)

    def pad(
        self,
        x: HloInstruction,
        value: HloInstruction,
        low: Sequence[int],
        high: Sequence[int],
        interior: Sequence[int] | None = None,
    ) -> HloInstruction:
        """Put a value around and between elements."""
        holes = interior if interior is not None else [0] * len(low)
        paddings = itertools.starmap(PaddingDimension, zip(low, high, holes, strict=True))
        return self.op(Pad(padding=tuple(paddings)), x, value)

    def concatenate(self, *operands: HloInstruction, dimension: int) -> HloInstruction:
        """Join arrays along a dimension."""
        return self.op(Concatenate(dimensions=(dimension,)), *operands)

    def transpose(self, x: HloInstruction, order: Sequence[int]) -> HloInstruction:
        """Permute dimensions."""
        return self.op(Transpose(dimensions=tuple(order)), x)

    def reverse(self, x: HloInstruction, dimensions: Sequence[int]) -> HloInstruction:
        """Reverse dimensions."""
        return self.op(Reverse(dimensions=tuple(dimensions)), x)

    def dynamic_slice(
        self, x: HloInstruction, starts: Sequence[HloInstruction], sizes: Sequence[int]
    ) -> HloInstruction:
        """Return a box at a position computed at run time."""
        return self.op(DynamicSlice(dynamic_slice_sizes=tuple(sizes)), x, *starts)

    def update(
        self, x: HloInstruction, update: HloInstruction, starts: Sequence[HloInstruction]
    ) -> HloInstruction:
        """Replace a box at a position computed at run time."""
        return self.op(DynamicUpdateSlice(), x, update, *starts)

    def select(self, p: HloInstruction, yes: HloInstruction, no: HloInstruction) -> HloInstruction:
        """Return elements of one of two arrays."""
        return self.op(Select(), p, yes, no)

    def clamp(self, low: HloInstruction, x: HloInstruction, high: HloInstruction) -> HloInstruction:
        """Limit elements."""
        return self.op(Clamp(), low, x, high)

    def reduce(
        self,
        x: HloInstruction,
        dimensions: Sequence[int],
        operation: Operation | None = None,
        start: complex = 0,
    ) -> HloInstruction:
        """Combine elements along dimensions, by default their sum."""
        kind = x.shape.element_type
        computation: HloComputation = self.combiner(operation or Add(), kind)
        reduction = Reduce(dimensions=tuple(dimensions))
        return self.op(reduction, x, self.scalar(start, kind), computations=[computation])

    def dot(
        self,
        x: HloInstruction,
        y: HloInstruction,
        contracting: tuple[Sequence[int], Sequence[int]],
        batch: tuple[Sequence[int], Sequence[int]] = ((), ()),
    ) -> HloInstruction:
        """Multiply and sum along contracting dimensions."""
        numbers = Dot(
            lhs_contracting_dims=tuple(contracting[0]),
            rhs_contracting_dims=tuple(contracting[1]),
            lhs_batch_dims=tuple(batch[0]),
            rhs_batch_dims=tuple(batch[1]),
        )
        return self.op(numbers, x, y)


@dataclass(frozen=True, slots=True)
class SymbolicRule:
    """A rule for all sizes.

    Attributes:
        name: of the function.
        statement: writes the programs.
        axes: a letter for each class of dimensions.
        kinds: the element types for which it is stated.
        most: the largest number of dimensions of a class.
    """

    name: str
    statement: Statement
    axes: str = ""
    kinds: tuple[ElementType, ...] = (F32,)
    most: int = HIGHEST_RANK

    @property
    def purpose(self) -> str:
        """The first line of the function's docstring."""
        return (self.statement.__doc__ or "").strip().splitlines()[0]

    def counts(self) -> Iterator[dict[str, int]]:
        """Yield the numbers of dimensions of the classes, at most 4 together."""
        for numbers in itertools.product(range(self.most + 1), repeat=len(self.axes)):
            if sum(numbers) <= HIGHEST_RANK:
                yield dict(zip(self.axes, numbers, strict=True))


class RuleBook:
    """The rules of one file."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.rules: dict[str, SymbolicRule] = {}

    def state(
        self, *kinds: ElementType, axes: str = "", most: int = HIGHEST_RANK
    ) -> Callable[[Statement], Statement]:
        """Add a function as a rule.

        Args:
            kinds: element types, by default f32.
            axes: a letter for each class of dimensions.
            most: the largest number of dimensions of a class.
        """

        def register(statement: Statement) -> Statement:
            self.add(statement.__name__, statement, kinds, axes, most)
            return statement

        return register

    def add(
        self,
        name: str,
        statement: Statement,
        kinds: tuple[ElementType, ...],
        axes: str = "",
        most: int = HIGHEST_RANK,
    ) -> None:
        """Add a rule; see `state`."""
        self.rules[name] = SymbolicRule(name, statement, axes, kinds or (F32,), most)

    def __iter__(self) -> Iterator[SymbolicRule]:
        return iter(self.rules.values())


@dataclass(frozen=True, slots=True)
class InstanceVerdict:
    """The verdict on a rule for an element type and numbers of dimensions.

    Attributes:
        kind: the element type.
        counts: the number of dimensions of each class.
        rank: the highest rank of a parameter; 0 where no sizes fulfil the conditions.
        verdict: on this instance.
    """

    kind: ElementType
    counts: Mapping[str, int]
    rank: int
    verdict: RuleVerdict

    @property
    def is_vacuous(self) -> bool:
        """Whether no sizes fulfil the conditions."""
        return self.verdict.reason == NO_CASE


def prove_rule(rule: SymbolicRule) -> list[InstanceVerdict]:
    """Decide whether both programs of a rule are equal for all sizes, for each type and up to rank 4.

    Instances that no sizes fulfil are left out.
    """
    expect(rule, SymbolicRule, "a SymbolicRule")
    instances: list[InstanceVerdict] = []
    for kind in rule.kinds:
        for counts in rule.counts():
            instance = prove_instance(rule, kind, counts)
            if not instance.is_vacuous:
                instances.append(instance)
    if not instances:
        raise HloError(f"no sizes fulfil the conditions of {rule.name}", rule="prove.vacuous")
    return instances


def overall(instances: Sequence[InstanceVerdict]) -> RuleVerdict:
    """Return the weakest verdict."""
    order = [Relation.IDENTICAL, Relation.EQUAL_OVER_REALS, Relation.OPEN, Relation.REFUTED]
    return max((i.verdict for i in instances), key=lambda v: order.index(v.relation))


def prove_instance(rule: SymbolicRule, kind: ElementType, counts: Mapping[str, int]) -> InstanceVerdict:
    """Decide whether both programs are equal for all sizes, for one type and numbers of dimensions."""
    ranks = {0}

    def build(trail: Trail) -> Pair:
        pair = programs(rule, kind, counts, trail)
        ranks.update(p.shape.rank for p in pair.before.entry.parameters)
        return pair

    verdict = judge({}, build, edges=False)
    return InstanceVerdict(kind, counts, max(ranks), verdict)


def programs(rule: SymbolicRule, kind: ElementType, counts: Mapping[str, int], trail: Trail) -> Pair:
    """Return both programs of a rule; raise InvalidSizes for sizes that it does not apply to."""
    try:
        before = _program(rule, Sketch(kind, counts, trail), 1)
    except HloError as error:
        raise InvalidSizes from error
    check_sizes(before)
    return Pair(before, _program(rule, Sketch(kind, counts, trail), 2))


def _program(rule: SymbolicRule, sketch: Sketch, number: int) -> HloModule:
    """Return the program whose root is the number-th instruction that a rule yields."""
    steps = rule.statement(sketch)
    root = next(itertools.islice(steps, number - 1, None))
    if sketch.condition is not None:
        root = sketch.select(sketch.condition, root, sketch.full(0, root.shape))
    sketch.computation.root = root
    return sketch.module
