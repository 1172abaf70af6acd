"""HloInstruction: one node of the program graph."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from hloom.errors import HloError, plural
from hloom.hooks import Hook
from hloom.ir.operation import Operation
from hloom.shape.shape import Shape

if TYPE_CHECKING:
    from hloom.ir.annotations import Annotation
    from hloom.ir.computation import HloComputation
    from hloom.ir.metadata import OpMetadata, OriginalValue, ViewerStatistics
    from hloom.ir.sharding import Sharding

A = TypeVar("A", bound="Annotation")


class HloInstruction:
    """An operation applied to operands.

    Attributes:
        name: unique in its module; printed with a leading ``%``.
        operation: the opcode and its attributes, an immutable value.
        shape: shape of the result, with its layout if known.
        operands: the instructions whose values are used, in order.
        users: the instructions that use this one, each once, in the order of their first use.
        called_computations: computations called, in the order of the operation's roles.
        control_predecessors, control_successors: ordering constraints besides data dependencies.
        frontend_attributes, backend_config: properties on which the value depends if the operation is
            ``configured``, as a custom call is.
        metadata, sharding, original_value, statistics: properties that do not change the value.
        annotations: facts established by passes of this process; see `hloom.ir.annotations`.
        parent: the computation that holds it.
        unique_id: id in the proto form; -1 if none has been assigned.
        position: offset of its name in the text that its module was parsed from; -1 if it was not parsed.
        unmodelled: serialized HloInstructionProto of the fields that have no other representation.
    """

    __slots__ = (
        *("name", "operation", "shape", "operands", "users", "called_computations", "parent"),
        *("control_predecessors", "control_successors", "frontend_attributes", "backend_config", "metadata"),
        *("sharding", "original_value", "statistics", "annotations", "unique_id", "position", "unmodelled"),
    )

    def __init__(
        self,
        name: str,
        operation: Operation,
        shape: Shape,
        operands: Sequence[HloInstruction] = (),
        called_computations: Sequence[HloComputation] = (),
    ) -> None:
        self.name = name
        self.operation = operation
        self.shape = shape
        self.operands: list[HloInstruction] = list(operands)
        self.called_computations: tuple[HloComputation, ...] = tuple(called_computations)
        self.users: dict[HloInstruction, None] = {}
        self.control_predecessors: tuple[HloInstruction, ...] = ()
        self.control_successors: tuple[HloInstruction, ...] = ()
        self.metadata: OpMetadata | None = None
        self.sharding: Sharding | None = None
        self.frontend_attributes: dict[str, str] | None = None
        self.backend_config: str = ""
        self.annotations: tuple[Annotation, ...] = ()
        self.original_value: OriginalValue | None = None
        self.statistics: ViewerStatistics | None = None
        self.parent: HloComputation | None = None
        self.unique_id: int = -1
        self.position: int = -1
        self.unmodelled: bytes = b""
        for operand in self.operands:
            operand.users[self] = None

    def __repr__(self) -> str:
        try:
            return f"<{PRINT(self)}>"
        except (
            HloError,
            AttributeError,
            IndexError,
            ValueError,
        ):  # an instruction that is being made or taken apart
            operands = ", ".join("%" + operand.name for operand in self.operands)
            return f"<%{self.name} = {self.shape} {self.opcode}({operands})>"

    @property
    def opcode(self) -> str:
        """Return the opcode as spelled in HLO text."""
        return self.operation.opcode

    @property
    def function_key(self) -> Hashable:
        """Return a key of the function of operands and called computations that the instruction computes."""
        if not self.operation.configured:
            return self.operation
        attributes = tuple(sorted((self.frontend_attributes or {}).items()))
        return self.operation, self.backend_config, attributes

    @property
    def is_root(self) -> bool:
        """Return whether this is the root of its computation."""
        return self.parent is not None and self.parent.root is self

    @property
    def has_control_dependencies(self) -> bool:
        """Return whether it is ordered before or after other instructions besides operands and users."""
        return bool(self.control_predecessors or self.control_successors)

    @property
    def has_side_effect(self) -> bool:
        """Return whether it, or a computation it calls, must run even if its result is unused."""
        return _acts(self.operation) or any(_acts(i.operation) for i in self.called_instructions())

    def called_instructions(self) -> Iterator[HloInstruction]:
        """Yield the instructions of the called computations, and of those that they call."""
        called = dict.fromkeys(self.called_computations)
        waiting = list(called)
        while waiting:
            for i in waiting.pop().instructions:
                yield i
                fresh = [c for c in i.called_computations if c not in called]
                called.update(dict.fromkeys(fresh))
                waiting.extend(fresh)

    def replace_operand(self, index: int, new: HloInstruction) -> None:
        """Use ``new`` as operand number ``index``."""
        old = self.operands[index]
        self.operands[index] = new
        if old not in self.operands:
            old.users.pop(self, None)
        new.users[self] = None

    def replace_all_uses_with(self, new: HloInstruction) -> None:
        """Replace this instruction by ``new`` in every user except ``new``, and as the computation's root."""
        if new is not self:
            replace_uses({self: new})

    def replace_uses_in(self, users: Iterable[HloInstruction], new: HloInstruction) -> None:
        """Replace this instruction by ``new`` among the operands of some users."""
        for user in list(users):
            for index, operand in enumerate(user.operands):
                if operand is self:
                    user.replace_operand(index, new)

    def add_control_dependency_to(self, successor: HloInstruction) -> None:
        """Order ``successor`` after this instruction."""
        if successor not in self.control_successors:
            self.control_successors += (successor,)
            successor.control_predecessors += (self,)

    def drop_control_dependencies(self) -> None:
        """Remove all control dependencies of this instruction."""
        for other in self.control_predecessors:
            other.control_successors = tuple(s for s in other.control_successors if s is not self)
        for other in self.control_successors:
            other.control_predecessors = tuple(p for p in other.control_predecessors if p is not self)
        self.control_predecessors = self.control_successors = ()

    def bypass_control_dependencies(self) -> None:
        """Remove the control dependencies of this instruction; connect its predecessors and successors."""
        for before in self.control_predecessors:
            for after in self.control_successors:
                before.add_control_dependency_to(after)
        self.drop_control_dependencies()

    def hand_over_control_dependencies(self, new: HloInstruction) -> None:
        """Transfer the control dependencies to an instruction that replaces this one.

        The new instruction may be older than a control predecessor of this one; that dependency is dropped.
        """
        before, after = self.control_predecessors, self.control_successors
        self.bypass_control_dependencies()
        for other in before:
            if other is not new and not other.depends_on(new):
                other.add_control_dependency_to(new)
        for other in after:
            if other is not new and not new.depends_on(other):
                new.add_control_dependency_to(other)

    def depends_on(self, other: HloInstruction) -> bool:
        """Return true if this instruction must run after another, by data or by control dependencies."""
        seen: set[HloInstruction] = {self}
        waiting: list[HloInstruction] = [self]
        while waiting:
            i = waiting.pop()
            for earlier in (*i.operands, *i.control_predecessors):
                if earlier is other:
                    return True
                if earlier not in seen:
                    seen.add(earlier)
                    waiting.append(earlier)
        return False

    def detach(self) -> None:
        """Clear the operands and remove this instruction from their users, before it is removed."""
        for operand in self.operands:
            operand.users.pop(self, None)
        self.operands = []

    def copy_annotations(self, source: HloInstruction) -> None:
        """Copy metadata, sharding, attributes and configuration from another instruction."""
        self.metadata = source.metadata
        self.sharding = source.sharding
        self.frontend_attributes = source.frontend_attributes
        self.backend_config = source.backend_config
        self.original_value = source.original_value
        self.statistics = source.statistics

    def annotate(self, annotation: Annotation) -> None:
        """Attach a fact about this instruction, replacing an earlier annotation of the same class."""
        others = [a for a in self.annotations if type(a) is not type(annotation)]
        self.annotations = (*others, annotation)

    def annotation(self, kind: type[A]) -> A | None:
        """Return the annotation of a class, or None if there is none."""
        return next((a for a in self.annotations if isinstance(a, kind)), None)

    def clone(
        self,
        name: str | None = None,
        *,
        operands: Iterable[HloInstruction] | None = None,
        shape: Shape | None = None,
        operation: Operation | None = None,
        called_computations: Sequence[HloComputation] | None = None,
    ) -> HloInstruction:
        """Return a copy outside any computation, with some parts changed.

        Metadata, sharding, attributes and configuration are copied, annotations of passes are not.
        """
        copy = HloInstruction(
            name if name is not None else self.name,
            operation or self.operation,
            shape or self.shape,
            list(self.operands if operands is None else operands),
            self.called_computations if called_computations is None else called_computations,
        )
        copy.copy_annotations(self)
        if type(copy.operation) is type(self.operation):
            copy.unmodelled = self.unmodelled
        return copy

    def infer_shape(self) -> Shape:
        """Return the shape inferred from operands, attributes and called computations; raise ShapeError."""
        operation = self.operation
        shapes = [operand.shape for operand in self.operands]
        check_arity(operation, len(shapes))
        if operation.roles:
            programs = tuple(c.program_shape for c in self.called_computations)
            return operation.infer(*shapes, computations=programs)
        return operation.infer(*shapes)

    def check_shape(self) -> None:
        """Raise an HloError naming this instruction if operands, attributes and shape are inconsistent."""
        operation = self.operation
        shapes = [operand.shape for operand in self.operands]
        try:
            check_arity(operation, len(shapes))
            if operation.roles:
                programs = tuple(c.program_shape for c in self.called_computations)
                operation.check(self.shape, *shapes, computations=programs)
            else:
                operation.check(self.shape, *shapes)
        except HloError as error:
            raise error.at(instruction=self.name) from error.__cause__


PRINT: Final[Hook[[HloInstruction], str]] = Hook("print_instruction")


def check_arity(operation: Operation | type[Operation], count: int) -> None:
    """Raise HloError for a number of operands that the operation does not take."""
    arity = operation.arity()
    names = operation.operand_names
    if arity is not None and count != arity:
        message = f"{operation.opcode} takes {plural(arity, 'operand')} ({', '.join(names)}), got {count}"
        raise HloError(message, rule="instruction.arity")
    if arity is None and count < len(names) - 1:
        message = f"{operation.opcode} takes at least {plural(len(names) - 1, 'operand')}, got {count}"
        raise HloError(message, rule="instruction.arity")


def _acts(operation: Operation) -> bool:
    """Return whether an operation itself must run even if its result is unused."""
    return operation.side_effect or getattr(operation, "custom_call_has_side_effect", False)


def replace_uses(replacements: Mapping[HloInstruction, HloInstruction]) -> None:
    """Replace instructions by others in every user except the replacement, and as roots of computations.

    The operands of a user are walked once, however many of them are replaced.
    """
    for user in dict.fromkeys(user for old in replacements for user in old.users):
        operands = [replacements.get(o, o) for o in user.operands]
        user.operands = [o if n is user else n for o, n in zip(user.operands, operands, strict=True)]
    for old, new in replacements.items():
        for user in list(old.users):
            if user is not new:
                del old.users[user]
                new.users[user] = None
        if old.parent is not None and old.parent.root is old:
            old.parent.root = new
