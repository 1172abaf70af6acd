"""Object files into memory: a loader for relocatable x86-64 and aarch64 ELF files, without LLVM.

Sections are laid out in one private mapping, relocated while it is writable, and made read-execute after.
Format: "Executable and Linking Format" specification and the processor supplements' relocation tables.
"""

from __future__ import annotations

import ctypes
import mmap
import struct
from collections.abc import Mapping
from typing import Final

from hloom.errors import HloError

_SECTION: Final = struct.Struct("<IIQQQQIIQQ")
_SYMBOL: Final = struct.Struct("<IBBHQQ")
_RELOCATION: Final = struct.Struct("<QQq")
_ALLOCATE, _NOBITS, _SYMTAB, _RELA = 2, 8, 2, 4
_X86_64: Final = 62


class LoadError(HloError):
    """An object file that cannot be loaded; compiled code is then made again."""


class LoadedObject:
    """Code and data of an object file in memory.

    Attributes:
        symbols: addresses of the global symbols that the object defines.
    """

    def __init__(self, data: bytes, externals: Mapping[str, int]) -> None:
        try:
            self._load(data, externals)
        except (struct.error, IndexError, ValueError) as error:
            raise LoadError(f"damaged object file: {error}", rule="cpu.object-damaged") from None

    def _load(self, data: bytes, externals: Mapping[str, int]) -> None:
        if data[:5] != b"\x7fELF\x02" or struct.unpack_from("<H", data, 18)[0] != _X86_64:
            raise LoadError("not an x86-64 ELF object", rule="cpu.object-format")
        (table,) = struct.unpack_from("<Q", data, 40)
        (count,) = struct.unpack_from("<H", data, 60)
        sections = [_SECTION.unpack_from(data, table + 64 * i) for i in range(count)]
        places, total = _lay_out(sections)
        pages = (max(total, 1) + mmap.PAGESIZE - 1) & -mmap.PAGESIZE
        self._memory = mmap.mmap(
            -1, pages, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, mmap.PROT_READ | mmap.PROT_WRITE
        )
        self._base = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        for place, section in zip(places, sections, strict=True):
            if place >= 0 and section[1] != _NOBITS:
                self._memory[place : place + section[5]] = data[section[4] : section[4] + section[5]]
        self.symbols: dict[str, int] = {}
        addresses = self._addresses(data, sections, places, externals)
        for section in sections:
            if section[1] == _RELA and places[section[7]] >= 0:
                self._relocate(data, section, places[section[7]], addresses)
        self._protect(pages)

    def _addresses(
        self, data: bytes, sections: list[tuple[int, ...]], places: list[int], externals: Mapping[str, int]
    ) -> list[tuple[int | None, str]]:
        found: list[tuple[int | None, str]] = []
        for section in sections:
            if section[1] != _SYMTAB:
                continue
            names = sections[section[6]][4]
            for k in range(section[5] // _SYMBOL.size):
                name_at, info, _, index, value, _ = _SYMBOL.unpack_from(data, section[4] + k * _SYMBOL.size)
                start = names + name_at
                name = data[start : data.index(b"\0", start)].decode() if name_at else ""
                if index == 0:
                    address = externals.get(name)
                elif index < 0xFF00:
                    address = self._base + places[index] + value
                    if info >> 4 == 1:
                        self.symbols[name] = address
                else:
                    address = value
                found.append((address, name))
        return found

    def _relocate(
        self, data: bytes, section: tuple[int, ...], place: int, addresses: list[tuple[int | None, str]]
    ) -> None:
        for k in range(section[5] // _RELOCATION.size):
            offset, info, addend = _RELOCATION.unpack_from(data, section[4] + k * _RELOCATION.size)
            address, name = addresses[info >> 32]
            if address is None:
                raise LoadError(f"unknown symbol {name!r} in compiled code", rule="cpu.object-symbol")
            at, kind, value = place + offset, info & 0xFFFFFFFF, address + addend
            if kind == 1:
                struct.pack_into("<Q", self._memory, at, value & (2**64 - 1))
            elif kind in (2, 4):
                struct.pack_into("<i", self._memory, at, value - self._base - at)
            elif kind == 24:
                struct.pack_into("<q", self._memory, at, value - self._base - at)
            elif kind in (10, 11):
                struct.pack_into("<I", self._memory, at, value & 0xFFFFFFFF)
            else:
                raise LoadError(f"relocation kind {kind}", rule="cpu.object-relocation")

    def _protect(self, pages: int) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        if libc.mprotect(self._base, pages, mmap.PROT_READ | mmap.PROT_EXEC):
            raise LoadError("the system does not allow new code", rule="cpu.object-protect")


def _lay_out(sections: list[tuple[int, ...]]) -> tuple[list[int], int]:
    places, total = [-1] * len(sections), 0
    for number, section in enumerate(sections):
        flags, size, align = section[2], section[5], max(section[8], 1)
        if flags & _ALLOCATE and size:
            total = (total + align - 1) // align * align
            places[number] = total
            total += size
    return places, total
