"""Loop nests: the kernel that computes every element of one or several arrays.

The iteration space is that of the results. Dimensions are split where reshapes divide them, loops addressed
by one stride are merged, and the innermost loop runs over whole vectors with a masked remainder. The caller
passes the range of the outermost loop, so that threads can share it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Final

from hloom.analysis.cost import instruction_cost
from hloom.analysis.instructions import loads_single_elements
from hloom.analysis.loops import TupleLoop
from hloom.analysis.trip_count import TripCount
from hloom.codegen.elements import Elements, View
from hloom.codegen.indexing import Key
from hloom.codegen.llvm import I1, I32, I64, PTR, Function, Module, Operand, Value
from hloom.codegen.llvm.memory import copy_bytes
from hloom.codegen.llvm.module import STREAMED_LINE
from hloom.codegen.llvm.structured import choose
from hloom.codegen.target import Target, registers
from hloom.codegen.types import Element, storage_bytes
from hloom.errors import plural
from hloom.ir.affine import Index, Variable
from hloom.ir.instruction import HloInstruction
from hloom.ir.traits import ElementCost
from hloom.operations.control_flow import While
from hloom.operations.gather_scatter import Gather
from hloom.plan.accesses import Accesses
from hloom.plan.iteration import (
    accesses_of,
    is_nested,
    result_shapes,
    steady_elements,
    steady_relocations,
)
from hloom.plan.parts import KernelParts
from hloom.plan.pieces import TINY, Interior, interior, loop_pieces
from hloom.plan.space import Space
from hloom.records import dataclass
from hloom.shape.shape import Shape

VECTOR_BYTES: Final = 64
"""Bytes of a vector in a loop that may sum its lanes, on every processor: the sum's order does not depend on
the processor. Where registers are shorter LLVM takes several."""
STREAMED: Final = 1 << 27
"""Bytes read and written by a loop from which it stores past the caches. With 32 MiB a training step of a
ResNet-50 took 3 % longer: its next kernels found a part of the results in the cache."""
STREAMED_LAST: Final = 1 << 22
"""Bytes from which a loop does so if the program returns its results; see `KernelPlan.is_last`."""
STREAMED_RESULTS: Final = 4
"""Most results of such a loop: processors collect the parts of few lines at a time."""
PAGE: Final = 4096
STREAMED_AHEAD: Final = 1024
"""Least distance, modulo a page, by which a result that is stored past the caches begins behind an operand.

Loads wait for an earlier store whose address seems to be theirs, which a processor judges by the place in the
page. On a Zen 3 a step of Adam, three results from four operands, takes 6 times as long with a distance of 64
bytes, twice as long with 256, and the same time from 512 on."""
LONG: Final = 1 << 14
"""Minimum number of elements of a loop that is worth more code."""
MOST_LANES: Final = 128

MANY_COSTLY: Final = 3
"""Number of costly operations in a kernel whose values do not fit in few registers: vectors then have the
processor's width, which took 0.75 of the time with AVX2. With fewer of them longer vectors hide latency."""

MOST_REGISTERS: Final = 4
"""Registers that a value of a long loop takes at most. With eight on AVX2, complementary error functions took
1.3 times as long: most values were on the stack."""
_COMPUTED_BYTES: Final = 4
"""Bytes of an element in registers at least; narrower floats are computed in f32."""

LATENCY: Final = {ElementCost.MODERATE: 1, ElementCost.TRANSCENDENTAL: 12}
"""Dependent instructions of an elementwise operation, by class; 1 for the others."""

COPIED_BLOCK: Final = 1 << 16
"""Bytes of a step of a copy that threads share."""

GATHERED: Final = 4
"""Operations that take as long as a load of one element from an address of its own; processors load the lanes
of a vector one after the other."""


def vector_lanes(instructions: Sequence[HloInstruction], trips: int, vector_bytes: int = VECTOR_BYTES) -> int:
    """Return the number of lanes for a loop: vectors of the widest useful type, fewer for short loops.

    Complex numbers count as their parts, which are in separate registers.
    """
    lanes = max(8, vector_bytes // _usual_bytes(instructions))
    while lanes > 1 and lanes > trips:
        lanes //= 2
    return lanes if lanes > 1 else 0


def _usual_bytes(instructions: Sequence[HloInstruction]) -> int:
    """Return the bytes of an element that at most an eighth of the arrays exceed."""
    types = [i.shape.element_type for i in instructions if i.shape.is_array]
    sizes = sorted(storage_bytes(t) // (2 if t.is_complex else 1) for t in types)
    return sizes[-1 - len(sizes) // 8] if sizes else 4


@contextmanager
def outer_loops(
    function: Function, variables: Sequence[Variable], begin: Operand = 0, end: Operand | None = None
) -> Generator[None]:
    """Emit nested loops over variables; ``begin`` and ``end`` may bound the first one."""
    if not variables:
        yield
        return
    first, *inner = variables
    with function.loop(begin, first.trips if end is None else end) as loop:
        first.value = loop.index
        with outer_loops(function, inner):
            yield
        first.value = None


FEWEST_MASKED: Final = 4
"""Number of lanes of which a mask is applied lane by lane rather than to vectors of fewer lanes."""


def vector_loop(
    elements: Elements,
    variable: Variable,
    begin: Value,
    end: Value,
    body: Callable[[], None],
    *,
    exact: bool,
    repeats: bool = False,
    narrows: bool = False,
) -> None:
    """Emit ``body`` for vectors of the lane variable in [begin, end), then for the remainder.

    ``repeats`` says that the body may run again at any index, in every thread: the remainder is then a whole
    vector of the loop, which begins earlier. Otherwise it is masked. ``narrows`` says that the body can be
    emitted for vectors of any length: where masks are slow, shorter vectors come before the mask.
    """
    function, lanes = elements.function, elements.lanes
    variable.is_lane = True
    last = end if exact else begin + ((end - begin) & -lanes)
    with function.loop(begin, last, lanes) as loop, elements.scope():
        variable.value = loop.index
        body()
    if not exact and repeats and variable.trips >= lanes:
        with function.when(last.compare("slt", end)), elements.scope():
            variable.value = function.intrinsic("smax", end - lanes, function.constant(I64, 0))
            body()
    elif not exact:
        with function.when(last.compare("slt", end)):
            if narrows and lanes > FEWEST_MASKED and _masks_slowly(elements):
                with elements.with_lanes(max(lanes // 4, FEWEST_MASKED)):
                    vector_loop(elements, variable, last, end, body, exact=False, narrows=True)
            else:
                _masked_remainder(elements, variable, last, end, body)
    variable.value = None


def _masked_remainder(
    elements: Elements, variable: Variable, begin: Value, end: Value, body: Callable[[], None]
) -> None:
    lanes = elements.lanes
    with elements.scope():
        variable.value = begin
        remainder = (end - begin).cast("trunc", I32).splat(lanes)
        numbers = elements.function.constant(I32.vector(lanes), list(range(lanes)))
        with elements.masked(numbers.compare("ult", remainder)):
            body()


def _masks_slowly(elements: Elements) -> bool:
    """Return whether the processor takes longer for masks of an array than for vectors of fewer lanes."""
    sizes = [storage_bytes(view.element_type) for view in elements.views.values()]
    return min(sizes, default=16) < elements.function.target.least_masked_bytes


def begin_kernel(
    module: Module, name: str, shapes: Sequence[Shape]
) -> tuple[Function, list[View], Value, Value]:
    """Begin the function of a kernel on arrays of these shapes.

    Its parameters are the addresses of the arrays, then begin and end of the range of its outermost loop.
    Returns the function, the arrays, and the range.
    """
    function = module.function(name, [PTR] * len(shapes) + [I64, I64])
    *pointers, begin, end = function.parameters
    return function, list(map(View.of, pointers, shapes)), begin, end


def loop_nest(
    elements: Elements,
    variables: Sequence[Variable],
    body: Callable[[], None],
    begin: Operand = 0,
    end: Operand | None = None,
    *,
    is_aligned: bool = True,
    repeats: bool = False,
    narrows: bool = False,
) -> None:
    """Emit ``body`` in nested loops over variables; ``begin`` and ``end`` may bound the first one.

    The innermost loop runs over vectors if ``elements`` has lanes. ``is_aligned`` says that the bounds are
    multiples of the lanes if the number of iterations is one; ``repeats`` and ``narrows`` are those of
    `vector_loop`.
    """
    if not variables:
        body()
        return
    *outer, innermost = variables
    if not outer:
        limit = innermost.trips if end is None else end
        _innermost(
            elements, innermost, begin, limit, body, is_aligned=is_aligned, repeats=repeats, narrows=narrows
        )
        return
    with outer_loops(elements.function, outer, begin, end), elements.scope():
        _innermost(elements, innermost, 0, innermost.trips, body, repeats=repeats, narrows=narrows)


@dataclass(frozen=True, slots=True)
class LoopKernel:
    """A completed kernel: its function's name and the range of its outermost loop.

    Attributes:
        name: function (inputs..., results..., begin, end).
        trips: end of the whole range.
        grain: ranges of threads start at multiples of this.
        work: rough number of elementary operations; decides whether threads share it.
        form: the algorithm and its sizes, for reports; empty if there is one way only.
        moved_bytes: read and written; decides too. 0 if ``work`` alone does.
    """

    name: str
    trips: int
    grain: int
    work: int
    form: str = ""
    moved_bytes: int = 0


def emit_loop_kernel(
    module: Module,
    name: str,
    parts: KernelParts,
    space: Space,
    *,
    repeats: bool = True,
    is_last: bool = False,
) -> LoopKernel:
    """Emit the kernel (inputs..., results..., begin, end) over a space: all results have its dimensions.

    ``repeats`` is that of `vector_loop`: false if results may overwrite inputs. ``is_last``: nothing reads
    the results soon.
    """
    inputs, roots, members = parts.inputs, parts.roots, parts.members
    shapes = result_shapes(roots)
    count = math.prod(shapes[0].dimensions)
    function, arrays, begin, end = begin_kernel(module, name, [*(i.shape for i in inputs), *shapes])
    lanes = _kernel_lanes(module, parts, space, count)
    views, results = dict(zip(inputs, arrays, strict=False)), arrays[len(inputs) :]
    inner = interior(parts, space) if count >= LONG else None
    spaces = [space] if inner is None else [space, inner.space]
    variants = [Pieces(function, parts, views, each, lanes) for each in spaces]

    def nest(targets: Sequence[View]) -> None:
        again = repeats and not any(target.streams for target in targets)
        with outer_loops(function, space.variables[:-1], begin, end):
            if inner is None:
                variants[0].emit(targets, begin, end, repeats=again)
                return
            with choose(function, _enter(inner)) as choice:
                variants[1].emit(targets, begin, end, repeats=again)
                choice.otherwise()
                variants[0].emit(targets, begin, end, repeats=again)

    pieces = variants[0].pieces
    whole = len(pieces) == 1
    is_large = moves_much([i.shape for i in inputs], shapes, is_last=is_last)
    streams = is_large and len(space.variables) == 1 and stores_lines(module.target, shapes, lanes)
    if whole and streams:
        _nest_or_stream(function, [v for v in arrays[: len(inputs)] if v.dimensions], results, nest)
    else:
        nest(results)
    function.finish()
    form = form_of(lanes, *variants[0].emitters) + (", stored past the caches" if whole and streams else "")
    form += "" if whole else f", {plural(len(pieces), 'piece')}"
    form += "" if inner is None else ", interior apart"
    kernel = nest_kernel(name, space.variables, lanes, work_of(members, count), form)
    return replace(kernel, moved_bytes=moved_bytes([i.shape for i in inputs], shapes))


class Pieces:
    """Emits the pieces of the innermost loop of a space.

    Attributes:
        pieces, emitters: the pieces, and what emits the elements of each.
    """

    def __init__(
        self,
        function: Function,
        parts: KernelParts,
        views: dict[HloInstruction, View],
        space: Space,
        lanes: int,
    ) -> None:
        self._parts, self._space = parts, space
        self.pieces = loop_pieces(parts, space)
        self.emitters = [
            Elements(function, lanes_within(lanes, piece.space.variables[-1]) if lanes else 0, views)
            for piece in self.pieces
        ]
        for piece, elements in zip(self.pieces, self.emitters, strict=True):
            for scalar in parts.inputs:
                if scalar.shape.rank == 0:
                    elements.element(scalar, ())
            if elements.lanes and any(map(_looks_up, parts.members)):
                accesses = accesses_of(parts.inputs, parts.roots, piece.space.indices)
                emit_tables(elements, accesses, piece.space)

    def emit(self, targets: Sequence[View], begin: Value, end: Value, *, repeats: bool) -> None:
        """Emit the loops inside of the outer ones; ``begin`` and ``end`` bound an only loop."""
        inputs, roots = self._parts.inputs, self._parts.roots
        is_aligned = len(self.pieces) == 1 or self._space.variables[-1].trips < TINY
        steady: dict[Key, Element] = {}
        for piece, elements in zip(self.pieces, self.emitters, strict=True):
            low, high = begin, end
            if len(self.pieces) > 1:
                low, high = piece_range(piece.low, piece.space.variables[-1].trips, begin, end)
            with elements.scope():
                if len(self._space.variables) > 1:
                    low, high = 0, None
                    elements.scopes[-1].elements.update(steady)
                    emit_steady(elements, accesses_of(inputs, roots, piece.space.indices), piece.space)
                    steady = dict(elements.scopes[-1].elements)
                body = partial(_store_roots, elements, roots, targets, piece.space.indices)
                lane = piece.space.variables[-1:]
                loop_nest(
                    elements, lane, body, low, high, is_aligned=is_aligned, repeats=repeats, narrows=True
                )


def _enter(inner: Interior) -> Value:
    """Set the variables of an interior; return whether the iteration of the outer loops is in it."""
    is_inside: Value | None = None
    for outer, variable, low in inner.narrowed:
        value = outer.value
        assert isinstance(value, Value)
        variable.value = value - low
        test = variable.value.compare("ult", variable.extent)
        is_inside = test if is_inside is None else is_inside & test
    assert is_inside is not None
    return is_inside


def _kernel_lanes(module: Module, parts: KernelParts, space: Space, count: int) -> int:
    """Return the number of lanes of a loop over the elements of results."""
    inputs, members = parts.inputs, parts.members
    lane = space.variables[-1] if space.variables else None
    nested = any(is_nested(m) for m in members)
    costly = sum(m.operation.element_cost is ElementCost.TRANSCENDENTAL for m in members)
    width = module.target.vector_bytes if costly >= MANY_COSTLY and not nested else VECTOR_BYTES
    lanes = vector_lanes([*members, *inputs], lane.trips, width) if lane is not None else 0
    if nested:
        # Several vectors side by side, so that each step along the reduced dimension reads whole cache lines:
        # sums in at most half of the registers.
        sums = registers(module.target) // 2 * module.target.vector_bytes
        most = min(MOST_LANES, sums // _usual_bytes([*members, *inputs]))
        while lane is not None and 0 < lanes < most and lanes * 2 <= lane.trips:
            lanes *= 2
    elif lane is not None and lanes and (count >= LONG or _turning(members)):
        value = lanes * max(_usual_bytes(members), _COMPUTED_BYTES)
        most = max(1, MOST_REGISTERS * module.target.vector_bytes // value)
        lanes *= side_by_side(members, lane.trips // lanes, most)
    return lanes


def stores_lines(target: Target, results: Sequence[Shape], lanes: int) -> bool:
    """Return whether vectors of adjacent elements of results can be stored as whole lines past the caches."""
    lines = all(
        lanes * storage_bytes(s.element_type) % STREAMED_LINE == 0 and not s.element_type.is_complex
        for s in results
    )
    return target.architecture == "x86_64" and len(results) <= STREAMED_RESULTS and lines


def moves_much(inputs: Sequence[Shape], results: Sequence[Shape], *, is_last: bool) -> bool:
    """Return whether a kernel over the elements of results moves enough bytes to store past the caches.

    ``is_last``: nothing reads the results soon.
    """
    return moved_bytes(inputs, results) >= (STREAMED_LAST if is_last else STREAMED)


def moved_bytes(inputs: Sequence[Shape], results: Sequence[Shape]) -> int:
    """Return the bytes that a loop over the elements of results reads and writes."""
    count = results[0].element_count
    return sum(min(s.element_count, count) * storage_bytes(s.element_type) for s in (*inputs, *results))


def _nest_or_stream(
    function: Function,
    inputs: Sequence[View],
    results: Sequence[View],
    nest: Callable[[Sequence[View]], None],
) -> None:
    """Emit a loop nest twice: with results stored past the caches if their addresses allow it."""
    with choose(function, may_stream(function, inputs, results)) as choice:
        nest([replace(result, streams=True) for result in results])
        function.call(None, "llvm.x86.sse.sfence")
        choice.otherwise()
        nest(results)


def may_stream(f: Function, inputs: Sequence[View], results: Sequence[View]) -> Value:
    """Return whether results begin with a line, in memory of their own and not soon behind an input."""
    read = [view.pointer.cast("ptrtoint", I64) for view in inputs]
    allowed = f.constant(I1, 1)
    for result in results:
        address = result.pointer.cast("ptrtoint", I64)
        allowed = allowed & (address & (STREAMED_LINE - 1)).compare("eq", 0)
        for source in read:
            ahead = (address - source) & (PAGE - 1)
            allowed = allowed & address.compare("ne", source)
            allowed = allowed & (ahead.compare("eq", 0) | ahead.compare("uge", STREAMED_AHEAD))
    return allowed


def lanes_within(lanes: int, loop: Variable) -> int:
    """Return at most ``lanes`` lanes for a loop that may have fewer iterations; 0 for scalar code."""
    while lanes > loop.trips:
        lanes //= 2
    return lanes if lanes > 1 else 0


def emit_steady(elements: Elements, accesses: Accesses, space: Space) -> None:
    """Emit the indices, tables and elements that are invariant in the innermost loop."""
    for relocation in steady_relocations(accesses, space):
        elements.relocated(*relocation)
    emit_tables(elements, accesses, space)
    for instruction, indices in steady_elements(accesses, space):
        elements.element(instruction, indices)


def emit_tables(elements: Elements, accesses: Accesses, space: Space) -> None:
    """Load the lookup tables of a loop nest whose start depends only on loops that have been entered."""
    ahead = {variable for variable in space.variables if variable.value is None}
    for i, reads in accesses.reads.items():
        for linear in sorted(reads, key=lambda index: (index.constant, len(index.terms))):
            unknown = {variable for variable, _ in linear.terms if variable.value is None}
            if unknown and ahead.isdisjoint(unknown):
                elements.table(i, linear)


def _looks_up(i: HloInstruction) -> bool:
    """Return whether a member of a kernel may read elements at computed indices."""
    return isinstance(i.operation, Gather | While)


def piece_range(first: int, trips: int, begin: Value, end: Value) -> tuple[Value, Value]:
    """Return the iterations of a piece, counted from its first one, that are in a range of the whole loop.

    The piece consists of ``trips`` iterations from ``first`` on; the range is [begin, end).
    """
    f, zero = begin.function, begin.function.constant(I64, 0)
    low = f.intrinsic("smax", begin - first, zero)
    return low, f.intrinsic("smax", f.intrinsic("smin", end - first, f.constant(I64, trips)), low)


def _store_roots(
    elements: Elements, roots: Sequence[HloInstruction], targets: Sequence[View], indices: Sequence[Index]
) -> None:
    """Store the elements of a kernel's results at an index."""
    for target, value in zip(targets, root_values(elements, roots, indices), strict=True):
        elements.store(target, tuple(indices), value)


def nest_kernel(name: str, variables: Sequence[Variable], lanes: int, work: int, form: str) -> LoopKernel:
    """Return the kernel whose function is a `loop_nest`."""
    trips = variables[0].trips if variables else 1
    return LoopKernel(name, trips, max(lanes, 1) if len(variables) <= 1 else 1, work, form)


def lanes_text(lanes: int) -> str:
    """Return the number of lanes of a kernel for its report."""
    return f"{lanes} lanes" if lanes else "no lanes"


def form_of(lanes: int, *emitters: Elements) -> str:
    """Return the lanes of a kernel for its report, and whether it has tables in registers or prefetches."""
    lookups = ", tables in registers" if any(e.looks_up for e in emitters) else ""
    prefetches = ", later steps prefetched" if any(e.prefetches for e in emitters) else ""
    return lanes_text(lanes) + lookups + prefetches


def _turning(members: Sequence[HloInstruction]) -> HloInstruction | None:
    """Return the member that is a loop inside of the kernel; None if there is none."""
    return next((m for m in members if m.opcode == "while"), None)


def work_of(members: Sequence[HloInstruction], count: int) -> int:
    """Return the approximate number of operations of a kernel that computes ``count`` elements."""
    return count * work_for_each(members) + sum(
        int(instruction_cost(m).flops) for m in members if is_nested(m)
    )


def work_for_each(members: Sequence[HloInstruction]) -> int:
    """Return the approximate number of operations per element."""
    loop = _turning(members)
    if loop is None:
        arithmetic = sum(LATENCY.get(m.operation.element_cost, 1) for m in members)
        return arithmetic + GATHERED * sum(loads_single_elements(m) for m in members)
    count = loop.annotation(TripCount)
    return len(members) + (count.iterations if count is not None else 1) * len(loop.called_computations[0])


def side_by_side(members: Sequence[HloInstruction], rounds: int, most: int = 4) -> int:
    """Return the number of vectors to compute together, which hides the latency of long dependency chains."""
    loop = _turning(members)
    if loop is not None:
        carried = [loop.shape.tuple_shapes[n] for n in TupleLoop.of(loop).carried_arrays]
        state = sum(2 if s.element_type.is_complex else 1 for s in carried)
        copies = 3 * most // max(1, state)  # three values' registers hold the state of the loop
        count = 4 if copies >= 4 else 2 if copies >= 2 else 1
        while count > 1 and rounds % count:
            count //= 2
        return count
    chain = sum(LATENCY.get(m.operation.element_cost, 1) for m in members if m.operation.elementwise)
    count = min(4 if chain >= 40 else 2 if chain >= 12 else 1, most)
    while count > 1 and rounds % count:
        count //= 2
    return count


def copy_kernel(module: Module, name: str, size: int) -> LoopKernel:
    """Emit the kernel (source, target, begin, end) that copies ``size`` bytes, a block in each step."""
    f = module.function(name, [PTR, PTR, I64, I64])
    source, target, begin, end = f.parameters
    first = begin * COPIED_BLOCK
    last = f.intrinsic("smin", end * COPIED_BLOCK, f.constant(I64, size))
    copy_bytes(f.offset(target, first), f.offset(source, first), last - first)
    f.finish()
    return LoopKernel(name, -(-size // COPIED_BLOCK), 1, size // 4, moved_bytes=2 * size)


def root_values(
    elements: Elements, roots: Sequence[HloInstruction], indices: Sequence[Index]
) -> list[Element]:
    """Emit the elements of a kernel's results at an index."""
    if roots[0].shape.is_tuple:
        return elements.leaves(roots[0], tuple(indices))
    return [elements.element(root, tuple(indices)) for root in roots]


def _innermost(
    elements: Elements,
    lane: Variable,
    low: Operand,
    high: Operand,
    body: Callable[[], None],
    *,
    is_aligned: bool = True,
    repeats: bool = False,
    narrows: bool = False,
) -> None:
    if (low, high) == (0, max(elements.lanes, 1)) and lane.trips == high:
        lane.is_lane, lane.value = elements.lanes > 0, elements.function.constant(I64, 0)
        with elements.scope():
            body()
        lane.value = None
        return
    if elements.lanes:
        first, limit = (elements.function.operand(I64, bound) for bound in (low, high))
        exact = is_aligned and lane.trips % elements.lanes == 0
        vector_loop(elements, lane, first, limit, body, exact=exact, repeats=repeats, narrows=narrows)
        return
    with elements.function.loop(low, high) as loop, elements.scope():
        lane.value = loop.index
        body()
