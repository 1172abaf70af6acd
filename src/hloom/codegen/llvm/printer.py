"""Modules as LLVM IR text.

Values are numbered in the order of their definitions, like unnamed values of LLVM.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from hloom.codegen.llvm.attributes import attributes_text
from hloom.codegen.llvm.declarations import FunctionDeclaration, GlobalConstant, GlobalVariable
from hloom.codegen.llvm.module import Function, Module
from hloom.codegen.llvm.types import VOID

_value_names: Final[list[str]] = []
_block_names: Final[list[str]] = ["entry"]


def _extend(names: list[str], prefix: str, count: int) -> list[str]:
    """Return the list, extended to at least ``count`` names."""
    if len(names) < count:
        names.extend([f"{prefix}{n}" for n in range(len(names), 2 * count)])
    return names


def print_module(module: Module) -> str:
    """Return the text of a module."""
    declared = [d for name, d in module.declarations.items() if name not in module.functions]
    return "\n".join(
        [
            *map(print_global, module.globals.values()),
            *map(print_variable, module.variables.values()),
            *[print_function(f) for f in module.functions.values()],
            *map(print_declaration, declared),
            _common_attributes(module),
        ]
    )


def print_part(module: Module, names: Iterable[str]) -> str:
    """Return the text of a module with some of the functions, visible to the other parts of the program."""
    functions = {name: module.functions[name] for name in names}
    used = dict.fromkeys(
        symbol for f in functions.values() for symbol in f.symbols if symbol not in functions
    )
    return "\n".join(
        [
            *[print_global(module.globals[symbol]) for symbol in used if symbol in module.globals],
            *[print_function(f, hidden=True) for f in functions.values()],
            *[_print_callee(module, symbol) for symbol in used if symbol not in module.globals],
            _common_attributes(module),
        ]
    )


def _print_callee(module: Module, symbol: str) -> str:
    if symbol in module.functions:
        return print_declaration(module.functions[symbol], hidden=True)
    return print_declaration(module.declarations[symbol])


def _common_attributes(module: Module) -> str:
    return f"attributes #0 = {{{attributes_text(module.attributes)} }}\n"


def print_declaration(callee: Function | FunctionDeclaration, *, hidden: bool = False) -> str:
    """Return the declaration of a function."""
    types = zip(callee.parameter_types, callee.parameter_attributes, strict=True)
    parameters = ", ".join([f"{type.text}{attributes_text(listed)}" for type, listed in types])
    attributes = "" if hidden else attributes_text(callee.attributes)
    visibility = "hidden " if hidden else ""
    return f"declare {visibility}{callee.result.text} @{callee.name}({parameters}){attributes}"


def print_global(constant: GlobalConstant) -> str:
    """Return the definition of a constant, or its declaration if the loader places the bytes."""
    kind = f"[{len(constant.data)} x i8]"
    if constant.external:
        return f"@{constant.name} = external hidden constant {kind}, align {constant.align}"
    value = _bytes_text(constant.data)
    return f"@{constant.name} = private unnamed_addr constant {kind} {value}, align {constant.align}"


def _bytes_text(data: bytes) -> str:
    body = "\\" + data.hex("\\") if data else ""
    return f'c"{body}"'


def print_variable(variable: GlobalVariable) -> str:
    """Return the definition of a mutable global, or the declaration of another object's."""
    start = variable.data.rstrip(b"\0")
    kind = f"[{variable.size} x i8]"
    value = "zeroinitializer"
    if start:
        parts = f"[{len(start)} x i8]", f"[{variable.size - len(start)} x i8]"
        kind = f"<{{ {', '.join(parts)} }}>"
        value = f"<{{ {parts[0]} {_bytes_text(start)}, {parts[1]} zeroinitializer }}>"
    definition = kind if variable.linkage == "external hidden" else f"{kind} {value}"
    return f"@{variable.name} = {variable.linkage} global {definition}, align {variable.align}"


def print_function(f: Function, *, hidden: bool = False) -> str:
    """Return the definition of a function; ``hidden`` makes internal ones visible to the whole program."""
    _name_values(f)
    linkage = ("hidden " if hidden else "internal ") if f.internal else ""
    parameters = ", ".join([f"{p.type.text}{attributes_text(p.attributes)} {p.name}" for p in f.parameters])
    attributes = attributes_text(f.attributes)
    lines = [f"define {linkage}{f.result.text} @{f.name}({parameters}){attributes} #0 {{"]
    for block in f.blocks:
        lines.append(block.name + ":")
        if block is f.blocks[0]:
            lines += [instruction.line() for instruction in (*f.stack, *f.prologue)]
        lines += [instruction.line() for instruction in block.instructions]
    lines.append("}\n")
    return "\n".join(lines)


def _name_values(f: Function) -> None:
    """Name values and blocks by number, constants by their text."""
    named = [*f.parameters, *f.stack]
    named += [i for block in f.blocks for i in block.instructions if i.type is not VOID]
    for value, name in zip(named, _extend(_value_names, "%", len(named)), strict=False):
        value.name = name
    for block, name in zip(f.blocks, _extend(_block_names, "b", len(f.blocks)), strict=False):
        block.name = name
    for constant in f.constants.values():
        constant.name = constant.text()
