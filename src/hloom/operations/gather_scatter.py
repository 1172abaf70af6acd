"""Gather and scatter: many slices read from, or combined into, places that an array of indices tells.

The pages "Gather" and "Scatter", in their names.
"""

from __future__ import annotations

from hloom.ir.codec import dims, flag, integer
from hloom.ir.operation import Operation, ProgramShape, operation
from hloom.shape.shape import Shape

_GATHER = "gather_dimension_numbers."
_SCATTER = "scatter_dimension_numbers."


@operation("gather", "operand start_indices")
class Gather(Operation):
    """Collects slices of ``operand``."""

    offset_dims: tuple[int, ...] = dims(proto=_GATHER + "offset_dims")
    collapsed_slice_dims: tuple[int, ...] = dims(proto=_GATHER + "collapsed_slice_dims")
    start_index_map: tuple[int, ...] = dims(proto=_GATHER + "start_index_map")
    operand_batching_dims: tuple[int, ...] = dims(default=(), proto=_GATHER + "operand_batching_dims")
    start_indices_batching_dims: tuple[int, ...] = dims(
        default=(), proto=_GATHER + "start_indices_batching_dims"
    )
    index_vector_dim: int = integer(proto=_GATHER + "index_vector_dim")
    slice_sizes: tuple[int, ...] = dims(proto="gather_slice_sizes")
    indices_are_sorted: bool = flag()


@operation("scatter", "*arguments", computations=["to_apply"])
class Scatter(Operation):
    """Combines updates into slices of operands."""

    update_window_dims: tuple[int, ...] = dims(proto=_SCATTER + "update_window_dims")
    inserted_window_dims: tuple[int, ...] = dims(proto=_SCATTER + "inserted_window_dims")
    scatter_dims_to_operand_dims: tuple[int, ...] = dims(proto=_SCATTER + "scatter_dims_to_operand_dims")
    input_batching_dims: tuple[int, ...] = dims(default=(), proto=_SCATTER + "input_batching_dims")
    scatter_indices_batching_dims: tuple[int, ...] = dims(
        default=(), proto=_SCATTER + "scatter_indices_batching_dims"
    )
    index_vector_dim: int = integer(proto=_SCATTER + "index_vector_dim")
    indices_are_sorted: bool = flag()
    unique_indices: bool = flag()

    def infer(self, *arguments: Shape, computations: tuple[ProgramShape, ...] = ()) -> Shape:
        """The operand's shape, or the tuple of the operands' shapes."""
        count = len(arguments) // 2
        return arguments[0] if count == 1 else Shape.tuple_(arguments[:count])
