"""Kept numbers of four bits, of which products with few rows find two in a byte.

Arrays of 4-bit integers have a byte for each element, and so have the values that shifts and masks unpack.
Products of few rows read packed numbers as they are (`hloom.cpu.kernels.dot.row_stream`), at half the bytes.
Two neighbours along the columns share a byte, whichever dimension of the array the columns are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet

from hloom.analysis.instructions import operation_of
from hloom.analysis.loops import TupleLoop, element_number
from hloom.cpu.kernels.dot.gemm import sum_type
from hloom.cpu.kernels.dot.row_stream import LEAST_BYTES, LINE, MOST_ROWS
from hloom.ir.affine import Index, Variable, delinearize, linearize
from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.operations.arithmetic import Add, Multiply, Subtract
from hloom.operations.contraction import Dot
from hloom.operations.conversion import BitcastConvert, Convert
from hloom.operations.dynamic_slicing import DynamicSlice
from hloom.operations.movement import Broadcast, Transpose
from hloom.operations.reshaping import Reshape
from hloom.passes.loops.while_loops import loops_of, rebuild
from hloom.passes.rules.contraction import inner_of, renumbered
from hloom.passes.rules.dimensions import inverse
from hloom.passes.simplify.integer_ranges import IntegerRanges
from hloom.passes.writing import Writer
from hloom.records import dataclass
from hloom.shape import element_type as et
from hloom.shape.element_type import ElementType
from hloom.shape.shape import Shape


def pack_numbers(
    module: HloModule, values: AbstractSet[HloInstruction], pays: Callable[[HloInstruction], bool]
) -> list[HloInstruction]:
    """Rewrite ``dot(x, convert(w))`` to ``dot(x, convert(unpack(pack(w))))`` if w holds integers of 4 bits.

    ``values``: the instructions of the entry computation that depend only on arguments that do not change
    from run to run; w must be one of them, so that ``pack(w)`` can be kept in memory. ``pays``: returns
    whether to keep a given ``pack(w)``. Returns the packed arrays ``pack(w)``, which are in the entry
    computation.
    """
    loops = {loop.body: loop for loop in loops_of(module)}
    packing = _Packing(values, pays, loops, IntegerRanges(module))
    for computation in (*loops, module.entry):
        for dot in computation.post_order():
            if _is_matrix_product(dot):
                packing.pack_factor(dot, 0)
                packing.pack_factor(dot, 1)
    return [i for i in packing.packed.values() if i.users]


@dataclass(frozen=True, slots=True)
class _Source:
    """Integers that fit in 4 bits and do not change between runs, from which a dot's operand is computed.

    Attributes:
        numbers: the instruction whose value they are, in the computation of the dot.
        path: the instructions that compute the operand from the numbers, from the operand itself (first) to
            the one that reads the numbers (last).
        kept: the instruction of the entry computation whose value they are; or, if loop iterations slice them
            from a stack of arrays along a leading dimension, the stack.
        loops: the loops that carry ``kept`` into the computation of the dot, outermost first.
        slice: the dynamic-slice that takes the numbers out of the stack; None if ``kept`` is no stack.
    """

    numbers: HloInstruction
    path: list[HloInstruction]
    kept: HloInstruction
    loops: tuple[TupleLoop, ...]
    slice: HloInstruction | None

    @property
    def sizes(self) -> tuple[int, ...]:
        """Return the dimensions of the array of 4-bit integers; for a stack of arrays, those of one."""
        return self.kept.shape.dimensions if self.slice is None else self.kept.shape.dimensions[1:]


class _Packing:
    def __init__(
        self,
        values: AbstractSet[HloInstruction],
        pays: Callable[[HloInstruction], bool],
        loops: Mapping[HloComputation, TupleLoop],
        ranges: IntegerRanges,
    ) -> None:
        self.values, self.pays, self.loops, self.ranges = values, pays, loops, ranges
        self.packed: dict[tuple[HloInstruction, int], HloInstruction] = {}

    def pack_factor(self, dot: HloInstruction, side: int) -> None:
        """Rewrite a dot to read operand ``side`` (0 or 1) as packed 4-bit integers, if possible and faster.

        It is faster for a large operand if the other operand has at most `MOST_ROWS` elements per index of
        the contracted dimensions.
        """
        operation, factor = operation_of(dot, Dot), dot.operands[side]
        inner = inner_of(operation, side)
        depth = math.prod(factor.shape.dimensions[d] for d in inner)
        rows = dot.operands[1 - side].shape.element_count // max(depth, 1)
        least = max(LEAST_BYTES, 2 * LINE * depth)
        if depth < 2 or rows > MOST_ROWS or factor.shape.element_count < least:
            return
        source = self.source(factor)
        columns_first = _has_columns_first(source, inner, depth) if source is not None else None
        if source is None or columns_first is None:
            return
        rotation = _dimension_of_depth(source.sizes, depth) if columns_first else 0
        value = self.unpacked(source, rotation)
        if value is None:
            return
        readers = [dot, *source.path]
        if not columns_first:
            source.numbers.replace_uses_in(readers[-1:], value)
            return
        for i, reader in zip(source.path[::-1], readers[-2::-1], strict=True):
            if isinstance(i.operation, Transpose):
                i.replace_uses_in([reader], Writer(i).reshape(value, i.shape.dimensions))
                return
            value = _rotated(i, value, depth)
        first = factor.shape.rank - len(inner)
        dot.operation = renumbered(operation, side, (), [d - first for d in inner])
        dot.replace_operand(side, value)

    def source(self, factor: HloInstruction) -> _Source | None:
        """Return the integers from which a dot's operand is computed if they fit in 4 bits, else None.

        Only integers that do not change between runs are returned.
        """
        i: HloInstruction | None = factor
        path: list[HloInstruction] = []
        while i is not None:
            if (kept := self.carried(i)) is not None and self.four_bits(kept[0]) is not None:
                return _Source(i, path, *kept, None)
            slice = i.operands[0] if isinstance(i.operation, Reshape) else i
            if isinstance(slice.operation, DynamicSlice) and slice.shape.dimensions[0] == 1:
                stack = slice.operands[0]
                is_row = slice.shape.dimensions[1:] == stack.shape.dimensions[1:]
                kept = self.carried(stack) if is_row else None
                if kept is not None and self.four_bits(kept[0]) is not None:
                    return _Source(i, path, *kept, slice)
            path.append(i)
            i = _computed_from(i)
        return None

    def carried(self, i: HloInstruction) -> tuple[HloInstruction, tuple[TupleLoop, ...]] | None:
        """Return the instruction of the entry computation to which ``i`` is equal, and the loops in between.

        The loops, outermost first, pass its value on unchanged. Returns None if there is no such instruction,
        or if its value may change between runs.
        """
        through: list[TupleLoop] = []
        while i not in self.values:
            loop = self.loops.get(i.parent) if i.parent is not None else None
            number = element_number(i, loop.state) if loop is not None else None
            if loop is None or number is None or not loop.is_invariant(number):
                return None
            i = loop.initial(number)
            through.insert(0, loop)
        return i, tuple(through)

    def four_bits(self, kept: HloInstruction) -> ElementType | None:
        """Return u4 or s4, whichever can represent all values of the array ``kept``; None if neither can."""
        limits = self.ranges.of(kept) if kept.shape.element_type.is_integer else None
        if limits is None or kept.shape.element_type.bits < et.S4.bits:
            return None
        fitting = (t for t in (et.U4, et.S4) if t.limits[0] <= limits[0] and limits[1] <= t.limits[1])
        return next(fitting, None)

    def unpacked(self, source: _Source, rotation: int) -> HloInstruction | None:
        """Add instructions that pack integers two in a byte and, in the dot's computation, unpack them.

        Returns the unpacked integers with rotated dimensions: ``rotation`` and the following ones, then those
        before ``rotation``. Returns None if they are already packed, or if it does not pay to keep the packed
        ones in memory.
        """
        narrow = self.four_bits(source.kept)
        assert narrow is not None
        if source.slice is None and not rotation and _is_packed(source.kept):
            return None
        carried = self.packed_of(source, rotation, narrow)
        if not self.pays(carried):
            return None
        for loop in source.loops:
            (carried,) = rebuild(loop, range(loop.count), [carried])
        w, numbers = Writer(source.numbers), source.numbers.shape
        if source.slice is not None:
            start, zeros = source.slice.operands[1], source.slice.operands[2:]
            sizes = carried.shape.dimensions[1:]
            row = w.op(DynamicSlice(dynamic_slice_sizes=(1, *sizes)), carried, start, *zeros)
            carried = w.reshape(row, sizes)
        pairs = carried.shape.with_dimensions((*carried.shape.dimensions, 2)).with_element_type(narrow)
        value = w.op(BitcastConvert(), carried, shape=pairs)
        sizes = numbers.dimensions
        if rotation:
            depth = math.prod(source.sizes[rotation:])
            sizes = _rotated_sizes(sizes, _dimension_of_depth(sizes, depth))
        return w.convert(w.reshape(value, sizes), numbers.element_type)

    def packed_of(self, source: _Source, rotation: int, narrow: ElementType) -> HloInstruction:
        """Return a u8 array with two 4-bit integers in each byte, computed in the entry computation.

        The first call for an array adds the instructions. The dimensions are rotated: ``rotation`` and the
        following ones, then those before ``rotation``; the leading dimension of a stack of arrays stays in
        front. ``narrow``: u4 or s4.
        """
        key = source.kept, rotation
        if key not in self.packed:
            w, stacks = Writer(source.kept), int(source.slice is not None)
            dimensions = range(source.kept.shape.rank)
            order = (*dimensions[:stacks], *_rotated_sizes(dimensions[stacks:], rotation))
            value = w.op(Transpose(dimensions=order), w.convert(source.kept, narrow))
            *sizes, columns = value.shape.dimensions
            pairs = w.reshape(value, (*sizes, columns // 2, 2))
            self.packed[key] = w.op(BitcastConvert(), pairs, shape=Shape(et.U8, (*sizes, columns // 2)))
        return self.packed[key]


def _is_matrix_product(i: HloInstruction) -> bool:
    """Return whether an instruction is a dot of static shape, without batch dimensions, that sums in f32."""
    if not isinstance(i.operation, Dot) or i.operation.lhs_batch_dims or not i.shape.is_static:
        return False
    return sum_type(i.shape.element_type) is et.F32


def _computed_from(i: HloInstruction) -> HloInstruction | None:
    """Return the operand whose elements an instruction moves, or changes one by one.

    That is the operand of a convert, reshape or transpose, or the operand of a multiply, add or subtract if
    all its other operands are broadcasts. Returns None for other instructions.
    """
    if isinstance(i.operation, Convert | Reshape | Transpose):
        return i.operands[0]
    if not isinstance(i.operation, Multiply | Add | Subtract):
        return None
    single = [o for o in i.operands if not _is_broadcast(o)]
    return single[0] if len(single) == 1 else None


def _is_broadcast(i: HloInstruction) -> bool:
    while isinstance(i.operation, Reshape | Convert):
        (i,) = i.operands
    return isinstance(i.operation, Broadcast)


def _is_packed(i: HloInstruction) -> bool:
    """Return whether ``i`` unpacks integers from bytes: it is a bitcast-convert, perhaps reshaped."""
    while isinstance(i.operation, Reshape):
        (i,) = i.operands
    return isinstance(i.operation, BitcastConvert)


def _dimension_of_depth(sizes: Sequence[int], depth: int) -> int:
    """Return the least d > 0 for which the product of ``sizes[d:]`` is ``depth``; 0 if there is none."""
    return next((d for d in range(1, len(sizes)) if math.prod(sizes[d:]) == depth), 0)


def _rotated_sizes(sizes: Sequence[int], rotation: int) -> tuple[int, ...]:
    """Return a sequence of dimensions rotated: ``sizes[rotation:]``, then ``sizes[:rotation]``."""
    return (*sizes[rotation:], *sizes[:rotation])


def _rotated(i: HloInstruction, value: HloInstruction, depth: int) -> HloInstruction:
    """Clone an instruction with rotated dimensions: its last ones, whose product is ``depth``, become first.

    ``value``: an instruction to use instead of its operand, with dimensions rotated in the same way;
    broadcast operands are transposed.
    """
    w, rotation = Writer(i), _dimension_of_depth(i.shape.dimensions, depth)
    sizes = _rotated_sizes(i.shape.dimensions, rotation)
    if isinstance(i.operation, Reshape):
        return w.reshape(value, sizes)
    if isinstance(i.operation, Convert):
        return w.convert(value, i.shape.element_type)
    order = _rotated_sizes(range(i.shape.rank), rotation)
    operands = [w.op(Transpose(dimensions=order), o) if _is_broadcast(o) else value for o in i.operands]
    return w.op(i.operation, *operands)


def _has_columns_first(source: _Source, inner: Sequence[int], depth: int) -> bool | None:
    """Return whether the dimensions that a dot does not contract are first in an array of 4-bit numbers.

    The operand of the dot is computed from that array. Returns false if they are last; None if neither, or if
    the last of them, along which two numbers share a byte, has an odd size. ``inner``: the contracted
    dimensions of the operand, whose product is ``depth``.
    """
    factor = source.path[0] if source.path else source.numbers
    variables = [Variable(size) for size in factor.shape.dimensions]
    linear = linearize([Index.of(v) for v in variables], factor.shape.dimensions)
    for i in source.path:
        if isinstance(i.operation, Transpose):
            indices = delinearize(linear, i.shape.dimensions)
            if indices is None:
                return None
            order = inverse(i.operation.dimensions)
            linear = linearize([indices[d] for d in order], i.operands[0].shape.dimensions)
    strides = dict(linear.terms)
    step = min(strides.get(variables[d], 0) for d in inner if variables[d].extent > 1)
    columns = factor.shape.element_count // depth
    if step == columns:
        return None if source.sizes[-1] % 2 or columns % source.sizes[-1] else False
    if step != 1:
        return None
    for i in source.path[::-1]:
        if isinstance(i.operation, Transpose):
            order = [d for d in i.operation.dimensions if i.operands[0].shape.dimensions[d] > 1]
            rotation = _dimension_of_depth(i.operands[0].shape.dimensions, depth)
            behind = [d for d in order if d >= rotation]
            is_rotation = rotation and order == [*sorted(behind), *(d for d in sorted(order) if d < rotation)]
            break
        if not _dimension_of_depth(i.shape.dimensions, depth):
            return None
    else:
        free = len(factor.shape.dimensions) - len(inner)
        is_rotation = sorted(inner) == list(range(free, factor.shape.rank))
    rotation = _dimension_of_depth(source.sizes, depth)
    return True if is_rotation and rotation and source.sizes[rotation - 1] % 2 == 0 else None
