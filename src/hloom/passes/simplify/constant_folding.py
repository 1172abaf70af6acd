"""constant_folding: evaluate instructions with constant operands at compile time.

A work estimate bounds the evaluation, so that compile time does not grow with the size of the constants.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from hloom.analysis.instructions import operation_of
from hloom.analysis.purity import is_free, is_pure
from hloom.errors import HloError
from hloom.evaluate.evaluator import Evaluator
from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.ir.operation import Array
from hloom.ir.traits import Family
from hloom.operations.convolution import Convolution
from hloom.operations.movement import Broadcast
from hloom.operations.structure import Constant, Iota
from hloom.passes.fuel import consume, exhausted
from hloom.passes.pipeline import Pass
from hloom.passes.writing import Writer
from hloom.shape.literal import Literal
from hloom.shape.shape import Shape

_WORK_OF_ELEMENT: Final = {"moved": 1, "computed": 16, "combined": 64}
"""Cost of evaluating one element, relative to moving it."""


class ConstantFolding(Pass, name="constant_folding", settles=True):
    """Operations on constants → constants; constants with equal elements → ``broadcast(constant)``.

    Attributes:
        largest: maximum number of elements of a result that is larger than every operand.
        work: maximum work for one instruction, in moved elements (about a nanosecond each).
        total_work: maximum work for a module.
    """

    largest: int = 1 << 16
    work: int = 1 << 20
    total_work: int = 1 << 23

    def run(self, module: HloModule) -> bool:
        """Fold in every computation."""
        budget = self.total_work
        evaluator = Evaluator()
        changed = False
        for computation in module.computations:
            if not any(isinstance(i.operation, Constant) for i in computation.instructions):
                continue
            for i in computation.post_order():
                if isinstance(i.operation, Constant):
                    changed |= not exhausted() and spread_one_number(i) and consume(f"%{i.name}")
                elif not exhausted() and self.folds(i):
                    work = work_of(i)
                    if work > min(self.work, budget):
                        continue
                    budget -= work
                    changed |= fold(i, evaluator) and consume(f"%{i.name}")
        return changed

    def folds(self, i: HloInstruction) -> bool:
        """Return whether an instruction has only constant operands and a result small enough to store."""
        if not i.operands or not all(map(_is_known, i.operands)):
            return False
        if not is_pure(i) or (is_free(i) and _enlarges(i)) or _repeats_number(i):
            return False
        if i.has_control_dependencies or not i.shape.is_array or i.shape.is_dynamic:
            return False
        count = i.shape.element_count
        return count <= self.largest or count <= max(o.shape.element_count for o in i.operands)


def _enlarges(i: HloInstruction) -> bool:
    """Return whether the result is larger than the operands: computing it is cheaper than storing it."""
    return i.shape.is_array and i.shape.element_count > max(o.shape.element_count for o in i.operands)


def _repeats_number(i: HloInstruction) -> bool:
    """Return whether an instruction is the form in which arrays of equal elements are written."""
    return isinstance(i.operation, Broadcast) and i.operands[0].shape.rank == 0


def _is_known(i: HloInstruction) -> bool:
    return isinstance(i.operation, Constant) and i.shape.is_array and not i.operation.literal.is_elided


def work_of(i: HloInstruction) -> int:
    """Estimate the work of evaluating an instruction, in moved elements."""
    largest = max(i.shape.element_count, *(o.shape.element_count for o in i.operands))
    family = i.operation.family
    if family is Family.MOVEMENT:
        return largest
    if family is Family.ELEMENTWISE:
        return largest * _WORK_OF_ELEMENT["computed"]
    if family is Family.CONTRACTION:
        lhs, rhs = (o.shape.element_count for o in i.operands[:2])
        elements = i.shape.element_count
        return largest + (
            elements * rhs if isinstance(i.operation, Convolution) else math.isqrt(lhs * rhs * elements)
        )
    window = math.prod(d.size for d in getattr(i.operation, "window", ()))
    return largest * max(window, 1) * _WORK_OF_ELEMENT["combined"]


def fold(i: HloInstruction, evaluator: Evaluator) -> bool:
    """Replace an instruction by its value; return False if the evaluator rejects it."""
    try:
        with np.errstate(all="ignore"):
            value = evaluator.apply(i, [operation_of(o, Constant).literal.numpy() for o in i.operands])
    except HloError:
        return False
    assert isinstance(value, np.ndarray)
    Writer(i).replace(constant_like(i, value))
    return True


def closed_work(computation: HloComputation, most: int = 1 << 30) -> dict[HloInstruction, int]:
    """Return the work of evaluating each instruction that depends on constants alone, if at most ``most``.

    It includes the work of all that the instruction depends on; what several operands need counts for each.
    """
    work: dict[HloInstruction, int] = {}
    for i in computation.post_order():
        is_function = is_pure(i) and (i.operands or isinstance(i.operation, Iota))
        if not (is_function or _is_known(i)) or not i.shape.is_array or i.shape.is_dynamic:
            continue
        if all(o in work for o in i.operands):
            own = work_of(i) if i.operands else i.shape.element_count
            total = own + sum([work[o] for o in i.operands])
            if total <= most:
                work[i] = total
    return work


def closed_value(i: HloInstruction) -> Array | None:
    """Return the value of an instruction that depends on constants alone; None if an evaluation fails."""
    try:
        return _evaluated(i)
    except HloError:
        return None


def _evaluated(i: HloInstruction) -> Array:
    """Evaluate an instruction and all that it depends on; raise HloError if an evaluation fails."""
    evaluator, values, waiting = Evaluator(), dict[HloInstruction, Array](), [i]
    with np.errstate(all="ignore"):
        while waiting:
            node = waiting[-1]
            missing = [o for o in node.operands if o not in values]
            waiting += missing
            if missing or waiting.pop() in values:
                continue
            value = evaluator.apply(node, [values[o] for o in node.operands])
            assert isinstance(value, np.ndarray)
            values[node] = value
    return values[i]


def constant_like(i: HloInstruction, value: Array) -> HloInstruction:
    """Add an array in place of an instruction, as the broadcast of a scalar if all elements are equal."""
    w = Writer(i)
    shape = Shape(i.shape.element_type, i.shape.dimensions)
    one = only_number(value)
    if one is not None and shape.rank:
        new = w.full(one, shape)
    else:
        array = np.ascontiguousarray(value).reshape(shape.dimensions)
        new = w.op(Constant(literal=Literal(array, shape)), shape=shape)
    new.shape = i.shape
    return new


def only_number(value: Array) -> Array | None:
    """Return the value of all elements if they are bitwise equal; None if they differ or there are none."""
    flat = np.asarray(value).reshape(-1)
    if not flat.size:
        return None
    octets = np.ascontiguousarray(flat).view(np.uint8).reshape(flat.size, -1)
    return flat[:1].reshape(()) if bool((octets == octets[0]).all()) else None


def spread_one_number(i: HloInstruction) -> bool:
    """``constant({1, 1, 1})`` → ``broadcast(constant(1))``."""
    if not i.shape.rank or not _is_known(i) or i.shape.is_dynamic or i.control_predecessors:
        return False
    array = operation_of(i, Constant).literal.array
    if only_number(array.reshape(-1)[[0, -1]] if array.size else array) is None or i.control_successors:
        return False
    if only_number(array) is None:
        return False
    Writer(i).replace(constant_like(i, array))
    return True
