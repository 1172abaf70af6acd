"""Instructions of control flow: calls, phi nodes, and those that end blocks."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from hloom.codegen.llvm.attributes import Attribute, attributes_text
from hloom.codegen.llvm.blocks import Block
from hloom.codegen.llvm.instructions import Instruction
from hloom.codegen.llvm.types import VOID, Type
from hloom.codegen.llvm.values import Builder, Value


class CallInstruction(Instruction):
    """A direct call.

    Attributes:
        callee: name of the function that is called.
        attributes: of this call.
    """

    __slots__ = ("arguments", "attributes", "callee")

    def __init__(
        self,
        function: Builder,
        type: Type,
        callee: str,
        arguments: tuple[Value, ...],
        attributes: tuple[Attribute, ...],
    ) -> None:
        self.function = function
        self.type = type
        self.opcode = "call"
        self.callee = callee
        self.arguments = arguments
        self.attributes = attributes

    def fields(self) -> tuple[Hashable, ...]:
        return self.callee, self.attributes, *[a.key for a in self.arguments]

    def line(self) -> str:
        listed = ", ".join([f"{a.type.text} {a.name}" for a in self.arguments])
        call = f"call {self.type.text} @{self.callee}({listed}){attributes_text(self.attributes)}"
        return f"  {call}" if self.type is VOID else f"  {self.name} = {call}"


class IndirectCall(Instruction):
    """A call of the function at an address."""

    __slots__ = ("arguments", "callee")

    def __init__(self, function: Builder, type: Type, callee: Value, arguments: tuple[Value, ...]) -> None:
        self.function, self.type, self.opcode = function, type, "call"
        self.callee, self.arguments = callee, arguments

    def fields(self) -> tuple[Hashable, ...]:
        return self.callee.key, *[a.key for a in self.arguments]

    def line(self) -> str:
        listed = ", ".join([f"{a.type.text} {a.name}" for a in self.arguments])
        call = f"call {self.type.text} {self.callee.name}({listed})"
        return f"  {call}" if self.type is VOID else f"  {self.name} = {call}"


class Phi(Instruction):
    """The value that belongs to the block control came from.

    Attributes:
        incoming: values and the blocks they come from; set once the blocks are there.
    """

    __slots__ = ("incoming",)

    def __init__(self, function: Builder, type: Type, incoming: Sequence[tuple[Value, Block]] = ()) -> None:
        self.function, self.type, self.opcode = function, type, "phi"
        self.incoming = incoming

    def fields(self) -> tuple[Hashable, ...]:
        return tuple([(value.key, block.key) for value, block in self.incoming])

    def line(self) -> str:
        listed = ", ".join([f"[ {value.name}, %{block.name} ]" for value, block in self.incoming])
        return f"  {self.name} = phi {self.type.text} {listed}"


class Jump(Instruction):
    """``br``, always."""

    __slots__ = ("target",)

    def __init__(self, function: Builder, target: Block) -> None:
        self.function, self.type, self.opcode = function, VOID, "br"
        self.target = target

    def fields(self) -> tuple[Hashable, ...]:
        return (self.target.key,)

    def line(self) -> str:
        return f"  br label %{self.target.name}"


class Branch(Instruction):
    """``br``, on an i1."""

    __slots__ = ("condition", "no", "yes")

    def __init__(self, function: Builder, condition: Value, yes: Block, no: Block) -> None:
        self.function, self.type, self.opcode = function, VOID, "br"
        self.condition, self.yes, self.no = condition, yes, no

    def fields(self) -> tuple[Hashable, ...]:
        return self.condition.key, self.yes.key, self.no.key

    def line(self) -> str:
        return f"  br i1 {self.condition.name}, label %{self.yes.name}, label %{self.no.name}"


class Switch(Instruction):
    """A branch on an integer.

    Attributes:
        cases: numbers and the blocks they lead to.
        default: the block for all other numbers.
    """

    __slots__ = ("cases", "chooser", "default")

    def __init__(
        self, function: Builder, chooser: Value, cases: Sequence[tuple[int, Block]], default: Block
    ) -> None:
        self.function, self.type, self.opcode = function, VOID, "switch"
        self.chooser, self.cases, self.default = chooser, cases, default

    def fields(self) -> tuple[Hashable, ...]:
        return self.chooser.key, self.default.key, *[(case, block.key) for case, block in self.cases]

    def line(self) -> str:
        kind = self.chooser.type.text
        listed = " ".join([f"{kind} {case}, label %{block.name}" for case, block in self.cases])
        return f"  switch {kind} {self.chooser.name}, label %{self.default.name} [ {listed} ]"


class Return(Instruction):
    """``ret`` with a value or ``void``."""

    __slots__ = ("value",)

    def __init__(self, function: Builder, value: Value | None) -> None:
        self.function, self.type, self.opcode = function, VOID, "ret"
        self.value = value

    def fields(self) -> tuple[Hashable, ...]:
        return () if self.value is None else (self.value.key,)

    def line(self) -> str:
        value = self.value
        return "  ret void" if value is None else f"  ret {value.type.text} {value.name}"


class Unreachable(Instruction):
    """``unreachable``: control never comes here."""

    __slots__ = ()

    def __init__(self, function: Builder) -> None:
        self.function, self.type, self.opcode = function, VOID, "unreachable"

    def fields(self) -> tuple[Hashable, ...]:
        return ()

    def line(self) -> str:
        return "  unreachable"
