"""topk-decomposer: expand topk into a sort and slices."""

from __future__ import annotations

from hloom.analysis.instructions import operation_of
from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction
from hloom.ir.window import SliceDimension
from hloom.operations.comparison import Compare
from hloom.operations.movement import Slice
from hloom.operations.sorting import Sort, TopK
from hloom.operations.structure import GetTupleElement, Iota, Tuple
from hloom.passes.op_expander import OpExpander
from hloom.passes.writing import Body, Writer
from hloom.shape.element_type import PRED, S32, ElementType
from hloom.shape.shape import Shape


class TopkDecomposer(OpExpander, name="topk-decomposer", of=TopK):
    """``topk(x)`` → ``slice(sort(x, iota))`` for wide element types or large k.

    Attributes:
        bits: maximum element width in bits of a topk that is kept,
        most: and its maximum k.
    """

    bits: int = 32
    most: int = 2048

    def expand(self, i: HloInstruction, w: Writer) -> HloInstruction | None:
        """Sort beside the indices, and slice."""
        operation = operation_of(i, TopK)
        (x,) = i.operands
        kind, dimension = x.shape.element_type, x.shape.rank - 1
        if not x.shape.is_static or (kind.bits <= self.bits and operation.k <= self.most):
            return None
        numbers = w.op(Iota(iota_dimension=dimension), shape=Shape(S32, x.shape.dimensions))
        comparator = _comparator(w, kind, "GT" if operation.largest else "LT")
        pair = w.op(Sort(dimensions=(dimension,), is_stable=True), x, numbers, computations=[comparator])
        sizes = (*x.shape.dimensions[:-1], operation.k)
        prefix = Slice(slice=tuple(SliceDimension(0, size) for size in sizes))
        return w.op(Tuple(), *(w.op(prefix, w.op(GetTupleElement(index=n), pair)) for n in range(2)))


def _comparator(w: Writer, kind: ElementType, direction: str) -> HloComputation:
    """Return a comparator of (value, index) pairs by the total order of the values."""
    body = Body(w.module, "compare")
    first, second, *_ = [body.parameter(Shape(of), "p") for of in (kind, kind, S32, S32)]
    total = {"comparison_type": "TOTALORDER"} if kind.is_floating else {}
    body.computation.root = body.op(Compare(direction=direction, **total), first, second, shape=Shape(PRED))
    return body.computation
