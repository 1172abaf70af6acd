"""A module in several parts, which LLVM compiles at the same time.

Functions are dealt out in the order in which they are made, so that the first parts are compiled while the
rest is still being emitted. They all become visible to the other parts; the short constants that a part
reads are its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import islice
from typing import Final

from hloom.codegen.llvm_text import Module
from hloom.cpu.jit.llvm import CodeQueue

_NAME: Final = re.compile(r"@([\w.]+)")
_HEAD: Final = re.compile(r"define (?:internal )?(\S.*?) @([\w.]+)\((.*?)\)")
_PARAMETER: Final = re.compile(r" %\w+")
PART_CHARACTERS: Final = 40_000
"""Text that is worth a part of its own: some twenty times what a part costs by itself."""


class PartStream:
    """Compiles a module while it is being made.

    Args:
        queue: where the parts go.
    """

    def __init__(self, queue: CodeQueue) -> None:
        self._queue = queue
        self._done = 0

    def offer(self, module: Module) -> None:
        """Compile the functions that were finished since the last part, if they are enough for one."""
        fresh = list(islice(module.functions, self._done, None))
        if sum(len(module.functions[name]) for name in fresh) >= PART_CHARACTERS:
            self._queue.add(part_text(module, fresh))
            self._done += len(fresh)

    def finish(self, module: Module) -> list[bytes]:
        """The objects of all parts of the finished module; raises as `hloom.cpu.jit.llvm.generate` does."""
        if not self._done:
            self._queue.add(module.text())
        elif self._done < len(module.functions):
            self._queue.add(part_text(module, list(islice(module.functions, self._done, None))))
        return self._queue.finish()


def part_text(module: Module, names: Iterable[str]) -> str:
    """The text of a module that has some of the functions, for all parts to see."""
    part = Module(module.vector_bits, module.target)
    for name in names:
        part.functions[name] = module.functions[name].replace("define internal ", "define hidden ", 1)
    for name in dict.fromkeys(found for text in part.functions.values() for found in _NAME.findall(text)):
        if name in part.functions:
            continue
        if name in module.globals:
            part.globals[name] = module.globals[name]
        elif name in module.functions:
            part.declarations[name] = _declaration(module.functions[name])
        elif name in module.declarations:
            part.declarations[name] = module.declarations[name]
    return part.text()


def _declaration(definition: str) -> str:
    found = _HEAD.search(definition)
    assert found is not None
    return f"declare hidden {found[1]} @{found[2]}({_PARAMETER.sub('', found[3])})"
