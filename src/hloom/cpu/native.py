"""Compile a module for this machine, load it, and call it with numpy arrays."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from hloom.cpu import emitters, llvm, target  # noqa: F401  # pyright: ignore[reportUnusedImport]  (registers emitters)
from hloom.cpu.buffers import ALIGNMENT, leaves
from hloom.cpu.loader import LoadedObject
from hloom.cpu.pipeline import CPU_PIPELINE
from hloom.cpu.program import ENTRY, NativeProgram, emit_program
from hloom.ir.cloning import clone_module
from hloom.ir.module import HloModule

Array = np.ndarray[Any, Any]


class NativeExecutable:
    """A compiled program.

    Attributes:
        optimized: the module after all passes.
        program: the LLVM text and its sizes.
    """

    def __init__(self, module: HloModule) -> None:
        self.optimized = clone_module(module)
        CPU_PIPELINE.run(self.optimized)
        self.program: NativeProgram = emit_program(self.optimized)
        self.result_leaves = [shape for _, shape in leaves(module.entry.root.shape)]
        code = llvm.generate(self.program.text, target.host())
        self._loaded = LoadedObject([code], runtime_symbols())
        prototype = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4)
        self._entry = prototype(self._loaded.symbols[ENTRY])
        self._temp = aligned_bytes(self.program.temp_bytes)

    def run(self, arguments: Sequence[Array]) -> list[Array]:
        """The leaves of the result, for the (row-major) leaves of the arguments."""
        results = [np.empty(s.dimensions, s.element_type.dtype) for s in self.result_leaves]
        held = [np.ascontiguousarray(a) for a in arguments]
        pointers = (ctypes.c_void_p * max(1, len(held)))(*[a.ctypes.data for a in held])
        targets = (ctypes.c_void_p * max(1, len(results)))(*[r.ctypes.data for r in results])
        self._entry(pointers, targets, self._temp.ctypes.data, None)
        return results


def aligned_bytes(size: int) -> Array:
    """Zeroed memory at a multiple of the vector size."""
    raw = np.zeros(size + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + max(size, 1)]


@cache
def runtime_symbols() -> dict[str, int]:
    """Addresses of the C library's functions that compiled code may call."""
    libc = ctypes.CDLL(None)
    names = ("memcpy", "memset", "memmove", "fmod", "fmodf")
    return {name: ctypes.cast(getattr(libc, name), ctypes.c_void_p).value or 0 for name in names}
