"""Inspection of a compiled program: optimized module, LLVM IR, cost, timed programs."""

from __future__ import annotations

import threading
from functools import cached_property
from typing import TYPE_CHECKING

from hloom.ir.module import HloModule

if TYPE_CHECKING:
    from hloom.analysis.cost import Cost
    from hloom.codegen.target import Target
    from hloom.cpu.program import NativeProgram
    from hloom.cpu.timed_program import RecordedProgram, TimedProgram


class Inspection:
    """The optimized HLO, LLVM IR, assembly and cost of a compiled program, and variants that measure times.

    They are computed on demand if the program came from the cache, which holds machine code only.
    """

    def __init__(
        self,
        module: HloModule,
        target: Target,
        optimized: HloModule | None = None,
        program: NativeProgram | None = None,
    ) -> None:
        self._module = module
        self._target = target
        self._optimized = optimized
        self._program = program
        self._compiling = threading.Lock()
        self._timed: TimedProgram | None = None
        self._recorded: RecordedProgram | None = None

    @property
    def optimized(self) -> HloModule:
        """The program's HLO module after all passes."""
        if self._optimized is None:
            from hloom.cpu.jit.compilation import optimize

            self._optimized = optimize(self._module)
        return self._optimized

    @property
    def program(self) -> NativeProgram:
        if self._program is None:
            from hloom.cpu.program import emit_program

            self._program = emit_program(self.optimized, self._target)
        return self._program

    def assembly(self) -> str:
        """Return the program's machine code as assembly text."""
        from hloom.cpu.jit.llvm import generate_module

        return generate_module(self.program.module, assembly=True).decode()

    @cached_property
    def cost(self) -> Cost:
        """The estimated cost of a run of the program: operations and bytes moved."""
        from hloom.analysis.cost import module_cost

        return module_cost(self.optimized)

    @property
    def timed(self) -> TimedProgram:
        """The program compiled with code that sums up the time of each instruction. Thread-safe.

        Compiled on first use.
        """
        from hloom.cpu.timed_program import TimedProgram

        with self._compiling:
            if self._timed is None:
                self._timed = TimedProgram(self.optimized, self._target)
            return self._timed

    @property
    def recorded(self) -> RecordedProgram:
        """The program compiled with code that records when each instruction begins and ends. Thread-safe.

        Compiled on first use.
        """
        from hloom.cpu.timed_program import RecordedProgram

        with self._compiling:
            if self._recorded is None:
                self._recorded = RecordedProgram(self.optimized, self._target)
            return self._recorded
