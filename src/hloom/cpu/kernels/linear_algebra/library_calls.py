"""Custom calls of LAPACK as native code: matrix by matrix, in the thread of the program.

Matrices are row-major in the program and column-major in LAPACK. Routines that can work on the transposes use
the program's arrays directly. For other routines each matrix is transposed into the workspace and back.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Final

from hloom.codegen.llvm import F32, F64, I8, I32, I64, PTR, Function, Module, Type, Value
from hloom.codegen.llvm.memory import copy_bytes, fill_bytes
from hloom.codegen.loops import LoopKernel
from hloom.cpu.kernels.movement.transposition import transposed
from hloom.cpu.program import ProgramEmitter
from hloom.ir.instruction import HloInstruction
from hloom.operations.lapack.calls import INFO_NOT_FINITE, Address, LapackArray, LapackCall, UnpackedPairs

LIBRARY_PREFIX: Final = "lapack."
"""Prefix of the names by which programs call routines; see `hloom.cpu.loaded_program`."""
ALIGNMENT: Final = 64
UNROLLED: Final = 64
"""Elements up to which a matrix is transposed without loops."""
TILE: Final = 8
"""Rows and columns of the squares that are transposed in registers."""
UNBLOCKED: Final = 32
"""Extent up to which LAPACK works without blocks, hence without products that use OpenBLAS's threads."""
SLOT: Final = 16
"""Bytes of a constant argument, at most a complex number."""


def workspace_bytes(call: LapackCall) -> int:
    """Return the bytes of workspace for those arrays of a LAPACK call that are no operands or results.

    These are temporary arrays, and transposed copies of matrices.
    """
    return sum(_padded(array) for array in call.arrays if not _in_place(call, array))


def emit_library_call(program: ProgramEmitter, i: HloInstruction, call: LapackCall) -> None:
    """Emit the call of a kernel that calls LAPACK for each matrix of a custom call's batch."""
    operands = [program.pointer(o) for o in i.operands]
    results = [target.pointer for target in program.targets(i)]
    counts = len(operands), len(results)
    kernel = program.shared(lambda name: _kernel(program.module, name, call, *counts))
    program.call(i, kernel, [*operands, *results, program.workspace(i)])


def _kernel(module: Module, name: str, call: LapackCall, operands: int, results: int) -> LoopKernel:
    """Emit the kernel (operands..., results..., workspace, begin, end) that calls LAPACK for each matrix.

    A call of the kernel computes the matrices begin <= n < end of the batch.
    """
    f = module.function(name, [PTR] * (operands + results + 1) + [I64, I64])
    *pointers, workspace, begin, end = f.parameters
    extents = [extent for array in call.arrays for extent in array.dimensions if array.dimensions]
    threaded = max(extents, default=0) > UNBLOCKED or call.routine[1:] == "trsm"
    if threaded:
        f.call(None, "hloom_library_enter", *_thread_functions(f))
    with f.loop(begin, end) as loop:
        _Emitter(f, call, pointers[:operands], pointers[operands:], workspace, loop.index).emit()
    if threaded:
        f.call(None, "hloom_library_leave", *_thread_functions(f))
    f.finish()
    matrices = [array.dimensions for array in call.arrays if array.is_matrix]
    steps = max((math.prod(d) * min(d) for d in matrices), default=0)
    return LoopKernel(name, call.batch, call.batch, 2 * call.batch * (steps + 64))


def _thread_functions(f: Function) -> tuple[Value, Value]:
    """Return the addresses of the functions that get and set the LAPACK library's number of threads."""
    names = ("lapack.get_threads", "lapack.set_threads")
    f.module.declare(names[0], I32, [])
    f.module.declare(names[1], None, [I32])
    return f.address(names[0]), f.address(names[1])


def _in_place(call: LapackCall, array: LapackArray) -> bool:
    """Return whether LAPACK can use ``array`` where the program has it: as an operand or result.

    If not, the array is in the workspace: it is a matrix that needs a transposition, or it is temporary.
    """
    if array.is_matrix and not call.rows_first:
        return array.result is not None and min(array.dimensions) <= 1
    return array.operand is not None or array.result is not None


def _padded(array: LapackArray) -> int:
    return -(-array.bytes // ALIGNMENT) * ALIGNMENT


class _Emitter:
    """Emits a LAPACK call for one matrix of a batch, with the transpositions before and after it."""

    def __init__(
        self,
        f: Function,
        call: LapackCall,
        operands: Sequence[Value],
        results: Sequence[Value],
        workspace: Value,
        index: Value,
    ) -> None:
        self.f, self.call, self.index = f, call, index
        self.operands, self.results = operands, results
        self.places: list[Value] = []
        offset = 0
        for array in call.arrays:
            if _in_place(call, array):
                number = array.result if array.result is not None else array.operand
                arrays = results if array.result is not None else operands
                assert number is not None
                self.places.append(self.part(arrays[number], array))
            else:
                self.places.append(f.offset(workspace, offset))
                offset += _padded(array)

    def part(self, base: Value, array: LapackArray) -> Value:
        """Return the address of the current matrix of a LAPACK call's batch in ``base``.

        ``base`` is an operand or a result of the program, and ``array`` is LAPACK's array for it.
        """
        return self.f.offset(base, self.index * array.bytes)

    def emit(self) -> None:
        """Emit the preparation of a LAPACK call's arrays, the call, and the transposition of its results.

        Some routines need a finite matrix: if a matrix is not finite, they are not called, and the status
        that the call returns says so.
        """
        f, call = self.f, self.call
        for array, address in zip(call.arrays, self.places, strict=True):
            self.read(array, address)
        if call.finite is None:
            self.run()
        else:
            assert call.info is not None
            finite = self.is_finite(call.arrays[call.finite], self.places[call.finite])
            f.store(f.constant(I32, INFO_NOT_FINITE), self.places[call.info])
            with f.when(finite):
                self.run()
        for array, address in zip(call.arrays, self.places, strict=True):
            if array.result is not None and not _in_place(call, array):
                target = self.part(self.results[array.result], array)
                rows, columns = array.dimensions
                transpose(f, address, target, columns, rows, array.dtype.itemsize)

    def read(self, array: LapackArray, place: Value) -> None:
        """Emit the initialization of ``array`` of the LAPACK call, at address ``place``.

        An operand is transposed if LAPACK needs that, or copied if LAPACK overwrites it by a result. A result
        that is no operand is filled with zeros.
        """
        f = self.f
        if array.operand is None:
            if array.result is not None:
                fill_bytes(place, f.constant(I8, 0), array.bytes)
            return
        source = self.part(self.operands[array.operand], array)
        if _in_place(self.call, array):
            if array.result is not None:
                copy_bytes(place, source, array.bytes)
        else:
            rows, columns = array.dimensions
            transpose(f, source, place, rows, columns, array.dtype.itemsize)

    def is_finite(self, array: LapackArray, place: Value) -> Value:
        """Emit the test whether all elements of ``array`` at ``place`` are finite; return an i1.

        They are if the sum of their products with 0 is not NaN.
        """
        f = self.f
        kind = F64 if array.dtype.name in ("float64", "complex128") else F32
        total = f.constant(kind, 0.0)
        with f.loop(0, array.bytes // kind.size, 1, [total]) as loop:
            value = f.load(kind, f.offset(place, loop.index, kind))
            loop.next(loop.values[0] + value * 0.0)
        return loop.values[0].compare("ord", 0.0)

    def run(self) -> None:
        """Emit the call of the LAPACK routine, and the conversion of packed eigenvectors, if it has any."""
        f, call = self.f, self.call
        constants = [argument for argument in call.arguments if isinstance(argument, bytes)]
        data = b"".join(constant.ljust(SLOT, b"\0") for constant in constants)
        name = f"lapack_{data.hex()}"
        f.module.constant_bytes(name, data)
        arguments: list[Value] = []
        slot = 0
        for argument in call.arguments:
            if isinstance(argument, Address):
                size = call.arrays[argument.array].dtype.itemsize
                arguments.append(f.offset(self.places[argument.array], argument.element * size))
            elif argument is None:
                arguments.append(f.constant(PTR, 0))
            else:
                arguments.append(f.offset(f.address(name), slot))
                slot += SLOT
        f.call(None, LIBRARY_PREFIX + call.routine, *arguments)
        for pairs in call.pairs:
            self.unpack(pairs)

    def unpack(self, pairs: UnpackedPairs) -> None:
        """Emit the conversion of LAPACK's packed eigenvectors of a real matrix to complex vectors.

        For a conjugate pair of eigenvalues, adjacent columns have the real and the imaginary parts of an
        eigenvector; the first eigenvalue of a pair has the positive imaginary part.
        """
        f = self.f
        packed, vectors, imaginary = (self.places[n] for n in (pairs.packed, pairs.vectors, pairs.imaginary))
        size = self.call.arrays[pairs.imaginary].count
        kind = F64 if self.call.arrays[pairs.packed].dtype.itemsize == 8 else F32
        with f.loop(0, size) as columns:
            part = f.load(kind, f.offset(imaginary, columns.index, kind))
            second = part.compare("olt", 0.0)
            sign = second.select(
                f.constant(kind, -1.0),
                part.compare("ogt", 0.0).select(f.constant(kind, 1.0), f.constant(kind, 0.0)),
            )
            first = second.select(columns.index - 1, columns.index)
            beside = part.compare("one", 0.0).select(first + 1, first)
            with f.loop(0, size) as rows:
                real = f.load(kind, f.offset(packed, first * size + rows.index, kind))
                other = f.load(kind, f.offset(packed, beside * size + rows.index, kind))
                address = f.offset(vectors, (columns.index * size + rows.index) * 2, kind)
                f.store(real, address)
                f.store(other * sign, f.offset(address, 1, kind))


def transpose(f: Function, source: Value, target: Value, rows: int, columns: int, size: int) -> None:
    """Emit the transposition of a row-major matrix into ``target``; ``size`` is the bytes of an element."""
    tiled = min(rows, columns) >= TILE and size <= 8
    element: Type = {4: I32, 8: I64, 16: I64.vector(2)}[size]
    tiled_sizes = (rows // TILE * TILE, columns // TILE * TILE) if tiled else (0, 0)

    def at(base: Value, line: Value | int, width: int, place: Value | int) -> Value:
        return f.offset(base, (line * width + place) * (size // element.size), element.scalar)

    def scalars(first: tuple[int, int], last: tuple[int, int]) -> None:
        with f.loop(*first) as i, f.loop(*last) as j:
            moved = f.load(element, at(source, i.index, columns, j.index))
            f.store(moved, at(target, j.index, rows, i.index))

    if rows * columns <= UNROLLED and not tiled:
        for row, column in itertools.product(range(rows), range(columns)):
            f.store(f.load(element, at(source, row, columns, column)), at(target, column, rows, row))
        return
    if tiled:
        wide = element.vector(TILE)
        with f.loop(0, tiled_sizes[0], TILE) as i, f.loop(0, tiled_sizes[1], TILE) as j:
            lines = [f.load(wide, at(source, i.index + k, columns, j.index)) for k in range(TILE)]
            for k, line in enumerate(transposed(lines)):
                f.store(line, at(target, j.index + k, rows, i.index))
    if tiled_sizes[0] < rows:
        scalars((tiled_sizes[0], rows), (0, columns))
    if tiled_sizes[0] and tiled_sizes[1] < columns:
        scalars((0, tiled_sizes[0]), (tiled_sizes[1], columns))
