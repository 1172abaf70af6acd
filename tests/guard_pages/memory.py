"""Memory of compiled programs between unmapped pages: arguments, results, temporaries, constants.

`guarded` replaces the allocations of `Caller`. Each array ends at an unmapped page (`END`), or
begins after one (`BEGINNING`); arguments cannot be written. A read or write beyond an array then ends the
process.
Temporaries and constants are aligned to 64 bytes, so that up to 63 bytes after them are unguarded.
"""

from __future__ import annotations

import ctypes
import math
import mmap
import threading
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, cast
from unittest import mock

import numpy as np

from hloom.buffers import assignment
from hloom.buffers.buffers import Buffer
from hloom.codegen.llvm import module as llvm_module
from hloom.cpu import caller, loaded_program, native
from hloom.cpu.jit import loader
from hloom.cpu.jit.loader import Externals, LoadedObject
from hloom.cpu.runtime import gang
from hloom.shape.shape import Shape

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


def pages(size: int) -> int:
    """Return the bytes of the pages that hold a number of bytes."""
    return -(-size // PAGE) * PAGE


def protect(address: int, size: int, protection: int) -> None:
    """Set the access rights of pages."""
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
        # pages are 0 at first; other bytes reveal reads of memory that was never written
        ctypes.memset(self._base + PAGE, 0xA5, pages(size))

    def fill(self, data: bytes) -> None:
        """Set the bytes, which cannot be written from then on."""
        ctypes.memmove(self.address, data, len(data))
        protect(self._base + PAGE, self._mapped - 2 * PAGE, mmap.PROT_READ)

    def array(self, dtype: np.dtype[Any], sizes: Sequence[int]) -> Array:
        """Return the bytes as an array, which must not be used after `free`."""
        memory = (ctypes.c_char * self.size).from_address(self.address)
        return np.frombuffer(cast("Any", memory), dtype, count=math.prod(sizes)).reshape(sizes)

    def free(self) -> None:
        """Give the pages back."""
        _LIBC.munmap(self._base, self._mapped)


class GuardedOffsets:
    """Place temporaries so that none shares a page with another, with an unused page between them.

    Attributes:
        unused: (offset, size) of the unused pages, by the size of the arena.
    """

    def __init__(self, place: str) -> None:
        self._place = place
        self.unused: dict[int, list[tuple[int, int]]] = {}

    def __call__(self, buffers: Iterable[Buffer]) -> int:
        at = PAGE
        unused = [(0, PAGE)]
        for buffer in buffers:
            whole = pages(buffer.size)
            buffer.offset = at + (whole - buffer.size if self._place == END else 0)
            at += whole
            unused.append((at, PAGE))
            at += PAGE
        # an arena of a size that no other program has, by which its unused pages are found again
        while at in self.unused:
            at += PAGE
        self.unused[at] = unused
        return at


def guarded_constants(
    objects: Sequence[bytes], externals: Externals, constants: Mapping[str, bytes], place: str
) -> LoadedObject:
    """Load code with every constant next to an inaccessible page."""
    data: dict[str, bytes] = {}
    unused: list[str] = []
    for number, (name, content) in enumerate(constants.items()):
        size = len(content)
        ahead = pages(size) - size if place == END else 0
        if ahead:
            data[f"ahead {number}"] = bytes(ahead)
        data[name] = content
        data[f"behind {number}"] = bytes(pages(ahead + size) - ahead - size + PAGE)
        unused.append(f"behind {number}")
    with mock.patch.object(loader, "DATA_ALIGNMENT", 1):
        loaded = LoadedObject(objects, externals, data)
    for name in unused:
        protect(pages(loaded.symbols[name]), PAGE, 0)
    return loaded


def unaligned_constant(module: llvm_module.Module, name: str, data: bytes, *, align: int = 0) -> None:
    """Add constant bytes of which code may assume no alignment."""
    external = len(data) > llvm_module.MOST_INLINE
    module.globals[name] = llvm_module.GlobalConstant(name, data, align=align or 1, external=external)


class Guarded:
    """Guarded memory for a program, instead of numpy's and the arena.

    Attributes:
        regions: all in use.
    """

    def __init__(self, place: str, offsets: GuardedOffsets) -> None:
        self._place, self._offsets = place, offsets
        self.regions: list[Region] = []

    def region(self, size: int) -> Region:
        """Return bytes next to an unmapped page."""
        self.regions.append(Region(size, self._place))
        return self.regions[-1]

    def argument(self, value: Array | None, shape: Shape) -> Array | None:
        """Return an argument that cannot be written."""
        if value is None or not shape.is_array:
            return value
        held = np.ascontiguousarray(value, shape.element_type.dtype)
        region = self.region(held.nbytes)
        region.fill(held.tobytes())
        return region.array(held.dtype, held.shape)

    def result(self, shape: Shape) -> Array:
        """Return memory for a leaf of a result."""
        dtype = shape.element_type.numpy_dtype if shape.is_array else np.dtype(np.uint8)
        sizes = shape.dimensions if shape.is_array else (0,)
        return self.region(dtype.itemsize * math.prod(sizes)).array(dtype, sizes)

    @contextmanager
    def arena(self, size: int) -> Generator[int]:
        """Return the address of an arena whose temporaries have unmapped pages between them."""
        region = self.region(pages(size))
        for offset, unused in self._offsets.unused.get(size, ()):
            protect(region.address + offset, unused, 0)
        yield region.address

    def free(self) -> None:
        """Give all memory back."""
        for region in self.regions:
            region.free()


@contextmanager
def guarded(place: str) -> Generator[None]:
    """Let compiled programs have all their memory next to unmapped pages."""
    offsets = GuardedOffsets(place)
    plain = caller.Caller.run

    # devices run in separate threads: a gang of them would share one arena
    current = threading.local()

    def run(called: caller.Caller, arguments: Sequence[Array | None], *rest: Any) -> list[Array]:
        current.memory = memory = Guarded(place, offsets)
        given = [memory.argument(a, s) for a, s in zip(arguments, called.parameters, strict=True)]
        try:
            return [a.copy() for a in plain(called, given, *rest)]
        finally:
            memory.free()

    with (
        mock.patch.object(assignment, "assign_offsets", offsets),
        mock.patch.object(llvm_module, "MOST_INLINE", 0),
        mock.patch.object(llvm_module.Module, "constant_bytes", unaligned_constant),
        mock.patch.object(
            loaded_program,
            "LoadedObject",
            lambda objects, externals, constants: guarded_constants(objects, externals, constants, place),
        ),
        mock.patch.object(native, "configured_cache", lambda: None),
        mock.patch.object(caller.Caller, "builtin", lambda _, fallback, **_options: fallback),
        mock.patch.object(caller.Caller, "run", run),
        mock.patch.object(gang, "gang_of", lambda *_: None),
        mock.patch.object(caller, "_allocate", lambda shape: current.memory.result(shape)),
        mock.patch.object(caller, "lent_memory", lambda size: current.memory.arena(size)),
    ):
        yield
