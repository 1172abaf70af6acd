"""Basic blocks."""

from __future__ import annotations

from typing import Final

from hloom.codegen.llvm.instructions import Instruction

TERMINATORS: Final = frozenset(("br", "switch", "ret", "unreachable"))
"""Opcodes of the instructions that end a block."""


class Block:
    """A basic block.

    Attributes:
        instructions: the last one is a terminator.
        name: in LLVM's text; set when the function is printed.
        key: its number; set when the function is compared.
    """

    __slots__ = ("instructions", "key", "name")

    key: int
    name: str

    def __init__(self) -> None:
        self.instructions: list[Instruction] = []

    @property
    def is_terminated(self) -> bool:
        """Return whether the last instruction transfers control."""
        return bool(self.instructions) and self.instructions[-1].opcode in TERMINATORS
