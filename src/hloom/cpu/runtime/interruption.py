"""Polls of native programs for Ctrl-C and for failures of other devices.

A program polls between kernels and at the back edges of loops (``hloom_poll`` in `routines/interruption.py`),
``hloom_parallel`` between chunks; a nonzero status makes the program return nonzero. A poll takes about 30
ns. A loop therefore polls once per `POLL_WORK` operations: it subtracts the work of each iteration from a
counter, which costs one instruction and an untaken branch. A kernel that runs in one thread is not
interrupted.
"""

from __future__ import annotations

from typing import Final

from hloom.codegen.llvm import I32, I64, PTR, Attribute, Function, Value
from hloom.cpu.runtime.context import POLL_FUNCTION

POLL_WORK: Final = 1 << 18
"""Elementary operations between the polls of a loop: 20 us to a few ms."""
LONG_LOOP: Final = 1 << 24
"""Loops of less work do not poll: they end within about 10 ms."""
LONG_KERNELS: Final = 1 << 22
"""Work of kernels between the polls of straight-line code."""
_ATTRIBUTES: Final = (
    Attribute("cold"),
    Attribute("nounwind"),
    Attribute("memory(argmem: readwrite, inaccessiblemem: readwrite)"),
)
"""A poll accesses no array of the program, so that loops keep values in registers."""


class PollEmitter:
    """Emits polls into a program's entry function: calls that tell whether the program must end early.

    ``context`` is the entry function's parameter that points to the run context.
    """

    def __init__(self, function: Function, context: Value) -> None:
        self._function = function
        self._context = context
        self._countdown: Value | None = None
        self._last: Value | None = None
        self._work = 0

    def after_kernel(self, work: int) -> None:
        """Emit a poll if the kernels emitted since the last one have at least `LONG_KERNELS` operations.

        ``work`` is the number of operations of the kernel emitted last.
        """
        self._work += work
        if self._work >= LONG_KERNELS:
            self._poll()

    def at_back_edge(self, work: int) -> None:
        """Emit code for the end of a loop's body that polls once per `POLL_WORK` operations.

        ``work`` is the number of elementary operations of one iteration.
        """
        f = self._function
        if self._countdown is None:
            self._countdown = self._variable(POLL_WORK)
        countdown = f.load(I64, self._countdown) - max(1, min(work, POLL_WORK))
        f.store(countdown, self._countdown)
        poll, after = f.new_block(), f.new_block()
        f.branch(countdown.compare("slt", 0), poll, after)
        f.start(poll)
        f.store(f.constant(I64, POLL_WORK), self._countdown)
        self._poll()
        f.jump(after)
        f.start(after)

    def _poll(self) -> None:
        f = self._function
        self._work = 0
        if self._last is None:
            self._last = self._variable(0)
        nocapture = {1: (Attribute("nocapture"),)}
        poll = f.module.declare(
            POLL_FUNCTION, I32, [I64, PTR], attributes=_ATTRIBUTES, parameter_attributes=nocapture
        )
        status = f.call(I32, poll, f.convert("ptrtoint", self._context, I64), self._last)
        f.return_if(status.compare("ne", 0), 1)

    def _variable(self, value: int) -> Value:
        """Allocate a 64-bit stack variable, set to ``value`` at the function's start; return its address."""
        f = self._function
        word = f.allocate(I64, align=8)
        f.initialize(word, f.constant(I64, value))
        return word
