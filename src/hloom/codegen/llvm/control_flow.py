"""Control flow instructions: calls, phi nodes, terminators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from hloom.codegen.llvm.attributes import Attribute, attributes_text
from hloom.codegen.llvm.instructions import Block, Instruction
from hloom.codegen.llvm.types import VOID, Type
from hloom.codegen.llvm.values import Value
from hloom.records import dataclass


@dataclass(slots=True, eq=False, repr=False)
class CallInstruction(Instruction):
    """``call`` of a function by its name."""

    callee: str
    arguments: tuple[Value, ...]
    attributes: tuple[Attribute, ...]
    opcode: str = field(default="call", init=False)

    def line(self) -> str:
        listed = ", ".join([f"{a.type.text} {a.name}" for a in self.arguments])
        call = f"call {self.type.text} @{self.callee}({listed}){attributes_text(self.attributes)}"
        return f"  {call}" if self.type is VOID else f"  {self.name} = {call}"


@dataclass(slots=True, eq=False, repr=False)
class IndirectCall(Instruction):
    """``call`` of the function at an address."""

    callee: Value
    arguments: tuple[Value, ...]
    opcode: str = field(default="call", init=False)

    def line(self) -> str:
        listed = ", ".join([f"{a.type.text} {a.name}" for a in self.arguments])
        call = f"call {self.type.text} {self.callee.name}({listed})"
        return f"  {call}" if self.type is VOID else f"  {self.name} = {call}"


@dataclass(slots=True, eq=False, repr=False)
class Phi(Instruction):
    """``phi``: incoming values with the blocks that they come from."""

    incoming: Sequence[tuple[Value, Block]] = ()
    opcode: str = field(default="phi", init=False)

    def line(self) -> str:
        listed = ", ".join([f"[ {value.name}, %{block.name} ]" for value, block in self.incoming])
        return f"  {self.name} = phi {self.type.text} {listed}"


@dataclass(slots=True, eq=False, repr=False)
class Jump(Instruction):
    """Unconditional ``br``."""

    target: Block
    type: Type = field(default=VOID, init=False)
    opcode: str = field(default="br", init=False)

    def line(self) -> str:
        return f"  br label %{self.target.name}"


@dataclass(slots=True, eq=False, repr=False)
class Branch(Instruction):
    """Conditional ``br``."""

    condition: Value
    yes: Block
    no: Block
    type: Type = field(default=VOID, init=False)
    opcode: str = field(default="br", init=False)

    def line(self) -> str:
        return f"  br i1 {self.condition.name}, label %{self.yes.name}, label %{self.no.name}"


@dataclass(slots=True, eq=False, repr=False)
class Switch(Instruction):
    """``switch`` on an integer, with the number and the block of each case."""

    chooser: Value
    cases: Sequence[tuple[int, Block]]
    default: Block
    type: Type = field(default=VOID, init=False)
    opcode: str = field(default="switch", init=False)

    def line(self) -> str:
        kind = self.chooser.type.text
        listed = " ".join([f"{kind} {case}, label %{block.name}" for case, block in self.cases])
        return f"  switch {kind} {self.chooser.name}, label %{self.default.name} [ {listed} ]"


@dataclass(slots=True, eq=False, repr=False)
class Return(Instruction):
    """``ret`` with a value, or ``ret void``."""

    value: Value | None
    type: Type = field(default=VOID, init=False)
    opcode: str = field(default="ret", init=False)

    def line(self) -> str:
        value = self.value
        return "  ret void" if value is None else f"  ret {value.type.text} {value.name}"


@dataclass(slots=True, eq=False, repr=False)
class Unreachable(Instruction):
    """``unreachable``."""

    type: Type = field(default=VOID, init=False)
    opcode: str = field(default="unreachable", init=False)

    def line(self) -> str:
        return "  unreachable"
