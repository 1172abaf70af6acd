"""Properties of a compiled program that its callers need, stored beside its code in the cache."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, TypeGuard, TypeVar

from hloom.records import dataclass

if TYPE_CHECKING:
    from hloom.ir.module import HloModule

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ProgramFacts:
    """The interface of a compiled program: its signature, results and memory, by which callers run it.

    Arrays of arguments and of the result are numbered in the order in which they appear in nested tuples.

    Attributes:
        signature: types and sizes of parameters and result; see `signature_of`.
        temp_bytes: size of the memory for all temporaries of a run.
        argument_bytes, result_bytes: sizes in bytes of the arrays of arguments and results.
        work: rough number of elementary operations of a run; loops of unknown trip count are counted once.
        is_bounded: whether the trip counts of all loops are known.
        host_calls: (name of its computation, name of the instruction) for each instruction at which native
            code calls Python.
        text: the text of the optimized module if there are such instructions, else ""; see
            `hloom.cpu.jit.host_call_text`.
        shares: whether any kernel divides its iterations among the threads of the pool.
        data: names of the constants whose contents follow the object files in the cache entry.
        reuses: (number of an array of the result, number of an array of the arguments) where the first may
            take the memory of the second; see `hloom.buffers.reuse`.
        packed: (number of an array of the arguments, size in bytes, digest of the order of the elements) of
            each rearranged copy of an argument that the caller may keep between runs; see
            `hloom.cpu.packed_arguments`.
    """

    signature: str
    temp_bytes: int
    argument_bytes: tuple[int, ...]
    result_bytes: tuple[int, ...]
    work: int
    is_bounded: bool
    host_calls: tuple[tuple[str, str], ...]
    text: str
    shares: bool
    data: tuple[str, ...]
    reuses: tuple[tuple[int, int], ...]
    packed: tuple[tuple[int, int, int], ...]

    def to_json(self) -> dict[str, object]:
        """Return the facts as a dictionary of JSON values."""
        facts: dict[str, object] = asdict(self)
        lists: dict[str, object] = {
            name: list(getattr(self, name)) for name in ("argument_bytes", "result_bytes", "data")
        }
        tables = ("host_calls", "reuses", "packed")
        rows = {name: list(map(list, getattr(self, name))) for name in tables}
        return facts | lists | rows

    @staticmethod
    def from_json(facts: Mapping[str, object]) -> ProgramFacts | None:
        """Parse the dictionary of JSON values that `to_json` returned.

        Returns None if a fact is missing, superfluous, or of a wrong type.
        """
        try:
            parsed = ProgramFacts(
                signature=_text(facts["signature"]),
                temp_bytes=_size(facts["temp_bytes"]),
                argument_bytes=tuple(map(_size, _list(facts["argument_bytes"]))),
                result_bytes=tuple(map(_size, _list(facts["result_bytes"]))),
                work=_size(facts["work"]),
                is_bounded=_of(bool, facts["is_bounded"]),
                host_calls=tuple([(_text(a), _text(b)) for a, b in map(_list, _list(facts["host_calls"]))]),
                text=_text(facts["text"]),
                shares=_of(bool, facts["shares"]),
                data=tuple(map(_text, _list(facts["data"]))),
                reuses=tuple([(result, argument) for result, argument in _rows(facts["reuses"])]),
                packed=tuple([(number, bytes, form) for number, bytes, form in _rows(facts["packed"])]),
            )
        except (KeyError, TypeError, ValueError):
            return None
        return parsed if len(facts) == len(fields(ProgramFacts)) else None


def signature_of(module: HloModule) -> str:
    """Return the shapes of a program's parameters and result as text, without layouts."""
    shapes = [*(p.shape for p in module.entry.parameters), module.entry.root.shape]
    return " ".join(shape.to_string(layout=False) for shape in shapes)


def _of(kind: type[T], value: object) -> T:
    """Check that a parsed JSON value has the Python type ``kind``, and return it; raises TypeError."""
    if not isinstance(value, kind):
        raise TypeError
    return value


def _size(value: object) -> int:
    """Check that a JSON value is a nonnegative integer, and return it; raises TypeError."""
    if isinstance(value, bool) or _of(int, value) < 0:
        raise TypeError
    return _of(int, value)


def _text(value: object) -> str:
    """Check that a JSON value is a string, and return it; raises TypeError."""
    return _of(str, value)


def _rows(value: object) -> list[list[int]]:
    """Check that a JSON value is an array of arrays of nonnegative integers; return it; raises TypeError."""
    return [[_size(number) for number in _list(row)] for row in _list(value)]


def _list(value: object) -> list[object]:
    """Check that a JSON value is an array, and return it; raises TypeError."""
    if not _is_list(value):
        raise TypeError
    return value


def _is_list(value: object) -> TypeGuard[list[object]]:
    return isinstance(value, list)
