"""Data from compiling for the cpu backend: the program after each pass, memory, code and time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from hloom.codegen.target import host
from hloom.cpu.jit.compilation import optimize
from hloom.cpu.program import KERNELS, assign_program, emit_program
from hloom.ir.module import HloModule
from hloom.ir.value import Value
from hloom.passes.expand.dynamic_form import is_dynamic
from hloom.passes.expand.dynamic_padder import static_module
from hloom.passes.fuel import limited, recorded
from hloom.passes.pipeline import Pass
from hloom.plan.kernel import plan_program
from hloom.tools.viewer.memory import memory_data
from hloom.tools.viewer.native_code import code_data
from hloom.tools.viewer.program import Stage, program_data, stage_of

_MOST_INSTRUCTIONS: Final = 20_000
"""Limit of the instructions of all programs between rewrites in a page."""


def compiled_parts(
    module: HloModule, progress: Callable[[str], None] = lambda text: None
) -> tuple[list[Stage], dict[str, object]]:
    """Compile a module; return a stage for each pass that changed it, and the data of the tabs.

    `progress` is called with the name of each pass. Raises HloError if the backend cannot compile the
    program.
    """
    stages: list[Stage] = []
    module.verify()
    static = static_module(module) if is_dynamic(module) else module
    before, room = static, _MOST_INSTRUCTIONS

    def observe(item: Pass, program: HloModule) -> None:
        nonlocal before, room
        progress(f"after {item.name}")
        size = (len(rewrites) - 1) * before.instruction_count
        states = _between_rewrites(item, before, len(rewrites)) if 0 < size <= room else []
        room -= size if states else 0
        stages.append(stage_of(program, f"after {item.name}", rewrites=rewrites, states=states))
        rewrites.clear()
        before = program.clone()

    with recorded() as rewrites:
        optimized = optimize(static, observe)
    plans = plan_program(optimized, KERNELS, host())
    assignment = assign_program(optimized, plans)
    program = emit_program(optimized, host())
    return stages, {"memory": memory_data(assignment), "code": code_data(program)}


def _between_rewrites(item: Pass, before: HloModule, count: int) -> list[dict[str, object]]:
    """Return the data of a program after each of the `count` rewrites of a pass, the last one excepted."""
    states: list[dict[str, object]] = []
    for limit in range(1, count):
        program = before.clone()
        with limited(limit):
            item.run(program)
        states.append(program_data(program))
    return states


def time_part(module: HloModule, arguments: Sequence[Sequence[Value]]) -> dict[str, object]:
    """Run a module on the cpu backend with the arguments of each device; return the data of the time tab."""
    from hloom.runtime.executable import compile
    from hloom.tools.viewer.timing import time_data

    executable = compile(module)
    one = len(executable.devices) == 1
    profile = executable.profile(*arguments[0]) if one else executable.profile(arguments)
    recordings = [recording for _, recording in executable.record(arguments)]
    return {"time": time_data(profile, recordings)}
