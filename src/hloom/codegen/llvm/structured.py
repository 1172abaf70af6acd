"""Structured code: local variables, loops, early exits, if and else.

Variables are allocas, which LLVM promotes to registers (`hloom.cpu.jit.llvm.generate`).
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from hloom.codegen.llvm.instructions import Block
from hloom.codegen.llvm.module import Function
from hloom.codegen.llvm.types import PTR, Type
from hloom.codegen.llvm.values import Operand, Value


class LocalVariable:
    """A local variable.

    Attributes:
        type: the LLVM type.
        pointer: address, for callees that set the variable.
    """

    __slots__ = ("_function", "pointer", "type")

    def __init__(self, function: Function, type: Type, initial: Operand | None = None) -> None:
        self._function, self.type = function, type
        self.pointer = function.allocate(type, align=type.size)
        if initial is not None:
            self.set(initial)

    def get(self) -> Value:
        """Load the value."""
        return self._function.load(self.type, self.pointer)

    def set(self, value: Operand) -> None:
        """Store a value."""
        self._function.store(self._function.operand(self.type, value), self.pointer)


class Section:
    """A section with early exits; see `section`."""

    def __init__(self, function: Function) -> None:
        self._function, self._after = function, Block()

    def leave_if(self, condition: Value) -> None:
        """Exit the section if a condition holds."""
        self._branch(condition, self._after)

    def leave(self) -> None:
        """Exit the section; the body, or an enclosing `when`, ends here."""
        self._function.jump(self._after)

    def _branch(self, condition: Value, target: Block) -> None:
        following = Block()
        self._function.branch(condition, target, following)
        self._function.start(following)

    def end(self) -> None:
        """End the section."""
        if not self._function.block.is_terminated:
            self._function.jump(self._after)
        self._function.start(self._after)


@contextmanager
def section(f: Function) -> Generator[Section]:
    """Emit a section with early exits: ``with section(f) as part: part.leave_if(x)``."""
    part = Section(f)
    yield part
    part.end()


class Repetition(Section):
    """An infinite loop with early exits; see `repeat`."""

    def __init__(self, function: Function) -> None:
        super().__init__(function)
        self._head = Block()

    def restart_if(self, condition: Value) -> None:
        """Continue with the next iteration if a condition holds."""
        self._branch(condition, self._head)

    def restart(self) -> None:
        """Continue with the next iteration; the body, or an enclosing `when`, ends here."""
        self._function.jump(self._head)

    @contextmanager
    def run(self) -> Generator[Repetition]:
        """Emit the loop around the body."""
        f = self._function
        f.jump(self._head)
        f.start(self._head)
        yield self
        if not f.block.is_terminated:
            f.jump(self._head)
        f.start(self._after)


@contextmanager
def repeat(f: Function) -> Generator[Repetition]:
    """Emit an infinite loop with early exits: ``with repeat(f) as loop: loop.leave_if(x)``."""
    with Repetition(f).run() as loop:
        yield loop


class Choice:
    """An if with an else; see `choose`."""

    def __init__(self, function: Function, condition: Value) -> None:
        self._function, self._other, self._after = function, Block(), Block()
        body = Block()
        function.branch(condition, body, self._other)
        function.start(body)

    def otherwise(self) -> None:
        """Begin the else branch."""
        if not self._function.block.is_terminated:
            self._function.jump(self._after)
        self._function.start(self._other)

    def end(self) -> None:
        """End the else branch."""
        if not self._function.block.is_terminated:
            self._function.jump(self._after)
        self._function.start(self._after)


@contextmanager
def choose(f: Function, condition: Value) -> Generator[Choice]:
    """Emit an if with an else: the then branch up to ``choice.otherwise()``, the else branch after it."""
    choice = Choice(f, condition)
    yield choice
    choice.end()


def null(f: Function) -> Value:
    """Return the null pointer."""
    return f.constant(PTR, 0)


def is_null(pointer: Value) -> Value:
    """Return whether a pointer is null."""
    return pointer.compare("eq", 0)


def is_zero(number: Value) -> Value:
    """Return whether an integer is 0."""
    return number.compare("eq", 0)
