"""Division of a module into parts that LLVM compiles in parallel.

Functions are assigned to parts in the order of emission, so that the first parts are compiled while later
functions are still being emitted. Functions are visible to all parts; each part has its own copy of the short
constants that it reads.

A long function of the program is a separate part, compiled without optimization: register allocation and
LLVM's loop passes take superlinear time, while such a function mostly calls kernels.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

from hloom.codegen.llvm import Function, Module
from hloom.codegen.llvm.attributes import SIMPLIFIED
from hloom.codegen.llvm.printer import print_module, print_part
from hloom.codegen.target import QUICK
from hloom.cpu.jit.llvm import STRAIGHT, CodeQueue, check_intrinsics, simplified_names

PART_INSTRUCTIONS: Final = 600
"""Least number of instructions of a part: some twenty times the fixed cost of a part."""

LONG_LOOPS: Final = 3000
"""Number of instructions from which a function with loops is not optimized: LLVM would take half a second."""


class PartStream:
    """Divides a module into groups of functions, which are compiled while later functions are being emitted.

    Args:
        queue: the queue whose threads compile the groups.
    """

    def __init__(self, queue: CodeQueue) -> None:
        self._queue = queue
        self._done = 0

    def offer(self, module: Module) -> None:
        """Queue the functions that were added to the module since the last call that queued any.

        Does nothing if they have less than `PART_INSTRUCTIONS` instructions, too few to compile separately.
        """
        fresh = list(islice(module.functions, self._done, None))
        if sum([module.functions[name].size for name in fresh]) >= PART_INSTRUCTIONS:
            self._add(module, fresh)

    def finish(self, module: Module) -> list[bytes]:
        """Queue the remaining functions of the complete module, and wait until all functions are compiled.

        Returns the object files; raises CompilerError if LLVM refuses a function.
        """
        names = list(islice(module.functions, self._done, None))
        long = [name for name in names if _is_long(module.functions[name])]
        others = [name for name in names if name not in long]
        if len(others) == len(module.functions):
            check_intrinsics(module, self._queue.target)
            self._queue.add(print_module(module), simplified_names(module), last=True)
        elif others:
            self._add(module, others, last=not long)
        if long:
            self._add(module, long, last=True, level=QUICK)
        return self._queue.finish()

    def _add(self, module: Module, names: list[str], *, last: bool = False, level: int | None = None) -> None:
        """Queue the functions ``names`` of a module, to be compiled to one object file.

        ``last`` and ``level`` are passed to `CodeQueue.add`. Unless ``level`` is None, LLVM does not optimize
        the IR.
        """
        check_intrinsics(module, self._queue.target)
        selected = set(names)
        simplified = [name for name in simplified_names(module) if name in selected and level is None]
        self._queue.add(print_part(module, names), simplified, last=last, level=level)
        self._done += len(names)


def _is_long(function: Function) -> bool:
    if SIMPLIFIED in function.attributes:
        return function.size >= LONG_LOOPS
    return STRAIGHT in function.attributes and function.size >= PART_INSTRUCTIONS
