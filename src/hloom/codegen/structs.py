"""Structs in memory, declared once for native code and for Python.

``Struct("slot", next=I64, pool=PTR)`` lays out its fields as C does. `hloom.codegen.llvm.fields.Fields` gives
emitters the fields by name; `Record` gives Python the same fields of a struct at an address;
`Struct.ctypes_class` is the type for functions that exchange structs through ctypes. Types are named as LLVM
names them, so that programs from the cache load no code generator.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Final, TypeAlias, cast

from hloom.records import dataclass

I8: Final = "i8"
I16: Final = "i16"
I32: Final = "i32"
I64: Final = "i64"
PTR: Final = "ptr"
CONTENDED_BYTES: Final = 128
"""Memory that processors fetch together: two cache lines."""
_Cell: TypeAlias = ctypes.c_int8 | ctypes.c_int16 | ctypes.c_int32 | ctypes.c_int64 | ctypes.c_void_p
_CTYPES: Final[dict[str, type[_Cell]]] = {
    I8: ctypes.c_int8,
    I16: ctypes.c_int16,
    I32: ctypes.c_int32,
    I64: ctypes.c_int64,
    PTR: ctypes.c_void_p,
}
_SIZES: Final = {I8: 1, I16: 2, I32: 4, I64: 8, PTR: 8}


@dataclass(frozen=True, slots=True)
class Array:
    """The type of a field with several elements.

    Attributes:
        element: the type of the elements.
        count: the number of elements; 0 for a last field of variable length.
    """

    element: str | Struct
    count: int = 0


@dataclass(frozen=True, slots=True)
class Contended:
    """The type of a field with cache lines of its own, as threads write it while others read neighbors."""

    element: str


FieldType: TypeAlias = "str | Struct | Array | Contended"


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a struct.

    Attributes:
        offset: bytes before the field.
        element: type of the field, or of its elements.
        count: number of elements; 0 if each struct chooses.
    """

    offset: int
    element: str | Struct
    count: int


class Struct:
    """A struct type.

    Attributes:
        name: the name, for messages and ctypes.
        fields: the fields by name, in order.
        size, alignment: in bytes; the size does not include the elements of a last field of variable length.
    """

    def __init__(self, name: str, alignment: int = 1, /, **fields: FieldType) -> None:
        self.name = name
        self.fields: dict[str, Field] = {}
        end, self.alignment = 0, alignment
        for field, type in fields.items():
            element = type if isinstance(type, str | Struct) else type.element
            field_alignment = CONTENDED_BYTES if isinstance(type, Contended) else _alignment(element)
            count = type.count if isinstance(type, Array) else 1
            self.alignment = max(self.alignment, field_alignment)
            offset = _round_up(end, field_alignment)
            self.fields[field] = Field(offset, element, count)
            end = offset + (field_alignment if isinstance(type, Contended) else count * size_of(element))
        self.size = _round_up(end, self.alignment)

    def __repr__(self) -> str:
        return f"<Struct {self.name}>"

    def size_with(self, length: int) -> int:
        """Return the size in bytes of a struct whose last field has ``length`` elements."""
        last = list(self.fields.values())[-1]
        return max(self.size, last.offset + length * size_of(last.element))

    def record(self, address: int, owner: object = None) -> Record:
        """Return the fields of the struct at an address of this process; the record keeps the owner."""
        return Record(self, address, owner)

    def allocate(self, length: int = 0, /, **values: int) -> Record:
        """Return a new struct whose last field has ``length`` elements.

        Fields are zero unless ``values`` has them.
        """
        memory = ctypes.create_string_buffer(self.size_with(length) + self.alignment)
        record = Record(self, _round_up(ctypes.addressof(memory), self.alignment), memory)
        record.update(values)
        return record

    def table(self, rows: Sequence[Mapping[str, int]]) -> list[Record]:
        """Return new structs that follow one another in memory, with some fields set."""
        array = Struct(f"{self.name}[]", rows=Array(self)).allocate(len(rows))
        records = [array.nested("rows", n) for n in range(len(rows))]
        for record, row in zip(records, rows, strict=True):
            record.update(row)
        return records

    def scalar(self, name: str) -> str:
        """Return LLVM's name of the type of a field that is no struct, or of its elements."""
        element = self.fields[name].element
        assert isinstance(element, str), f"{self.name}.{name} is a struct"
        return element

    @cached_property
    def ctypes_class(self) -> type[ctypes.Structure]:
        """The ctypes structure of the same layout, without elements of a last field of variable length."""
        listed = [(name, _ctypes_type(field)) for name, field in self.fields.items() if field.count]
        structure = cast("type[ctypes.Structure]", type(self.name, (ctypes.Structure,), {"_fields_": listed}))
        assert all(getattr(structure, name).offset == self.fields[name].offset for name, _ in listed)
        return structure


class Record:
    """A struct in memory, as Python reads and writes it; null pointers are 0.

    Attributes:
        struct: its type.
        address: its address.
    """

    __slots__ = ("_owner", "address", "struct")

    def __init__(self, struct: Struct, address: int, owner: object = None) -> None:
        self.struct, self.address, self._owner = struct, address, owner

    def __getitem__(self, name: str) -> int:
        return self._cell(name, 0).value or 0

    def __setitem__(self, name: str, value: int) -> None:
        self._cell(name, 0).value = value

    def update(self, values: Mapping[str, int]) -> None:
        """Set some fields."""
        for name, value in values.items():
            self[name] = value

    def load(self, name: str, index: int) -> int:
        """Return an element of a field."""
        return self._cell(name, index).value or 0

    def store(self, name: str, index: int, value: int) -> None:
        """Set an element of a field."""
        self._cell(name, index).value = value

    def location(self, name: str, index: int = 0) -> int:
        """Return the address of a field, or of one of its elements."""
        field = self.struct.fields[name]
        return self.address + field.offset + index * size_of(field.element)

    def nested(self, name: str, index: int = 0) -> Record:
        """Return the fields of a struct that is a field, or an element of a field."""
        element = self.struct.fields[name].element
        assert isinstance(element, Struct)
        return Record(element, self.location(name, index), self._owner)

    def _cell(self, name: str, index: int) -> _Cell:
        return _CTYPES[self.struct.scalar(name)].from_address(self.location(name, index))


def size_of(element: str | Struct) -> int:
    """Return the size of a type in bytes."""
    return element.size if isinstance(element, Struct) else _SIZES[element]


def _alignment(element: str | Struct) -> int:
    return element.alignment if isinstance(element, Struct) else _SIZES[element]


def _round_up(size: int, alignment: int) -> int:
    return -(-size // alignment) * alignment


def _ctypes_type(field: Field) -> type[object]:
    element = field.element
    type = element.ctypes_class if isinstance(element, Struct) else _CTYPES[element]
    return type if field.count == 1 else type * field.count
