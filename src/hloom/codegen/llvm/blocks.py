"""Basic blocks."""

from __future__ import annotations

from hloom.codegen.llvm.instructions import Instruction


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
