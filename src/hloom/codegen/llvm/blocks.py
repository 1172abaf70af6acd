"""Basic blocks."""

from __future__ import annotations

from typing import Final

from hloom.codegen.llvm.instructions import Instruction

TERMINATORS: Final = frozenset(("br", "switch", "ret", "unreachable"))
"""Opcodes of the terminators."""


class Block:
    """A basic block.

    Attributes:
        instructions: the last one is a terminator.
        name: label in LLVM's text; assigned by the printer.
        key: number in the function; assigned by `Structure`.
    """

    __slots__ = ("instructions", "key", "name")

    key: int
    name: str

    def __init__(self) -> None:
        self.instructions: list[Instruction] = []

    @property
    def is_terminated(self) -> bool:
        """Whether the last instruction is a terminator."""
        return bool(self.instructions) and self.instructions[-1].opcode in TERMINATORS
