"""Layouts of a program's arguments and results, implemented by transposes in the program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.jax.devices.memory_layouts import canonical, row_major
from hloom.jax.programs.placements import Placements
from hloom.operations.custom_call import CustomCall, is_identity
from hloom.operations.movement import Transpose
from hloom.operations.structure import GetTupleElement, Tuple
from hloom.passes.writing import Writer
from hloom.shape.shape import Shape


def lay_out(module: HloModule, placements: Placements) -> Placements:
    """Rewrite the entry computation so that its parameters and results are row-major arrays.

    A column-major argument ``f32[2,3]`` becomes a parameter ``f32[3,2]``, which the program transposes.
    Returns a copy of ``placements`` with a layout for each result whose layout the compiler is to choose
    (``auto``): one in which the program can compute the result without a transposing copy.
    """
    if not any(p.order or p.is_auto for p in (*placements.arguments, *placements.results)):
        return placements
    entry = module.entry
    results = [
        replace(p, order=_natural_order(_source(entry.root, n))) if p.is_auto else p
        for n, p in enumerate(placements.results)
    ]
    for parameter, placement in zip(entry.parameters, placements.arguments, strict=False):
        if placement.order:
            _transpose_parameter(parameter, placement.order)
    root = entry.root
    if any(p.order for p in results):
        if root.shape.is_tuple:
            parts = [_transposed(_part(root, n), p.order) for n, p in enumerate(results)]
            entry.root = Writer(root).op(Tuple(), *parts)
        else:
            entry.root = _transposed(root, results[0].order)
    module.config.entry_layout = None
    return Placements(placements.arguments, results)


def _source(root: HloInstruction, number: int) -> HloInstruction:
    """Return the instruction that computes the result with the index ``number`` of a computation.

    It is an operand of the root, if the root is a tuple instruction; else the root.
    """
    return root.operands[number] if isinstance(root.operation, Tuple) else root


def _natural_order(i: HloInstruction) -> tuple[int, ...]:
    """Return the minor-to-major order in which the value of ``i`` can be computed without a transposing copy.

    It follows operands from ``i`` through elementwise operations and transposes to a custom call
    ``LayoutConstraint``, whose layout it takes, or else to an operation with a row-major result. The order is
    that of the dimensions of ``i``; ``()`` stands for row-major.
    """
    permutation = range(i.shape.rank)  # dimensions of i, by those of the result
    while True:
        match i.operation:
            case CustomCall(custom_call_target="LayoutConstraint") if i.shape.layout is not None:
                return _renamed(i.shape.layout.minor_to_major, permutation)
            case Transpose(dimensions=dimensions):
                permutation = [dimensions[d] for d in permutation]
            case operation if not (operation.elementwise or is_identity(i)):
                return _renamed(row_major(i.shape.rank), permutation)
            case _:
                pass
        same = [o for o in i.operands if isinstance(i.operation, Transpose) or o.shape.compatible(i.shape)]
        if not same:
            return _renamed(row_major(i.shape.rank), permutation)
        i = same[0]


def _renamed(order: Sequence[int], permutation: Sequence[int]) -> tuple[int, ...]:
    return canonical([list(permutation).index(d) for d in order])


def _transpose_parameter(parameter: HloInstruction, order: Sequence[int]) -> None:
    """Replace a parameter by a row-major one with permuted dimensions, and a transpose that restores them.

    ``order`` is the minor-to-major order of the dimensions in the caller's memory.
    """
    writer = Writer(parameter)
    major_to_minor = tuple(reversed(order))
    shape = Shape(parameter.shape.element_type, tuple(parameter.shape.dimensions[d] for d in major_to_minor))
    row_major_parameter = writer.op(parameter.operation, shape=shape)
    logical = tuple(major_to_minor.index(d) for d in range(len(order)))
    writer.replace(writer.op(Transpose(dimensions=logical), row_major_parameter))


def _transposed(value: HloInstruction, order: Sequence[int]) -> HloInstruction:
    if not order:
        return value
    return Writer(value).op(Transpose(dimensions=tuple(reversed(order))), value)


def _part(root: HloInstruction, number: int) -> HloInstruction:
    return Writer(root).op(GetTupleElement(index=number), root)
