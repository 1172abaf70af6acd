"""Checks and conversions of values between callers and programs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias, cast

import numpy as np

from hloom.errors import EvaluationError, HloError, plural
from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.ir.operation import Value
from hloom.operations.values import elements_of, fits_dimensions
from hloom.shape.literal import Literal, from_dlpack
from hloom.shape.shape import Shape


def bound_arguments(entry: HloComputation, arguments: Sequence[object]) -> list[Value]:
    """Return the values of a caller's arguments, checked against the parameters of the entry computation.

    Raises EvaluationError that names the parameter.
    """
    parameters = entry.parameters
    if len(arguments) != len(parameters):
        signature = ", ".join(f"{p.name}: {p.shape.to_string(layout=False)}" for p in parameters)
        message = (
            f"the program takes {plural(len(parameters), 'argument')} ({signature}), got {len(arguments)}"
        )
        raise EvaluationError(message, rule="run.argument-count")
    pairs = zip(parameters, arguments, strict=True)
    return [bound_value(parameter, number, argument) for number, (parameter, argument) in enumerate(pairs)]


def bound_value(parameter: HloInstruction, number: int, argument: object) -> Value:
    """Return the value of a caller's argument; raises EvaluationError that names the parameter."""
    try:
        return incoming(argument, parameter.shape)
    except (HloError, TypeError, ValueError, OverflowError) as error:
        reason = error.message if isinstance(error, HloError) else str(error)
        shape = parameter.shape.to_string(layout=False)
        message = f"argument {number} does not fit parameter %{parameter.name} of shape {shape}: {reason}"
        raise EvaluationError(message, rule="run.argument") from None


def donated_arguments(module: HloModule, arguments: Sequence[object], values: Sequence[Value]) -> list[Value]:
    """Return bound values with the caller's arrays in place of those that the module donates to results.

    Raises EvaluationError by the rule ``run.donation``; see `Executable.donate`.
    """
    indices = [(a.parameter_number, *a.parameter_index) for a in module.config.aliases.values()]
    donated = {index: _element(arguments, index) for index in indices}
    leaves = dict(_leaves(tuple(values)))
    for index, array in donated.items():
        problem = _not_donatable(array, leaves[index])
        others = (leaf for other, leaf in leaves.items() if other != index and leaf is not None)
        if problem is None and any(np.may_share_memory(leaves[index], other) for other in others):
            problem = "it shares memory with another argument"
        if problem is not None:
            name = module.entry.parameters[index[0]].name
            message = f"argument {index[0]} (%{name}) cannot be donated: {problem}"
            raise EvaluationError(message, rule="run.donation")
    return [_with(value, (number,), donated) for number, value in enumerate(values)]


_Path: TypeAlias = tuple[int, ...]
"""The number of an argument, and the index of a leaf of its shape."""


def _not_donatable(argument: object, bound: Value) -> str | None:
    """Return why native code cannot write to an argument, whose bound value is an array; None if it can."""
    if not isinstance(argument, np.ndarray):
        return f"it is of type {type(argument).__name__}, not a NumPy array"
    if not argument.flags.writeable:
        return "it is read-only"
    if not argument.flags.c_contiguous or not argument.flags.aligned:
        return "it is not contiguous and aligned"
    is_same = isinstance(bound, np.ndarray) and bound.ctypes.data == argument.ctypes.data
    return None if is_same else "its elements have to be converted"


def _element(value: object, path: _Path) -> object:
    """Return the element of nested tuples or lists at an index."""
    for number in path:
        value = cast("Sequence[object]", value)[number]
    return value


def _leaves(value: Value, path: _Path = ()) -> Iterator[tuple[_Path, Value]]:
    """Yield the leaves of a value with their indices."""
    if isinstance(value, tuple):
        for number, element in enumerate(value):
            yield from _leaves(element, (*path, number))
    else:
        yield path, value


def _with(value: Value, path: _Path, donated: Mapping[_Path, object]) -> Value:
    """Return a value with other arrays at some indices."""
    if isinstance(value, tuple):
        return tuple(_with(element, (*path, number), donated) for number, element in enumerate(value))
    return cast("Value", donated.get(path, value))


def kept_arguments(entry: HloComputation, values: Sequence[tuple[int | str, Any]]) -> dict[int, Any]:
    """Return values by the numbers of their parameters; raises HloError by the rule ``prepare.argument``."""
    parameters = entry.parameters
    names = {p.name: number for number, p in enumerate(parameters)}
    short = {re.sub(r"\.\d+$", "", name): number for name, number in names.items()}
    kept: dict[int, Any] = {}
    if not values:
        raise HloError("name at least one argument to prepare", rule="prepare.argument")
    for name, value in values:
        number = name if isinstance(name, int) else names.get(name, short.get(name, -1))
        if number not in range(len(parameters)) or number in kept:
            problem = "has two values" if number in kept else "is no parameter"
            message = f"{name!r} {problem}; the parameters are {', '.join(names)}"
            raise HloError(message, rule="prepare.argument")
        kept[number] = _contiguous(bound_value(parameters[number], number, value))
    return kept


def _contiguous(value: Value) -> Value:
    """Return a value whose arrays are contiguous, so that no run copies them."""
    if isinstance(value, tuple):
        return tuple(map(_contiguous, value))
    return None if value is None else np.ascontiguousarray(value)


def bytes_of(value: Value) -> int:
    """Return the bytes of the arrays of a value."""
    if isinstance(value, tuple):
        return sum(map(bytes_of, value))
    return 0 if value is None else value.nbytes


def incoming(value: Any, shape: Shape) -> Value:
    """Return the value of a shape from a caller's: array, Python number or list, literal, nested tuple.

    numpy arrays must have the shape's element type and dimensions (at most the bound of a dynamic one);
    Python numbers are converted. Raises HloError, TypeError or ValueError for a value that does not fit.
    """
    if isinstance(value, Literal):
        if not fitting(value.shape, shape):
            raise EvaluationError(f"it is a literal of shape {value.shape}", rule="run.argument")
        return value.numpy()
    if shape.is_token:
        if value is not None:
            raise EvaluationError(
                f"a token is given as None, not {type(value).__name__}", rule="run.argument"
            )
        return None
    if shape.is_buffer:
        return incoming(value, shape.tuple_shapes[0])
    if shape.is_tuple:
        elements = elements_of(value)
        if elements is None or len(elements) != len(shape.tuple_shapes):
            kind = type(value).__name__ if elements is None else f"{plural(len(elements), 'element')}"
            raise EvaluationError(
                f"a tuple of {len(shape.tuple_shapes)} is expected, got {kind}", rule="run.argument"
            )
        return tuple(incoming(v, s) for v, s in zip(elements, shape.tuple_shapes, strict=True))
    if not isinstance(value, (np.ndarray, np.generic, bool, int, float, complex, list, tuple)):
        value = np.asarray(from_dlpack(value))
    elements = elements_of(value)
    return Literal(value if elements is None else list(elements), shape).numpy()


def fitting(given: Shape, wanted: Shape) -> bool:
    """Return whether a value of one shape fits another; dynamic dimensions take sizes up to the bound."""
    if given.element_type is not wanted.element_type or len(given.tuple_shapes) != len(wanted.tuple_shapes):
        return False
    if given.is_tuple:
        return all(map(fitting, given.tuple_shapes, wanted.tuple_shapes))
    return given.rank == wanted.rank and fits_dimensions(given.dimensions, wanted)


class Outgoing:
    """Copies results, if necessary, to writable arrays that share memory with no other array."""

    def __init__(self) -> None:
        self.given: set[int] = set()

    def __call__(self, value: object) -> Value:
        """Return a numpy array or nested tuple; None for a token."""
        if value is None:
            return None
        if isinstance(value, tuple):
            return tuple(self(element) for element in cast("tuple[object, ...]", value))
        array = np.asarray(value)
        if not array.flags.writeable or array.base is not None or id(array) in self.given:
            array = array.copy()
        self.given.add(id(array))
        return array
