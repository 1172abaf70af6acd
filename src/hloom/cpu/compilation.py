"""From a module to object code: passes, emission, LLVM. Loaded only where the cache has no answer."""

from __future__ import annotations

from hloom.cpu import emitters  # noqa: F401  # pyright: ignore[reportUnusedImport]  (registers emitters)
from hloom.cpu.cache import Entry
from hloom.cpu.llvm import generate_all
from hloom.cpu.parts import split
from hloom.cpu.pipeline import CPU_PIPELINE
from hloom.cpu.program import NativeProgram, emit_program
from hloom.cpu.target import Target, available_cores
from hloom.ir.cloning import clone_module
from hloom.ir.module import HloModule


def optimize(module: HloModule) -> HloModule:
    """The module after all passes; the one given stays as it is."""
    optimized = clone_module(module)
    CPU_PIPELINE.run(optimized)
    return optimized


def compile_program(program: NativeProgram, target: Target) -> Entry:
    """The object code of a program, and what its caller must know."""
    objects = generate_all(split(program.module, available_cores()), target, available_cores())
    facts = {
        "temp_bytes": program.temp_bytes,
        "argument_bytes": program.argument_bytes,
        "result_bytes": program.result_bytes,
        "work": program.work,
        "host_calls": len(program.host_calls),
        "data": list(program.module.data),
    }
    return Entry(facts, [*objects, *program.module.data.values()])


def compile_module(module: HloModule, target: Target) -> Entry:
    """The object code of a module."""
    return compile_program(emit_program(optimize(module), target), target)
