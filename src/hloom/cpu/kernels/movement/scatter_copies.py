"""Scatters by privatization: each share of the updates goes to its own copy, then the copies are combined.

This serves many updates of few elements, as in a histogram. No thread reads the indices of another thread's
updates, and an update is a load, a combination and a store. The number of shares is fixed, so that the order
of rounded sums does not depend on the number of threads.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from typing import Final

from hloom.analysis.instructions import operation_of
from hloom.codegen.combining import neutral_element
from hloom.codegen.elements import Elements, View
from hloom.codegen.llvm import I8, I64, Function, Module, Value
from hloom.codegen.loops import LoopKernel, begin_kernel, loop_nest, outer_loops, vector_lanes, work_for_each
from hloom.codegen.types import constant, storage_bytes
from hloom.cpu.kernels.movement.scatter_sorted import STREAMS
from hloom.cpu.kernels.movement.scatter_update import UPDATE_WORK, Update
from hloom.cpu.program import SHARED_WORK
from hloom.ir.affine import Index, Variable
from hloom.ir.instruction import HloInstruction
from hloom.operations.gather_scatter import Scatter
from hloom.plan.kernel import KernelPlan
from hloom.shape.shape import Shape

SHARES: Final = 8
LEAST_UPDATES: Final = 16
"""Minimum number of updates for each element of the operand. With 10 updates for each of 10,000 elements both
kernels take the same time."""
MOST_WINDOW: Final = 4
"""Maximum number of elements of a window, such as a force; longer windows are updated in vectors."""
MOST_BYTES: Final = 1 << 18
"""Maximum number of bytes of a copy, so that it stays in the second-level cache."""


def scatters_into_copies(scatter: HloInstruction) -> bool:
    """Return whether to apply a scatter's updates to private copies of its operand, combined afterwards.

    Each of a fixed number of shares of the updates has its own copy. The scatter must have many small updates
    for each element, which may be applied in any order. Floats narrower than 32 bits get no copies: in long
    sums the order of additions affects every digit.
    """
    operand, updates = scatter.operands[0].shape, scatter.operands[-1].shape
    kind, operation = operand.element_type, operation_of(scatter, Scatter)
    if scatter.shape.is_tuple or operation.input_batching_dims or (kind.is_floating and kind.bits < 32):
        return False
    windows = [updates.dimensions[d] for d in operation.update_window_dims]
    batch = [size for d, size in enumerate(updates.dimensions) if d not in operation.update_window_dims]
    return (
        operand.element_count * LEAST_UPDATES <= updates.element_count
        and updates.element_count * UPDATE_WORK >= SHARED_WORK
        and _bytes(operand) <= MOST_BYTES
        and math.prod(windows) <= MOST_WINDOW
        and max(batch, default=0) >= SHARES
        and neutral_element(scatter.called_computations[0], kind) is not None
    )


def copies_bytes(scatter: HloInstruction) -> int:
    """Return the bytes of all private copies of a scatter's operand, one for each share of the updates."""
    return SHARES * _bytes(scatter.operands[0].shape)


def emit_copies(module: Module, name: str, plan: KernelPlan) -> LoopKernel:
    """Emit the kernel (copies, inputs..., begin, end) that applies a scatter's updates to private copies.

    For each share begin <= n < end of the updates, it fills copy n of the operand with the neutral element of
    the combiner, and applies the updates of the share to it.
    """
    scatter, inputs = plan.hero, plan.parts.inputs
    operand, updates = scatter.operands[0].shape, scatter.operands[-1].shape
    f, (space, *arrays), begin, end = begin_kernel(module, name, [operand, *(i.shape for i in inputs)])
    elements = Elements(f, 0, dict(zip(inputs, arrays, strict=True)))
    variables = [Variable(size, "u") for size in updates.dimensions]
    windows = operation_of(scatter, Scatter).update_window_dims
    batch = [v for d, v in enumerate(variables) if d not in windows]
    shared = max(batch, key=lambda v: v.trips)
    size = -(-shared.trips // SHARES)
    with f.loop(begin, end) as share, elements.scope():
        copy = _copy(space.pointer, operand, share.index)
        _clear(elements, copy, scatter)
        low = share.index * size
        high = f.intrinsic("smin", low + size, f.constant(I64, shared.trips))
        update = Update(elements, scatter, [copy], variables)

        def run() -> None:
            starts = update.starts()
            inside = update.inside(starts)
            with nullcontext() if inside is None else f.when(inside), elements.scope():
                window = [v for v in variables if v not in batch]
                update.window(window, starts)

        others = [v for v in batch if v is not shared]
        if others:
            with outer_loops(f, [shared, *others], low, high), elements.scope():
                run()
        else:
            _emit_streams(elements, shared, (low, high), run)
    f.finish()
    for_each = UPDATE_WORK + work_for_each([m for m in plan.parts.members if m is not scatter])
    return LoopKernel(name, SHARES, 1, for_each * updates.element_count, f"{SHARES} copies")


def _emit_streams(
    elements: Elements, shared: Variable, bounds: tuple[Value, Value], run: Callable[[], None]
) -> None:
    """Emit the updates of a share in several interleaved streams, to overlap their latencies.

    Args:
        shared: the loop variable whose values are divided among shares.
        bounds: (low, high): the share has the updates low <= ``shared`` < high.
        run: emits the update for the current value of ``shared``.
    """
    f, (low, high) = elements.function, bounds
    length = -(-shared.trips // (SHARES * STREAMS))
    exact = shared.trips % (SHARES * STREAMS) == 0
    with f.loop(0, length) as step:
        for stream in range(STREAMS):
            number = low + step.index + stream * length
            with nullcontext() if exact else f.when(number.compare("slt", high)), elements.scope():
                shared.value = number
                run()
    shared.value = None


def emit_combination(module: Module, name: str, scatter: HloInstruction) -> LoopKernel:
    """Emit the kernel (result, copies, begin, end) that combines the copies of a scatter's operand.

    Each copy has the updates of one share. To every element of the result, which contains the operand, the
    kernel adds (by the combiner) that element of copy 0, copy 1, and so on.
    """
    operand = scatter.operands[0].shape
    f, (result, space), begin, end = begin_kernel(module, name, [operand, operand])
    position = Variable(operand.element_count)
    lanes = vector_lanes([scatter.operands[0]], position.trips)
    elements = Elements(f, lanes, {})
    here = (Index.of(position),)

    def body() -> None:
        value = elements.load(_flat(result.pointer, operand), here)
        for share in range(SHARES):
            copy = _flat(_copy(space.pointer, operand, f.constant(I64, share)).pointer, operand)
            addend = elements.load(copy, here)
            (value,) = elements.apply(scatter.called_computations[0], [value, addend])
        elements.store(_flat(result.pointer, operand), here, value)

    loop_nest(elements, [position], body, begin, end, is_aligned=False)
    f.finish()
    return LoopKernel(name, position.trips, max(lanes, 1), SHARES * position.trips)


def _bytes(operand: Shape) -> int:
    """Return the bytes of one private copy of a scatter's operand, rounded up to whole cache lines."""
    return -(-operand.element_count * storage_bytes(operand.element_type) // 64) * 64


def _copy(space: Value, operand: Shape, number: Value) -> View:
    """Return private copy ``number`` of a scatter's operand, an array in the workspace ``space``."""
    return View.of(Function.of(space).offset(space, number * _bytes(operand), I8), operand)


def _flat(pointer: Value, operand: Shape) -> View:
    """Return the row-major array at ``pointer``, of the operand's shape, as an array of one dimension."""
    return View(pointer, operand.element_type, (math.prod(operand.dimensions),))


def _clear(elements: Elements, copy: View, scatter: HloInstruction) -> None:
    """Emit a loop that fills a private copy of a scatter's operand with the combiner's neutral element."""
    operand = scatter.operands[0].shape
    neutral = neutral_element(scatter.called_computations[0], operand.element_type)
    assert neutral is not None
    position = Variable(operand.element_count)
    lanes = vector_lanes([scatter.operands[0]], position.trips)
    wide = Elements(elements.function, lanes, {})
    value = constant(elements.function, operand.element_type, neutral, lanes)
    here = (Index.of(position),)
    loop_nest(wide, [position], lambda: wide.store(_flat(copy.pointer, operand), here, value))
