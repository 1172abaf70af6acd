"""Struct fields in emitted code.

``slot["next"] = slot["next"] + 1`` loads and stores a field of ``slot = Fields(SLOT, pointer)``.
"""

from __future__ import annotations

from hloom.codegen.llvm.atomics import Atomic
from hloom.codegen.llvm.module import Function
from hloom.codegen.llvm.types import PTR, Type, make_type
from hloom.codegen.llvm.values import Operand, Value
from hloom.codegen.structs import Struct, size_of


class Fields:
    """A struct in memory, indexed by the names of its fields.

    Attributes:
        struct: its type.
        pointer: its address.
    """

    __slots__ = ("pointer", "struct")

    def __init__(self, struct: Struct, pointer: Value) -> None:
        self.struct, self.pointer = struct, pointer

    def __getitem__(self, name: str) -> Value:
        return self.load(name, 0)

    def __setitem__(self, name: str, value: Operand | Fields) -> None:
        """Store a number, zero-extended, a pointer, or the address of a struct."""
        self.store(name, 0, value)

    def _type(self, name: str) -> Type:
        return make_type(self.struct.scalar(name))

    def address(self, name: str, index: Operand = 0) -> Value:
        """Return the address of a field, or of an element of an array field."""
        f, field = Function.of(self.pointer), self.struct.fields[name]
        start = f.offset(self.pointer, field.offset)
        if isinstance(index, Value):
            return f.offset(start, index * size_of(field.element))
        return f.offset(start, int(index) * size_of(field.element))

    def load(self, name: str, index: Operand) -> Value:
        """Load an element of a field."""
        return Function.of(self.pointer).load(self._type(name), self.address(name, index))

    def store(self, name: str, index: Operand, value: Operand | Fields) -> None:
        """Store an element of a field; see `__setitem__`."""
        f = Function.of(self.pointer)
        number = f.operand(self._type(name), value.pointer if isinstance(value, Fields) else value)
        f.store(_converted(number, self._type(name)), self.address(name, index))

    def at(self, index: Operand) -> Fields:
        """Return an element of the array of structs that starts here."""
        f, size = Function.of(self.pointer), self.struct.size
        offset = index * size if isinstance(index, Value) else int(index) * size
        return Fields(self.struct, f.offset(self.pointer, offset))

    def nested(self, name: str, index: Operand = 0) -> Fields:
        """Return a nested struct: a field, or an element of an array field."""
        element = self.struct.fields[name].element
        assert isinstance(element, Struct)
        return Fields(element, self.address(name, index))

    def atomic(self, name: str, index: Operand = 0) -> Atomic:
        """Return a field, or an element of an array field, for atomic access."""
        return Atomic(self._type(name), self.address(name, index))


def _converted(number: Value, type: Type) -> Value:
    if number.type is PTR or type is PTR:
        return number.cast("ptrtoint" if number.type is PTR else "inttoptr", type)
    return number.cast("zext", type)
