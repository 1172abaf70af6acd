"""Kernels with a small minor dimension: lanes are rows, and shuffles interleave the columns.

Where the innermost loops are shorter than a vector, the lanes run over the next loop instead. Every column of
these rows is emitted separately with a constant index, so that a concatenation selects its operand at compile
time; the columns are then interleaved into whole vectors in memory order.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from hloom.codegen.elements import NEAR, Elements, View
from hloom.codegen.llvm import I1, Function, Module, Value
from hloom.codegen.llvm.memory import masked_store
from hloom.codegen.llvm.values import select_lanes, stage_of
from hloom.codegen.loops import (
    VECTOR_BYTES,
    LoopKernel,
    begin_kernel,
    lanes_within,
    loop_nest,
    nest_kernel,
    outer_loops,
    piece_range,
    root_values,
    vector_lanes,
    work_of,
)
from hloom.codegen.target import Target
from hloom.codegen.types import Element, storage_bytes, storage_type, to_storage
from hloom.errors import plural
from hloom.ir.affine import Index, Variable
from hloom.ir.instruction import HloInstruction
from hloom.ir.traits import ElementCost
from hloom.operations.gather_scatter import Gather
from hloom.operations.movement import Concatenate, Pad, Transpose
from hloom.plan.accesses import Accesses
from hloom.plan.evaluations import element_work
from hloom.plan.iteration import accesses_of, is_nested, planned_space, result_shapes
from hloom.plan.parts import KernelParts
from hloom.plan.pieces import decided_iterations, pieces_by_bounds, replaced_loop
from hloom.plan.space import Space
from hloom.records import dataclass

MOST_COLUMNS: Final = 16
MOST_JOINED: Final = 128
"""Maximum number of columns of a concatenation, which are stored a vector of each row at a time."""
MOST_OPERATIONS: Final = 600
"""Maximum number of operations in the unrolled code of all columns."""
MOST_TERMS: Final = 64
"""Most terms of all sums of a row that are written out."""
MOST_DIVIDED: Final = 12
"""Most columns of a period of interior padding: LLVM takes seconds to interleave more of them."""
LEAST_LANES: Final = 8
LEAST_BYTES: Final = 32
"""Bytes of a row that vectors along it are for."""


@dataclass(frozen=True, slots=True)
class Rows:
    """The loops of a kernel whose results have narrow rows: vector lanes are rows, and columns are unrolled.

    Attributes:
        space: all loops. The innermost ones are over the columns of a row; the loop around them is over rows.
        columns: how many of the innermost loops are over columns.
        lanes: number of rows per vector.
        last: the loops of the last row if it is incomplete, which ``space`` leaves out; None if it is whole.
    """

    space: Space
    columns: int
    lanes: int
    last: Space | None = None

    @property
    def outer(self) -> tuple[Variable, ...]:
        return self.space.variables[: -self.columns - 1]

    @property
    def row(self) -> Variable:
        return self.space.variables[-self.columns - 1]

    @property
    def count(self) -> int:
        """Return the number of rows."""
        return self.row.trips + (self.last is not None)

    @property
    def width(self) -> int:
        return math.prod(v.trips for v in self.space.variables[-self.columns :])

    def pieces(self, parts: KernelParts) -> list[tuple[Rows, int]]:
        """Return ranges of rows between which bounds checks change, each with the index of its first row.

        Bounds checks along short outer loops are decided: ranges have no such loop around them.
        """
        if self.last is not None:
            return [(Rows(self.last, self.columns, 0), self.row.trips), *self._ranges(parts)]
        spaces = decided_iterations(parts, self.space, self.outer)
        return [r for space in spaces for r in replace(self, space=space)._ranges(parts)]

    def _ranges(self, parts: KernelParts) -> list[tuple[Rows, int]]:
        space, columns = self.space, self.columns
        around = replace(space, variables=space.variables[:-columns], merged=space.merged[:-columns])
        return [
            (
                replace(
                    self,
                    space=replace(
                        piece.space,
                        variables=(*piece.space.variables, *space.variables[-columns:]),
                        merged=(*piece.space.merged, *space.merged[-columns:]),
                    ),
                ),
                piece.low,
            )
            for piece in pieces_by_bounds(parts, around)
        ]

    def places(self) -> list[tuple[Index, ...]]:
        """Return the array index of each element of a row of a kernel's results, in memory order.

        The indices contain the variables of the loops around the columns, which select the row.
        """
        inner = self.space.variables[-self.columns :]
        iterations = itertools.product(*(range(v.trips) for v in inner))
        return [self.space.at(dict(zip(inner, numbers, strict=True))) for numbers in iterations]


def find_rows(space: Space, parts: KernelParts, target: Target, *, reduced: bool = False) -> Rows | None:
    """Return the loops of a kernel if the rows of its results are so narrow that lanes should be rows.

    Returns None if vectors along the innermost loop are better, or if the unrolled code of a row would be too
    long. ``reduced`` says that the kernel reduces its rows, in unrolled code: then vectors along a row are
    never better.
    """
    if not reduced and _has_loops_for_each(parts):
        return None
    space, last = (space, None) if reduced else _divide_rows(space, parts.members)
    columns = _column_loops(parts, space)
    if not columns or (not reduced and _fills_vectors(parts, space, columns)):
        return None
    rows = Rows(space, columns, _lanes(parts, space.variables[-1 - columns], target, reduced), last)
    loads = _is_near(parts, rows) or (reduced and _gathers(parts, rows, target))
    return rows if rows.lanes >= LEAST_LANES and loads and _fits(parts, rows) else None


def find_short_sums(parts: KernelParts, hero: HloInstruction, terms: int, target: Target) -> Rows | None:
    """Return the loops of a kernel if lanes should be rows of results, each a sum that is written out.

    Args:
        parts: the kernel.
        hero: what computes the sums, a reduction or a dot.
        terms: the number of terms of a sum.
        target: the processor.

    Returns None if rows fill vectors, if the code of a row would be too long, or if another operation of the
    kernel takes a loop for each element.
    """
    if any(is_nested(m) for m in parts.members if m is not hero):
        return None
    space = planned_space(parts.inputs, parts.roots, parts.members)
    rows = find_rows(space, parts, target, reduced=True)
    is_short = rows is not None and rows.width * terms <= MOST_TERMS
    return rows if is_short and space.variables[-1].trips < LEAST_LANES else None


def _arrays(parts: KernelParts) -> list[HloInstruction]:
    return [x for x in (*parts.inputs, *parts.members) if x.shape.is_array]


def _strides(parts: KernelParts, space: Space) -> list[dict[Variable, int]]:
    """Return, for each load and store, by how many elements an iteration of each loop advances it."""
    return [dict(a.terms) for a in accesses_of(parts.inputs, parts.roots, space.indices).linear]


def _has_loops_for_each(parts: KernelParts) -> bool:
    """Return whether an element takes a loop, or is gathered where nothing is transposed or joined."""
    moves = any(isinstance(m.operation, Concatenate | Transpose) for m in parts.members)
    return any(is_nested(m) or (isinstance(m.operation, Gather) and not moves) for m in parts.members)


def _column_loops(parts: KernelParts, space: Space) -> int:
    """Return how many of the innermost loops are over columns; 0 if rows are not narrow."""
    if len(space.variables) < 2:
        return 0
    columns, _ = _narrow_loops(space)
    work = sum(map(element_work, parts.members))
    if not columns and work <= MOST_OPERATIONS and _joins_words(parts, space.variables[-1]):
        return 1
    return columns


def _fills_vectors(parts: KernelParts, space: Space, columns: int) -> bool:
    """Return whether vectors along rows are better: rows fill them, and all loads are along rows."""
    lane = space.variables[-1]
    widest = max(storage_bytes(x.shape.element_type) for x in _arrays(parts))
    if lane.trips < LEAST_LANES or lane.trips * widest < LEAST_BYTES:
        return False
    # The iterations of a loop inside of the kernel take as long for a vector that is not full.
    if lane.trips % LEAST_LANES and any(m.called_computations for m in parts.members):
        return False
    along = all(abs(strides.get(lane, 0)) <= 1 for strides in _strides(parts, space))
    return along and not any(_joins_columns(m, space, columns) for m in parts.members)


def _lanes(parts: KernelParts, row: Variable, target: Target, reduced: bool) -> int:
    """Return the number of rows of a vector.

    Two registers hide latencies, and narrow elements fill only one; to shuffle two takes LLVM long.
    """
    arrays = _arrays(parts)
    waits = reduced or any(
        m.called_computations or m.operation.element_cost is ElementCost.TRANSCENDENTAL for m in parts.members
    )
    is_narrow = min(storage_bytes(x.shape.element_type) for x in arrays) < 4
    return vector_lanes(arrays, row.trips, VECTOR_BYTES if waits or is_narrow else target.vector_bytes)


def _is_near(parts: KernelParts, rows: Rows) -> bool:
    """Return whether rows that are loaded together are close in memory, and elements fit lanes."""
    if any(storage_bytes(x.shape.element_type) > 8 for x in _arrays(parts)):
        return False
    strides = _strides(parts, rows.space) if rows.width <= MOST_COLUMNS else ()
    return all(abs(each.get(rows.row, 0)) <= NEAR for each in strides)


def _gathers(parts: KernelParts, rows: Rows, target: Target) -> bool:
    """Return whether gathers of rows far apart take less time than vectors that a row does not fill.

    Reproducible results must not depend on it.
    """
    if not target.has("avx512f") or target.reproducible:
        return False
    sizes = {storage_bytes(x.shape.element_type) for x in _arrays(parts)}
    return sizes <= {4, 8} and rows.width < LEAST_LANES and rows.width != 4


def _fits(parts: KernelParts, rows: Rows) -> bool:
    """Return whether the unrolled code of a row is short enough."""
    loops = [body for m in parts.members for body in m.called_computations]
    if rows.width * (len(parts.members) + sum(map(len, loops))) <= MOST_OPERATIONS:
        return True
    return not loops and _operations(parts.inputs, parts.roots, rows) <= MOST_OPERATIONS


def _narrow_loops(space: Space) -> tuple[int, int]:
    """Return how many of the innermost loops have few iterations together, and how many these are.

    The outermost loop is none of them.
    """
    columns, width = 0, 1
    while columns < len(space.variables) - 1:
        trips = space.variables[-1 - columns].trips
        if width * trips > MOST_COLUMNS:
            break
        columns, width = columns + 1, width * trips
    return columns, width


def _divide_rows(space: Space, members: Sequence[HloInstruction]) -> tuple[Space, Space | None]:
    """Divide the loop around the narrow ones by the period of interior padding along its dimension.

    Elements at this distance are alike: with constant positions in a period, operands are read without tests
    and divisions. Returns the loops, and those of the incomplete period at the end: None if there is none.
    """
    columns, width = _narrow_loops(space)
    loop = space.variables[-1 - columns] if space.variables else Variable(1)
    period = _period(space, loop, members, MOST_DIVIDED // width)
    rows, rest = divmod(loop.trips, period)
    if period == 1 or loop.trips != loop.extent or width * period * rows <= MOST_COLUMNS:
        return space, None
    whole = replaced_loop(space, loop, (Variable(rows), Variable(period)), 0)
    if not rest:
        return whole, None
    return whole, replaced_loop(space, loop, (Variable(1), Variable(rest)), rows * period)


def _period(space: Space, loop: Variable, members: Sequence[HloInstruction], most: int) -> int:
    """Return after how many iterations of a loop, at most ``most``, the interior padding is alike again.

    A padded array may consist of elements of another one, which is as long as one period is contained in it.
    """
    dimension = next((d for d, index in enumerate(space.indices) if loop in dict(index.terms)), 0)
    periods: dict[int, int] = {}
    for member in members:
        if isinstance(member.operation, Pad) and member.shape.rank == len(space.indices):
            interior = member.operation.padding[dimension].interior
            if interior:
                periods[member.shape.dimensions[dimension]] = interior + 1
    size, period = loop.trips, 1
    while size in periods and period * periods[size] <= most:
        period *= periods[size]
        size //= periods[size]
    return period


def _joins_columns(member: HloInstruction, space: Space, columns: int) -> bool:
    """Return whether a member is a concatenation along one of the innermost loops, or of another shape."""
    if not isinstance(member.operation, Concatenate):
        return False
    if member.shape.rank != len(space.indices):
        return True
    (dimension,) = member.operation.dimensions
    index = dict(space.indices[dimension].terms)
    return any(variable in index for variable in space.variables[-columns:])


def _joins_words(parts: KernelParts, lane: Variable) -> bool:
    """Return whether the result is a concatenation of few arrays of words, of up to three columns each."""
    roots, arrays = parts.roots, _arrays(parts)
    is_one = len(roots) == 1 and isinstance(roots[0].operation, Concatenate)
    is_narrow = is_one and lane.trips < 4 * len(roots[0].operands)
    words = all(x.shape.element_type.bits in (32, 64) and not x.shape.element_type.is_complex for x in arrays)
    return is_narrow and words and lane.trips <= MOST_JOINED


def _operations(inputs: Sequence[HloInstruction], roots: Sequence[HloInstruction], rows: Rows) -> int:
    """Return how many elements, of all its instructions, a kernel computes for one row of its results.

    An element that several results need counts once.
    """
    accesses = Accesses(inputs, unrolls=True)
    for position in rows.places():
        accesses.results(roots, position)
    return len(accesses.requests)


def interleaved(columns: Sequence[Value]) -> list[Value]:
    """Emit the interleaving of vectors: element 0 of each, then element 1 of each, and so on.

    Returns as many vectors as ``columns`` has; their concatenation is the interleaved sequence.
    """
    count = len(columns)
    if count == 1:
        return list(columns)
    lanes = columns[0].type.lanes
    ways = stage_of(count, columns[0].type.scalar)
    parts = [interleaved(columns[first::ways]) for first in range(ways)]
    if ways == 2 or ways < count:
        Function.of(columns[0]).split_block()
    places = [(lane % ways, lane // ways) for lane in range(ways * lanes)]
    return [
        select_lanes(group, places[k * lanes : (k + 1) * lanes])
        for group in zip(*parts, strict=True)
        for k in range(ways)
    ]


def emit_rows_kernel(
    module: Module, name: str, parts: KernelParts, rows: Rows, *, repeats: bool = True
) -> LoopKernel:
    """Emit the kernel (inputs..., results..., begin, end), with rows as vector lanes, and columns unrolled.

    ``repeats`` says that an element may be computed and stored twice, so that the last vector may overlap its
    predecessor. Results that lack the last dimension, or in which its size is 1, have one element per row.
    """
    inputs, results = parts.inputs, result_shapes(parts.roots)
    f, arrays, begin, end = begin_kernel(module, name, [*(i.shape for i in inputs), *results])
    views, targets = dict(zip(inputs, arrays, strict=False)), arrays[len(inputs) :]
    pieces = rows.pieces(parts)
    outer = pieces[-1][0].outer
    with outer_loops(f, outer, begin, end):
        for piece, first in pieces:
            e = Elements(f, lanes_within(rows.lanes, piece.row), views)
            e.unrolls = True
            low, high = begin, end
            if outer:
                low, high = 0, None
            elif len(pieces) > 1:
                low, high = piece_range(first, piece.row.trips, begin, end)
            body = partial(_emit_rows, e, parts, piece.places(), targets)
            is_aligned = len(pieces) == 1 or outer != ()
            with e.scope():
                loop_nest(e, [piece.row], body, low, high, is_aligned=is_aligned, repeats=repeats)
    f.finish()
    work = work_of(parts.members, max(target.count for target in targets))
    form = f"{rows.lanes} rows at a time"
    form += f", {plural(len(pieces), 'piece')}" if len(pieces) > 1 else ""
    return nest_kernel(name, (*outer, Variable(rows.count)), rows.lanes, work, form)


def _emit_rows(
    e: Elements, parts: KernelParts, places: Sequence[tuple[Index, ...]], targets: Sequence[View]
) -> None:
    """Emit the elements of a vector of rows, and their stores into ``targets``, the kernel's results.

    ``places`` has the index of each element of a row.
    """
    most = max(target.count for target in targets)
    rank = len(places[0])
    narrow = [n for n, t in enumerate(targets) if t.count < most or len(t.dimensions) < rank]
    wide = [n for n in range(len(targets)) if n not in narrow]
    roots = [parts.roots[n] for n in wide] if narrow else parts.roots

    def row_of(target: View) -> tuple[Index, ...]:
        """Return the index of the current row's element in ``target``, a result with one element per row."""
        return (*places[0][:-1], Index(0))[: len(target.dimensions)]

    if len(places) > MOST_COLUMNS:
        _emit_long_rows(e, parts, places, targets[0])
        return
    elements = [root_values(e, roots, place) for place in places]
    values_of: dict[int, list[Element]] = {
        number: [values[k] for values in elements] for k, number in enumerate(wide)
    }
    values_of |= {n: [e.element(parts.roots[n], row_of(targets[n]))] for n in narrow}
    for number, values in values_of.items():
        target = targets[number]
        columns = [e.wide(part) for v in values for part in (v if isinstance(v, tuple) else (v,))]
        if not target.element_type.is_complex:
            columns = [to_storage(column, target.element_type) for column in columns]
        position = row_of(target) if number in narrow else places[0]
        first, _, _ = e.parts(target.linear(position))
        _store(e, target, first * (len(columns) // len(values)), columns)


def _emit_long_rows(
    e: Elements, parts: KernelParts, places: Sequence[tuple[Index, ...]], target: View
) -> None:
    """Emit the elements of a vector of rows longer than a vector, and their stores, a vector at a time.

    As many columns as there are rows are transposed in registers, so that each vector has a part of one row.
    """
    f, lanes, width = e.function, max(e.lanes, 1), len(places)
    stored = storage_type(target.element_type)
    first, _, _ = e.parts(target.linear(places[0]))
    for start in range(0, width, lanes):
        columns: list[Value] = []
        for place in places[start : start + lanes]:
            (value,) = root_values(e, parts.roots, place)
            assert isinstance(value, Value)
            columns.append(to_storage(e.wide(value), target.element_type))
        count = len(columns)
        columns += columns[-1:] * (lanes - count)
        for row, vector in enumerate(interleaved(columns) if e.lanes else columns[:1]):
            pointer = f.offset(target.pointer, first + (row * width + start), stored)
            if count == lanes and e.mask is None:
                f.store(vector, pointer)
                continue
            inside = f.constant(I1.vector(lanes), [int(n < count) for n in range(lanes)])
            if e.mask is not None:
                inside = inside & e.lane_mask().shuffle([row] * lanes)
            masked_store(vector, pointer, inside)


def _store(e: Elements, target: View, first: Value, columns: Sequence[Value]) -> None:
    """Emit the store of ``columns``, interleaved, into ``target`` from element ``first`` on.

    A column is a vector that has one element of each of several neighboring rows, or the element of one row.
    """
    f, lanes, width = e.function, max(e.lanes, 1), len(columns)
    stored = storage_type(target.element_type)
    for number, vector in enumerate(interleaved(columns) if e.lanes else columns):
        pointer = f.offset(target.pointer, first + number * lanes if number else first, stored)
        if e.mask is None:
            f.store(vector, pointer)
            continue
        rows = [(number * lanes + lane) // width for lane in range(lanes)]
        masked_store(vector, pointer, e.lane_mask().shuffle(rows))
