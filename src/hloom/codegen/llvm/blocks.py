"""Basic blocks, and the control flow that is put together from them."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING

from hloom.codegen.llvm.control_flow import Phi
from hloom.codegen.llvm.instructions import Instruction
from hloom.codegen.llvm.values import Value

if TYPE_CHECKING:
    from hloom.codegen.llvm.function import Function


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


class Loop:
    """A counted loop under construction: ``with f.loop(low, high, step, carried) as loop``.

    Attributes:
        index: the induction variable.
        values: the carried values in this iteration; after the loop, the last ones.
    """

    __slots__ = ("_after", "_before", "_following", "_head", "_initial", "_phis", "_step", "index", "values")

    def __init__(
        self, function: Function, low: Value, high: Value, step: Value, carried: tuple[Value, ...]
    ) -> None:
        self._step, self._initial = step, (low, *carried)
        self._before = function.block
        self._head, body, self._after = Block(), Block(), Block()
        function.jump(self._head)
        function.start(self._head)
        self._phis = [Phi(function, value.type) for value in self._initial]
        self._head.instructions.extend(self._phis)
        self.index: Value = self._phis[0]
        self.values: tuple[Value, ...] = tuple(self._phis[1:])
        self._following = self.values
        function.branch(self.index.compare("slt", high), body, self._after)
        function.start(body)

    def next(self, *values: Value) -> None:
        """Set the carried values of the next iteration."""
        self._following = values

    def __enter__(self) -> Loop:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the loop; code that follows is executed after it."""
        if kind is not None:
            return
        function = self.index.function
        following = (function.flagged_binary("add", ("nsw",), self.index, self._step), *self._following)
        latch = function.block
        function.jump(self._head)
        for phi, initial, value in zip(self._phis, self._initial, following, strict=True):
            phi.incoming = ((initial, self._before), (value, latch))
        function.start(self._after)
