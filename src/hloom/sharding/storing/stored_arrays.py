"""Sharded arrays in files, in Zarr's format: a directory for each array, with a file for each tile.

::

    hloom.sharding.store("state", results, numbers, module.entry.root.shape, partitioned.results)
    state = hloom.sharding.stored("state")                     # arrays by name; nothing is read yet
    arguments = hloom.sharding.cut(tuple(state.values()), partitioned.parameters, device)

Each process writes the tiles of its devices. It reads the elements that its devices need, in any tiling, so
that a run can continue with another number of devices or processes. Zarr version 2 divides arrays into chunks
of one size, padded at the edges like tiles. TensorStore and zarr-python read and write it. Chunks are not
compressed. Source of the format: https://zarr-specs.readthedocs.io/en/latest/v2/v2.0.html
"""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias

import ml_dtypes
import numpy as np

from hloom.errors import HloError, plural
from hloom.settings import Settings
from hloom.shape.shape import Shape
from hloom.sharding.storing.tiles import flat
from hloom.sharding.tiling.tiling import Tiling

Array: TypeAlias = "np.ndarray"
_ARRAY: Final = ".zarray"
_GROUP: Final = ".zgroup"


class ProcessGroup(Protocol):
    """The processes that store an array collectively, such as `hloom.runtime.mpi.world()`.

    Attributes:
        rank: the index of this process, from 0.
    """

    rank: int

    def all_gather(self, value: object) -> list[Any]:
        """Return a list of the values that all processes passed, by rank; every process must call it."""
        ...


class StoredArray:
    """An array in a Zarr directory, from which slices such as ``array[2:4, :]`` are read on demand.

    Attributes:
        path: the directory of the array.
        shape: the dimensions of the array.
        chunks: the dimensions of a chunk, the part of the array that one file holds.
        dtype: the NumPy dtype of the elements, in native byte order.
    """

    def __init__(self, path: str | Path) -> None:
        """Open the array in the directory ``path``, of which only the metadata file is read.

        Raises HloError (rule ``stored.not-found``) if that file cannot be read, and (rule
        ``stored.metadata``) if the metadata is malformed or not supported.
        """
        self.path = Path(path)
        data = _metadata(self.path / _ARRAY)
        data.require("shape", "chunks", "dtype", "fill_value", "zarr_format", "compressor", "order")
        self.shape, self.chunks = data.integers("shape"), data.integers("chunks")
        self._in_file = _dtype_of(data)
        self.dtype = self._in_file.newbyteorder("=") if self._in_file.byteorder == ">" else self._in_file
        self._fill = data.fields["fill_value"]
        self._separator = data.word("dimension_separator", ".")
        form = (data.integer("zarr_format"), data.fields["compressor"], data.word("order"))
        plain = form == (2, None, "C") and data.fields.get("filters") is None
        if not plain or len(self.chunks) != len(self.shape) or min(self.chunks, default=1) < 1:
            message = (
                f"{self.path}: only arrays of version 2 in order C, without compressor or filters, are read; "
                "store it with compressor=None"
            )
            raise HloError(message, rule="stored.metadata")

    def __repr__(self) -> str:
        return f"<StoredArray {self.path}: {self.dtype}{list(self.shape)} in files of {list(self.chunks)}>"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        """Read the full array, converted to ``dtype`` unless that is None; implements NumPy's protocol."""
        array = self[tuple([slice(0, n) for n in self.shape])]
        return array if dtype is None else array.astype(dtype)

    def __getitem__(self, part: tuple[slice, ...]) -> Array:
        """Read the part of the array that ``part`` selects: one slice of step 1 per dimension, in bounds.

        Raises HloError (rule ``stored.tile``) for a file of a wrong size, and for a missing file if the array
        has no fill value.
        """
        pairs = zip(part, self.shape, strict=True)
        spans = [(s.start or 0, n if s.stop is None else s.stop) for s, n in pairs]
        array = np.empty([max(0, end - begin) for begin, end in spans], self.dtype)
        if not array.size:
            return array
        ranges = [range(b // c, -(-e // c)) for (b, e), c in zip(spans, self.chunks, strict=True)]
        for chunk in itertools.product(*ranges):
            source: list[slice] = []
            target: list[slice] = []
            for (begin, end), n, size in zip(spans, chunk, self.chunks, strict=True):
                first, last = max(begin, n * size), min(end, (n + 1) * size)
                source.append(slice(first - n * size, last - n * size))
                target.append(slice(first - begin, last - begin))
            array[tuple(target)] = self._chunk(chunk)[tuple(source)]
        return array

    def _chunk(self, index: Sequence[int]) -> Array:
        """Return the memory-mapped chunk at ``index`` in the grid of chunks, one component per dimension.

        For a missing file, returns an array of the fill value. Raises HloError (rule
        ``stored.tile``) if there is no fill value, or if the file has a wrong size.
        """
        file = self.path / (self._separator.join(map(str, index)) or "0")
        count = int(np.prod(self.chunks, dtype=np.int64))
        if not file.exists():
            if self._fill is None:
                raise HloError(f"{file} is missing: the array was not stored completely", rule="stored.tile")
            return np.broadcast_to(np.asarray(self._fill).astype(self._in_file), self.chunks)
        size = file.stat().st_size
        if size != count * self._in_file.itemsize:
            message = f"{file} has {plural(size, 'byte')}, a tile has {count * self._in_file.itemsize}"
            raise HloError(message, rule="stored.tile")
        return np.memmap(file, np.uint8, "r").view(np.ndarray).view(self._in_file).reshape(self.chunks)


def stored(directory: str | Path) -> dict[str, StoredArray]:
    """Open all stored arrays in a directory; return them by name, in natural order (``a.2`` before ``a.10``).

    If the directory is itself a stored array, returns it under the name "". Raises HloError (rule
    ``stored.not-found``) if there are no stored arrays, and (rule ``stored.metadata``) if metadata is
    malformed or not supported.
    """
    path = Path(directory)
    if (path / _ARRAY).exists():
        return {"": StoredArray(path)}
    names = [each.name for each in path.iterdir() if (each / _ARRAY).exists()] if path.is_dir() else []
    if not names:
        raise HloError(f"{path} holds no stored arrays", rule="stored.not-found")
    return {name: StoredArray(path / name) for name in sorted(names, key=_natural)}


def store(
    directory: str | Path,
    values: Sequence[object],
    devices: Sequence[int],
    shape: Shape,
    tilings: Sequence[Tiling],
    *,
    name: str = "result",
    processes: ProcessGroup | None = None,
) -> list[str]:
    """Write a sharded value, each array to a directory of its own; return the names of the arrays.

    ``directory``, which holds these directories, is replaced by renaming after all files are written. All
    processes must call this function, and share a file system.

    Args:
        directory: the directory to write, replaced if it exists.
        values: for each device of this process, its tile of the value: an array, or a nested tuple with None
            for tokens.
        devices: the ids of these devices, in the same order.
        shape: the global shape of the value.
        tilings: the tilings of the leaves of ``shape``, in order.
        name: the name of the array; the arrays of tuples are named ``result.0``, ``result.1.0`` and so on.
        processes: all processes with devices; None if this process has all devices.

    Raises HloError (rule ``stored.unreduced``) if devices hold partial sums, and (rule ``stored.failed``) if
    a different process cannot write. Raises OSError if this process cannot.
    """
    path = Path(directory)
    partial = path.with_name(path.name + ".partial")
    leaves = list(shape.leaves())
    for (index, _), tiling in zip(leaves, tilings, strict=True):
        if tiling.unreduced is not None:
            message = f"{_leaf_name(name, index)} is unreduced; reduce its partial sums in the program"
            raise HloError(message, rule="stored.unreduced")
    first = processes is None or processes.rank == 0
    step = _CollectiveStep(processes)
    with step:
        if first:
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
            (partial / _GROUP).write_text('{"zarr_format": 2}')
    names: list[str] = []
    with step:
        leaves_by_device = [list(flat(value)) for value in values]
        for n, ((index, leaf), tiling) in enumerate(zip(leaves, tilings, strict=True)):
            if not leaf.is_array:
                continue
            names.append(_leaf_name(name, index))
            folder = partial / names[-1]
            folder.mkdir(exist_ok=True)
            if first:
                (folder / _ARRAY).write_text(_described(leaf, tiling))
            tiles = {d: parts[n] for d, parts in zip(devices, leaves_by_device, strict=True)}
            _write_tiles(folder, tiles, leaf, tiling)
    with step:
        if first:
            _replace(path, partial)
    return names


class _CollectiveStep:
    """A context manager for code that all processes run: if it fails in one process, all processes raise."""

    def __init__(self, processes: ProcessGroup | None) -> None:
        self._processes = processes

    def __enter__(self) -> None:
        """Do nothing; ``__exit__`` makes all processes raise if the ``with`` statement failed in any."""

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if self._processes is None:
            return
        errors = self._processes.all_gather(str(error) if error is not None else None)
        failures = [f"process {rank}: {text}" for rank, text in enumerate(errors) if text is not None]
        if failures and error is None:
            raise HloError(f"the arrays were not stored: {'; '.join(failures)}", rule="stored.failed")


def _write_tiles(folder: Path, tiles: dict[int, object], shape: Shape, tiling: Tiling) -> None:
    """Write the tiles of one array that this process has to write, each to a file in ``folder``.

    If several devices hold a tile, only the process of the one with the lowest id writes the tile. ``tiles``
    maps the ids of this process's devices to their tiles; ``shape`` is the global shape.
    """
    firsts: dict[tuple[int, ...], int] = {}
    for device, index in enumerate(tiling.tile_indices):
        firsts.setdefault(index, device)
    extents = tiling.local(shape.dimensions)
    for index, device in firsts.items():
        begins = [p * n for p, n in zip(index, extents, strict=True)]
        inside = [min(n, d - b) for n, d, b in zip(extents, shape.dimensions, begins, strict=True)]
        if device not in tiles or min(inside, default=1) <= 0:
            continue
        tile = np.zeros(extents, shape.element_type.numpy_dtype)
        part = tuple([slice(0, n) for n in inside])
        tile[part] = np.asarray(tiles[device])[part]
        (folder / (".".join(map(str, index)) or "0")).write_bytes(tile.tobytes())


def _replace(path: Path, partial: Path) -> None:
    """Replace the directory ``path`` by the directory ``partial``, by renaming; delete the old one."""
    old = path.with_name(path.name + ".old")
    shutil.rmtree(old, ignore_errors=True)
    if path.exists():
        os.replace(path, old)
    os.replace(partial, path)
    shutil.rmtree(old, ignore_errors=True)


# -- metadata


def _described(shape: Shape, tiling: Tiling) -> str:
    metadata = {
        "zarr_format": 2,
        "shape": list(shape.dimensions),
        "chunks": [max(1, n) for n in tiling.local(shape.dimensions)],
        "dtype": _dtype_name(shape.element_type.numpy_dtype),
        "compressor": None,
        "fill_value": None,
        "order": "C",
        "filters": None,
        "dimension_separator": ".",
    }
    return json.dumps(metadata)


def _metadata(file: Path) -> Settings:
    def malformed(what: str) -> HloError:
        message = f"{file} does not describe an array of Zarr version 2: {what}"
        return HloError(message, rule="stored.metadata")

    try:
        return Settings.parse(file.read_bytes(), malformed)
    except OSError as error:
        raise HloError(f"{file}: {error.strerror}", rule="stored.not-found") from None


def _dtype_name(dtype: np.dtype) -> str:
    """Return the name of a dtype in Zarr's metadata: NumPy's code such as ``<f4``, or else its name.

    Types that NumPy does not have are named as in TensorStore, such as ``bfloat16``.
    """
    return dtype.newbyteorder("<").str if dtype.isbuiltin == 1 else dtype.name


def _dtype_of(data: Settings) -> np.dtype:
    name = data.word("dtype")
    try:
        dtype = np.dtype(getattr(ml_dtypes, name, None) or name)
    except TypeError:  # what numpy raises for an unknown name
        dtype = None
    if dtype is None or dtype.hasobject or dtype.names:
        raise data.refuse(f"dtype is {name!r}, wanted is a number type of numpy or ml_dtypes")
    return dtype


def _leaf_name(name: str, index: Sequence[int]) -> str:
    return ".".join([name, *map(str, index)])


def _natural(name: str) -> tuple[tuple[bool, int, str], ...]:
    """Return a sort key for natural order: numbers within names compare by value, ``a.2`` < ``a.10``."""
    parts = re.split(r"(\d+)", name)
    return tuple([(part.isdigit(), int(part) if part.isdigit() else 0, part) for part in parts])
