"""LLVM instructions: opcode, operands, other fields, and the line of text.

Lines use the names that `hloom.codegen.llvm.printer` assigns to values and blocks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable
from functools import lru_cache

from hloom.codegen.llvm.types import Type
from hloom.codegen.llvm.values import Builder, Value


class Instruction(Value, ABC):
    """An instruction; it is the value that it yields, of type ``void`` if it yields none.

    Operands are attributes instead of a tuple, which halves the objects that the garbage collector visits.

    Attributes:
        opcode: LLVM's name of the instruction.
    """

    __slots__ = ("opcode",)

    opcode: str

    def __repr__(self) -> str:
        return f"<{self.opcode} {self.type.text}>"

    @abstractmethod
    def fields(self) -> tuple[Hashable, ...]:
        """Return the fields other than opcode and type, with values and blocks by key."""

    @abstractmethod
    def line(self) -> str:
        """Return the instruction as LLVM's text."""


class UnaryInstruction(Instruction):
    """An instruction on one operand: ``fneg``, or a conversion to another type."""

    __slots__ = ("operand",)

    def __init__(self, function: Builder, type: Type, opcode: str, operand: Value) -> None:
        self.function, self.type, self.opcode, self.operand = function, type, opcode, operand

    def fields(self) -> tuple[Hashable, ...]:
        return (self.operand.key,)

    def line(self) -> str:
        a = self.operand
        if self.type is a.type:
            return f"  {self.name} = {self.opcode} {a.type.text} {a.name}"
        return f"  {self.name} = {self.opcode} {a.type.text} {a.name} to {self.type.text}"


class BinaryInstruction(Instruction):
    """An instruction on two operands of the type of its result."""

    __slots__ = ("left", "right")

    def __init__(self, function: Builder, opcode: str, left: Value, right: Value) -> None:
        self.function = function
        self.type = left.type
        self.opcode = opcode
        self.left = left
        self.right = right

    def fields(self) -> tuple[Hashable, ...]:
        return self.left.key, self.right.key

    def line(self) -> str:
        return f"  {self.name} = {self.opcode} {self.type.text} {self.left.name}, {self.right.name}"


class FlaggedBinary(BinaryInstruction):
    """A binary instruction with flags, such as ``nsw``.

    Attributes:
        flags: in the order in which LLVM lists them.
    """

    __slots__ = ("flags",)

    flags: tuple[str, ...]

    def fields(self) -> tuple[Hashable, ...]:
        return self.flags, self.left.key, self.right.key

    def line(self) -> str:
        opcode = f"{self.opcode} {' '.join(self.flags)}"
        return f"  {self.name} = {opcode} {self.type.text} {self.left.name}, {self.right.name}"


class CompareInstruction(Instruction):
    """``icmp`` and ``fcmp``.

    Attributes:
        predicate: such as ``ult`` or ``oeq``.
    """

    __slots__ = ("left", "predicate", "right")

    def __init__(
        self, function: Builder, type: Type, opcode: str, predicate: str, left: Value, right: Value
    ) -> None:
        self.function = function
        self.type = type
        self.opcode = opcode
        self.predicate = predicate
        self.left = left
        self.right = right

    def fields(self) -> tuple[Hashable, ...]:
        return self.predicate, self.left.key, self.right.key

    def line(self) -> str:
        a = self.left
        return f"  {self.name} = {self.opcode} {self.predicate} {a.type.text} {a.name}, {self.right.name}"


class SelectInstruction(Instruction):
    """A choice by an i1, or lane by lane."""

    __slots__ = ("condition", "no", "yes")

    def __init__(self, function: Builder, condition: Value, yes: Value, no: Value) -> None:
        self.function = function
        self.type = yes.type
        self.opcode = "select"
        self.condition = condition
        self.yes = yes
        self.no = no

    def fields(self) -> tuple[Hashable, ...]:
        return self.condition.key, self.yes.key, self.no.key

    def line(self) -> str:
        condition, kind = self.condition, self.type.text
        alternatives = f"{kind} {self.yes.name}, {kind} {self.no.name}"
        return f"  {self.name} = select {condition.type.text} {condition.name}, {alternatives}"


class Extract(Instruction):
    """``extractelement``."""

    __slots__ = ("lane", "vector")

    def __init__(self, function: Builder, vector: Value, lane: Value) -> None:
        self.function = function
        self.type = vector.type.scalar
        self.opcode = "extractelement"
        self.vector = vector
        self.lane = lane

    def fields(self) -> tuple[Hashable, ...]:
        return self.vector.key, self.lane.key

    def line(self) -> str:
        v, lane = self.vector, self.lane
        return f"  {self.name} = extractelement {v.type.text} {v.name}, {lane.type.text} {lane.name}"


class Insert(Instruction):
    """``insertelement``."""

    __slots__ = ("lane", "scalar", "vector")

    def __init__(self, function: Builder, vector: Value, scalar: Value, lane: Value) -> None:
        self.function = function
        self.type = vector.type
        self.opcode = "insertelement"
        self.vector = vector
        self.scalar = scalar
        self.lane = lane

    def fields(self) -> tuple[Hashable, ...]:
        return self.vector.key, self.scalar.key, self.lane.key

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


class ShuffleVector(Instruction):
    """A choice of lanes from two vectors.

    Attributes:
        lanes: by lane of the result, a lane of both vectors together; -1 for an undefined one.
    """

    __slots__ = ("first", "lanes", "second")

    def __init__(self, function: Builder, first: Value, second: Value, lanes: tuple[int, ...]) -> None:
        self.function = function
        self.type = first.type.vector(len(lanes))
        self.opcode = "shufflevector"
        self.first = first
        self.second = second
        self.lanes = lanes

    def fields(self) -> tuple[Hashable, ...]:
        return self.lanes, self.first.key, self.second.key

    def line(self) -> str:
        kind = self.first.type.text
        vectors = f"{kind} {self.first.name}, {kind} {self.second.name}"
        return f"  {self.name} = shufflevector {vectors}, {_lanes_text(self.lanes)}"
