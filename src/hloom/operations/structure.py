"""Structural operations: parameter, constant, tuples, tokens, dimension sizes, iota.

The pages "Parameter", "Tuple", "GetTupleElement", "AfterAll", "OptimizationBarrier", "Iota",
"GetDimensionSize" and "SetDimensionSize".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from hloom.error_bounds.bounded import Tree, parts_of
from hloom.error_bounds.rules import independent, linear_in_first
from hloom.errors import EvaluationError, HloError, ShapeError, VerifyError, plural
from hloom.ir.affine import Indices
from hloom.ir.calling import READ_LITERAL, WRITE_LITERAL
from hloom.ir.codec import FLAG, INTEGER, FirstCodec, Message, TupleCodec, attribute, dims, integer
from hloom.ir.cursor import Cursor
from hloom.ir.indexing import Condition, Element, Indexing
from hloom.ir.instruction import HloInstruction
from hloom.ir.operation import (
    Array,
    ErrorRun,
    MergedDimensions,
    Operation,
    ProgramShape,
    Run,
    Value,
    operation,
)
from hloom.ir.sharding import Sharding
from hloom.ir.sharding_rule import Factor
from hloom.ir.traits import ElementCost, Family, LayoutSource, Roundoff
from hloom.operations.rounding import narrow
from hloom.records import dataclass
from hloom.shape.element_type import S32
from hloom.shape.literal import Literal
from hloom.shape.literal_parser import parse_literal_at
from hloom.shape.shape import Shape


class _Structural(Operation):
    """Common to operations that compute and move nothing."""

    __slots__ = ()
    family: ClassVar[Family] = Family.STRUCTURE
    element_cost: ClassVar[ElementCost] = ElementCost.FREE
    roundoff: ClassVar[Roundoff] = Roundoff.NONE


class _Forwarding(_Structural):
    """Common to operations whose value is that of operand 0."""

    __slots__ = ()
    aliases_operand: ClassVar[bool] = True

    def infer(self, operand: Shape, *tokens: Shape) -> Shape:
        return operand

    def evaluate_bounded(self, run: ErrorRun, *operands: Tree) -> Tree:
        return operands[0]

    def evaluate(self, run: Run, operand: Value, *tokens: Value) -> Value:
        return operand


# -- parameter and constant


def _parse_flags(cursor: Cursor) -> tuple[bool, ...]:
    return tuple([FLAG.parse(cursor) for _ in cursor.items()])


class _ReplicationCodec(TupleCodec):
    """``{true,false}``; stored in a message of its own, which is absent if empty."""

    def __init__(self) -> None:
        super().__init__(_parse_flags, lambda value: "{" + ",".join(map(FLAG.text, value)) + "}")

    def write(self, message: Message, field: str, value: tuple[bool, ...]) -> None:
        if value:
            super().write(getattr(message, field), "replicated_at_leaf_buffers", value)

    def read(self, message: Message, field: str) -> tuple[bool, ...]:
        return super().read(getattr(message, field), "replicated_at_leaf_buffers")


@operation("parameter")
class Parameter(_Structural):
    """The argument number ``parameter_number`` of the computation.

    Arguments:
        parameter_number: counts from 0.
        parameter_replication: for every array in the parameter, whether all replicas receive the same value.
    """

    distinct: ClassVar[bool] = True
    infers = False
    parameter_number: int = integer()
    parameter_replication: tuple[bool, ...] = attribute(_ReplicationCodec(), default=())

    def check(self, shape: Shape, *operands: Shape, computations: tuple[ProgramShape, ...] = ()) -> None:
        """Check that numbers count from 0 and that replication is stated for every leaf or none."""
        if self.parameter_number < 0:
            raise ShapeError(f"parameter number {self.parameter_number} is negative", rule="parameter.number")
        if self.parameter_replication and len(self.parameter_replication) != _leaf_count(shape):
            message = (
                f"parameter_replication has {plural(len(self.parameter_replication), 'flag')}, "
                f"{shape} has {_leaf_count(shape)} leaves"
            )
            raise ShapeError(message, rule="parameter.replication-leaves")

    def operand_text(self, instruction: HloInstruction) -> str:
        return str(self.parameter_number)

    def omitted(self, field: str, instruction: HloInstruction) -> bool:
        """Return true for the number, which stands between the parentheses."""
        return field == "parameter_number"

    @classmethod
    def parse_operands(cls, cursor: Cursor, shape: Shape | None) -> dict[str, Any]:
        return {"parameter_number": cursor.integer()}

    def evaluate(self, run: Run) -> Value:
        """Raise: arguments are bound before the computation runs."""
        raise EvaluationError("a parameter has no argument", rule="evaluate.argument-missing")


def _leaf_count(shape: Shape) -> int:
    return sum(map(_leaf_count, shape.tuple_shapes)) if shape.is_tuple else 1


class _LiteralCodec:
    """The value of a constant in protos; its text stands between the parentheses."""

    def parse(self, cursor: Cursor) -> Literal:
        """Refuse: a literal never stands among the attributes."""
        raise cursor.error("a literal is written between the parentheses", rule="constant.literal-place")

    def text(self, value: Literal) -> str:
        return value.to_text()

    def write(self, message: Message, field: str, value: Literal) -> None:
        WRITE_LITERAL(value, getattr(message, field))

    def read(self, message: Message, field: str) -> Literal:
        return READ_LITERAL(getattr(message, field))


@operation("constant")
class Constant(_Structural):
    """A value that is part of the program.

    Arguments:
        literal: the value. Text may elide it as ``{...}``; such a program can be read, checked and printed,
            but not evaluated.
    """

    infers = False
    literal: Literal = attribute(_LiteralCodec())

    def check(self, shape: Shape, *operands: Shape, computations: tuple[ProgramShape, ...] = ()) -> None:
        """Check that the literal has the stated shape."""
        if not self.literal.shape.compatible(shape):
            message = f"the literal is {self.literal.shape}, the constant {shape}"
            raise ShapeError(message, rule="constant.shape")

    def operand_text(self, instruction: HloInstruction) -> str:
        """Return the value in full."""
        return self.literal.to_text()

    def omitted(self, field: str, instruction: HloInstruction) -> bool:
        """Return true for the literal, which stands between the parentheses."""
        return field == "literal"

    @classmethod
    def parse_operands(cls, cursor: Cursor, shape: Shape | None) -> dict[str, Any]:
        """Return the value up to the closing parenthesis."""
        if shape is None:
            raise cursor.error("the shape of a constant must be stated", rule="text.shape-stated")
        start = cursor.position
        try:
            literal, cursor.position = parse_literal_at(cursor.text, start, _unpacked(shape))
        except HloError as error:
            raise cursor.locate(error, start) from error.__cause__
        return {"literal": literal}

    def element(self, x: Indexing[Condition, Element], i: HloInstruction, indices: Indices) -> Element:
        """Return the value of a constant of one element; larger ones are in memory."""
        return x.literal(i.shape.element_type, self.literal)

    def evaluate(self, run: Run) -> Value:
        """Return the value; raises EvaluationError if it was elided."""
        return self.literal.numpy()


def _unpacked(shape: Shape) -> Shape:
    """Return the shape without E() element sizes: a literal's elements have their type's own size."""
    if shape.is_tuple:
        return Shape.tuple_(map(_unpacked, shape.tuple_shapes))
    if shape.layout is None or not shape.layout.element_size_in_bits:
        return shape
    return shape.with_layout(shape.layout.with_element_size_in_bits(0))


# -- tuples


@operation("tuple", "*operands")
class Tuple(_Structural):
    """A tuple of the operands: arrays, tokens, tuples."""

    layout_source: ClassVar[LayoutSource] = LayoutSource.INFERRED

    def infer(self, *operands: Shape, computations: tuple[ProgramShape, ...] = ()) -> Shape:
        return Shape.tuple_(operands)

    def evaluate_bounded(self, run: ErrorRun, *operands: Tree) -> Tree:
        return operands

    def evaluate(self, run: Run, *operands: Value) -> Value:
        return tuple(operands)


@operation("get-tuple-element", "operand")
class GetTupleElement(_Structural):
    """Element number ``index`` of a tuple."""

    highlighted: ClassVar[str] = "index"
    layout_source: ClassVar[LayoutSource] = LayoutSource.INFERRED
    index: int = integer(proto="tuple_index")

    def infer(self, operand: Shape) -> Shape:
        if not operand.is_tuple:
            raise ShapeError(f"the operand is a tuple, got {operand}", rule="get-tuple-element.operand-tuple")
        if not 0 <= self.index < len(operand.tuple_shapes):
            message = f"index {self.index} in a tuple of {plural(len(operand.tuple_shapes), 'element')}"
            raise ShapeError(message, rule="get-tuple-element.index")
        return operand.tuple_shapes[self.index]

    def evaluate_bounded(self, run: ErrorRun, *operands: Tree) -> Tree:
        return parts_of(operands[0])[self.index]

    def evaluate(self, run: Run, operand: tuple[Value, ...]) -> Value:
        return operand[self.index]


# -- order


@operation("after-all", "*tokens")
class AfterAll(_Structural):
    """Joins tokens: users of the result run after the producers of all ``tokens``; of none, a new token.

    In text an operand may also be a value, whose producer is waited for.
    """

    def infer(self, *tokens: Shape) -> Shape:
        return Shape.token()

    def evaluate(self, run: Run, *tokens: Value) -> Value:
        return None


@operation("add-dependency", "operand token")
class AddDependency(_Forwarding):
    """``operand`` itself, available only after the producer of ``token`` has run."""

    def infer(self, operand: Shape, *tokens: Shape) -> Shape:
        """Return the operand's shape."""
        if not tokens[0].is_token:
            raise ShapeError(f"the second operand is a token, got {tokens[0]}", rule="add-dependency.token")
        return operand


@operation("opt-barrier", "operand")
class OptimizationBarrier(_Forwarding):
    """The operand, arrays or a tuple of them: no optimization moves computation across this point."""

    layout_source: ClassVar[LayoutSource] = LayoutSource.OPERANDS


@dataclass(frozen=True, slots=True)
class DomainShardings:
    """The shardings on both sides of the border between two domains."""

    entry: Sharding
    exit: Sharding


class _DomainCodec:
    """``{kind="sharding", entry={...}, exit={...}}``."""

    def parse(self, cursor: Cursor) -> DomainShardings:
        """Parse a domain; shardings are its only kind."""
        cursor.expect("{")
        cursor.expect("kind")
        cursor.expect("=")
        start = cursor.position
        kind = cursor.string()
        if kind != "sharding":
            raise cursor.error(f"unknown kind of domain {kind!r}", rule="domain.kind", position=start)
        sides: list[Sharding] = []
        for side in ("entry", "exit"):
            cursor.expect(",")
            cursor.expect(side)
            cursor.expect("=")
            sides.append(Sharding.parse(cursor))
        cursor.expect("}")
        return DomainShardings(*sides)

    def text(self, value: DomainShardings) -> str:
        return f'{{kind="sharding", entry={value.entry.text()}, exit={value.exit.text()}}}'

    def write(self, message: Message, field: str, value: DomainShardings) -> None:
        """Store two OpSharding messages; the text's entry is the proto's exit, as in XLA."""
        value.exit.write(message.domain_entry_sharding)
        value.entry.write(message.domain_exit_sharding)

    def read(self, message: Message, field: str) -> DomainShardings:
        return DomainShardings(
            entry=Sharding.read(message.domain_exit_sharding),
            exit=Sharding.read(message.domain_entry_sharding),
        )


@operation("domain", "operand")
class Domain(_Forwarding):
    """The operand, at the border between two domains of shardings.

    Arguments:
        domain: the sharding on the side of the users (``entry``) and on the side of the operand (``exit``).
    """

    layout_source: ClassVar[LayoutSource] = LayoutSource.OPERANDS
    domain: DomainShardings = attribute(_DomainCodec(), proto="domain_entry_sharding")


# -- dimension sizes


def _dimension(opcode: str, dimensions: tuple[int, ...], operand: Shape) -> int:
    """Return the one dimension that get- and set-dimension-size state."""
    if not operand.is_array:
        raise ShapeError(f"{opcode} takes an array, got {operand}", rule=f"{opcode}.operand-array")
    if len(dimensions) != 1:
        raise ShapeError(f"{opcode} takes one dimension, got {dimensions}", rule=f"{opcode}.one-dimension")
    if not 0 <= dimensions[0] < operand.rank:
        message = f"dimension {dimensions[0]} is not one of {operand}"
        raise ShapeError(message, rule=f"{opcode}.dimension-range")
    return dimensions[0]


@operation("get-dimension-size", "operand")
class GetDimensionSize(_Structural):
    """The size of one dimension of ``operand`` as an s32 scalar: the actual size where it is dynamic."""

    errors = independent
    dimensions: tuple[int, ...] = dims()

    def infer(self, operand: Shape) -> Shape:
        _dimension(self.opcode, self.dimensions, operand)
        return Shape(S32)

    def evaluate(self, run: Run, operand: Array) -> Array:
        return np.asarray(operand.shape[self.dimensions[0]], run.dtype)


@operation("set-dimension-size", "operand size")
class SetDimensionSize(_Structural):
    """The first ``size`` elements of ``operand`` in one dimension; elements beyond are ignored.

    The bound of the dimension is unchanged, and ``size`` is clamped to between 0 and the bound. If ``size``
    exceeds the operand's actual size, the new elements are zeros: elements cut off before are not restored.
    If the result is stated with a static dimension, elements beyond ``size`` are zero.

    Arguments:
        operand: an array.
        size: a scalar s32.
        dimensions: the one dimension that is set.
    """

    layout_source: ClassVar[LayoutSource] = LayoutSource.OPERANDS
    errors = linear_in_first
    fixes_sizes: ClassVar[bool] = True
    dimensions: tuple[int, ...] = dims()

    def infer(self, operand: Shape, size: Shape) -> Shape:
        """Return the operand's shape, dynamic in that dimension."""
        dimension = _dimension(self.opcode, self.dimensions, operand)
        if not size.is_scalar or size.element_type is not S32:
            raise ShapeError(f"the size is s32[], got {size}", rule="set-dimension-size.size-scalar")
        return operand.with_dynamic_dimension(dimension)

    def evaluate(self, run: Run, operand: Array, size: Array) -> Array:
        """Crop the dimension, or pad it with zeros; pad other ones that are static in the result only."""
        dimension = self.dimensions[0]
        bounds, dynamic = run.shape.dimensions, run.shape.dynamic_dimensions
        extent = max(int(size), 0)
        if bounds[dimension] != Shape.UNBOUNDED:
            extent = min(extent, bounds[dimension])
        prefix = operand[(slice(None),) * dimension + (slice(extent),)]
        actual = [extent if d == dimension else n for d, n in enumerate(operand.shape)]
        sizes = tuple(n if flag else bound for n, flag, bound in zip(actual, dynamic, bounds, strict=True))
        if prefix.shape == sizes:
            return prefix
        result = np.zeros(sizes, operand.dtype)
        result[tuple(map(slice, prefix.shape))] = prefix
        return result


# -- iota


@operation("iota")
class Iota(Operation):
    """The numbers 0, 1, 2 ... along one dimension, repeated along the others, converted to the element type.

    Arguments:
        iota_dimension: the dimension along which the numbers grow.
    """

    never_negative_zero: ClassVar[bool] = True
    family: ClassVar[Family] = Family.MOVEMENT
    element_cost: ClassVar[ElementCost] = ElementCost.FREE
    roundoff: ClassVar[Roundoff] = Roundoff.NONE
    infers: ClassVar[bool] = False
    iota_dimension: int = attribute(FirstCodec(INTEGER, absent=-1), proto="dimensions")

    def sharding_rule(self, call: HloInstruction, operands: Sequence[Shape]) -> list[Factor]:
        return [Factor(n, {}, d) for d, n in enumerate(call.shape.dimensions)]

    def check(self, shape: Shape, *operands: Shape, computations: tuple[ProgramShape, ...] = ()) -> None:
        """Check for a numeric array that has the dimension."""
        element_type = shape.element_type
        if not shape.is_array or element_type.is_predicate:
            raise ShapeError(f"iota returns a numeric array, got {shape}", rule="iota.element-type")
        if not 0 <= self.iota_dimension < shape.rank:
            message = f"iota_dimension {self.iota_dimension} is not one of {shape}"
            raise ShapeError(message, rule="iota.dimension-range")

    def merge_dimensions(self, call: HloInstruction, d: int) -> MergedDimensions | None:
        """Merge the dimensions unless the numbers grow along one of them."""
        along = self.iota_dimension
        return None if along in (d, d + 1) else MergedDimensions(Iota(iota_dimension=along - (along > d)), [])

    def element(self, x: Indexing[Condition, Element], i: HloInstruction, indices: Indices) -> Element:
        return x.number(indices[self.iota_dimension], i.shape.element_type)

    def evaluate(self, run: Run) -> Array:
        """Count along the dimension; a dynamic dimension has its bound, since no operand gives a size."""
        sizes = run.shape.dimensions
        if Shape.UNBOUNDED in sizes:
            raise EvaluationError(f"no operand gives the sizes of {run.shape}", rule="iota.unbounded")
        if 0 in sizes:  # one of the others may be longer than memory
            return np.empty(sizes, run.dtype)
        numbers = np.arange(sizes[self.iota_dimension])
        ahead = [-1 if i == self.iota_dimension else 1 for i in range(len(sizes))]
        return np.broadcast_to(narrow(numbers, run.dtype).reshape(ahead), sizes)


def parameter_number(parameter: HloInstruction) -> int:
    """Return the number of a parameter instruction; raises VerifyError for any other."""
    operation = parameter.operation
    if not isinstance(operation, Parameter):
        message = f"%{parameter.name} is no parameter but {operation.opcode}"
        raise VerifyError(message, rule="parameter.opcode", instruction=parameter.name)
    return operation.parameter_number
