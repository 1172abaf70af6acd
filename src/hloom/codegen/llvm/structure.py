"""Functions compared by what they compute instead of by their names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hloom.codegen.llvm.instructions import Instruction
from hloom.codegen.llvm.values import GlobalAddress, Poison

if TYPE_CHECKING:
    from hloom.codegen.llvm.function import Function


class Structure:
    """A finished function as a key: equal for functions that differ in their names only.

    The hash covers the signature, opcodes and constants, which costs little; equality compares everything.
    Attributes that the function gets later do not count.
    """

    __slots__ = ("_hash", "_signature", "function")

    def __init__(self, function: Function) -> None:
        self.function = function
        parameters = tuple([(p.type, p.attributes) for p in function.parameters])
        self._signature = function.result, parameters, function.attributes, function.internal
        opcodes = tuple([i.opcode for block in function.blocks for i in block.instructions])
        self._hash = hash((self._signature, opcodes, tuple(function.constants)))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Structure):
            return NotImplemented
        if self._hash != other._hash or self._signature != other._signature:
            return False
        return _equal(self.function, other.function)


def _equal(f: Function, g: Function) -> bool:
    """Whether two functions consist of the same instructions on corresponding values."""
    if [len(block.instructions) for block in f.blocks] != [len(block.instructions) for block in g.blocks]:
        return False
    ours, theirs = _instructions(f), _instructions(g)
    return (
        [i.opcode for i in ours] == [j.opcode for j in theirs]
        and [i.type for i in ours] == [j.type for j in theirs]
        and [i.detail for i in ours] == [j.detail for j in theirs]
        and _references(f, ours) == _references(g, theirs)
    )


def _instructions(f: Function) -> list[Instruction]:
    return [*f.stack, *f.prologue, *[i for block in f.blocks for i in block.instructions]]


def _references(f: Function, instructions: list[Instruction]) -> list[Sequence[object]]:
    """Return operands and targets of instructions by their places, and constants by their values."""
    places: dict[object, object] = {v: n for n, v in enumerate([*f.parameters, *instructions])}
    places.update((block, n) for n, block in enumerate(f.blocks))
    places.update((constant, constant.key) for constant in f.constants.values())
    return [[places[o] if o in places else _key(o) for o in (*i.operands, *i.targets)] for i in instructions]


def _key(value: object) -> object:
    """Return a key of a value that is neither a parameter nor an instruction."""
    match value:
        case GlobalAddress():
            return value.symbol
        case Poison():
            return value.type
        case _:
            raise TypeError(f"{value!r} belongs to another function")
