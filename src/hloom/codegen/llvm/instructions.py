"""Basic blocks, and instructions on values: opcode, operands, other fields, and the line of text.

Lines use the names that `hloom.codegen.llvm.printer` assigns to values and blocks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import Field, field, fields
from functools import cache, lru_cache
from typing import Final, cast

from hloom.codegen.llvm.values import Value
from hloom.records import dataclass


@dataclass(slots=True, eq=False, repr=False)
class Instruction(Value, ABC):
    """An instruction, which is its own result: a value of type ``void`` if it has none.

    Operands are attributes: a tuple of them would double the objects that the garbage collector visits.

    Attributes:
        opcode: LLVM's name of the instruction.
    """

    opcode: str = field(init=False)

    def __repr__(self) -> str:
        return f"<{self.opcode} {self.type.text}>"

    def fields(self) -> tuple[Hashable, ...]:
        """Return all fields but opcode and type, values and blocks as their keys."""
        return tuple([_key(getattr(self, field.name)) for field in _own_fields(type(self))])

    @abstractmethod
    def line(self) -> str:
        """Return the line of LLVM's text."""


@cache
def _own_fields(kind: type[Instruction]) -> tuple[Field[object], ...]:
    common = {field.name for field in fields(Instruction)}
    return tuple(field for field in fields(kind) if field.name not in common)


def _key(field: object) -> Hashable:
    if isinstance(field, tuple | list):
        return tuple([_key(each) for each in cast("Sequence[object]", field)])
    return field.key if isinstance(field, Value | Block) else field


@dataclass(slots=True, eq=False, repr=False)
class UnaryInstruction(Instruction):
    """``fneg``, or a conversion to another type."""

    opcode: str
    operand: Value

    def line(self) -> str:
        a = self.operand
        if self.type is a.type:
            return f"  {self.name} = {self.opcode} {a.type.text} {a.name}"
        return f"  {self.name} = {self.opcode} {a.type.text} {a.name} to {self.type.text}"


@dataclass(slots=True, eq=False, repr=False)
class BinaryInstruction(Instruction):
    """An instruction on two operands of the type of its result."""

    opcode: str
    left: Value
    right: Value

    def line(self) -> str:
        return f"  {self.name} = {self.opcode} {self.type.text} {self.left.name}, {self.right.name}"


@dataclass(slots=True, eq=False, repr=False)
class FlaggedBinary(BinaryInstruction):
    """A binary instruction with flags, such as ``nsw``, in LLVM's order."""

    flags: tuple[str, ...]

    def line(self) -> str:
        opcode = f"{self.opcode} {' '.join(self.flags)}"
        return f"  {self.name} = {opcode} {self.type.text} {self.left.name}, {self.right.name}"


@dataclass(slots=True, eq=False, repr=False)
class CompareInstruction(Instruction):
    """``icmp`` or ``fcmp`` with a predicate such as ``ult`` or ``oeq``."""

    opcode: str
    predicate: str
    left: Value
    right: Value

    def line(self) -> str:
        a = self.left
        return f"  {self.name} = {self.opcode} {self.predicate} {a.type.text} {a.name}, {self.right.name}"


@dataclass(slots=True, eq=False, repr=False)
class SelectInstruction(Instruction):
    """``select`` by an i1, or lane by lane."""

    condition: Value
    yes: Value
    no: Value
    opcode: str = field(default="select", init=False)

    def line(self) -> str:
        condition, kind = self.condition, self.type.text
        alternatives = f"{kind} {self.yes.name}, {kind} {self.no.name}"
        return f"  {self.name} = select {condition.type.text} {condition.name}, {alternatives}"


@dataclass(slots=True, eq=False, repr=False)
class Extract(Instruction):
    """``extractelement``."""

    vector: Value
    lane: Value
    opcode: str = field(default="extractelement", init=False)

    def line(self) -> str:
        v, lane = self.vector, self.lane
        return f"  {self.name} = extractelement {v.type.text} {v.name}, {lane.type.text} {lane.name}"


@dataclass(slots=True, eq=False, repr=False)
class Insert(Instruction):
    """``insertelement``."""

    vector: Value
    scalar: Value
    lane: Value
    opcode: str = field(default="insertelement", init=False)

    def line(self) -> str:
        v, s, lane = self.vector, self.scalar, self.lane
        inserted = f"{s.type.text} {s.name}, {lane.type.text} {lane.name}"
        return f"  {self.name} = insertelement {v.type.text} {v.name}, {inserted}"


@lru_cache(maxsize=4096)
def _lanes_text(lanes: tuple[int, ...]) -> str:
    if not any(lanes):
        return f"<{len(lanes)} x i32> zeroinitializer"
    listed = ", ".join(["i32 poison" if lane < 0 else f"i32 {lane}" for lane in lanes])
    return f"<{len(lanes)} x i32> <{listed}>"


@dataclass(slots=True, eq=False, repr=False)
class ShuffleVector(Instruction):
    """``shufflevector``: each lane of the result is one of the lanes of both vectors, or poison for -1."""

    first: Value
    second: Value
    lanes: tuple[int, ...]
    opcode: str = field(default="shufflevector", init=False)

    def line(self) -> str:
        kind = self.first.type.text
        vectors = f"{kind} {self.first.name}, {kind} {self.second.name}"
        return f"  {self.name} = shufflevector {vectors}, {_lanes_text(self.lanes)}"


TERMINATORS: Final = frozenset(("br", "switch", "ret", "unreachable"))
"""Opcodes of the terminators."""


class Block:
    """A basic block.

    Attributes:
        instructions: the last one is a terminator.
        name: label in LLVM's text; assigned by the printer.
        key: number in the function; assigned by `Structure`.
    """

    __slots__ = ("instructions", "key", "name")

    key: int
    name: str

    def __init__(self) -> None:
        self.instructions: list[Instruction] = []

    @property
    def is_terminated(self) -> bool:
        """Return whether the block ends in a terminator."""
        return bool(self.instructions) and self.instructions[-1].opcode in TERMINATORS
