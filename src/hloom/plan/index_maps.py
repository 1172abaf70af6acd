"""Index maps of data movement: the operand index of a result index, as affine expressions."""

from __future__ import annotations

from collections.abc import Sequence

from hloom.ir.affine import Index, Indices, Variable
from hloom.ir.instruction import HloInstruction
from hloom.operations.contraction import Dot
from hloom.operations.reduction import Reduce


def reduced_operand_indices(i: HloInstruction, kept: Indices, reduced: Sequence[Index]) -> Indices:
    """Return the operand index of a reduce from the indices of the kept and the reduced dimensions."""
    assert isinstance(i.operation, Reduce)
    dimensions = i.operation.dimensions
    of_result, of_reduced = iter(kept), iter(reduced)
    rank = i.operands[0].shape.rank
    return tuple(next(of_reduced) if d in dimensions else next(of_result) for d in range(rank))


def reduced_sizes(i: HloInstruction) -> list[int]:
    """Return the sizes of the reduced dimensions, in the order of the operand's dimensions."""
    assert isinstance(i.operation, Reduce)
    sizes = i.operands[0].shape.dimensions
    return [size for d, size in enumerate(sizes) if d in i.operation.dimensions]


def dot_operand_indices(i: HloInstruction, indices: Indices) -> tuple[Indices, Indices, list[Variable]]:
    """Return the indices of a dot's operands and the variables of the contracted dimensions."""
    operation = i.operation
    assert isinstance(operation, Dot)
    lhs, rhs = i.operands
    contracted = [Variable(lhs.shape.dimensions[d], "k") for d in operation.lhs_contracting_dims]
    batch = len(operation.lhs_batch_dims)
    free = lhs.shape.rank - len(contracted)
    left = _dot_indices(
        lhs.shape.rank, operation.lhs_batch_dims, indices[:batch], operation.lhs_contracting_dims, contracted,
        indices[batch:free],
    )  # fmt: skip
    right = _dot_indices(
        rhs.shape.rank, operation.rhs_batch_dims, indices[:batch], operation.rhs_contracting_dims, contracted,
        indices[free:],
    )  # fmt: skip
    return left, right, contracted


def _dot_indices(
    rank: int, batch_dims: tuple[int, ...], batch: Indices, contracting: tuple[int, ...],
    contracted: list[Variable], kept: Indices,
) -> Indices:  # fmt: skip
    found: list[Index | None] = [None] * rank
    for d, index in zip(batch_dims, batch, strict=True):
        found[d] = index
    for d, variable in zip(contracting, contracted, strict=True):
        found[d] = Index.of(variable)
    rest = iter(kept)
    return tuple(index if index is not None else next(rest) for index in found)


def convolution_group(output: Index, outputs: int, groups: int) -> Index | None:
    """Return the group of an output feature; None where it is not affine."""
    return Index(0) if groups == 1 else output.divide(outputs // groups)
