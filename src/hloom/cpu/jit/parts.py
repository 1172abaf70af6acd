"""Division of a module into parts that LLVM compiles in parallel.

Functions are assigned to parts in the order of emission, so that the first parts are compiled while later
functions are still being emitted. Functions are visible to all parts; each part has its own copy of the short
constants that it reads.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

from hloom.codegen.llvm import Module
from hloom.codegen.llvm.printer import print_module, print_part
from hloom.cpu.jit.llvm import CodeQueue, check_intrinsics, simplified_names

PART_INSTRUCTIONS: Final = 600
"""Least number of instructions of a part: some twenty times the fixed cost of a part."""


class PartStream:
    """Compiles a module while it is being emitted.

    Args:
        queue: compiles the parts.
    """

    def __init__(self, queue: CodeQueue) -> None:
        self._queue = queue
        self._done = 0

    def offer(self, module: Module) -> None:
        """Compile the functions finished since the last part, if they are long enough."""
        fresh = list(islice(module.functions, self._done, None))
        if sum([module.functions[name].size for name in fresh]) >= PART_INSTRUCTIONS:
            self._add(module, fresh)

    def finish(self, module: Module) -> list[bytes]:
        """Return the objects of all parts of the finished module; raises CompilerError."""
        if not self._done:
            check_intrinsics(module, self._queue.target)
            self._queue.add(print_module(module), simplified_names(module), last=True)
        elif self._done < len(module.functions):
            self._add(module, list(islice(module.functions, self._done, None)), last=True)
        return self._queue.finish()

    def _add(self, module: Module, names: list[str], *, last: bool = False) -> None:
        """Compile some functions of a module as a part."""
        check_intrinsics(module, self._queue.target)
        chosen = set(names)
        simplified = [name for name in simplified_names(module) if name in chosen]
        self._queue.add(print_part(module, names), simplified, last=last)
        self._done += len(names)
