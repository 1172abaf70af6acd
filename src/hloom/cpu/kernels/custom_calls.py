"""Emitter of custom calls: of LAPACK routines, of C functions that users register, and of the host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from hloom.analysis.instructions import operation_of
from hloom.buffers.buffers import leaves
from hloom.codegen.llvm import I32, I64, PTR, Value
from hloom.codegen.target import Target
from hloom.cpu.kernels.linear_algebra.cholesky import emit_cholesky_call, factors_by_cholesky
from hloom.cpu.kernels.linear_algebra.library_calls import emit_library_call, workspace_bytes
from hloom.cpu.kernels.linear_algebra.lu import emit_lu_call, factors_by_lu
from hloom.cpu.kernels.linear_algebra.small_matrices import emit_small_matrices, factors_small_matrices
from hloom.cpu.kernels.linear_algebra.tridiagonal import emit_tridiagonal_solve, solves_tridiagonal_systems
from hloom.cpu.program import KERNELS, KernelCall, ProgramEmitter
from hloom.cpu.runtime.host import emit_host_call
from hloom.errors import HloError, ParseError
from hloom.ir.instruction import HloInstruction
from hloom.operations.custom_call import CustomCall
from hloom.operations.ffi import frame_description
from hloom.operations.ffi_attributes import parse_attributes
from hloom.operations.lapack.calls import LapackCall, library_call
from hloom.plan.kernel import KernelPlan
from hloom.shape.layout import Layout
from hloom.shape.shape import Shape

_FOREIGN_FUNCTION: Final = "hloom_foreign"
EmitCall: TypeAlias = Callable[[ProgramEmitter, HloInstruction, LapackCall], None]


def _library_call(i: HloInstruction) -> LapackCall | None:
    """Return the LAPACK calls that compute a custom call; None if its target is no LAPACK routine.

    Returns None also for an invalid call of LAPACK, which then becomes a host call: Python raises the error
    if the call ever runs.
    """
    try:
        return library_call(i, rows_first=True)
    except HloError:
        return None


_OWN_KERNELS: Final[list[tuple[Callable[[LapackCall], bool], EmitCall]]] = [
    (factors_small_matrices, emit_small_matrices),
    (factors_by_cholesky, emit_cholesky_call),
    (factors_by_lu, emit_lu_call),
    (solves_tridiagonal_systems, emit_tridiagonal_solve),
]
"""Kernels that compute calls of LAPACK without it, each after the test of whether it does."""


def _emitter(call: LapackCall) -> EmitCall:
    """Return what emits the code of a LAPACK call: one of our own kernels, else the library's call."""
    return next((emit for computes, emit in _OWN_KERNELS if computes(call)), emit_library_call)


def _workspace(i: HloInstruction, target: Target) -> int:
    call = _library_call(i)
    if call is None:
        return 0
    emit = _emitter(call)
    if emit is emit_cholesky_call:
        return call.arrays[0].bytes
    return workspace_bytes(call) if emit is emit_library_call else 0


@KERNELS.register("custom-call", workspace=_workspace)
def emit_custom_call(program: ProgramEmitter, plan: KernelPlan) -> None:
    """Emit a custom call: for LAPACK's routines kernels or library calls, else a call of a C function.

    If a C function could not use the arrays in place, a host call (into Python) is emitted.
    """
    i = plan.instruction
    call = _library_call(i)
    if call is not None:
        _emitter(call)(program, i, call)
    elif _addresses_arrays(i):
        _emit_foreign_call(program, i)
    else:
        emit_host_call(program, plan)


def _addresses_arrays(i: HloInstruction) -> bool:
    """Return whether a C function can read the operands and write the results of a custom call in place.

    The arrays must be static and row-major, and the API version the original one or XLA's typed FFI.
    """
    operation = operation_of(i, CustomCall)
    operand_shapes = operation.operand_layout_constraints or [o.shape for o in i.operands]
    if not all(map(_is_plain, operand_shapes)):
        return False
    if operation.api_version == "API_VERSION_TYPED_FFI":
        return all(_is_plain(leaf) for _, leaf in leaves(i.shape)) and _has_attributes(i)
    return operation.api_version == "API_VERSION_ORIGINAL" and _is_plain(i.shape)


def _has_attributes(i: HloInstruction) -> bool:
    """Return whether the backend config of ``i`` parses as attributes of XLA's typed FFI."""
    try:
        parse_attributes(i.backend_config)
    except ParseError:
        return False
    return True


def _is_plain(shape: Shape) -> bool:
    """Return whether ``shape`` is a static, row-major array with whole bytes per element."""
    if not shape.is_array or not shape.is_static or shape.element_type.bits < 8:
        return False
    return shape.layout is None or shape.layout == Layout.default(shape.rank)


def _emit_foreign_call(program: ProgramEmitter, i: HloInstruction) -> None:
    """Emit a call of a C function, the one registered for a custom call's target when the program runs.

    If no function is registered then, the emitted code calls Python instead.
    """
    f = program.function
    number = len(program.host_calls)
    program.host_calls.append(i)
    program.calls.append(KernelCall(_FOREIGN_FUNCTION, i.name))
    operation = operation_of(i, CustomCall)
    operands, results = [o.shape for o in i.operands], [leaf for _, leaf in leaves(i.shape)]
    template = f.constant(PTR, 0)
    if operation.api_version == "API_VERSION_TYPED_FFI":
        template = _external(program, "frame", frame_description(operands, results, i.backend_config))
    arrays = [*map(program.pointer, i.operands), *(target.pointer for target in program.targets(i))]
    counts = [f.constant(I64, len(shapes)) for shapes in (operands, results)]
    packed = _packed(program, arrays)
    function = _external(program, "foreign", operation.custom_call_target)
    call = (program.context, f.constant(I64, number), packed, function, template, *counts)
    status = f.call(I32, _FOREIGN_FUNCTION, *call)
    f.return_if(status.compare("ne", 0), 1)


def _packed(program: ProgramEmitter, arrays: Sequence[Value]) -> Value:
    return program.pointer_array(arrays) if arrays else program.function.constant(PTR, 0)


def _external(program: ProgramEmitter, kind: str, text: str) -> Value:
    """Declare an external symbol whose name encodes ``kind`` and ``text``; return its address as a value.

    The loader resolves the symbol (`hloom.cpu.loaded_program`): to a C function, or to a struct that
    describes a call.
    """
    name = f"{kind}.{text.encode().hex()}"
    program.module.declare(name, None, [])
    return program.function.address(name)
