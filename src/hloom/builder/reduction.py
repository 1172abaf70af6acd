"""Functions that apply a computation to many elements: reduce, windows, scans, map, sort."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hloom.builder.broadcasting import like
from hloom.builder.builder import Computation, XlaOp, entry_of
from hloom.builder.contraction import Padding, make_padding, make_window
from hloom.builder.operands import (
    Operand,
    Operands,
    as_op,
    before_computation,
    integers,
    is_value,
    op_list,
    page_function,
    value_list,
)
from hloom.errors import ShapeError, plural

__all__: list[str] = ["Reduce", "ReduceAll", "ReduceWindow", "ReduceWindowWithGeneralPadding"]
__all__ += ["SelectAndScatter", "SelectAndScatterWithGeneralPadding"]
__all__ += ["Map", "Scan", "Sort", "TopK"]


def _with_initial(operands: Operands, init_values: Operands, rule: str) -> list[XlaOp]:
    """Return operands followed by an equal number of initial values, which may be numbers."""
    values = op_list(operands)
    starts = value_list(init_values)
    if len(starts) != len(values):
        raise ShapeError(
            f"{plural(len(values), 'operand')}, but {plural(len(starts), 'initial value')}", rule=rule
        )
    return [*values, *(as_op(start, value) for start, value in zip(starts, values, strict=True))]


_ONE_BY_ONE = before_computation("operands", "init_values")


@page_function(
    operand="operands", init_value="init_values", dimensions_to_reduce="dimensions", arrange=_ONE_BY_ONE
)
def Reduce(
    operands: Operands, init_values: Operands, computation: Computation, dimensions: Sequence[int]
) -> XlaOp:
    """Reduce one or several arrays together along `dimensions`, starting from the initial values."""
    values = _with_initial(operands, init_values, "reduce.initial-values")
    reduced = integers(dimensions, "dimensions")
    return values[0].builder.emit("reduce", values, computations=[computation], dimensions=reduced)


@page_function()
def ReduceAll(operand: XlaOp, init_value: Operand, computation: Computation) -> XlaOp:
    """Reduce along all dimensions."""
    return Reduce(operand, init_value, computation, range(operand.shape.rank))


@page_function(operand="operands", init_value="init_values", arrange=_ONE_BY_ONE)
def ReduceWindow(
    operands: Operands,
    init_values: Operands,
    computation: Computation,
    window_dimensions: Sequence[int],
    window_strides: Sequence[int],
    padding: Padding,
    base_dilations: Sequence[int] | None = None,
    window_dilations: Sequence[int] | None = None,
) -> XlaOp:
    """Reduce all windows of one or several arrays; `padding` is SAME, VALID or pairs."""
    values = _with_initial(operands, init_values, "reduce-window.initial-values")
    strides = list(window_strides or [1] * len(window_dimensions))
    if len(window_dimensions) != values[0].shape.rank:
        message = f"a window of {plural(len(window_dimensions), 'dimension')} over {values[0].shape}"
        raise ShapeError(message, rule="reduce-window.window-rank")
    pads = make_padding(padding, values[0].shape.dimensions, window_dimensions, strides)
    window = make_window(list(window_dimensions), strides, pads, base_dilations, window_dilations)
    return values[0].builder.emit("reduce-window", values, computations=[computation], window=window)


@page_function(operand="operands", init_value="init_values", arrange=_ONE_BY_ONE)
def ReduceWindowWithGeneralPadding(
    operands: Operands,
    init_values: Operands,
    computation: Computation,
    window_dimensions: Sequence[int],
    window_strides: Sequence[int],
    base_dilations: Sequence[int],
    window_dilations: Sequence[int],
    padding: Padding,
) -> XlaOp:
    """Call `ReduceWindow` with XlaBuilder's order of arguments."""
    window = window_dimensions, window_strides, padding, base_dilations, window_dilations
    return ReduceWindow(operands, init_values, computation, *window)


@page_function()
def SelectAndScatter(
    operand: XlaOp,
    select: Computation,
    window_dimensions: Sequence[int],
    window_strides: Sequence[int],
    padding: Padding,
    source: XlaOp,
    init_value: Operand,
    scatter: Computation,
) -> XlaOp:
    """Scatter each `source` element to the element that `select` chooses from its window of `operand`."""
    strides = list(window_strides or [1] * len(window_dimensions))
    if len(window_dimensions) != operand.shape.rank:
        message = f"a window of {plural(len(window_dimensions), 'dimension')} over {operand.shape}"
        raise ShapeError(message, rule="select-and-scatter.window-rank")
    pads = make_padding(padding, operand.shape.dimensions, window_dimensions, strides)
    return operand.builder.emit(
        "select-and-scatter",
        [operand, source, as_op(init_value, operand)],
        computations=[select, scatter],
        window=make_window(list(window_dimensions), strides, pads),
    )


SelectAndScatterWithGeneralPadding = SelectAndScatter


@page_function()
def Scan(
    inputs: Operands,
    inits: Operands,
    computation: Computation,
    scan_dimension: int,
    is_reverse: bool = False,
    is_associative: bool | None = None,
) -> XlaOp:
    """Return the running results of a computation along a dimension, and its last carries."""
    values = op_list(inputs)
    carries = [as_op(start, values[0]) for start in value_list(inits)]
    return values[0].builder.emit(
        "scan",
        [*values, *carries],
        computations=[computation],
        dimensions=(scan_dimension,),
        is_reverse=is_reverse or None,
        is_associative=is_associative,
        num_carries=len(carries),
    )


_MAPPED = before_computation("operands")


def _map_arguments(arguments: tuple[object, ...], keywords: dict[str, object]) -> tuple[Any, ...]:
    """Collect operands written one by one, and the static ones, which stand behind the computation."""
    arguments = _MAPPED(arguments, keywords)
    leading = 1 + ("operands" not in keywords)
    others = [*arguments[leading:]]
    static: list[object] = []
    while others and (is_value(others[0]) or (static and isinstance(others[0], XlaOp))):
        static.append(others.pop(0))
    if static:
        keywords["static_operands"] = static
        keywords.update(zip(("dimensions",), others, strict=False))
        return arguments[:leading]
    return arguments


@page_function(arrange=_map_arguments)
def Map(
    operands: Operands,
    computation: Computation,
    dimensions: Sequence[int] | None = None,
    static_operands: Operands = (),
) -> XlaOp:
    """Apply a computation of scalars at every index of the operands; `dimensions` are all of them.

    `Map(op1, op2, computation, par1)`: static operands follow the operands in the computation's parameters,
    with one value for all indices. Scalars among the operands are repeated to the dimensions of the others.

    Raises ShapeError for a static operand that is no scalar, since a mapped computation takes scalars only.
    """
    values = op_list(operands)
    if not values:
        raise ShapeError("map takes at least one operand", rule="map.operands")
    wide = next((op for op in values if op.shape.rank), values[0])
    parameters = entry_of(computation).program_shape.parameters[len(values) :]
    for number, operand in enumerate(value_list(static_operands)):
        expected = parameters[number].element_type if number < len(parameters) else None
        static = as_op(operand, wide, expected)
        if not static.shape.is_scalar:
            message = f"static operands are scalars, got {static.shape}"
            raise ShapeError(message, rule="map.static-operands")
        values.append(static)
    values = [like(value, wide) for value in values]
    mapped = range(wide.shape.rank) if dimensions is None else dimensions
    return values[0].builder.emit(
        "map", values, computations=[computation], dimensions=integers(mapped, "dimensions")
    )


@page_function()
def Sort(operands: Operands, comparator: Computation, dimension: int = -1, is_stable: bool = False) -> XlaOp:
    """Sort the operands together along a dimension; several give a tuple."""
    values = op_list(operands)
    axis = values[0].shape.axis(dimension)
    return values[0].builder.emit(
        "sort", values, computations=[comparator], dimensions=(axis,), is_stable=is_stable
    )


@page_function()
def TopK(operand: XlaOp, k: int, largest: bool = True) -> XlaOp:
    """Return (values, indices) of the k largest (or smallest) elements along the last dimension."""
    return operand.builder.emit("topk", [operand], k=k, largest=largest)
