"""Compilation of a module to object code: passes, emission, LLVM. Imported only on a cache miss."""

from __future__ import annotations

from collections.abc import Callable

from hloom.codegen.target import OPTIMIZED, Target
from hloom.cpu import emitters  # noqa: F401  # pyright: ignore[reportUnusedImport]  (registers emitters)
from hloom.cpu.jit.cache import Entry
from hloom.cpu.jit.host_call_text import places_of_calls, text_of_calls
from hloom.cpu.jit.llvm import CodeQueue
from hloom.cpu.jit.parts import PartStream
from hloom.cpu.jit.program_facts import ProgramFacts, signature_of
from hloom.cpu.pipeline import CPU_PIPELINE
from hloom.cpu.program import NativeProgram, emit_program
from hloom.cpu.runtime.timers import Timer
from hloom.ir.cloning import clone_module
from hloom.ir.module import HloModule
from hloom.passes.pipeline import Pass
from hloom.phases import phase
from hloom.runtime.cores import available_cores


def optimize(module: HloModule, observe: Callable[[Pass, HloModule], None] | None = None) -> HloModule:
    """Return a copy of ``module`` after the CPU backend's passes.

    ``observe`` is called after each pass that changed the copy, with the pass and the changed copy.
    """
    with phase("passes", "copy"):
        optimized = clone_module(module)
    CPU_PIPELINE.run(optimized, observe)
    return optimized


def compile_module(
    module: HloModule,
    target: Target,
    *,
    timer: type[Timer] | None = None,
    level: int = OPTIMIZED,
    keeps_packed: bool = False,
) -> tuple[NativeProgram, Entry]:
    """Compile an optimized module to object code for ``target``.

    Returns the program as LLVM IR, and a cache entry with its object files and the facts needed to run them.

    Args:
        module: the module after `optimize`.
        target: the machine to make code for.
        timer: the class that emits code to measure each instruction's time; None to measure no times; see
            `hloom.cpu.runtime.timers`.
        level: optimization level of LLVM's code generator.
        keeps_packed: whether callers keep packed copies of arguments from run to run; see
            `hloom.cpu.packed_arguments`.
    """
    stream = PartStream(CodeQueue(target, available_cores(), level))
    program = emit_program(module, target, timer=timer, on_kernel=stream.offer, keeps_packed=keeps_packed)
    with phase("emission", "text for LLVM"):
        objects = stream.finish(program.module)
    facts = ProgramFacts(
        signature_of(module),
        program.temp_bytes,
        program.argument_bytes,
        program.result_bytes,
        program.work,
        program.is_bounded,
        places_of_calls(module, program.host_calls),
        text_of_calls(module, program.host_calls),
        "hloom_parallel" in program.module.declarations,
        tuple(program.module.data),
        program.reuses,
        tuple((p.argument, p.bytes, p.form) for p in program.packed),
    )
    return program, Entry(facts.to_json(), [*objects, *program.module.data.values()])
