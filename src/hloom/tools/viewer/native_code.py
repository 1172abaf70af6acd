"""Data of the code views: LLVM IR and assembly, with the lines of each kernel."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from hloom.cpu.program import NativeProgram
from hloom.regex import regex

_DEFINITION: Final = regex(r'define .*@"?([\w.$]+)"?\(')
_LABEL: Final = regex(r'"?([A-Za-z_][\w$]*)"?:')


def code_data(program: NativeProgram) -> dict[str, object]:
    """Return the lines of a program's LLVM IR and assembly, and the kernel of each instruction."""
    from hloom.cpu.jit.llvm import generate_module

    assembly = generate_module(program.module, assembly=True).decode()
    functions = set(program.module.functions)
    return {
        "llvm": _parts(program.text, _DEFINITION.match, functions, "}"),
        "assembly": _parts(assembly, _LABEL.match, functions, ".Lfunc_end"),
        "kernelOf": {call.instruction: call.function for call in program.calls},
    }


def _parts(
    text: str, opens: Callable[[str], re.Match[str] | None], functions: set[str], end: str
) -> dict[str, object]:
    """Return the lines of a text, and the half-open range of lines of each function."""
    lines = text.split("\n")
    ranges: dict[str, tuple[int, int]] = {}
    name, first = "", 0
    for number, line in enumerate(lines):
        match = opens(line)
        if match is not None and match[1] in functions:
            name, first = match[1], number
        elif name and line.startswith(end):
            ranges[name] = (first, number + 1)
            name = ""
    return {"lines": lines, "kernels": ranges}
