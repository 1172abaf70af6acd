"""Elementary functions in long kernels: calls of one copy in place of expansions.

An expansion has some 50 instructions, which take LLVM half a millisecond. A call costs a few nanoseconds a
vector and spills the values that live across it, but a kernel of more expansions than `MOST_EXPANSIONS`
exceeds the cache of decoded instructions and the registers anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from hloom.codegen.llvm import PTR, Function, Value
from hloom.codegen.types import Element

Expansion: TypeAlias = Callable[..., Element]

MOST_EXPANSIONS: Final = 8
"""Expansions of elementary functions in a function of the module; further ones are calls."""


def expand_or_call(name: str, expansion: Expansion, *operands: Element) -> Element:
    """Emit an elementary function: its expansion, or a call of the module's copy in a long kernel.

    Args:
        name: of the function; one name has one expansion for each list of operand types.
        expansion: emits the function; the result has the type of the first operand.
        operands: floats, or complex numbers as pairs of them.
    """
    values = [part for operand in operands for part in _parts(operand)]
    caller = Function.of(values[0])
    if caller.expansions < MOST_EXPANSIONS:
        caller.expansions += 1
        return expansion(*operands)
    callee = ".".join([name, *[value.type.suffix for value in values]])
    if callee not in caller.module.functions:
        _define(callee, expansion, operands, values)
    if isinstance(operands[0], Value):
        return caller.call(values[0].type, callee, *values)
    memory = caller.allocate(values[0].type, 2)
    caller.call(None, callee, *values, memory)
    first, second = (caller.load(values[0].type, caller.offset(memory, n, values[0].type)) for n in range(2))
    return first, second


def _parts(operand: Element) -> tuple[Value, ...]:
    return (operand,) if isinstance(operand, Value) else operand


def _define(name: str, expansion: Expansion, operands: Sequence[Element], values: Sequence[Value]) -> None:
    """Define a function of the parts of operands; it stores the two parts of a complex result."""
    types = [value.type for value in values]
    is_complex = not isinstance(operands[0], Value)
    module = Function.of(values[0]).module
    f = module.function(name, [*types, PTR] if is_complex else types, None if is_complex else types[0])
    parameters = iter(f.parameters)
    parts = [[next(parameters) for _ in _parts(operand)] for operand in operands]
    result = expansion(*[p[0] if len(p) == 1 else (p[0], p[1]) for p in parts])
    if isinstance(result, Value):
        f.finish(result)
        return
    for n, part in enumerate(result):
        f.store(part, f.offset(f.parameters[-1], n, part.type))
    f.finish()
