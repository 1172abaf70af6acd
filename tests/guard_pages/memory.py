"""Memory of compiled programs between unmapped pages: arguments, results, temporaries, constants.

`guarded` replaces where `NativeExecutable` puts them. Each array ends at a page that is not mapped (`END`),
or begins behind one (`BEGINNING`); arguments cannot be written. An access beyond an array then ends the
process, also one that only reads. Temporaries and constants are aligned to 64 bytes, so that up to 63 bytes
behind them remain unguarded.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import Any, Final
from unittest import mock

import numpy as np

from hloom.buffers import assignment
from hloom.buffers.buffers import ALIGNMENT, Buffer
from hloom.codegen import llvm_text
from hloom.cpu import native
from hloom.cpu.jit.cache import Entry
from hloom.cpu.jit.loader import LoadedObject

Array = np.ndarray[Any, Any]
END: Final = "end"
BEGINNING: Final = "beginning"
PAGE: Final = mmap.PAGESIZE

_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_LIBC.mmap.restype = ctypes.c_void_p
_LIBC.mmap.argtypes = [
    ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_size_t,
]  # fmt: skip
_LIBC.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_LIBC.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_PROGRAM: Final = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4)


def pages(size: int) -> int:
    """Bytes of the pages that hold so many bytes."""
    return -(-size // PAGE) * PAGE


def protect(address: int, size: int, protection: int) -> None:
    """Change what may be done with pages."""
    if size and _LIBC.mprotect(address, size, protection):
        raise OSError(ctypes.get_errno(), "mprotect")


class Region:
    """Bytes at the end, or at the beginning, of pages between two that are not mapped.

    Attributes:
        address, size: of the bytes.
    """

    def __init__(self, size: int, place: str) -> None:
        self._mapped = pages(size) + 2 * PAGE
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        self._base: int = _LIBC.mmap(None, self._mapped, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0)
        if self._base in (None, ctypes.c_void_p(-1).value):
            raise OSError(ctypes.get_errno(), "mmap")
        protect(self._base, PAGE, 0)
        protect(self._base + self._mapped - PAGE, PAGE, 0)
        self.size = size
        self.address = self._base + PAGE + (pages(size) - size if place == END else 0)
        # pages are 0 at first; other bytes show what is used without having been written
        ctypes.memset(self._base + PAGE, 0xA5, pages(size))

    def fill(self, data: bytes) -> None:
        """Set the bytes, which cannot be written from then on."""
        ctypes.memmove(self.address, data, len(data))
        protect(self._base + PAGE, self._mapped - 2 * PAGE, mmap.PROT_READ)

    def free(self) -> None:
        """Give the pages back."""
        _LIBC.munmap(self._base, self._mapped)


class GuardedOffsets:
    """Places temporaries so that none shares a page with another, with a page that nobody uses between.

    Attributes:
        unused: (offset, size) of the pages that nobody uses, by the size of the arena.
    """

    def __init__(self, place: str) -> None:
        self._place = place
        self.unused: dict[int, list[tuple[int, int]]] = {}

    def __call__(self, buffers: Iterable[Buffer]) -> int:
        at = PAGE
        unused = [(0, PAGE)]
        for buffer in buffers:
            whole = pages(buffer.size)
            aligned = -(-buffer.size // ALIGNMENT) * ALIGNMENT
            buffer.offset = at + (whole - aligned if self._place == END else 0)
            at += whole
            unused.append((at, PAGE))
            at += PAGE
        # an arena of a size that no other program has, by which its unused pages are found again
        while at in self.unused:
            at += PAGE
        self.unused[at] = unused
        return at


def guarded_constants(entry: Entry, place: str) -> LoadedObject:
    """Load code with every constant next to a page that nobody may touch."""
    names: list[str] = entry.facts["data"]
    count = len(entry.parts) - len(names)
    data: dict[str, bytes] = {}
    unused: list[str] = []
    at = 0
    for number, (name, content) in enumerate(zip(names, entry.parts[count:], strict=True)):
        aligned = -(-len(content) // ALIGNMENT) * ALIGNMENT
        ahead = pages(aligned) - aligned if place == END else 0
        if ahead:
            data[f"ahead {number}"] = bytes(ahead)
        data[name] = content
        used = ahead + aligned
        data[f"behind {number}"] = bytes(pages(used) - used + PAGE)
        at += pages(used)
        unused.append(f"behind {number}")
        at += PAGE
    loaded = LoadedObject(entry.parts[:count], native.external_address, data)
    for name in unused:
        first = pages(loaded.symbols[name])
        protect(first, PAGE, 0)
    return loaded


@contextmanager
def guarded(place: str) -> Generator[None]:
    """Let compiled programs have all their memory next to unmapped pages."""
    offsets = GuardedOffsets(place)

    def run(executable: native.NativeExecutable, *given: Any) -> list[Array]:
        return run_guarded(executable, *given, place, offsets)

    with (
        mock.patch.object(assignment, "assign_offsets", offsets),
        mock.patch.object(llvm_text, "MOST_INLINE", 0),
        mock.patch.object(native, "_load", lambda entry: guarded_constants(entry, place)),
        mock.patch.object(native, "configured_cache", lambda: None),
        mock.patch.object(native.NativeExecutable, "builtin", lambda _, fallback: fallback),
        mock.patch.object(native.NativeExecutable, "_run", run),
    ):
        yield


def run_guarded(
    executable: native.NativeExecutable, address: int, arguments: Sequence[Array | None], context: int,
    host: Any, place: str, offsets: GuardedOffsets,
) -> list[Array]:  # fmt: skip
    """Run a program as `NativeExecutable` does, on memory next to unmapped pages."""
    regions: list[Region] = []

    def region(size: int) -> Region:
        regions.append(Region(size, place))
        return regions[-1]

    given: list[Region] = []
    for value, shape in zip(arguments, executable.parameter_leaves, strict=True):
        held = (
            np.ascontiguousarray(value, shape.element_type.dtype) if shape.is_array else np.empty(0, np.uint8)
        )
        given.append(region(held.nbytes))
        given[-1].fill(held.tobytes())
    dtypes = [s.element_type.dtype if s.is_array else np.dtype(np.uint8) for s in executable.result_leaves]
    sizes = [s.dimensions if s.is_array else (0,) for s in executable.result_leaves]
    made = [region(d.itemsize * int(np.prod(s, dtype=np.int64))) for d, s in zip(dtypes, sizes, strict=True)]
    arena = region(pages(executable.memory.temp))
    for offset, size in offsets.unused.get(executable.memory.temp, ()):
        protect(arena.address + offset, size, 0)
    pointers = (ctypes.c_void_p * max(1, len(given)))(*[r.address for r in given])
    targets = (ctypes.c_void_p * max(1, len(made)))(*[r.address for r in made])
    entry = _PROGRAM(address)
    try:
        if executable.calls_host:
            (host or executable.host()).run(lambda: entry(pointers, targets, arena.address, context))
        else:
            entry(pointers, targets, arena.address, context)
        return [
            np.frombuffer(ctypes.string_at(r.address, r.size), d).reshape(s).copy()
            for r, d, s in zip(made, dtypes, sizes, strict=True)
        ]
    finally:
        for each in regions:
            each.free()
