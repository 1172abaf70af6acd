"""`hloom aot`: compile a program to an object file and a C header, for use without Python.

The object defines one function, ``void NAME_run(const void** arguments, void** results, void* temp)``; the
header describes its arguments and results. It links against the C library (``-lm``), and with several threads
against POSIX threads.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hloom.buffers.buffers import leaves
from hloom.codegen.llvm import I1, I8, I32, I64, PTR, print_module
from hloom.codegen.target import Target, host
from hloom.cpu.jit.compilation import optimize
from hloom.cpu.jit.llvm import check_intrinsics, generate, simplified_names
from hloom.cpu.program import ENTRY, NativeProgram, emit_program
from hloom.cpu.runtime.support import pool_code
from hloom.errors import HloError
from hloom.ir.module import HloModule
from hloom.tools.commands.c_header import header_text

MOST_THREADS: Final = 4096
_C_FUNCTIONS: Final = frozenset(("memcpy", "memmove", "memset", "memcmp", "fma", "fmaf", "fmod", "fmodf"))
"""Functions of the C library that compiled programs call."""

_TAKEN: Final = frozenset(("hloom", "hloom_pool"))
"""Prefixes with which C's names would be those of functions inside."""

_SERIAL: Final = """
define internal i32 @hloom_parallel(ptr %context, ptr %task, ptr %packed, i64 %iterations, i64 %grain) #0 {
  call void %task(ptr %packed, i64 0, i64 %iterations)
  ret i32 0
}
"""
_POOL: Final = """
%memory = type <{{ [680 x i8], i32, [{rest} x i8] }}>
@pool_memory = internal global %memory <{{
  [680 x i8] zeroinitializer, i32 {threads}, [{rest} x i8] zeroinitializer
}}>, align 128
@pool_context = internal global [8 x ptr] [ptr @pool_memory{nulls}], align 64

define void @{name}_stop() #0 {{
  call void @hloom_pool_stop(ptr @pool_memory)
  %size = ptrtoint ptr getelementptr (%memory, ptr null, i64 1) to i64
  call void @llvm.memset.p0.i64(ptr @pool_memory, i8 0, i64 %size, i1 false)
  %threads = getelementptr %memory, ptr @pool_memory, i64 0, i32 1
  store i32 {threads}, ptr %threads
  ret void
}}
"""
"""Memory of `hloom.cpu.runtime.pool`: 768 bytes, the number of threads at 680, and 128 bytes per thread."""
_PARALLEL: Final = "hloom_parallel"
_POOL_STOP: Final = "hloom_pool_stop"


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
    chosen = _c_name(name or module.name, given=bool(name))
    if not 1 <= threads <= MOST_THREADS:
        raise HloError(f"--threads is 1 to {MOST_THREADS}, got {threads}", rule="aot.threads")
    _check_shapes(module)
    machine = target or host()
    program = emit_program(optimize(module), machine, interruptible=False)
    if program.host_calls:
        described = ", ".join(f"%{i.name} ({i.opcode})" for i in program.host_calls[:8])
        more = f" and {len(program.host_calls) - 8} more" if len(program.host_calls) > 8 else ""
        message = f"the program calls Python while it runs, for {described}{more}"
        raise HloError(message, rule="aot.host-call")
    threaded = threads > 1 and _PARALLEL in program.module.declarations
    text = _object_text(program, chosen, threads, threaded)
    check_intrinsics(program.module, machine)
    linked, linked_names = pool_code(machine) if threaded else ("", [])
    code = generate(
        text,
        machine,
        simplified=[*simplified_names(program.module), *linked_names],
        linked=linked,
        internal=(_PARALLEL, _POOL_STOP) if threaded else (),
    )
    header = header_text(module, machine, chosen, temp_bytes=program.temp_bytes, threads=threads)
    return CompiledObject(chosen, code, header, program.temp_bytes)


def _c_name(name: str, *, given: bool) -> str:
    """Return a valid C name; raise HloError if a given name is not one."""
    if re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) and name not in _TAKEN:
        return name
    if given:
        raise HloError(f"--name is a C identifier that is not reserved, got {name!r}", rule="aot.name")
    made = re.sub(r"\W", "_", name, flags=re.ASCII)
    return made if re.match("[A-Za-z_]", made) and made not in _TAKEN else f"program_{made}"


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
    extra = ""
    if threaded:
        module.declare(_POOL_STOP, None, [PTR])
        module.declare("llvm.memset.p0.i64", None, [PTR, I8, I64, I1])
        extra = _pool_text(name, threads)
    elif module.declarations.pop(_PARALLEL, None) is not None:
        extra = _SERIAL
    outside = [d for d in module.declarations if d not in module.functions and not d.startswith("llvm.")]
    unknown = [d for d in outside if d not in (*_C_FUNCTIONS, _PARALLEL, _POOL_STOP)]
    if unknown:
        message = f"the program calls {', '.join(unknown)}, which no C library has"
        raise HloError(message, rule="aot.external")
    run = module.function(f"{name}_run", [PTR, PTR, PTR], internal=False)
    context = run.address("pool_context") if threaded else run.constant(PTR, 0)
    run.call(I32, ENTRY, *run.parameters, context)
    run.finish()
    if threads > 1 and not threaded:
        module.function(f"{name}_stop", [], internal=False).finish()
    return print_module(module) + extra


def _pool_text(name: str, threads: int) -> str:
    """Return the memory of the thread pool."""
    return _POOL.format(name=name, threads=threads, rest=768 - 684 + 128 * threads, nulls=", ptr null" * 7)
