"""How an operation is declared: once, as a class.

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
instruction (operands, shape, called computations, metadata) lives in the instruction.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, TypeVar, dataclass_transform

from hloom.errors import HloError, ShapeError
from hloom.ir.codec import (
    REQUIRED,
    Attribute,
    attribute,
    attributes_of,
    dims,
    enum,
    flag,
    floating,
    integer,
    string,
)
from hloom.ir.traits import Traits
from hloom.ir.value import Array, Value
from hloom.shape.shape import Shape

if TYPE_CHECKING:
    import numpy as np

    from hloom.ir.computation import HloComputation
    from hloom.ir.cursor import Cursor
    from hloom.ir.device import Device
    from hloom.ir.instruction import HloInstruction


@dataclasses.dataclass(frozen=True, slots=True)
class ProgramShape:
    """The signature of a computation: parameter shapes and result shape."""

    parameters: tuple[Shape, ...]
    result: Shape

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.parameters))}) -> {self.result}"


@dataclasses.dataclass(frozen=True, slots=True)
class Role:
    """A place for called computations: ``name=%c`` or, for a list, ``name={%a, %b}``."""

    name: str
    many: bool = False
    required: bool = True


class Run(Protocol):
    """What the evaluator offers to the evaluation of one instruction."""

    @property
    def instruction(self) -> HloInstruction:
        """The instruction under evaluation."""
        ...

    @property
    def shape(self) -> Shape:
        """Its shape."""
        ...

    @property
    def dtype(self) -> np.dtype[Any]:
        """The numpy type of its (array) shape."""
        ...

    def call(self, index: int, *arguments: Value) -> Value:
        """Evaluate the called computation number ``index`` on values of its parameter shapes."""
        ...

    def map(self, index: int, *arguments: Array) -> Value:
        """Evaluate a computation of scalars on whole arrays, element by element, broadcasting as numpy does.

        The result (or every leaf of a tuple result) has the broadcast shape of the arguments.
        """
        ...

    def begin(self, index: int, *arguments: Value) -> Any:
        """Call a computation without waiting for other devices at its root: its value, or a `Pending` one."""
        ...

    @property
    def device(self) -> Device:
        """The virtual device that runs the program: ids, collectives, infeed, outfeed, channels."""
        ...

    @property
    def random_state(self) -> Any:
        """The state of the stateful random operations, shared by all instructions of one evaluation."""
        ...


class Operation(Traits):
    """Base of all operations; see the module's page."""

    __slots__ = ()
    opcode: ClassVar[str]
    operand_names: ClassVar[tuple[str, ...]] = ()
    """Names of the operands; a last name with a star takes any number of them."""
    attributes: ClassVar[tuple[Attribute, ...]] = ()
    roles: ClassVar[tuple[Role, ...]] = ()
    ended_by: ClassVar[str] = ""
    """The operation that alone may use the result, which is a context and no value; empty for all others.

    Programs made by passes carry contexts through tuples and loops; the builder does not.
    """
    infers: ClassVar[bool] = True
    """The result shape follows from operands and attributes; otherwise the program must state it."""

    def infer(self, *operands: Any, **keywords: Any) -> Shape:
        """The result shape; raises ShapeError by rule name. Absent where ``infers`` is false."""
        raise ShapeError(f"the shape of {self.opcode} must be stated", rule=f"{self.opcode}.shape-stated")

    def check(self, shape: Shape, *operands: Shape, computations: tuple[ProgramShape, ...] = ()) -> None:
        """Refuse a stated result shape that contradicts operands and attributes, with ShapeError.

        The default compares with the inferred shape. Operations whose shape must be stated override it.
        """
        inferred = self.infer(*operands, **({"computations": computations} if self.roles else {}))
        if not inferred.compatible(shape):
            message = f"the shape is stated as {shape}, but {inferred} follows from the operands"
            raise ShapeError(message, rule="instruction.shape-matches")

    def verify(self, instruction: HloInstruction) -> None:
        """Rules beyond shapes: attributes against module and computation. The default has none."""

    def evaluate(self, run: Run, *operands: Any, **keywords: Any) -> Value:
        """The result's value, by the reference semantics."""
        raise HloError(f"{self.opcode} has no value", rule="evaluate.no-value")

    # -- text hooks for the few operations whose text is not derived from the declaration

    def operand_text(self, instruction: HloInstruction) -> str | None:
        """What stands between the parentheses instead of operands (constant, parameter), or None."""
        return None

    @classmethod
    def parse_operands(cls, cursor: Cursor, shape: Shape | None) -> dict[str, Any] | None:
        """Read what stands between the parentheses into fields (constant, parameter); None: operand names."""
        return None

    def omitted(self, field: str, instruction: HloInstruction) -> bool:
        """Whether an attribute is left out of the text although it does not have its default value."""
        return False

    # -- hooks for instructions whose operands and callees are only named

    @classmethod
    def operand_of(cls, result: Shape) -> Shape | None:
        """Return the shape that every operand has for a result of this shape; None if it does not follow."""
        return None

    @classmethod
    def callee_of(cls, operands: Sequence[Shape], result: Shape) -> ProgramShape | None:
        """Return the signature of the called computation; None if operands and result do not tell it."""
        return None

    # -- proto hooks

    def canonical(self, *operands: Shape) -> Operation:
        """The operation without attributes that say only what follows from the operands; for readers."""
        return self

    def write_rest(self, message: Any, instruction: HloInstruction) -> None:
        """Fill in the fields of a HloInstructionProto that XLA always writes and no attribute stores."""

    def spelled_out(self, instruction: HloInstruction) -> Operation:
        """The operation with attributes that follow from operands or shape, but are printed all the same."""
        return self

    def role_of(self, instruction: HloInstruction) -> list[tuple[Role, list[HloComputation]]]:
        """The called computations by role, in the order of printing."""
        computations = list(instruction.called_computations)
        if not computations:
            return []
        if len(self.roles) == 1 and self.roles[0].many:
            return [(self.roles[0], computations)]
        return [(role, [c]) for role, c in zip(self.roles, computations, strict=False)]

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some fields changed."""
        return dataclasses.replace(self, **changes)  # type: ignore[type-var]

    @classmethod
    def arity(cls) -> int | None:
        """The number of operands; None if it varies."""
        if cls.operand_names and cls.operand_names[-1].startswith("*"):
            return None
        return len(cls.operand_names)


REGISTRY: dict[str, type[Operation]] = {}
"""Every operation by opcode."""

T = TypeVar("T", bound=Operation)


@dataclass_transform(
    frozen_default=True, kw_only_default=True, eq_default=True,
    field_specifiers=(attribute, dims, integer, floating, flag, string, enum),
)  # fmt: skip
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
        made = dataclasses.dataclass(frozen=True, kw_only=True, slots=True)(cls)
        made.opcode = opcode
        made.operand_names = tuple(operands.split())
        made.attributes = attributes_of(made)
        made.roles = tuple(Role(r) if isinstance(r, str) else r for r in computations)
        known = REGISTRY.get(opcode)
        # An import that was interrupted, by Ctrl-C for example, runs the same module again.
        if known is not None and (known.__module__, known.__qualname__) != (
            made.__module__,
            made.__qualname__,
        ):
            raise TypeError(f"opcode {opcode!r} is declared twice")
        REGISTRY[opcode] = made
        return made

    return declare


def defaults(cls: type[Operation]) -> dict[str, Any]:
    """The fields of an operation that need not be written, with their default values."""
    return {a.field: a.default for a in cls.attributes if a.default is not REQUIRED}
