"""Memory instructions: addresses, loads, stores, allocas, and arguments that are loaded from an array."""

from __future__ import annotations

from dataclasses import field

from hloom.codegen.llvm.attributes import Attribute
from hloom.codegen.llvm.instructions import Instruction
from hloom.codegen.llvm.types import VOID, Type
from hloom.codegen.llvm.values import Value
from hloom.records import dataclass


@dataclass(slots=True, eq=False, repr=False)
class Offset(Instruction):
    """``getelementptr`` with one index, which counts elements."""

    element: Type
    pointer: Value
    index: Value
    opcode: str = field(default="getelementptr", init=False)

    def line(self) -> str:
        p, index = self.pointer, self.index
        address = f"{p.type.text} {p.name}, {index.type.text} {index.name}"
        return f"  {self.name} = getelementptr {self.element.text}, {address}"


@dataclass(slots=True, eq=False, repr=False)
class Load(Instruction):
    """``load`` from an address with an alignment in bytes."""

    pointer: Value
    align: int
    opcode: str = field(default="load", init=False)

    def line(self) -> str:
        return f"  {self.name} = load {self.type.text}, ptr {self.pointer.name}, align {self.align}"


@dataclass(slots=True, eq=False, repr=False)
class Store(Instruction):
    """``store`` to an address with an alignment in bytes; ``streams``: past the caches."""

    value: Value
    pointer: Value
    align: int
    streams: bool = False
    type: Type = field(default=VOID, init=False)
    opcode: str = field(default="store", init=False)

    def line(self) -> str:
        value, hint = self.value, ", !nontemporal !{i32 1}" if self.streams else ""
        return f"  store {value.type.text} {value.name}, ptr {self.pointer.name}, align {self.align}{hint}"


@dataclass(slots=True, eq=False, repr=False)
class StackMemory(Instruction):
    """``alloca`` of ``count`` elements in the entry block, with an alignment in bytes."""

    element: Type
    count: int
    align: int
    opcode: str = field(default="alloca", init=False)

    def line(self) -> str:
        return f"  {self.name} = alloca {self.element.text}, i64 {self.count}, align {self.align}"


@dataclass(slots=True, eq=False, repr=False)
class DynamicStackMemory(Instruction):
    """``alloca`` of a number of bytes known at run time."""

    bytes: Value
    align: int
    opcode: str = field(default="alloca", init=False)

    def line(self) -> str:
        return f"  {self.name} = alloca i8, {self.bytes.type.text} {self.bytes.name}, align {self.align}"


@dataclass(slots=True, eq=False, repr=False)
class Argument(Instruction):
    """An argument of a function; after `Function.pack_parameters`, its load from an array at ``address``."""

    attributes: tuple[Attribute, ...] = ()
    address: Value | None = None
    opcode: str = field(default="load", init=False)

    def line(self) -> str:
        assert self.address is not None
        return f"  {self.name} = load {self.type.text}, ptr {self.address.name}, align {self.type.size}"
