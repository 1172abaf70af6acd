"""From a module to object code: passes, emission, LLVM. Loaded only where the cache has no answer."""

from __future__ import annotations

from collections.abc import Callable

from hloom.cpu import emitters  # noqa: F401  # pyright: ignore[reportUnusedImport]  (registers emitters)
from hloom.cpu.cache import Entry
from hloom.cpu.llvm import CodeQueue
from hloom.cpu.parts import PartStream
from hloom.cpu.pipeline import CPU_PIPELINE
from hloom.cpu.program import NativeProgram, emit_program
from hloom.cpu.target import Target, available_cores
from hloom.ir.cloning import clone_module
from hloom.ir.module import HloModule
from hloom.passes.pipeline import Pass


def optimize(module: HloModule, observe: Callable[[Pass, HloModule], None] | None = None) -> HloModule:
    """The module after all passes, which ``observe`` may watch; the one given stays as it is."""
    optimized = clone_module(module)
    CPU_PIPELINE.run(optimized, observe)
    return optimized


def compile_module(module: HloModule, target: Target, *, timed: bool = False) -> tuple[NativeProgram, Entry]:
    """The program of an optimized module, and its object code with what a caller must know.

    A timed program measures itself; see `hloom.cpu.profile`.
    """
    stream = PartStream(CodeQueue(target, available_cores()))
    program = emit_program(module, target, timed=timed, on_kernel=stream.offer)
    objects = stream.finish(program.module)
    facts = {
        "temp_bytes": program.temp_bytes,
        "argument_bytes": program.argument_bytes,
        "result_bytes": program.result_bytes,
        "work": program.work,
        "host_calls": len(program.host_calls),
        "shares": "hloom_parallel" in program.module.declarations,
        "data": list(program.module.data),
    }
    return program, Entry(facts, [*objects, *program.module.data.values()])
