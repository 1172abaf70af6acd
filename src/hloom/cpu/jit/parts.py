"""Division of a module into parts that LLVM compiles in parallel.

Functions are assigned to parts in the order of emission, so that the first parts are compiled while later
functions are still being emitted. Functions are visible to all parts; each part has its own copy of the short
constants that it reads.
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
"""Least text of a part: some twenty times the fixed cost of a part."""


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
        if sum(len(module.functions[name]) for name in fresh) >= PART_CHARACTERS:
            self._queue.add(part_text(module, fresh))
            self._done += len(fresh)

    def finish(self, module: Module) -> list[bytes]:
        """Return the objects of all parts of the finished module; raises CompilerError."""
        if not self._done:
            self._queue.add(module.text())
        elif self._done < len(module.functions):
            self._queue.add(part_text(module, list(islice(module.functions, self._done, None))))
        return self._queue.finish()


def part_text(module: Module, names: Iterable[str]) -> str:
    """Return the text of a part with some of the functions, visible to all parts."""
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
