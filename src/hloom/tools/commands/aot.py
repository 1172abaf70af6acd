"""`hloom aot`: compile a program to an object file and a C header, for use without Python.

The object defines one function, ``void NAME_run(const void** arguments, void** results, void* temp)``; the
header describes its arguments and results. It links against the C library (``-lm``), and with several threads
against POSIX threads.
"""

from __future__ import annotations

import ctypes
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hloom.buffers.buffers import leaves
from hloom.codegen.llvm import I8, I32, I64, PTR, VOID, Function, Module, Value, print_module
from hloom.codegen.llvm.declarations import GlobalVariable
from hloom.codegen.llvm.fields import Fields
from hloom.codegen.llvm.memory import fill_bytes
from hloom.codegen.target import Target, host
from hloom.cpu.jit.compilation import optimize
from hloom.cpu.jit.llvm import check_intrinsics, generate, simplified_names
from hloom.cpu.program import ENTRY, NativeProgram, emit_program
from hloom.cpu.runtime.routines.pool import hloom_parallel, hloom_pool_stop
from hloom.cpu.runtime.structs import CONTEXT, POOL
from hloom.cpu.runtime.support import pool_code
from hloom.errors import HloError
from hloom.ir.module import HloModule
from hloom.tools.commands.c_header import header_text

MOST_THREADS: Final = 4096
_C_FUNCTIONS: Final = frozenset(("memcpy", "memmove", "memset", "memcmp", "fma", "fmaf", "fmod", "fmodf"))
"""Functions of the C library that compiled programs call."""

_TAKEN: Final = frozenset(("hloom", "hloom_pool"))
"""Prefixes with which C's names would be those of functions inside."""

_POOL_MEMORY: Final = "pool_memory"


@dataclass(frozen=True, slots=True)
class CompiledObject:
    """A program as an object file.

    Attributes:
        name: the prefix of its names in C.
        code: an object file (ELF).
        header: a C header.
        temp_bytes: memory that a run needs beside arguments and results.
    """

    name: str
    code: bytes
    header: str
    temp_bytes: int

    def save(self, code: Path, header: Path) -> None:
        """Write both files."""
        code.write_bytes(self.code)
        header.write_text(self.header)


def compile_ahead(
    module: HloModule, target: Target | None = None, *, name: str = "", threads: int = 1
) -> CompiledObject:
    """Compile a program for use without Python.

    Args:
        module: the program.
        target: by default this machine.
        name: prefix of the names in C; by default the module's name, with ``_`` for invalid characters.
        threads: number of compute threads; with 1 the code does not use the pool.

    Raises HloError by the rules ``aot.host-call`` (operations that need Python), ``aot.dynamic-shape``,
    ``aot.name``, ``aot.threads``, and by the rules that the program breaks.
    """
    module.verify()
    prefix = _c_name(name or module.name, given=bool(name))
    if not 1 <= threads <= MOST_THREADS:
        raise HloError(f"--threads is 1 to {MOST_THREADS}, got {threads}", rule="aot.threads")
    _check_shapes(module)
    machine = target or host()
    program = emit_program(optimize(module), machine, interruptible=False)
    if program.host_calls:
        described = ", ".join(f"%{i.name} ({i.opcode})" for i in program.host_calls[:8])
        suffix = f" and {len(program.host_calls) - 8} more" if len(program.host_calls) > 8 else ""
        message = f"the program calls Python while it runs, for {described}{suffix}"
        raise HloError(message, rule="aot.host-call")
    threaded = threads > 1 and hloom_parallel.name in program.module.declarations
    text = _object_text(program, prefix, threads, threaded)
    check_intrinsics(program.module, machine)
    linked, linked_names = pool_code(machine) if threaded else ("", [])
    code = generate(
        text,
        machine,
        simplified=[*simplified_names(program.module), *linked_names],
        linked=linked,
        internal=(hloom_parallel.name, hloom_pool_stop.name) if threaded else (),
    )
    header = header_text(module, machine, prefix, temp_bytes=program.temp_bytes, threads=threads)
    return CompiledObject(prefix, code, header, program.temp_bytes)


def _c_name(name: str, *, given: bool) -> str:
    """Return a valid C name; raise HloError if a given name is not one."""
    if re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) and name not in _TAKEN:
        return name
    if given:
        raise HloError(f"--name is a C identifier that is not reserved, got {name!r}", rule="aot.name")
    identifier = re.sub(r"\W", "_", name, flags=re.ASCII)
    return (
        identifier
        if re.match("[A-Za-z_]", identifier) and identifier not in _TAKEN
        else f"program_{identifier}"
    )


def _check_shapes(module: HloModule) -> None:
    for shape in (*(p.shape for p in module.entry.parameters), module.entry.root.shape):
        for _, leaf in leaves(shape):
            if leaf.is_array and not leaf.is_static:
                message = f"arguments and results have fixed sizes; there is a {leaf}"
                raise HloError(message, rule="aot.dynamic-shape")


# -- the object


def _object_text(program: NativeProgram, name: str, threads: int, threaded: bool) -> str:
    """Return the module of the entry, kernels and constants, and of the pool's memory if there is a pool."""
    module = program.module
    for constant in module.globals.values():
        constant.external = False
    module.functions[ENTRY].internal = True
    outside = [d for d in module.declarations if d not in module.functions and not d.startswith("llvm.")]
    unknown = [d for d in outside if d not in (*_C_FUNCTIONS, hloom_parallel.name)]
    if unknown:
        message = f"the program calls {', '.join(unknown)}, which no C library has"
        raise HloError(message, rule="aot.external")
    if threaded:
        _add_pool(module, threads)
    elif hloom_parallel.name in outside:
        _add_serial_loops(module)
    run = module.function(f"{name}_run", [PTR, PTR, PTR], internal=False)
    context = _pool_context(run) if threaded else run.constant(PTR, 0)
    run.call(I32, ENTRY, *run.parameters, context)
    run.finish()
    if threads > 1:
        stop = module.function(f"{name}_stop", [], internal=False)
        if threaded:
            _reset_pool(stop, threads)
        stop.finish()
    return print_module(module)


def _add_serial_loops(module: Module) -> None:
    """Define ``hloom_parallel`` for one thread."""
    f = module.function(hloom_parallel.name, [PTR, PTR, PTR, I64, I64], I32)
    _, task, arguments, iterations, _ = f.parameters
    f.call_pointer(VOID, task, arguments, f.constant(I64, 0), iterations)
    f.finish(f.constant(I32, 0))


def _add_pool(module: Module, threads: int) -> None:
    """Add the memory of a pool whose threads have not started."""
    fields = ctypes.string_at(POOL.allocate(threads=threads).address, POOL.size)
    memory = GlobalVariable(_POOL_MEMORY, POOL.size_with(threads), POOL.alignment, fields)
    module.variables[memory.name] = memory


def _pool_context(f: Function) -> Value:
    """Return a context that has the pool, and nothing else."""
    context = Fields(CONTEXT, f.allocate(I8, CONTEXT.size, align=CONTEXT.alignment))
    fill_bytes(context.pointer, f.constant(I8, 0), CONTEXT.size)
    context["pool"] = f.address(_POOL_MEMORY)
    return context.pointer


def _reset_pool(f: Function, threads: int) -> None:
    """End the threads, and make the pool one whose threads have not started."""
    pool = Fields(POOL, f.address(_POOL_MEMORY))
    hloom_pool_stop.external()(f, pool)
    fill_bytes(pool.pointer, f.constant(I8, 0), POOL.size_with(threads))
    pool["threads"] = threads
