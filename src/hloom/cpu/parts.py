"""A module in several parts, which LLVM compiles at the same time.

Functions are dealt out by the length of their text. A function that another part calls becomes visible to the
other parts, and a constant that several parts read is defined in one of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from hloom.cpu.llvm_text import Module

_NAME: Final = re.compile(r"@([\w.]+)")
_HEAD: Final = re.compile(r"define (?:internal )?(\S.*?) @([\w.]+)\((.*?)\)")
_PARAMETER: Final = re.compile(r" %\w+")
_CONSTANT: Final = re.compile(r"= private (?:unnamed_addr )?(constant|global) (\[\d+ x i\d+\]|\S+)")
PART_CHARACTERS: Final = 20_000
"""Text that is worth a part of its own: some ten times what a part costs by itself."""


def split(module: Module, most: int) -> list[str]:
    """The texts of at most so many modules that together are one."""
    whole = sum(map(len, module.functions.values()))
    count = max(1, min(most, whole // PART_CHARACTERS, len(module.functions)))
    if count == 1:
        return [module.text()]
    loads = [0] * count
    home: dict[str, int] = {}
    for name in sorted(module.functions, key=lambda name: -len(module.functions[name])):
        home[name] = loads.index(min(loads))
        loads[home[name]] += len(module.functions[name])
    used = [dict[str, None]() for _ in range(count)]
    for name, text in module.functions.items():
        used[home[name]].update(dict.fromkeys(_NAME.findall(text)))
    readers: dict[str, list[int]] = {name: [] for name in module.globals}
    for part, names in enumerate(used):
        for name in names:
            if name in readers:
                readers[name].append(part)
    visible = {n for part, names in enumerate(used) for n in names if home.get(n, part) != part}
    return [_part(module, part, home, used[part], readers, visible) for part in range(count)]


def _part(
    module: Module, part: int, home: dict[str, int], used: Iterable[str], readers: dict[str, list[int]],
    visible: set[str],
) -> str:  # fmt: skip
    piece = Module(module.vector_bits, module.target)
    for name in used:
        if name in readers:
            piece.globals[name] = _global(module.globals[name], part, readers[name])
        elif home.get(name, part) != part:
            piece.declarations[name] = _declaration(module.functions[name])
        elif name in module.declarations:
            piece.declarations[name] = module.declarations[name]
    for name, text in module.functions.items():
        if home[name] == part:
            shown = text.replace("define internal ", "define hidden ", 1) if name in visible else text
            piece.functions[name] = shown
    return piece.text()


def _global(text: str, part: int, readers: list[int]) -> str:
    """A constant as a part sees it: its own, one it defines for others, or one that another part defines."""
    if len(readers) < 2:
        return text
    if readers[0] == part:
        return re.sub(r"= private ", "= hidden ", text, count=1)
    found = _CONSTANT.search(text)
    if found is None:
        return text
    name = text.partition(" ")[0]
    return f"{name} = external hidden {found[1]} {found[2]}, align 64"


def _declaration(definition: str) -> str:
    found = _HEAD.search(definition)
    assert found is not None
    return f"declare hidden {found[1]} @{found[2]}({_PARAMETER.sub('', found[3])})"
