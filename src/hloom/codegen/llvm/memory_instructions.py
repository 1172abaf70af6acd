"""Instructions on memory: addresses, loads, stores, stack memory, parameters."""

from __future__ import annotations

from collections.abc import Hashable

from hloom.codegen.llvm.attributes import Attribute
from hloom.codegen.llvm.instructions import Instruction
from hloom.codegen.llvm.types import PTR, VOID, Type
from hloom.codegen.llvm.values import Builder, Value


class Offset(Instruction):
    """``getelementptr`` with one index.

    Attributes:
        element: the type whose size the index counts.
    """

    __slots__ = ("element", "index", "pointer")

    def __init__(self, function: Builder, type: Type, element: Type, pointer: Value, index: Value) -> None:
        self.function = function
        self.type = type
        self.opcode = "getelementptr"
        self.element = element
        self.pointer = pointer
        self.index = index

    def fields(self) -> tuple[Hashable, ...]:
        return self.element, self.pointer.key, self.index.key

    def line(self) -> str:
        p, index = self.pointer, self.index
        address = f"{p.type.text} {p.name}, {index.type.text} {index.name}"
        return f"  {self.name} = getelementptr {self.element.text}, {address}"


class Load(Instruction):
    """A load.

    Attributes:
        align: alignment of the address in bytes.
    """

    __slots__ = ("align", "pointer")

    def __init__(self, function: Builder, type: Type, pointer: Value, align: int) -> None:
        self.function = function
        self.type = type
        self.opcode = "load"
        self.pointer = pointer
        self.align = align

    def fields(self) -> tuple[Hashable, ...]:
        return self.align, self.pointer.key

    def line(self) -> str:
        return f"  {self.name} = load {self.type.text}, ptr {self.pointer.name}, align {self.align}"


class Store(Instruction):
    """A store of a value.

    Attributes:
        align: alignment of the address in bytes.
    """

    __slots__ = ("align", "pointer", "value")

    def __init__(self, function: Builder, value: Value, pointer: Value, align: int) -> None:
        self.function = function
        self.type = VOID
        self.opcode = "store"
        self.value = value
        self.pointer = pointer
        self.align = align

    def fields(self) -> tuple[Hashable, ...]:
        return self.align, self.value.key, self.pointer.key

    def line(self) -> str:
        value = self.value
        return f"  store {value.type.text} {value.name}, ptr {self.pointer.name}, align {self.align}"


class StackMemory(Instruction):
    """``alloca``, in the entry block.

    Attributes:
        element, count: type and number of the elements.
        align: alignment in bytes.
    """

    __slots__ = ("align", "count", "element")

    def __init__(self, function: Builder, element: Type, count: int, align: int) -> None:
        self.function, self.type, self.opcode = function, PTR, "alloca"
        self.element, self.count, self.align = element, count, align

    def fields(self) -> tuple[Hashable, ...]:
        return self.element, self.count, self.align

    def line(self) -> str:
        return f"  {self.name} = alloca {self.element.text}, i64 {self.count}, align {self.align}"


class DynamicStackMemory(Instruction):
    """``alloca`` of a number of bytes known at run time."""

    __slots__ = ("align", "bytes")

    def __init__(self, function: Builder, bytes: Value, align: int) -> None:
        self.function, self.type, self.opcode = function, PTR, "alloca"
        self.bytes, self.align = bytes, align

    def fields(self) -> tuple[Hashable, ...]:
        return self.bytes.key, self.align

    def line(self) -> str:
        return f"  {self.name} = alloca i8, {self.bytes.type.text} {self.bytes.name}, align {self.align}"


class Argument(Instruction):
    """A parameter of a function; after `Function.pack_parameters`, the load of it from an array.

    Attributes:
        attributes: such as ``noalias``.
        place: the address to load it from, if callers pass it in an array.
    """

    __slots__ = ("attributes", "place")

    def __init__(self, function: Builder, type: Type) -> None:
        self.function, self.type, self.opcode = function, type, "load"
        self.attributes: tuple[Attribute, ...] = ()
        self.place: Value | None = None

    def fields(self) -> tuple[Hashable, ...]:
        return () if self.place is None else (self.place.key,)

    def line(self) -> str:
        assert self.place is not None
        return f"  {self.name} = load {self.type.text}, ptr {self.place.name}, align {self.type.size}"
