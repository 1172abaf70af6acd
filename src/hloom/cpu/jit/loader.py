"""Loader for relocatable ELF files, without LLVM.

The sections of all objects are laid out in one private mapping, relocated while it is writable, and made
read-execute afterwards; writable data has pages of its own. The mapping lives as long as the Python object.
Format: "Executable and Linking Format" specification, version 1.2, and its 64-bit form.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Final, TypeAlias

from hloom.cpu.jit.relocation import (
    AARCH64,
    CALLS,
    JUMP_BYTES,
    REACH,
    RELOCATIONS,
    THROUGH_TABLE,
    X86_64,
    LoadError,
    Memory,
    jump,
)

_SECTION: Final = struct.Struct("<IIQQQQIIQQ")
_SYMBOL: Final = struct.Struct("<IBBHQQ")
_RELOCATION: Final = struct.Struct("<QQq")
_NOBITS, _SYMTAB, _RELA, _REL = 8, 2, 4, 9
_WRITE, _ALLOCATE, _THREAD_LOCAL = 1, 2, 0x400
_MACHINES: Final = {"x86_64": X86_64, "aarch64": AARCH64, "arm64": AARCH64}

Externals: TypeAlias = Callable[[str], "int | None"]
"""Returns the address of a symbol that no object defines; None if it is unknown."""
DATA_ALIGNMENT: Final = 64
"""Alignment of constants in bytes."""


@cache
def _protect() -> Callable[[int, int, int], int]:
    """Return the C library's ``mprotect`` as a ctypes function.

    The function is cached because ctypes defines a class for each library that it opens.
    """
    mprotect = ctypes.CDLL(None).mprotect
    mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return mprotect


class LoadedObject:
    """Code and data of object files in executable memory, which is freed with this Python object.

    Attributes:
        symbols: the address of each symbol that the objects and the data define, by name.
        size: the size of the memory in bytes.
    """

    def __init__(
        self, objects: Sequence[bytes], externals: Externals, data: Mapping[str, bytes] | None = None
    ) -> None:
        """Load object files that may refer to each other's symbols.

        Args:
            objects: relocatable ELF files for this machine.
            externals: returns the address of a symbol that none of the objects defines; None if that is
                unknown.
            data: contents of constants to load, by the names of their symbols.

        Raises LoadError for a file of an unsupported format or for a different machine, an undefined symbol,
        or an unknown kind of relocation.
        """
        image = Image(objects, data or {})
        if image.machine != _MACHINES.get(os.uname().machine):
            raise LoadError("an object file for another machine", rule="cpu.object-machine")
        self.size = image.size
        protection = mmap.PROT_READ | mmap.PROT_WRITE
        self._memory = mmap.mmap(-1, image.size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, protection)
        base = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        self.symbols = image.write(self._memory, base, externals)
        if _protect()(base, image.writable_from, mmap.PROT_READ | mmap.PROT_EXEC):
            raise LoadError("the system does not allow new code", rule="cpu.object-protect")


class Image:
    """The layout of several object files, and of constants, in one memory mapping.

    Attributes:
        machine: ELF's number of the processor architecture.
        size: size of the mapping in bytes, a multiple of the page size.
        writable_from: offset in bytes of the pages of writable data, which follow code and constants.
    """

    def __init__(self, objects: Sequence[bytes], data: Mapping[str, bytes]) -> None:
        try:
            self._objects = [_Object(file) for file in objects]
        except LoadError:
            raise
        except (struct.error, IndexError, ValueError) as error:
            raise LoadError(f"damaged object file: {error}", rule="cpu.object-damaged") from None
        machines = {o.machine for o in self._objects}
        if len(machines) != 1:
            raise LoadError("objects of several machines, or none", rule="cpu.object-machine")
        (self.machine,) = machines
        position = 0
        self._data: dict[str, tuple[int, bytes]] = {}
        for name, content in data.items():
            self._data[name] = position, content
            position = _aligned(position + len(content), DATA_ALIGNMENT)
        for item in self._objects:
            position = item.place(position, writable=False)
        self._table = _aligned(position, JUMP_BYTES)
        indirect_names = sorted({name for item in self._objects for name in item.indirect()})
        jumps_at = _aligned(self._table + 8 * len(indirect_names), JUMP_BYTES)
        self._entries = {name: self._table + 8 * n for n, name in enumerate(indirect_names)}
        self._jumps = {name: jumps_at + JUMP_BYTES * n for n, name in enumerate(indirect_names)}
        self.writable_from = _aligned(jumps_at + JUMP_BYTES * len(indirect_names) + 1, mmap.PAGESIZE)
        position = self.writable_from
        for item in self._objects:
            position = item.place(position, writable=True)
        self.size = _aligned(position, mmap.PAGESIZE)

    def write(self, memory: Memory, base: int, externals: Externals) -> dict[str, int]:
        """Copy all sections to ``memory``, which is mapped at address ``base``, and apply their relocations.

        Returns the address of each symbol that the objects and constants define, by name. ``externals``
        returns the addresses of other symbols.
        """
        try:
            return self._write(memory, base, externals)
        except LoadError:
            raise
        except (struct.error, IndexError, ValueError) as error:
            raise LoadError(f"damaged object file: {error}", rule="cpu.object-damaged") from None

    def _write(self, memory: Memory, base: int, externals: Externals) -> dict[str, int]:
        symbols = {name: base + position for name, (position, _) in self._data.items()}
        for position, content in self._data.values():
            memory[position : position + len(content)] = content
        for item in self._objects:
            item.copy_sections(memory)
            for name, position in item.defined():
                if name in symbols:
                    raise LoadError(f"symbol {name!r} is defined twice", rule="cpu.object-duplicate")
                symbols[name] = base + position
        addresses: dict[str, int] = {}
        for name, entry in self._entries.items():
            address = symbols.get(name) or externals(name)
            if not address:
                raise LoadError(f"unknown symbol {name!r} in compiled code", rule="cpu.object-symbol")
            addresses[name] = address
            struct.pack_into("<Q", memory, entry, address)
            at = self._jumps[name]
            memory[at : at + JUMP_BYTES] = jump(self.machine, address)
        for item in self._objects:
            self._relocate(item, memory, base, addresses)
        return symbols

    def _relocate(self, item: _Object, memory: Memory, base: int, known: Mapping[str, int]) -> None:
        kinds = RELOCATIONS[self.machine]
        through_table, calls = THROUGH_TABLE[self.machine], CALLS[self.machine]
        for section, offset, kind, number, addend in item.relocations:
            at = item.places[section] + offset
            name, position = item.symbols[number]
            relocate = kinds.get(kind)
            if relocate is None:
                raise LoadError(f"relocation kind {kind}", rule="cpu.object-relocation")
            symbol = base + position if position is not None else known.get(name)
            if symbol is None:
                raise LoadError(f"unknown symbol {name!r} in compiled code", rule="cpu.object-symbol")
            if kind in through_table:
                symbol = base + self._entries[name]
            elif kind in calls and position is None and abs(symbol - base - at) >= REACH[self.machine]:
                symbol = base + self._jumps[name]
            relocate(memory, at, base + at, symbol, addend)


class _Object:
    """A parsed ELF object file: sections with their offsets in the mapping, symbols, relocations.

    Attributes:
        places: offset of each section in the mapping; -1 if the section is not loaded.
        symbols: (name, offset in the mapping) of each symbol; the offset is None for one defined elsewhere.
        relocations: (section, offset in it, kind, index of the symbol, addend) of each relocation in a loaded
            section.
    """

    def __init__(self, file: bytes) -> None:
        if file[:6] != b"\x7fELF\x02\x01" or struct.unpack_from("<H", file, 16)[0] != 1:
            raise LoadError("not a relocatable 64-bit ELF file", rule="cpu.object-format")
        self.file = file
        (self.machine,) = struct.unpack_from("<H", file, 18)
        if self.machine not in RELOCATIONS:
            raise LoadError(f"an object for the unknown machine {self.machine}", rule="cpu.object-machine")
        (table,) = struct.unpack_from("<Q", file, 40)
        (count,) = struct.unpack_from("<H", file, 60)
        self.sections = [_SECTION.unpack_from(file, table + _SECTION.size * i) for i in range(count)]
        self.places = [-1] * count
        self.symbols: list[tuple[str, int | None]] = []
        self._raw: list[tuple[str, int, int, int]] = []
        self.relocations: list[tuple[int, int, int, int, int]] = []
        for section in self.sections:
            if section[1] != _NOBITS and section[4] + section[5] > len(file):
                raise ValueError("a section beyond the end")
            if section[2] & _THREAD_LOCAL:
                raise LoadError("thread-local data", rule="cpu.object-section")
            if section[1] == _SYMTAB:
                self._read_symbols(section)
            elif section[1] == _RELA and self.sections[section[7]][2] & _ALLOCATE:
                entries = _RELOCATION.iter_unpack(file[section[4] : section[4] + section[5]])
                self.relocations += [(section[7], at, i & 0xFFFFFFFF, i >> 32, add) for at, i, add in entries]

    def _read_symbols(self, section: tuple[int, ...]) -> None:
        """Append (name, info, section index, value) of every symbol in a symbol table to ``_raw``.

        ``section`` is the header of the symbol table's section.
        """
        names = self.sections[section[6]][4]
        entries = _SYMBOL.iter_unpack(self.file[section[4] : section[4] + section[5]])
        for name_at, info, _, index, value, _ in entries:
            start = names + name_at
            name = self.file[start : self.file.index(b"\0", start)].decode() if name_at else ""
            self._raw.append((name, info, index, value))

    def place(self, position: int, *, writable: bool) -> int:
        """Assign offsets in the mapping, from ``position`` on, to the writable or to the read-only sections.

        ``writable`` selects which; sections that are not loaded get none. Returns the end of the last
        section, or ``position`` if there is none.
        """
        for number, section in enumerate(self.sections):
            flags, size, align = section[2], section[5], max(section[8], 1)
            if flags & _ALLOCATE and bool(flags & _WRITE) is writable:
                self.places[number] = position = _aligned(position, align)
                position += size
        if writable:
            self.symbols = [(name, self._position(index, value)) for name, _, index, value in self._raw]
        return position

    def _position(self, index: int, value: int) -> int | None:
        """Return the offset in the mapping of a symbol; None if it is defined elsewhere, or not in a section.

        ``index`` is the index of its section, ``value`` its offset in the section.
        """
        return self.places[index] + value if 0 < index < len(self.places) else None

    def defined(self) -> list[tuple[str, int]]:
        """Return (name, offset in the mapping) of each global symbol that the object defines."""
        return [
            (name, position)
            for (name, info, *_), (_, position) in zip(self._raw, self.symbols, strict=True)
            if info >> 4 and name and position is not None
        ]

    def indirect(self) -> list[str]:
        """Return the symbols that need an entry in the table of addresses (GOT) or may need a PLT stub.

        A PLT stub, a jump to the symbol's address, may be needed for each symbol that the object does not
        define.
        """
        through_table = THROUGH_TABLE[self.machine]
        tabled = {self._raw[number][0] for _, _, kind, number, _ in self.relocations if kind in through_table}
        return [*tabled, *(name for name, _, index, _ in self._raw if name and index == 0)]

    def copy_sections(self, memory: Memory) -> None:
        """Copy the contents of the loaded sections to their offsets in ``memory``."""
        for address, section in zip(self.places, self.sections, strict=True):
            if address >= 0 and section[1] != _NOBITS:
                memory[address : address + section[5]] = self.file[section[4] : section[4] + section[5]]


def _aligned(position: int, alignment: int) -> int:
    return -(-position // alignment) * alignment
