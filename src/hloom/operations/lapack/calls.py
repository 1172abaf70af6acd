"""Calls of LAPACK as data: the arrays and arguments for one matrix of the batch of a custom call."""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final, TypeAlias, cast

import numpy as np

from hloom.errors import EvaluationError
from hloom.ir.instruction import HloInstruction
from hloom.operations.custom_call import TARGETS, CustomCall
from hloom.operations.ffi_attributes import Attributes, parse_attributes
from hloom.operations.lapack.library import routine as library_routine
from hloom.operations.lapack.routines import ROUTINES, Declared, LapackRoutine
from hloom.records import dataclass
from hloom.shape.shape import Shape

DType: TypeAlias = "np.dtype"
INFO_NOT_FINITE: Final = -4
"""The info of a matrix with NaN or an infinity, on which the iteration need not end: argument 4 is bad."""
_TYPES: Final = {"s": np.float32, "d": np.float64, "c": np.complex64, "z": np.complex128}
_INTEGER: Final = np.dtype(np.int32)


@dataclass(frozen=True, slots=True)
class LapackArray:
    """An array that a routine reads or writes.

    Attributes:
        dimensions: none, a length, or rows and columns.
        dtype: of its elements.
        operand: number of the operand that it holds before the call; None if there is none.
        result: number of the result that it holds after the call; None if there is none.
    """

    dimensions: tuple[int, ...]
    dtype: DType
    operand: int | None = None
    result: int | None = None

    @property
    def count(self) -> int:
        return math.prod(self.dimensions)

    @property
    def bytes(self) -> int:
        return self.count * self.dtype.itemsize

    @property
    def is_matrix(self) -> bool:
        return len(self.dimensions) == 2


@dataclass(frozen=True, slots=True)
class Address:
    """An argument: the address of an element of an array."""

    array: int
    element: int = 0


Argument: TypeAlias = "Address | bytes | None"
"""An address in an array, the address of constant bytes, or null."""


@dataclass(frozen=True, slots=True)
class UnpackedPairs:
    """Vectors to unpack from pairs of columns, as arrays; see `ConjugatePairs`."""

    packed: int
    vectors: int
    imaginary: int


@dataclass(frozen=True, slots=True)
class LapackCall:
    """The calls of a routine for the matrices of a batch.

    Attributes:
        routine: such as ``dgetrf``.
        batch: number of the matrices.
        rows_first: matrices are row-major; otherwise column-major.
        arrays: those that the routine reads or writes.
        arguments: in the routine's order.
        finite: an array on whose NaN or infinity the routine is not called; None if there is none.
        info: the array of the info.
        pairs: vectors to unpack after the call.
    """

    routine: str
    batch: int
    rows_first: bool
    arrays: tuple[LapackArray, ...]
    arguments: tuple[Argument, ...]
    finite: int | None
    info: int | None
    pairs: tuple[UnpackedPairs, ...]


def library_call(instruction: HloInstruction, *, rows_first: bool = False) -> LapackCall | None:
    """Return the calls that a custom call of LAPACK makes; None for other targets and replaced ones.

    Args:
        instruction: the custom call.
        rows_first: matrices are row-major if the routine can do with that.

    Raises HloError by the rules ``ffi.attributes``, ``custom-call.attribute``, ``custom-call.operands`` and
    ``custom-call.routine``.
    """
    operation = instruction.operation
    if not isinstance(operation, CustomCall):
        return None
    target = operation.custom_call_target
    if target not in ROUTINES or target in TARGETS:
        return None
    operands = tuple(o.shape for o in instruction.operands)
    return _planned(target, operands, instruction.shape, instruction.backend_config, rows_first)


@lru_cache(maxsize=1024)
def _planned(
    target: str, operands: tuple[Shape, ...], result: Shape, config: str, rows_first: bool
) -> LapackCall:
    results = tuple(result.tuple_shapes) if result.is_tuple else (result,)
    routine, prefix = ROUTINES[target], target.removeprefix("lapack_")[0]
    rows_first = rows_first and bool(routine.rows_first)
    return _Planner(routine, prefix, operands, results, parse_attributes(config), rows_first).planned()


@dataclass
class _Planner:
    """Plans the calls of a routine for the shapes and attributes of a custom call."""

    routine: LapackRoutine
    prefix: str
    operands: tuple[Shape, ...]
    results: tuple[Shape, ...]
    attributes: Attributes
    rows_first: bool

    def __post_init__(self) -> None:
        dtype = np.dtype(_TYPES[self.prefix])
        dtypes = dtype, np.empty(0, dtype).real.dtype, np.result_type(dtype, np.complex64), _INTEGER
        self.types: dict[str, DType] = dict(zip("trci", dtypes, strict=True))
        self.sizes: dict[str, int] = {}
        self.arrays: dict[str, LapackArray] = {}

    def planned(self) -> LapackCall:
        """Return the calls."""
        if len(self.operands) != len(self.routine.operands) or len(self.results) != len(self.routine.results):
            raise self._refused()
        batch = self._batch()
        self._bind(self.routine.operands, self.operands, len(batch))
        self.sizes.setdefault("K", min(self.sizes.get("M", 0), self.sizes.get("N", 0)))
        self._bind(self.routine.results, self.results, len(batch))
        self._check_sizes()
        self._add_arrays()
        arguments = self._arguments()
        numbers = {name: number for number, name in enumerate(self.arrays)}
        computed = [p for p in self.routine.pairs if self._letter(p.wanted, "NV") == b"V"]
        pairs = tuple(
            UnpackedPairs(*(numbers[n] for n in (p.packed, p.vectors, p.imaginary))) for p in computed
        )
        finite, info = numbers.get(self.routine.finite), numbers.get("info")
        name, count, arrays = self.prefix + self.routine.name, math.prod(batch), tuple(self.arrays.values())
        return LapackCall(name, count, self.rows_first, arrays, arguments, finite, info, pairs)

    # -- sizes

    def _refused(self) -> EvaluationError:
        operands = ", ".join(_notation(a) for a in self.routine.operands)
        results = ", ".join(_notation(a) for a in self.routine.results)
        shapes = ", ".join(map(str, self.operands)), ", ".join(map(str, self.results))
        message = (
            f"{self.prefix}{self.routine.name} maps ({operands}) of type {self.types['t']} to ({results}), "
            f"behind equal batch dimensions; got ({shapes[0]}) and ({shapes[1]})"
        )
        return EvaluationError(message, rule="custom-call.operands")

    def _batch(self) -> tuple[int, ...]:
        """Return the batch dimensions, which all arrays have."""
        first = self.operands[0]
        if not first.is_array:
            raise self._refused()
        batch = first.dimensions[: max(0, first.rank - len(self.routine.operands[0].sizes))]
        declared = (*self.routine.operands, *self.routine.results)
        for array, shape in zip(declared, (*self.operands, *self.results), strict=True):
            fits = shape.is_array and shape.is_static and shape.rank == len(batch) + len(array.sizes)
            if not fits or tuple(shape.dimensions[: len(batch)]) != tuple(batch):
                raise self._refused()
            if shape.element_type.numpy_dtype != self.types[array.kind]:
                raise self._refused()
        return tuple(batch)

    def _bind(self, arrays: Sequence[Declared], shapes: Sequence[Shape], batch: int) -> None:
        for array, shape in zip(arrays, shapes, strict=True):
            for letter, extent in zip(array.sizes, shape.dimensions[batch:], strict=True):
                if self.sizes.setdefault(letter, extent) != extent:
                    raise self._refused()

    def _check_sizes(self) -> None:
        """Check the sizes that follow from others, and add those that no array of the program has."""
        for letter, size in self.routine.sizes.items():
            expected = size(self.sizes, self.attributes)
            if expected is not None and self.sizes.setdefault(letter, expected) != expected:
                raise self._refused()
        columns = [self.sizes[letter] for letter in self.routine.columns_at_least]
        if columns != sorted(columns, reverse=True):
            raise self._refused()
        if max((0, *self.sizes.values())) >= 1 << 31:
            raise self._refused()

    # -- arrays

    def _add_arrays(self) -> None:
        numbers = {array.name: number for number, array in enumerate(self.routine.operands)}
        results = {array.name: number for number, array in enumerate(self.routine.results)}
        every = (*self.routine.operands, *self.routine.results, *self.routine.scratch)
        for array in every:
            dimensions = tuple(self.sizes[letter] for letter in array.sizes)
            self.arrays[array.name] = LapackArray(
                dimensions, self.types[array.kind], numbers.get(array.name), results.get(array.name)
            )
        self.arrays.setdefault("info", LapackArray((), _INTEGER))

    # -- arguments

    def _arguments(self) -> tuple[Argument, ...]:
        words = self.routine.rows_first if self.rows_first else self.routine.arguments
        if self.types["t"].kind != "c":
            words = tuple(word for word in words if word not in ("rwork", "lrwork"))
        queried = [word for word in words if f"l{word}" in words]
        if queried:
            self._query(words, queried)
        numbers = {name: number for number, name in enumerate(self.arrays)}
        return tuple(self._argument(word, numbers) for word in words)

    def _query(self, words: Sequence[str], queried: Sequence[str]) -> None:
        """Add the workspaces, of the lengths that the routine wants."""
        kinds = {"work": "t", "rwork": "r", "iwork": "i"}
        workspaces = {word: np.zeros(1, self.types[kinds[word]]) for word in queried}
        unused = np.zeros(8, np.complex128)
        pointers: list[int | None] = []
        owners: list[object] = [unused]
        for word in words:
            if word in workspaces:
                pointers.append(workspaces[word].ctypes.data)
            elif word[1:] in workspaces:
                pointers.append(_held(struct.pack("i", -1), owners))
            elif word in self.arrays or "+" in word:
                pointers.append(unused.ctypes.data)
            else:
                argument = self._argument(word, {})
                pointers.append(_held(argument, owners) if isinstance(argument, bytes) else None)
        library_routine(self.prefix + self.routine.name, len(words))(*pointers)
        for word, array in workspaces.items():
            self.arrays[word] = LapackArray((max(1, int(array[0].real)),), array.dtype)

    def _argument(self, word: str, numbers: Mapping[str, int]) -> Argument:
        name, _, element = word.partition("+")
        if name in numbers:
            return Address(numbers[name], int(element or 0))
        if word == "null":
            return None
        if word == "one":
            return np.ones((), self.types["t"]).tobytes()
        if word[0] in "@?~":
            return self._chosen(word)
        return struct.pack("i", self._integer(word))

    def _integer(self, word: str) -> int:
        if word in self.sizes:
            return self.sizes[word]
        if word.startswith("ld("):
            rows, columns = self.arrays[word[3:-1]].dimensions
            return max(1, columns if self.rows_first else rows)
        if word.startswith("#"):
            value = self._attribute(word[1:])
            if not -(1 << 31) <= value < 1 << 31:
                raise self._attribute_refused(word[1:], "an integer of 32 bits")
            return value
        return self.arrays[word[1:]].count  # the length of a workspace, such as lwork

    def _chosen(self, word: str) -> bytes:
        """Return a letter by an attribute: its code, or true or false."""
        name, _, letters = word[1:].partition(":")
        if word[0] != "?":
            letter = self._letter(name, letters)
            return letter if word[0] == "@" else letters.encode().replace(letter, b"")
        chosen = letters[0] if self._attribute(name) else letters[1]
        adjoint = "C" if self.types["t"].kind == "c" else "T"
        return (adjoint if chosen == "H" else chosen).encode()

    def _letter(self, name: str, letters: str) -> bytes:
        code = self._attribute(name)
        if code not in letters.encode():
            raise self._attribute_refused(name, f"the code of one of the letters {', '.join(letters)}")
        return bytes([code])

    def _attribute(self, name: str) -> int:
        if name not in self.attributes:
            message = f"the attribute {name} is missing; the call has {sorted(self.attributes) or 'none'}"
            raise EvaluationError(message, rule="custom-call.attribute")
        value: object = self.attributes[name]
        if not isinstance(value, (np.integer, np.bool_)):
            raise self._attribute_refused(name, "an integer")
        return int(cast("int", value))

    def _attribute_refused(self, name: str, wanted: str) -> EvaluationError:
        message = f"the attribute {name} is {wanted}, got {self.attributes[name]!r}"
        return EvaluationError(message, rule="custom-call.attribute")


def _notation(array: Declared) -> str:
    return f"{array.name}:{array.kind}[{','.join(array.sizes)}]"


def _held(data: bytes, held: list[object]) -> int:
    """Return the address of bytes, which live as long as the list."""
    memory = ctypes.create_string_buffer(data)
    held.append(memory)
    return ctypes.addressof(memory)
