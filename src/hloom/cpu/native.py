"""Native programs: modules compiled, or found in the cache, and loaded.

Imports that only compilation needs (passes, emitters, LLVM) are local to functions, so that cached programs
start without them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hloom.analysis.in_flight import check_values_in_flight
from hloom.codegen.target import OPTIMIZED, Target, host, reproducible_target
from hloom.cpu.caller import Caller
from hloom.cpu.inspection import Inspection
from hloom.cpu.jit.cache import Entry, configured_cache, key_of
from hloom.cpu.jit.host_call_text import calls_in
from hloom.cpu.jit.program_facts import ProgramFacts, signature_of
from hloom.cpu.loaded_program import LoadedProgram, cached_program
from hloom.cpu.runtime.support import begin_support
from hloom.ir.collector import collector_paused
from hloom.ir.module import HloModule
from hloom.operations.custom_call import replaced_targets
from hloom.passes.expand.dynamic_form import is_dynamic
from hloom.phases import CompileProfile, phase, recording
from hloom.records import dataclass
from hloom.text.fingerprint import fingerprint

if TYPE_CHECKING:
    from hloom.cpu.dump import Dump
    from hloom.ir.instruction import HloInstruction


@dataclass(frozen=True, eq=False)
class NativeExecutable:
    """A module compiled to machine code, ready to run on arrays.

    Attributes:
        source: the original module.
        module: the original module if it has static sizes only; else a module in which arrays of dynamic size
            are padded to their bounds, with their sizes as further values.
        loaded: the machine code in memory.
        caller: runs the code on NumPy arrays.
        inspection: the optimized module, LLVM IR and assembly.
        host_calls: the instructions that may call back into Python.
        key: the key of the machine code in the cache; empty without a cache.
        from_cache: whether the machine code came from the cache.
        compile_profile: the times of the phases of compilation.
        dump: the writer of the module's dump files; None if it is not dumped.
    """

    source: HloModule
    module: HloModule
    loaded: LoadedProgram
    caller: Caller
    inspection: Inspection
    host_calls: Sequence[HloInstruction]
    key: str
    from_cache: bool
    compile_profile: CompileProfile
    dump: Dump | None

    @property
    def facts(self) -> ProgramFacts:
        """Properties of the program recorded when it was compiled, such as the sizes of its arguments."""
        return self.loaded.facts

    @property
    def calls_host(self) -> bool:
        return bool(self.host_calls)

    @property
    def runs_alone(self) -> bool:
        """Whether the program makes no calls into Python and has arrays of static size only."""
        return not self.calls_host and self.module is self.source


def compile_or_load(
    module: HloModule,
    flags: str = "",
    level: int = OPTIMIZED,
    *,
    cached: bool = True,
    reproducible: bool = False,
    keeps_packed: bool = False,
) -> NativeExecutable:
    """Load a module's machine code from the cache, or compile the module.

    A module that is compiled is verified first, which may raise HloError; one from the cache was verified
    when it was compiled.

    Args:
        flags: XLA dump flags, in addition to those in ``XLA_FLAGS``. A module that is dumped is always
            compiled.
        level: optimization level of LLVM's code generator.
        cached: false to compile the module although it may be in the cache, and not to store it there.
        reproducible: results have the same bits on all processors; see `hloom.compile`.
        keeps_packed: whether the code can read arguments from packed copies, in the order in which kernels
            read them, that its caller keeps from run to run.
    """
    with recording() as profile:
        source, module = module, _static_form(module)
        target = reproducible_target(host()) if reproducible else host()
        cache = configured_cache() if cached else None
        dump = _dump(source, flags)
        key, loaded = "", None
        if cache is not None:
            with phase("loading", "look-up in the cache"):
                key = key_of(*_key_parts(module, level, target, keeps_packed), *replaced_targets())
                loaded = None if dump is not None else _cached(key, module)
        if loaded is not None:
            inspection, from_cache = Inspection(module, target), True
            calls = calls_in(loaded.facts.text, loaded.facts.host_calls)
        else:
            with collector_paused():
                inspection, entry = _compile(module, target, level, dump, keeps_packed)
            calls = inspection.program.host_calls
            if cache is not None:
                with phase("loading", "writing to the cache"):
                    cache.put(key, entry)
            with phase("loading", "machine code into memory"):
                loaded, from_cache = LoadedProgram(entry), False
    caller = Caller(module, loaded)
    return NativeExecutable(source, module, loaded, caller, inspection, calls, key, from_cache, profile, dump)


def _static_form(module: HloModule) -> HloModule:
    """Return a copy of a module in which arrays of dynamic size are padded to their bounds.

    Their sizes become separate scalars. If no array has a dynamic size, returns ``module`` itself.
    """
    if not is_dynamic(module):
        return module
    from hloom.passes.expand.dynamic_padder import static_module

    module.verify()
    return static_module(module)


def _key_parts(module: HloModule, level: int, target: Target, keeps_packed: bool) -> Sequence[str]:
    kind = "program with packed arguments" if keeps_packed else "program"
    return kind, fingerprint(module), target.identity, f"level {level}"


def _cached(key: str, module: HloModule) -> LoadedProgram | None:
    """Load the program that the cache holds for ``key``; None if it holds none.

    Also returns None if the shapes of the program's parameters and result are not those of ``module``.
    """
    loaded = cached_program(key)
    return loaded if loaded is not None and loaded.facts.signature == signature_of(module) else None


def _compile(
    module: HloModule, target: Target, level: int, dump: Dump | None, keeps_packed: bool
) -> tuple[Inspection, Entry]:
    """Verify, optimize and compile a module; return its HLO and LLVM IR, and its code as a cache entry."""
    begin_support()
    from hloom.cpu.jit.compilation import compile_module, optimize

    with phase("verification", "rules"):
        module.verify()
    with phase("verification", "values in flight"):
        check_values_in_flight(module)
    optimized = optimize(module, None if dump is None else dump.after_pass)
    program, entry = compile_module(optimized, target, level=level, keeps_packed=keeps_packed)
    if dump is not None:
        dump.compiled(optimized, program, entry, target)
    return Inspection(module, target, optimized, program), entry


def _dump(module: HloModule, flags: str) -> Dump | None:
    """Return the writer of a module's dump files; None unless the flags or ``XLA_FLAGS`` ask for a dump."""
    if "xla_dump" not in os.environ.get("XLA_FLAGS", "") and not flags:
        return None
    from hloom.cpu.dump import begin_dump
    from hloom.cpu.pipeline import CPU_PIPELINE

    return begin_dump(module, CPU_PIPELINE, flags)
