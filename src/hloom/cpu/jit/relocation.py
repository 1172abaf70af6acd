"""ELF relocations: writing addresses of symbols into machine code.

Tables: "System V Application Binary Interface, AMD64 Architecture Processor Supplement", relocation types;
"ELF for the Arm 64-bit Architecture", static relocations.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable
from typing import Final, TypeAlias

from hloom.errors import HloError


class LoadError(HloError):
    """Raised for an object file that cannot be loaded; callers then compile the program again."""


Memory: TypeAlias = "bytearray | mmap.mmap"
Relocate: TypeAlias = Callable[[Memory, int, int, int, int], None]
"""Writes a relocation: (memory, position, address of the position, address of the symbol, addend)."""

X86_64: Final = 62
AARCH64: Final = 183

_U64: Final = (1 << 64) - 1
_PAGE: Final = 4095


def _fits(value: int, bits: int, *, signed: bool = True) -> int:
    low, high = (-(1 << (bits - 1)), 1 << (bits - 1)) if signed else (0, 1 << bits)
    if not low <= value < high:
        raise LoadError(f"a distance of {value} bytes is out of reach", rule="cpu.object-reach")
    return value


def _absolute64(memory: Memory, at: int, place: int, symbol: int, addend: int) -> None:
    struct.pack_into("<Q", memory, at, (symbol + addend) & _U64)


def _absolute32(memory: Memory, at: int, place: int, symbol: int, addend: int) -> None:
    struct.pack_into("<I", memory, at, _fits(symbol + addend, 32, signed=False))


def _absolute32_signed(memory: Memory, at: int, place: int, symbol: int, addend: int) -> None:
    struct.pack_into("<i", memory, at, _fits(symbol + addend, 32))


def _relative32(memory: Memory, at: int, place: int, symbol: int, addend: int) -> None:
    struct.pack_into("<i", memory, at, _fits(symbol + addend - place, 32))


def _relative64(memory: Memory, at: int, place: int, symbol: int, addend: int) -> None:
    struct.pack_into("<Q", memory, at, (symbol + addend - place) & _U64)


def _patch(memory: Memory, at: int, clear: int, bits: int) -> None:
    (word,) = struct.unpack_from("<I", memory, at)
    struct.pack_into("<I", memory, at, word & ~clear & 0xFFFFFFFF | bits)


def _page21(memory: Memory, at: int, place: int, symbol: int, addend: int) -> None:
    """Write into an ADRP instruction the distance from its page to that of its target, in pages.

    The two lowest bits of the distance are stored at bit 29 of the instruction, the others at bit 5. The
    instruction is at position ``at`` of ``memory``, and its address is ``place``; the address of the target
    is the sum of ``symbol`` and ``addend``.
    """
    pages = _fits(((symbol + addend) & ~_PAGE) - (place & ~_PAGE), 33) >> 12
    _patch(memory, at, 0x60FFFFE0, (pages & 3) << 29 | (pages >> 2 & 0x7FFFF) << 5)


def _branch26(memory: Memory, at: int, place: int, symbol: int, addend: int) -> None:
    """Write into a B or BL instruction the distance to its target, in words of 4 bytes.

    The instruction is at position ``at`` of ``memory``, and its address is ``place``; the address of the
    target is the sum of ``symbol`` and ``addend``.
    """
    distance = _fits(symbol + addend - place, 28)
    _patch(memory, at, 0x03FFFFFF, distance >> 2 & 0x03FFFFFF)


def _low12(shift: int) -> Relocate:
    """Return the function that relocates an ADD, LDR or STR instruction of AArch64.

    It writes the target's offset in its page, in units of ``1 << shift`` bytes, at bit 10 of the instruction.
    """

    def relocate(memory: Memory, at: int, place: int, symbol: int, addend: int) -> None:
        low = symbol + addend & _PAGE
        if low & (1 << shift) - 1:
            raise LoadError("an address is not aligned to its access", rule="cpu.object-alignment")
        _patch(memory, at, 0xFFF << 10, low >> shift << 10)

    return relocate


RELOCATIONS: Final[dict[int, dict[int, Relocate]]] = {
    X86_64: {
        1: _absolute64,
        10: _absolute32,
        11: _absolute32_signed,
        24: _relative64,
        **dict.fromkeys((2, 4, 9, 41, 42), _relative32),
    },
    AARCH64: {
        257: _absolute64,
        258: _absolute32,
        260: _relative64,
        261: _relative32,
        275: _page21,
        311: _page21,
        282: _branch26,
        283: _branch26,
        277: _low12(0),
        278: _low12(0),
        284: _low12(1),
        285: _low12(2),
        286: _low12(3),
        299: _low12(4),
        312: _low12(3),
    },
}
"""The functions that write relocations, by ELF's number of the machine and kind of the relocation."""

THROUGH_TABLE: Final = {X86_64: frozenset((9, 41, 42)), AARCH64: frozenset((311, 312))}
"""Kinds that refer to the symbol's entry in the table of addresses."""

CALLS: Final = {X86_64: frozenset((4,)), AARCH64: frozenset((282, 283))}
"""Kinds that may refer to a jump instead, if the symbol is out of reach."""

REACH: Final = {X86_64: (1 << 31) - 4096, AARCH64: (1 << 27) - 4096}
"""Range of a call in both directions, in bytes."""

JUMP_BYTES: Final = 16


def jump(machine: int, target: int) -> bytes:
    """Return code for the ELF ``machine`` (`X86_64` or `AARCH64`) that jumps to the address ``target``."""
    if machine == X86_64:
        return b"\xff\x25\x00\x00\x00\x00" + struct.pack("<Q", target) + b"\xcc\xcc"  # jmp *[rip]
    return struct.pack("<IIQ", 0x58000050, 0xD61F0200, target)  # ldr x16, .+8; br x16
