"""Structural equality of functions, independent of names, and functions that equal callers share."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hloom.codegen.llvm.module import Function
from hloom.codegen.llvm.values import Value


class Structure:
    """A completed function as a key: equal for functions that differ only in names.

    The hash covers signature, opcodes and constants, which is cheap; equality compares everything. Attributes
    added to the function later are ignored.
    """

    __slots__ = ("_body", "_hash", "_opcodes", "_signature", "function")

    def __init__(self, function: Function) -> None:
        self.function = function
        parameters = tuple([(p.type, p.attributes) for p in function.parameters])
        self._signature = function.result, parameters, function.attributes, function.internal
        self._opcodes = tuple([i.opcode for block in function.blocks for i in block.instructions])
        self._hash = hash((self._signature, self._opcodes, tuple(function.constants)))
        self._body: tuple[list[object], ...] | None = None

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Structure):
            return NotImplemented
        if self._hash != other._hash or self._signature != other._signature:
            return False
        return self._opcodes == other._opcodes and self._described() == other._described()

    def _described(self) -> tuple[list[object], ...]:
        """Return a form of the body that does not depend on names; it is computed once."""
        if self._body is None:
            f = self.function
            instructions = [*f.stack, *f.prologue]
            for block in f.blocks:
                instructions += block.instructions
            for number, value in enumerate([*f.parameters, *instructions]):
                value.key = number
            for number, block in enumerate(f.blocks):
                block.key = number
            self._body = (
                [len(block.instructions) for block in f.blocks],
                [i.type for i in instructions],
                [i.fields() for i in instructions],
            )
        return self._body


def call_apart(
    caller: Function, name: str, values: Sequence[Value], body: Callable[[Function, Sequence[Value]], None]
) -> None:
    """Call a function that a body emits from parameters for some values; equal functions are emitted once.

    LLVM moves the constants of a loop's code in front of the loop, where they take registers; it moves none
    out of a function that the loop calls.
    """
    module = caller.module
    f = module.function(f"{name}{len(module.apart)}", [value.type for value in values])
    body(f, f.parameters)
    f.finish()
    callee = module.apart.setdefault(Structure(f), f)
    if callee is not f:
        del module.functions[f.name]
        f.discard()
    caller.call(None, callee, *values)
