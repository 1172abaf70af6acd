"""`hloom aot`: compile a program to an object file and a C header, for use without Python.

The object defines ``void NAME_run(const void** arguments, void** results, void* temp)``; the header describes
its arguments and results. It links against the C library (``-lm``), and against POSIX threads if it uses
several threads.
"""

from __future__ import annotations

import ctypes
import re
from pathlib import Path
from typing import Final

from hloom.buffers.buffers import leaves
from hloom.codegen.llvm import I8, I32, I64, PTR, VOID, Function, Module, Value, print_module
from hloom.codegen.llvm.declarations import GlobalVariable
from hloom.codegen.llvm.fields import Fields
from hloom.codegen.llvm.memory import fill_bytes
from hloom.codegen.target import Target, host, without_tile_registers
from hloom.cpu.jit.compilation import optimize
from hloom.cpu.jit.llvm import check_intrinsics, generate, simplified_names
from hloom.cpu.program import ENTRY, NativeProgram, emit_program
from hloom.cpu.runtime.routines.pool import hloom_parallel, hloom_pool_stop
from hloom.cpu.runtime.structs import CONTEXT, POOL
from hloom.cpu.runtime.support_code import pool_code
from hloom.errors import HloError
from hloom.ir.module import HloModule
from hloom.records import dataclass
from hloom.tools.commands.c_header import header_text

MOST_THREADS: Final = 4096
_C_FUNCTIONS: Final = frozenset(("memcpy", "memmove", "memset", "memcmp", "fma", "fmaf", "fmod", "fmodf"))
"""Functions of the C library that compiled programs may call."""

_RESERVED: Final = frozenset(("hloom", "hloom_pool"))
"""Prefixes whose exported names would collide with internal functions."""

_POOL_MEMORY: Final = "pool_memory"


@dataclass(frozen=True, slots=True)
class CompiledObject:
    """A program as an object file.

    Attributes:
        name: the prefix of its C names.
        code: the contents of the ELF object file.
        header: the text of the C header.
        temp_bytes: size of the temporaries in bytes.
    """

    name: str
    code: bytes
    header: str
    temp_bytes: int

    def save(self, code: Path, header: Path) -> None:
        code.write_bytes(self.code)
        header.write_text(self.header)


def compile_ahead(
    module: HloModule, target: Target | None = None, *, name: str = "", threads: int = 1
) -> CompiledObject:
    """Compile a program for use without Python.

    Args:
        module: the program.
        target: by default this machine. AMX is not used: the caller's process would have to ask Linux for it.
        name: prefix of the C names; by default the module's name, with ``_`` for invalid characters.
        threads: number of compute threads; with 1 the code has no thread pool.

    Raises HloError with the rules ``aot.host-call`` (operations that need Python), ``aot.dynamic-shape``,
    ``aot.name``, ``aot.threads``, and those of invalid programs.
    """
    module.verify()
    prefix = _checked_name(name) if name else _c_name(module.name)
    if not 1 <= threads <= MOST_THREADS:
        raise HloError(f"--threads is 1 to {MOST_THREADS}, got {threads}", rule="aot.threads")
    _check_shapes(module)
    machine = without_tile_registers(target or host())
    program = emit_program(optimize(module), machine, interruptible=False)
    if program.host_calls:
        described = ", ".join(f"%{i.name} ({i.opcode})" for i in program.host_calls[:8])
        suffix = f" and {len(program.host_calls) - 8} more" if len(program.host_calls) > 8 else ""
        message = f"the program calls Python while it runs, for {described}{suffix}"
        raise HloError(message, rule="aot.host-call")
    threaded = threads > 1 and hloom_parallel.name in program.module.declarations
    text = _object_text(program, prefix, threads, threaded)
    check_intrinsics(program.module, machine)
    linked = pool_code(machine) if threaded else ""
    code = generate(
        text,
        machine,
        simplified=simplified_names(program.module),
        inline_and_promote=threaded,
        linked=linked,
        internal=(hloom_parallel.name, hloom_pool_stop.name) if threaded else (),
    )
    header = header_text(module, machine, prefix, temp_bytes=program.temp_bytes, threads=threads)
    return CompiledObject(prefix, code, header, program.temp_bytes)


def _checked_name(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) or name in _RESERVED:
        raise HloError(f"--name is a C identifier that is not reserved, got {name!r}", rule="aot.name")
    return name


def _c_name(name: str) -> str:
    """Return the C identifier that is nearest to a module's name."""
    identifier = re.sub(r"\W", "_", name, flags=re.ASCII)
    is_valid = re.match("[A-Za-z_]", identifier) and identifier not in _RESERVED
    return identifier if is_valid else f"program_{identifier}"


def _check_shapes(module: HloModule) -> None:
    for shape in (*(p.shape for p in module.entry.parameters), module.entry.root.shape):
        for _, leaf in leaves(shape):
            if leaf.is_array and not leaf.is_static:
                message = f"arguments and results have fixed sizes; there is a {leaf}"
                raise HloError(message, rule="aot.dynamic-shape")


# -- the object


def _object_text(program: NativeProgram, name: str, threads: int, threaded: bool) -> str:
    """Return the LLVM IR of the exported functions, kernels, constants, and the thread pool's memory."""
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
    """Define ``hloom_parallel`` as a call of the task on all iterations."""
    f = module.function(hloom_parallel.name, [PTR, PTR, PTR, I64, I64], I32)
    _, task, arguments, iterations, _ = f.parameters
    f.call_pointer(VOID, task, arguments, f.constant(I64, 0), iterations)
    f.finish(f.constant(I32, 0))


def _add_pool(module: Module, threads: int) -> None:
    """Add the memory of a thread pool whose threads have not started."""
    fields = ctypes.string_at(POOL.allocate(threads=threads).address, POOL.size)
    memory = GlobalVariable(_POOL_MEMORY, POOL.size_with(threads), POOL.alignment, fields)
    module.variables[memory.name] = memory


def _pool_context(f: Function) -> Value:
    """Return a run-time context in which only the thread pool is set."""
    context = Fields(CONTEXT, f.allocate(I8, CONTEXT.size, align=CONTEXT.alignment))
    fill_bytes(context.pointer, f.constant(I8, 0), CONTEXT.size)
    context["pool"] = f.address(_POOL_MEMORY)
    return context.pointer


def _reset_pool(f: Function, threads: int) -> None:
    """Stop the threads of the pool, and reset it to its initial state."""
    pool = Fields(POOL, f.address(_POOL_MEMORY))
    hloom_pool_stop.external()(f, pool)
    fill_bytes(pool.pointer, f.constant(I8, 0), POOL.size_with(threads))
    pool["threads"] = threads
