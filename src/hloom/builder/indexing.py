"""Gather and scatter: slices read from and combined into run-time positions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hloom.builder.builder import Computation, XlaOp
from hloom.builder.messages import GATHER, SCATTER, fields, is_message
from hloom.builder.operands import (
    Arrange,
    Operand,
    Operands,
    as_op,
    before_computation,
    integers,
    op_list,
    page_function,
)
from hloom.shape.element_type import S32
from hloom.shape.shape import Shape

__all__: list[str] = ["Gather", "Scatter"]


def _numbers_as_keyword(
    place: int, names: Sequence[str], after: Sequence[str], first: Arrange | None
) -> Arrange:
    """Return an arrangement that makes a message at position `place` the keyword `dimension_numbers`.

    The arguments after it are XlaBuilder's, in the order of `after`.
    """

    def arrange(arguments: tuple[object, ...], keywords: dict[str, object]) -> tuple[Any, ...]:
        arguments = arguments if first is None else first(arguments, keywords)
        if len(arguments) <= place or not is_message(arguments[place], names):
            return arguments
        keywords.update(zip(("dimension_numbers", *after), arguments[place:], strict=False))
        return arguments[:place]

    return arrange


@page_function(
    input="operand",
    arrange=_numbers_as_keyword(2, GATHER, ("slice_sizes", "indices_are_sorted"), None),
)
def Gather(
    operand: XlaOp,
    start_indices: Operand,
    offset_dims: Sequence[int] = (),
    collapsed_slice_dims: Sequence[int] = (),
    slice_sizes: Sequence[int] = (),
    start_index_map: Sequence[int] = (),
    index_vector_dim: int | None = None,
    indices_are_sorted: bool = False,
    operand_batching_dims: Sequence[int] = (),
    start_indices_batching_dims: Sequence[int] = (),
    dimension_numbers: object = None,
) -> XlaOp:
    """Gather slices of `operand` at run-time positions; the page explains the dimension numbers.

    `Gather(operand, start_indices, dimension_numbers, slice_sizes, indices_are_sorted)`, as in XlaBuilder,
    takes the numbers as a GatherDimensionNumbers or a mapping with its fields. Without `index_vector_dim` the
    index vectors lie along the last dimension, as in the page's examples, if that has as many elements as
    `start_index_map`; else every element is an index.
    """
    numbers = {
        "offset_dims": offset_dims,
        "collapsed_slice_dims": collapsed_slice_dims,
        "start_index_map": start_index_map,
        "index_vector_dim": index_vector_dim,
        "operand_batching_dims": operand_batching_dims,
        "start_indices_batching_dims": start_indices_batching_dims,
    }
    if dimension_numbers is not None:
        numbers |= fields(dimension_numbers, GATHER, "dimension_numbers")
    indices = as_op(start_indices, operand, S32)
    return operand.builder.emit(
        "gather",
        [operand, indices],
        slice_sizes=integers(slice_sizes, "slice_sizes"),
        indices_are_sorted=indices_are_sorted,
        **_dimension_numbers(numbers, indices.shape, "start_index_map"),
    )


def _dimension_numbers(numbers: dict[str, Any], indices: Shape, map_name: str) -> dict[str, Any]:
    """Return the numbers as attributes, `index_vector_dim` filled in."""
    specified = {key: number for key, number in numbers.items() if number is not None}
    where = specified.pop("index_vector_dim", None)
    plain: dict[str, Any] = {key: integers(number, key) for key, number in specified.items()}
    if where is None:
        components = len(plain.get(map_name, ()))
        vectors = indices.rank > 0 and indices.dimensions[-1] == components
        where = indices.rank - 1 if vectors else indices.rank
    plain["index_vector_dim"] = where if where == indices.rank else indices.axis(where)
    return plain


@page_function(
    input="operands",
    inputs="operands",
    operand="operands",
    arrange=_numbers_as_keyword(
        4,
        SCATTER,
        ("indices_are_sorted", "unique_indices"),
        before_computation("operands", ".scatter_indices", "updates"),
    ),
)
def Scatter(
    operands: Operands,
    scatter_indices: Operand,
    updates: Operands,
    update_computation: Computation,
    index_vector_dim: int | None = None,
    update_window_dims: Sequence[int] = (),
    inserted_window_dims: Sequence[int] = (),
    scatter_dims_to_operand_dims: Sequence[int] = (),
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    input_batching_dims: Sequence[int] = (),
    scatter_indices_batching_dims: Sequence[int] = (),
    dimension_numbers: object = None,
) -> XlaOp:
    """Combine `updates` into the operands at run-time positions; the page explains the numbers.

    As in XlaBuilder, the numbers may come as a ScatterDimensionNumbers, or a mapping with its fields, in the
    place of `index_vector_dim`; the two flags follow it. Without `index_vector_dim` it is chosen as in
    `Gather`.
    """
    targets, values = op_list(operands), op_list(updates)
    numbers: dict[str, Any] = {
        "update_window_dims": update_window_dims,
        "inserted_window_dims": inserted_window_dims,
        "scatter_dims_to_operand_dims": scatter_dims_to_operand_dims,
        "index_vector_dim": index_vector_dim,
        "input_batching_dims": input_batching_dims,
        "scatter_indices_batching_dims": scatter_indices_batching_dims,
    }
    if dimension_numbers is not None:
        numbers |= fields(dimension_numbers, SCATTER, "dimension_numbers")
    indices = as_op(scatter_indices, targets[0], S32)
    return targets[0].builder.emit(
        "scatter",
        [*targets, indices, *values],
        computations=[update_computation],
        indices_are_sorted=indices_are_sorted,
        unique_indices=unique_indices,
        **_dimension_numbers(numbers, indices.shape, "scatter_dims_to_operand_dims"),
    )
