"""Properties of a compiled program that its callers need, stored beside its code in the cache."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from hloom.ir.module import HloModule

_LISTS: Final = ("argument_bytes", "result_bytes", "data")


@dataclass(frozen=True, slots=True)
class ProgramFacts:
    """Properties of a compiled program.

    Attributes:
        signature: types and sizes of parameters and result; see `signature_of`.
        temp_bytes: size of the arena.
        argument_bytes, result_bytes: sizes of the leaves of arguments and results, in order.
        work: rough number of elementary operations of a run.
        is_bounded: the work of every loop is known; otherwise a run may take any time.
        host_calls: number of places that call the host.
        shares: some kernel shares its iterations among the threads of the pool.
        data: names of the constants that follow the object files in the entry.
    """

    signature: str
    temp_bytes: int
    argument_bytes: tuple[int, ...]
    result_bytes: tuple[int, ...]
    work: int
    is_bounded: bool
    host_calls: int
    shares: bool
    data: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the facts in the types of JSON."""
        values: dict[str, Any] = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return values | {name: list(values[name]) for name in _LISTS}

    @staticmethod
    def from_json(facts: Mapping[str, Any]) -> ProgramFacts | None:
        """Return the facts; None if one is missing, superfluous, or of another type."""
        if set(facts) != {field.name for field in dataclasses.fields(ProgramFacts)}:
            return None
        sizes = [facts["temp_bytes"], facts["work"], facts["host_calls"]]
        bytes_ = [facts["argument_bytes"], facts["result_bytes"]]
        flags = [facts["is_bounded"], facts["shares"]]
        if (
            not isinstance(facts["signature"], str)
            or not all(map(_is_size, sizes))
            or not all(
                isinstance(each, list) and all(map(_is_size, cast("list[object]", each))) for each in bytes_
            )
            or not all(isinstance(flag, bool) for flag in flags)
            or not isinstance(facts["data"], list)
            or not all(isinstance(name, str) for name in cast("list[object]", facts["data"]))
        ):
            return None
        values: dict[str, Any] = {**facts, **{name: tuple(facts[name]) for name in _LISTS}}
        return ProgramFacts(**values)


def signature_of(module: HloModule) -> str:
    """Return the types and sizes of a program's parameters and result, without layouts."""
    shapes = [*(p.shape for p in module.entry.parameters), module.entry.root.shape]
    return " ".join(shape.to_string(layout=False) for shape in shapes)


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
