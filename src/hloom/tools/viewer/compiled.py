"""Data of a page from compilation for the cpu backend: the program after each pass, memory and code."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hloom.codegen.target import host
from hloom.cpu.jit.compilation import optimize
from hloom.cpu.program import KERNELS, assign_program, emit_program
from hloom.ir.module import HloModule
from hloom.ir.value import Value
from hloom.passes.expand.dynamic_form import is_dynamic
from hloom.passes.expand.dynamic_padder import static_module
from hloom.passes.fuel import recorded
from hloom.passes.pipeline import Pass
from hloom.plan.kernel import plan_program
from hloom.tools.viewer.memory import memory_data
from hloom.tools.viewer.native_code import code_data
from hloom.tools.viewer.program import Stage, stage_of


def compiled_parts(
    module: HloModule, progress: Callable[[str], None] = lambda text: None
) -> tuple[list[Stage], dict[str, object]]:
    """Compile a module; return the program after each pass that changed it, and the parts of the result.

    `progress` is called with the name of each pass. Raises HloError for a program that the backend cannot
    compile.
    """
    stages: list[Stage] = []
    module.verify()
    static = static_module(module) if is_dynamic(module) else module

    def observe(item: Pass, program: HloModule) -> None:
        progress(f"after {item.name}")
        stages.append(stage_of(program, f"after {item.name}", rewrites=rewrites))
        rewrites.clear()

    with recorded() as rewrites:
        optimized = optimize(static, observe)
    plans = plan_program(optimized, KERNELS, host())
    assignment = assign_program(optimized, plans)
    program = emit_program(optimized, host())
    return stages, {"memory": memory_data(assignment), "code": code_data(program)}


def time_part(module: HloModule, arguments: Sequence[Sequence[Value]]) -> dict[str, object]:
    """Run a module on the cpu backend on the arguments of each device, and return the part `time`."""
    from hloom.runtime.executable import compile
    from hloom.tools.viewer.timing import time_data

    executable = compile(module)
    one = len(executable.devices) == 1
    profile = executable.profile(*arguments[0]) if one else executable.profile(arguments)
    recordings = [recording for _, recording in executable.record(arguments)]
    return {"time": time_data(profile, recordings)}
