"""Gathers of single elements in the computation of a scatter's updates, as in sparse matrix products.

The positions of these lookups are computed in vectors, and compacted with the indices of the scatter.
The scalar code of an update then loads the gathered element without computing and clamping its index.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Final

from hloom.analysis.instructions import operation_of
from hloom.codegen.elements import Elements, View
from hloom.codegen.llvm import I32, I64, Value
from hloom.ir.affine import Indices
from hloom.ir.instruction import HloInstruction
from hloom.operations.gather_scatter import Gather

MOST_LOOKUPS: Final = 4
"""Maximum number of gathers whose positions are computed in advance; each takes an array on the stack."""


def lookups(update: HloInstruction, arrays: Container[HloInstruction]) -> list[HloInstruction]:
    """Return the gathers from which the expression of a scatter's ``update`` is computed elementwise.

    For one update, each of them reads one element of an array in memory. At most `MOST_LOOKUPS` are returned.
    ``arrays`` are the instructions whose results are in memory, as inputs of the kernel.
    """
    members, waiting = {update: None}, [update]
    while waiting:
        i = waiting.pop()
        for o in i.operands if i.operation.elementwise and i not in arrays else ():
            if o.shape.dimensions == update.shape.dimensions and o not in members:
                members[o] = None
                waiting.append(o)
    return [i for i in members if i not in arrays and _looks_up(i, arrays)][:MOST_LOOKUPS]


def _looks_up(i: HloInstruction, arrays: Container[HloInstruction]) -> bool:
    if not isinstance(i.operation, Gather) or i.operation.offset_dims or 0 in i.operation.slice_sizes:
        return False
    table, indices = i.operands
    return table in arrays and table is not indices and table.shape.element_count < 1 << 31


class Lookups:
    """Arrays on the stack with the positions of the elements that gathers read to compute scatter updates.

    Args:
        e: the emitter of single updates, in scalar code.
        gathers: the gathers, each of one element per update; each has its own array of positions.
        count: the maximum number of updates whose positions are kept at the same time.
    """

    def __init__(self, e: Elements, gathers: Sequence[HloInstruction], count: int) -> None:
        self._e = e
        self._areas: dict[HloInstruction, Value] = {g: e.function.allocate(I32, count) for g in gathers}

    def positions(self, e: Elements, indices: Indices) -> list[tuple[Value, Value]]:
        """Emit the positions of the elements that each gather reads for a vector of updates, as i32.

        A position is a row-major index in the gathered array. Returns, for each gather, (address of its array
        on the stack, vector of positions); nothing is stored. ``indices`` is the index of the updates in the
        updates array, in which a lane variable enumerates them.
        """
        return [(area, _position(e, g, indices)) for g, area in self._areas.items()]

    def know(self, indices: Indices, number: Value) -> None:
        """Emit loads of the elements that the gathers read for an update, by their positions on the stack.

        ``number`` is the index of the update in the stack arrays. The emitter then uses the loaded elements
        as the gathers' values at ``indices``, the update's index in the updates array.
        """
        f = self._e.function
        for gather, area in self._areas.items():
            table = self._e.views[gather.operands[0]]
            position = f.load(I32, f.offset(area, number, I32)).cast("zext", I64)
            row = View(table.pointer, table.element_type, (table.count,))
            element = self._e.load(row, (self._e.opaque(position, table.count),))
            self._e.know(gather, indices, element)


def _position(e: Elements, gather: HloInstruction, indices: Indices) -> Value:
    table = gather.operands[0]
    steps = operation_of(gather, Gather).element(e, gather, indices)
    read = next(steps)
    while read.instruction is not table:
        read = steps.send(e.read(read))
    return e.wide(e.index_value(e.views[table].linear(read.indices))).cast("trunc", I32)
