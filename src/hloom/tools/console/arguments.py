"""Reading and drawing of a program's arguments; writing of its results as text and files."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from hloom.debug.inputs import random_arguments
from hloom.debug.statistics import summary
from hloom.errors import HloError, plural
from hloom.files import Snapshot
from hloom.ir.module import HloModule
from hloom.shape.shape import Shape
from hloom.sharding.storing.stored_arrays import stored

_MOST_ARRAYS: Final = 12
"""Limit of the number of arrays for printing them in full."""
_MOST_LINES: Final = 100


def read_arguments(paths: Sequence[str | Path]) -> list[Any]:
    """Return the arrays of .npy files, .npz files and directories of stored arrays, in the given order.

    Raises HloError for other files.
    """
    arrays: list[Any] = []
    for path in paths:
        if Path(path).is_dir():
            arrays += stored(path).values()
            continue
        try:
            with open(path, "rb") as stream:
                loaded = np.load(stream, allow_pickle=False)
                one = isinstance(loaded, np.ndarray)
                arrays += [loaded] if one else [loaded[name] for name in loaded.files]
        except (ValueError, EOFError, zipfile.BadZipFile, zlib.error, NotImplementedError) as error:
            raise HloError(f"{path} is not a .npy or .npz file: {error}", rule="run.input-file") from None
        except MemoryError:
            raise HloError(f"{path}: not enough memory for its arrays", rule="run.input-file") from None
    return arrays


def shaped(arrays: Sequence[Any], module: HloModule) -> list[Any]:
    """Group arrays into the tuples of the parameters, and view raw bytes as types that numpy lacks.

    Raises HloError if the number of arrays differs from the number of the parameters' leaves.
    """
    parameters = [p.shape for p in module.entry.parameters]
    count = sum(len(_arrays(shape)) for shape in parameters)
    if count != len(arrays):
        names = ", ".join(f"{p.name}: {p.shape.to_string(layout=False)}" for p in module.entry.parameters)
        message = f"the program takes {plural(count, 'array')} ({names}), got {len(arrays)}"
        raise HloError(message, rule="run.argument-count")
    unused = list(arrays)
    return [_next_value(shape, unused) for shape in parameters]


def _arrays(shape: Shape) -> list[Shape]:
    return [leaf for _, leaf in shape.leaves() if leaf.is_array]


def _next_value(shape: Shape, unused: list[Any]) -> Any:
    """Remove the arrays of a value from the front of a list, and return the value."""
    if shape.is_tuple:
        return tuple(_next_value(element, unused) for element in shape.tuple_shapes)
    if not shape.is_array:
        return None
    array = unused.pop(0)
    dtype = shape.element_type.numpy_dtype
    # numpy stores bf16 and similar types as raw bytes (|V2) or as integers of their width
    if array.dtype != dtype and array.dtype.itemsize == dtype.itemsize and array.dtype.kind in "Vu":
        return array.view(dtype)
    return array


def leaves_of(value: Any, name: str = "result") -> list[tuple[str, Any]]:
    """Return the arrays of a nested tuple with their names, such as ``result.0.1``."""
    if isinstance(value, tuple):
        return [leaf for i, element in enumerate(value) for leaf in leaves_of(element, f"{name}.{i}")]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return [] if value is None else [(name, value)]


def value_lines(value: object, name: str = "result", *, every: bool = False) -> list[str]:
    """Return the arrays of a value as lines of text, each with its name and shape.

    With `every`, or for at most 12 arrays, they are printed as numpy prints them. Otherwise a line for each
    of the first 100 arrays has its statistics.
    """
    arrays = leaves_of(value, name)
    if len(arrays) <= _MOST_ARRAYS or every:
        return [line for leaf, array in arrays for line in _array_lines(leaf, array)]
    lines = [f"{leaf}: {_shape_text(array)} {summary(array)}" for leaf, array in arrays[:_MOST_LINES]]
    omitted = len(arrays) - len(lines)
    note = [f"... and {omitted} more arrays"] if omitted else []
    return [*lines, *note, "--all prints every array in full"]


def _shape_text(array: object) -> str:
    return Shape.of(np.asarray(array)).to_string(layout=False)


def _array_lines(name: str, array: object) -> list[str]:
    text = np.array2string(np.asarray(array), threshold=200, edgeitems=3, max_line_width=100)
    return [f"{name}: {_shape_text(array)}", *("  " + line for line in text.split("\n"))]


def save_results(values: Sequence[object], directory: Path) -> list[Path]:
    """Write each array to a .npy file, such as `result.npy` or `device_0.result.1.npy`; return the paths."""
    directory.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    for number, value in enumerate(values):
        prefix = f"device_{number}." if len(values) > 1 else ""
        for leaf, array in leaves_of(value):
            path = directory / f"{prefix}{leaf}.npy"
            np.save(path, np.asarray(array))
            written.append(path)
    return written


def chosen_arguments(snapshot: Snapshot, inputs: Sequence[str], seed: int | None) -> list[Any]:
    """Return the arguments of a program on one device: from files, from its snapshot, or random (seed 0).

    Raises HloError with the rule ``run.argument-source`` if there are both files and a seed.
    """
    if inputs and seed is not None:
        raise HloError("--input and --random are given; use one of them", rule="run.argument-source")
    if inputs:
        return shaped(read_arguments(inputs), snapshot.module)
    if snapshot.runs and seed is None:
        return [literal.numpy() for literal in snapshot.runs[0]]
    return random_arguments(snapshot.module, seed or 0)
