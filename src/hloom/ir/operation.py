"""The declaration of an operation: a class.

::

    @operation("gather", "operand start_indices")
    class Gather(Operation):
        \"\"\"Collects slices of ``operand`` ... (the op's page)\"\"\"

        offset_dims: tuple[int, ...] = dims(proto="gather_dimension_numbers.offset_dims")
        indices_are_sorted: bool = flag()

        def infer(self, operand: Shape, start_indices: Shape) -> Shape: ...
        def evaluate(self, run: Run, operand: Array, start_indices: Array) -> Array: ...

The parser, the printer, proto conversion, equality and hash, cloning, the builder and the op's page derive
from the class. An operation value is frozen and shared between instructions; what belongs to one
instruction (operands, shape, called computations, metadata) is stored in the instruction.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, Self, TypeVar, dataclass_transform

from hloom.errors import HloError, NoBound, ShapeError
from hloom.ir.codec import (
    DeclaredAttribute,
    attribute,
    attributes_of,
    dims,
    enum,
    flag,
    floating,
    integer,
    string,
)
from hloom.ir.indexing import elementwise
from hloom.ir.sharding_rule import Factor, parallel
from hloom.ir.traits import Roundoff, Traits
from hloom.ir.value import Array, Value
from hloom.records import dataclass
from hloom.shape.shape import Shape

if TYPE_CHECKING:
    import numpy as np

    from hloom.ir.affine import Indices
    from hloom.ir.computation import HloComputation
    from hloom.ir.cursor import Cursor
    from hloom.ir.device import DeviceContext
    from hloom.ir.indexing import Accumulation, Addressing, Condition, Element, Indexing, Steps
    from hloom.ir.instruction import HloInstruction


@dataclass(frozen=True, slots=True)
class ProgramShape:
    """The signature of a computation: parameter shapes and result shape."""

    parameters: tuple[Shape, ...]
    result: Shape

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.parameters))}) -> {self.result}"


@dataclass(frozen=True, slots=True)
class Role:
    """A role of called computations: ``name=%c`` or, for a list, ``name={%a, %b}``."""

    name: str
    many: bool = False
    required: bool = True


class MergedDimensions(NamedTuple):
    """An operation on arrays of which two adjacent dimensions are one; see `Operation.merge_dimensions`.

    Attributes:
        operation: the operation.
        outer: for each operand the outer one of the two dimensions that become one, or None if the operand
            stays as it is.
    """

    operation: Operation
    outer: Sequence[int | None]


class Run(Protocol):
    """The interface of the evaluator to the evaluation of one instruction."""

    @property
    def instruction(self) -> HloInstruction:
        """The instruction under evaluation."""
        ...

    @property
    def shape(self) -> Shape:
        """The shape of the instruction."""
        ...

    @property
    def dtype(self) -> np.dtype:
        """The numpy type of the instruction's array shape."""
        ...

    def call(self, index: int, *arguments: Value) -> Value:
        """Evaluate the called computation number ``index`` on values of its parameter shapes."""
        ...

    def map(self, index: int, *arguments: Array) -> Value:
        """Evaluate a computation on scalars element by element on whole arrays, broadcasting as numpy does.

        The result (or every leaf of a tuple result) has the broadcast shape of the arguments.
        """
        ...

    def begin(self, index: int, *arguments: Value) -> Any:
        """Call a computation without waiting for other devices at its root; return a value or a `Pending`."""
        ...

    @property
    def device(self) -> DeviceContext:
        """The virtual device that runs the program: ids, collectives, infeed, outfeed, channels."""
        ...

    @property
    def random_state(self) -> Any:
        """The state of the stateful random operations, shared by all instructions of one evaluation."""
        ...


class ErrorRun(Protocol):
    """The error analysis of one instruction, as its operation sees it."""

    @property
    def instruction(self) -> HloInstruction:
        """The analysed instruction."""
        ...

    @property
    def operands(self) -> Sequence[Any]:
        """The operands with error bounds."""
        ...

    @property
    def value(self) -> Any:
        """The value of the instruction, in the types of its shape."""
        ...

    @property
    def inexact(self) -> bool:
        """Whether any operand has errors."""
        ...

    @property
    def rounds_partial_sums(self) -> bool:
        """Return whether partial sums may have the result's type, such as bf16, instead of f32."""
        ...

    def apply(self, operands: Sequence[Any], output: int | None = None) -> Array:
        """Evaluate the instruction in f64 on other values of its operands; complex results as magnitudes.

        Args:
            operands: an array, or a value, for each operand.
            output: the result wanted from an instruction with several.
        """
        ...

    def call(self, index: int, *operands: Any) -> Any:
        """Bound the errors of the called computation number ``index``."""
        ...

    def map(self, index: int, *operands: Any) -> Any:
        """Bound the errors of a computation of scalars applied to whole arrays; raise NoBound if it loops."""
        ...

    def bounded(self) -> Any:
        """Return the value with the bounds that `Operation.errors` gives."""
        ...


def require_dynamic(stated: Shape, inferred: Shape) -> None:
    """Refuse a stated shape in which a dimension is static whose size is known at run time only."""
    if not stated.admits(inferred):
        message = f"the shape is stated as {stated}, but sizes of {inferred} are dynamic; state that shape"
        raise ShapeError(message, rule="instruction.dynamic-dimensions")


class Operation(Traits):
    """Base class of all operations; see the docstring of this module."""

    __slots__ = ()
    opcode: ClassVar[str]
    operand_names: ClassVar[tuple[str, ...]] = ()
    """Names of the operands; a last name with a star takes any number of them."""
    attributes: ClassVar[tuple[DeclaredAttribute, ...]] = ()
    roles: ClassVar[tuple[Role, ...]] = ()
    ended_by: ClassVar[str] = ""
    """The only operation that may use the result, which is a context and no value; empty for all others.

    Programs made by passes carry contexts through tuples and loops; the builder does not.
    """
    fixes_sizes: ClassVar[bool] = False
    """A dimension of dynamic size may be stated as static: missing elements are zeros."""
    highlighted: ClassVar[str] = ""
    """The field that tells most about the operation."""
    infers: ClassVar[bool] = True
    """The result shape follows from operands and attributes; otherwise the program must state it."""

    # Equality of operations without attributes; the others compare them.

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other)

    def __hash__(self) -> int:
        return hash(type(self))

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def infer(self, *operands: Any, **keywords: Any) -> Shape:
        """Return the result shape; raise ShapeError by rule name. Not defined if ``infers`` is false."""
        raise ShapeError(f"the shape of {self.opcode} must be stated", rule=f"{self.opcode}.shape-stated")

    def check(self, shape: Shape, *operands: Shape, computations: tuple[ProgramShape, ...] = ()) -> None:
        """Raise ShapeError if the stated result shape contradicts operands and attributes.

        By default, compare with the inferred shape. Operations whose shape must be stated override this.
        """
        inferred = self.infer(*operands, **({"computations": computations} if self.roles else {}))
        if not inferred.compatible(shape):
            message = f"the shape is stated as {shape}, but {inferred} follows from the operands"
            raise ShapeError(message, rule="instruction.shape-matches")
        if not self.fixes_sizes:
            require_dynamic(shape, inferred)

    def verify(self, instruction: HloInstruction) -> None:
        """Check rules other than shapes, such as attributes against the module; by default there are none."""

    def evaluate(self, run: Run, *operands: Any, **keywords: Any) -> Value:
        """Return the value of the result by the reference semantics."""
        raise HloError(f"{self.opcode} has no value", rule="evaluate.no-value")

    # -- rounding errors, bounded for given arguments (`hloom.debug.error_analysis`)

    def errors(self, run: ErrorRun) -> Value:
        """Return the largest error of each element of the result, of several results a tuple.

        Called for inexact operands, and where `roundoff_of` states more than one rounding. Raises NoBound.
        """
        raise NoBound(f"{self.opcode} %{run.instruction.name} of inexact operands has no bound")

    def evaluate_bounded(self, run: ErrorRun, *operands: Any) -> Any:
        """Return the value with error bounds; overridden where values are forwarded or called on."""
        return run.bounded()

    def roundoff_of(self, instruction: HloInstruction) -> Roundoff:
        """Return the roundoff of one instruction, whose called computations and element types are known."""
        if self.roundoff is not Roundoff.COMBINED:
            return self.roundoff
        rounds = any(map(rounds_pairs, instruction.called_computations))
        return Roundoff.ACCUMULATED if rounds else Roundoff.NONE

    # -- text hooks for the few operations whose text is not derived from the declaration

    def operand_text(self, instruction: HloInstruction) -> str | None:
        """Return the text in parentheses if it is no list of operands (constant, parameter), else None."""
        return None

    @classmethod
    def parse_operands(cls, cursor: Cursor, shape: Shape | None) -> dict[str, Any] | None:
        """Parse the text in parentheses into fields (constant, parameter); return None for operand names."""
        return None

    def omitted(self, field: str, instruction: HloInstruction) -> bool:
        """Return whether text omits an attribute although it does not have its default value."""
        return False

    # -- hooks for instructions whose operands and callees are given only by name

    @classmethod
    def operand_of(cls, result: Shape) -> Shape | None:
        """Return the shape that every operand has given the result shape; None if it does not follow."""
        return None

    @classmethod
    def callee_of(cls, operands: Sequence[Shape], result: Shape) -> ProgramShape | None:
        """Return the signature of the called computation; None if it does not follow from the shapes."""
        return None

    def highlights(self) -> Sequence[str]:
        """Return the attributes that tell most about the operation, in few words, for pictures."""
        shown = [a for a in self.attributes if a.field == self.highlighted]
        return [f"{a.name} {a.codec.text(getattr(self, a.field))}" for a in shown]

    def sharding_rule(self, call: HloInstruction, operands: Sequence[Shape]) -> list[Factor]:
        """Return the factors along which the operation may be cut; other dimensions must be whole.

        By default, those of elementwise operations, and none of others.

        Args:
            call: an instruction with the shape of its whole result.
            operands: the shapes of its whole operands.
        """
        return parallel(call.shape, operands) if self.elementwise and call.shape.is_array else []

    def merge_dimensions(self, call: HloInstruction, d: int) -> MergedDimensions | None:
        """Return the same operation on arrays whose dimensions ``d`` and ``d`` + 1 are one dimension.

        By default, elementwise operations merge those of all operands, and others return None.

        Args:
            call: an instruction of the operation.
            d: the outer one of two adjacent dimensions of its result.

        Returns None if the operation tells the two dimensions apart.
        """
        if not self.elementwise:
            return None
        return MergedDimensions(self, [d if o.shape.rank else None for o in call.operands])

    def element(
        self, x: Indexing[Condition, Element], i: HloInstruction, indices: Indices
    ) -> Steps[Condition, Element] | Element:
        """Return the steps that compute the element of an instruction at an index; see `hloom.ir.indexing`.

        An operation without operands may return its element.
        """
        return elementwise(x, i, indices) if self.elementwise else x.undeclared(i, indices)

    def accumulation(
        self, x: Addressing[Condition], i: HloInstruction, indices: Indices
    ) -> Accumulation[Condition] | None:
        """Return how the element of an instruction at an index accumulates operand elements; None: not so."""
        return None

    @classmethod
    def declares_element(cls) -> bool:
        """Return whether the operation states the steps of its elements itself."""
        return cls.element is not Operation.element

    # -- proto hooks

    def canonical(self, *operands: Shape) -> Operation:
        """Return the operation without attributes that follow from the operands; called by readers."""
        return self

    def write_rest(self, message: object, instruction: HloInstruction) -> None:
        """Set the fields of a HloInstructionProto that XLA always writes and no attribute stores."""

    def spelled_out(self, instruction: HloInstruction) -> Operation:
        """Return the operation with attributes that follow from operands or shape but are always printed."""
        return self

    def role_of(self, instruction: HloInstruction) -> list[tuple[Role, list[HloComputation]]]:
        """Return the called computations by role, in the order of printing."""
        computations = list(instruction.called_computations)
        if not computations:
            return []
        if len(self.roles) == 1 and self.roles[0].many:
            return [(self.roles[0], computations)]
        return [(role, [c]) for role, c in zip(self.roles, computations, strict=False)]

    def replace(self, **changes: object) -> Self:
        """Return a copy with some fields changed."""
        return dataclasses.replace(self, **changes)  # type: ignore[type-var]

    @classmethod
    def arity(cls) -> int | None:
        """Return the number of operands, or None if it varies."""
        if cls.operand_names and cls.operand_names[-1].startswith("*"):
            return None
        return len(cls.operand_names)


def rounds_pairs(computation: HloComputation) -> bool:
    """Return whether a computation rounds a function of several numbers, so that the order matters."""
    return any(
        (len(i.operands) > 1 and _is_rounded(i)) or any(map(rounds_pairs, i.called_computations))
        for i in computation.instructions
    )


def _is_rounded(instruction: HloInstruction) -> bool:
    shape = instruction.shape
    inexact = shape.is_array and (shape.element_type.is_floating or shape.element_type.is_complex)
    return inexact and instruction.operation.roundoff_of(instruction) is not Roundoff.NONE


REGISTRY: dict[str, type[Operation]] = {}
"""Every operation by opcode."""

T = TypeVar("T", bound=Operation)


_FIELDS = (attribute, dims, integer, floating, flag, string, enum)


@dataclass_transform(frozen_default=True, kw_only_default=True, eq_default=True, field_specifiers=_FIELDS)
def operation(
    opcode: str, operands: str = "", *, computations: Sequence[Role | str] = ()
) -> Callable[[type[T]], type[T]]:
    """Make a class the declaration of an opcode.

    Args:
        opcode: as in HLO text.
        operands: names of the operands, separated by blanks; a last ``*name`` takes any number.
        computations: roles of the called computations, in proto order.
    """

    def declare(cls: type[T]) -> type[T]:
        # Classes without attributes need no methods of their own.
        has = has_fields(cls)
        operation = dataclass(init=has, repr=has, eq=has, frozen=has, kw_only=True, slots=True)(cls)
        operation.opcode = opcode
        operation.operand_names = tuple(operands.split())
        operation.attributes = attributes_of(operation)
        operation.roles = tuple(Role(r) if isinstance(r, str) else r for r in computations)
        registered = REGISTRY.get(opcode)
        # An import that was interrupted, for example by Ctrl-C, executes the same module again.
        if registered is not None and (registered.__module__, registered.__qualname__) != (
            operation.__module__,
            operation.__qualname__,
        ):
            raise TypeError(f"opcode {opcode!r} is declared twice")
        REGISTRY[opcode] = operation
        return operation

    return declare


def has_fields(cls: type[object]) -> bool:
    """Return whether a class declares or inherits fields of a dataclass."""
    annotations = inspect.get_annotations(cls)
    inherited = getattr(cls, "__dataclass_fields__", ())
    return bool(inherited) or any(not str(kind).startswith("ClassVar") for kind in annotations.values())
