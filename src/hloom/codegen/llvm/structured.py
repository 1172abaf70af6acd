"""Variables, loops and choices, for code that is written as statements.

Variables live in stack memory, which LLVM turns into registers (`hloom.codegen.llvm.attributes.SIMPLIFIED`).
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from hloom.codegen.llvm.blocks import Block
from hloom.codegen.llvm.module import Function
from hloom.codegen.llvm.types import PTR, Type
from hloom.codegen.llvm.values import Operand, Value


class LocalVariable:
    """A local variable.

    Attributes:
        type: of its values.
        pointer: its address, for callees that set it.
    """

    __slots__ = ("_function", "pointer", "type")

    def __init__(self, function: Function, type: Type, initial: Operand | None = None) -> None:
        self._function, self.type = function, type
        self.pointer = function.allocate(type, align=type.size)
        if initial is not None:
            self.set(initial)

    def get(self) -> Value:
        """Return the value that was set last."""
        return self._function.load(self.type, self.pointer)

    def set(self, value: Operand) -> None:
        """Set the value."""
        self._function.store(self._function.operand(self.type, value), self.pointer)


class Section:
    """Code that its body may leave; see `section`."""

    def __init__(self, function: Function) -> None:
        self._function, self._after = function, Block()

    def leave_if(self, condition: Value) -> None:
        """Leave the section if a condition holds."""
        self._branch(condition, self._after)

    def leave(self) -> None:
        """Leave the section; the body, or that of `when`, ends here."""
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
    """Emit code that its body may leave before its end: ``with section(f) as part: part.leave_if(x)``."""
    part = Section(f)
    yield part
    part.end()


class Repetition(Section):
    """A loop without end, which its body leaves."""

    def __init__(self, function: Function) -> None:
        super().__init__(function)
        self._head = Block()

    def restart_if(self, condition: Value) -> None:
        """Begin the next iteration if a condition holds."""
        self._branch(condition, self._head)

    def restart(self) -> None:
        """Begin the next iteration; the body, or that of `when`, ends here."""
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
    """Emit a loop that its body leaves: ``with repeat(f) as loop: loop.leave_if(x)``."""
    with Repetition(f).run() as loop:
        yield loop


class Choice:
    """Two alternatives; see `choose`."""

    def __init__(self, function: Function, condition: Value) -> None:
        self._function, self._other, self._after = function, Block(), Block()
        body = Block()
        function.branch(condition, body, self._other)
        function.start(body)

    def otherwise(self) -> None:
        """End the first alternative, and begin the second."""
        if not self._function.block.is_terminated:
            self._function.jump(self._after)
        self._function.start(self._other)

    def end(self) -> None:
        """End the second alternative."""
        if not self._function.block.is_terminated:
            self._function.jump(self._after)
        self._function.start(self._after)


@contextmanager
def choose(f: Function, condition: Value) -> Generator[Choice]:
    """Emit two alternatives: the body to ``choice.otherwise()`` if the condition holds, else what follows."""
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
