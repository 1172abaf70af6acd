"""HloComputation: a function made of instructions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, overload

from hloom.errors import VerifyError, plural
from hloom.ir.instruction import HloInstruction
from hloom.ir.operation import ProgramShape

if TYPE_CHECKING:
    from hloom.ir.module import HloModule


LOCAL_ID: Final = (1 << 32) - 1
"""Mask of the part of an instruction's id that numbers it within its computation."""


class Instructions(Sequence[HloInstruction]):
    """The instructions of a computation, also those that are added later.

    Membership takes constant time. An index is found by walking to it.
    """

    __slots__ = ("_of",)

    def __init__(self, of: dict[HloInstruction, None]) -> None:
        self._of = of

    def __iter__(self) -> Iterator[HloInstruction]:
        return iter(self._of)

    def __len__(self) -> int:
        return len(self._of)

    def __contains__(self, instruction: object) -> bool:
        return instruction in self._of

    def __reversed__(self) -> Iterator[HloInstruction]:
        return reversed(self._of)

    @overload
    def __getitem__(self, index: int) -> HloInstruction: ...
    @overload
    def __getitem__(self, index: slice) -> list[HloInstruction]: ...
    def __getitem__(self, index: int | slice) -> HloInstruction | list[HloInstruction]:
        return list(self._of)[index]

    def __repr__(self) -> str:
        return repr(list(self._of))


class HloComputation:
    """A named function from parameters to the value of its root.

    Attributes:
        name: unique in its module.
        instructions: every instruction, in the order they were added; in a scheduled module, of execution.
        root: the instruction whose value is the result.
        execution_thread: name of the thread that runs it; ``main`` by default.
        module: the module that holds it.
        is_scheduled: if the module is scheduled, the order of the instructions is the order of execution. A
            schedule excludes computations that do not run on their own, such as those of fusions.
        unique_id: id in the proto form; -1 if none has been assigned.
        position: offset of its name in the text that its module was parsed from; -1 if it was not parsed.
        unmodelled: serialized HloComputationProto of the fields that have no other representation.
    """

    __slots__ = (
        *("_instructions", "_root", "execution_thread", "is_scheduled", "module", "name"),
        *("position", "unique_id", "unmodelled"),
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self._instructions: dict[HloInstruction, None] = {}
        self._root: HloInstruction | None = None
        self.execution_thread: str = "main"
        self.module: HloModule | None = None
        self.is_scheduled: bool = True
        self.unique_id: int = -1
        self.position: int = -1
        self.unmodelled: bytes = b""

    def __repr__(self) -> str:
        return f"<computation %{self.name}: {plural(len(self._instructions), 'instruction')}>"

    @property
    def instructions(self) -> Instructions:
        """Return the instructions in the order they were added."""
        return Instructions(self._instructions)

    def __iter__(self) -> Iterator[HloInstruction]:
        return iter(list(self._instructions))

    def __len__(self) -> int:
        return len(self._instructions)

    def __contains__(self, instruction: HloInstruction) -> bool:
        return instruction in self._instructions

    @property
    def root(self) -> HloInstruction:
        """Return the instruction whose value is the result; raise VerifyError if none is set."""
        if self._root is None:
            raise VerifyError(f"computation %{self.name} has no root", rule="computation.root")
        return self._root

    @root.setter
    def root(self, instruction: HloInstruction) -> None:
        self._root = instruction

    @property
    def has_root(self) -> bool:
        """Return whether a root is set."""
        return self._root is not None

    @property
    def parameters(self) -> list[HloInstruction]:
        """Return the parameters by number; raise VerifyError for duplicate or missing numbers."""
        by_number: dict[int, HloInstruction] = {}
        for instruction in self._instructions:
            if instruction.opcode == "parameter":
                number: int = instruction.operation.parameter_number  # type: ignore[attr-defined]
                if number in by_number:
                    message = f"computation %{self.name} has two parameters with the number {number}"
                    raise VerifyError(
                        message, rule="computation.parameter-numbers", instruction=instruction.name
                    )
                by_number[number] = instruction
        if sorted(by_number) != list(range(len(by_number))):
            message = (
                f"computation %{self.name} has the parameter numbers {sorted(by_number)}; "
                f"expected 0..{len(by_number) - 1}"
            )
            raise VerifyError(message, rule="computation.parameter-numbers")
        return [by_number[i] for i in range(len(by_number))]

    @property
    def program_shape(self) -> ProgramShape:
        """Return the parameter shapes and the result shape."""
        return ProgramShape(tuple(p.shape for p in self.parameters), self.root.shape)

    def reachable(self, runs: Callable[[HloInstruction], bool] = lambda i: True) -> list[HloComputation]:
        """Return this computation and those that it calls, directly or not, callers first.

        Args:
            runs: whether to follow the calls of an instruction; by default all are followed.
        """
        order: list[HloComputation] = [self]
        reached = set(order)
        for computation in order:
            for i in computation.instructions:
                if i.called_computations and runs(i):
                    fresh = [c for c in dict.fromkeys(i.called_computations) if c not in reached]
                    order.extend(fresh)
                    reached.update(fresh)
        return order

    def add(self, instruction: HloInstruction, *, root: bool = False) -> HloInstruction:
        """Append an instruction and return it."""
        self._instructions[instruction] = None
        instruction.parent = self
        if root:
            self._root = instruction
        return instruction

    def remove(self, instruction: HloInstruction) -> None:
        """Remove an instruction; raise VerifyError if it has users, control dependencies or is the root."""
        if instruction.users or instruction is self._root:
            raise VerifyError(
                f"%{instruction.name} still has users or is the root", rule="computation.remove-used"
            )
        if instruction.control_successors or instruction.control_predecessors:
            raise VerifyError(
                f"%{instruction.name} still has control dependencies", rule="computation.remove-control"
            )
        instruction.detach()
        del self._instructions[instruction]
        instruction.parent = None

    def reorder(self, order: Iterable[HloInstruction]) -> None:
        """Put the instructions in another order; ``order`` must hold each of them once."""
        new = dict.fromkeys(order)
        if new.keys() != self._instructions.keys():
            raise VerifyError(
                "the new order does not hold every instruction once", rule="computation.reorder"
            )
        self._instructions = new

    def replace(self, old: HloInstruction, new: HloInstruction) -> HloInstruction:
        """Replace ``old`` by ``new`` for every user, and remove ``old`` if possible."""
        if new.parent is None:
            self.add(new)
        old.replace_all_uses_with(new)
        if not old.users and old is not self._root and old.opcode != "parameter":
            old.hand_over_control_dependencies(new)
            self.remove(old)
        return new

    def execution_order(self) -> list[HloInstruction]:
        """Return the schedule if the module has one for this computation, else the post-order."""
        if self.is_scheduled and self.module is not None and self.module.config.is_scheduled:
            return list(self._instructions)
        return self.post_order()

    def in_id_order(self) -> list[HloInstruction]:
        """Return the instructions ordered by id in the proto form; without ids, in the order they were added.

        XLA lists the instructions of a computation in this order, which need not be that of the schedule.
        """
        if all(instruction.unique_id < 0 for instruction in self._instructions):
            return list(self._instructions)
        return sorted(self._instructions, key=_id_order)

    def post_order(self, start: Iterable[HloInstruction] | None = None) -> list[HloInstruction]:
        """Return instructions after their operands and control predecessors; raise VerifyError for a cycle.

        The order is that of XLA's depth-first walk, in which its printer lists instructions: it starts from
        each instruction without users and visits control predecessors before operands.

        Args:
            start: every instruction, in the order in which the walk starts from them; by default the order in
                which they were added.
        """
        every = self._instructions if start is None else list(start)
        done: dict[HloInstruction, None] = {}
        open_: set[HloInstruction] = set()
        for instruction in every:
            if not instruction.users and instruction not in done:
                _visit(instruction, done, open_)
        if len(done) != len(self._instructions):
            for instruction in every:
                _visit(instruction, done, open_)
        return list(done)


def _id_order(instruction: HloInstruction) -> int:
    """Return the part of the id that numbers an instruction in its computation; without an id, the last."""
    return (instruction.unique_id & LOCAL_ID) if instruction.unique_id >= 0 else LOCAL_ID + 1


def _visit(start: HloInstruction, done: dict[HloInstruction, None], open_: set[HloInstruction]) -> None:
    stack = [start]
    while stack:
        node = stack[-1]
        if node in done:
            stack.pop()
            continue
        if node in open_:
            open_.discard(node)
            done[node] = None
            stack.pop()
            continue
        open_.add(node)
        before = node.operands
        if node.control_predecessors:
            before = [*node.control_predecessors, *before]
        for earlier in reversed(before):
            if earlier in done:
                continue
            if earlier in open_:
                message = f"%{earlier.name} depends on itself"
                raise VerifyError(message, rule="computation.cycle", instruction=earlier.name)
            stack.append(earlier)
