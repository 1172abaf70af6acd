"""Fingerprints of comparisons of integers with known numbers, and of conjunctions of two of them.

All of them are written by the function "less": x = c is x < c + 1 but not x < c. So the predicates that an
index equals each number of a range add up to the predicate that it is in the range.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from hloom.ir.operation import Array, Operation
from hloom.operations.arithmetic import And
from hloom.operations.comparison import Compare
from hloom.proofs import field
from hloom.proofs.field import Residues, salt_of
from hloom.proofs.prints import Bag, Prints
from hloom.shape.element_type import ElementType

_BELOW: Final = salt_of("below")
_AT_LEAST: Final = salt_of("at least")
"""Codes of bags: that the number `sum` is below, or at least, the known number `scrambled`."""
_LARGEST: Final = 2.0**59
_EXCHANGED: Final = {"LT": "GT", "LE": "GE", "GT": "LT", "GE": "LE", "EQ": "EQ", "NE": "NE"}


def compared_with_numbers(operation: Operation, kind: ElementType, operands: list[Prints]) -> Prints | None:
    """Return the results of a comparison with known integers, or of a conjunction of two; None for others."""
    match operation:
        case Compare(direction=direction) if kind.is_integer:
            a, b = operands
            if a.value is not None:
                a, b, direction = b, a, _EXCHANGED[direction]
            return None if b.value is None else _compared(direction, kind, a, b)
        case And() if all(x.bag is not None for x in operands):
            return _in_range(*operands)
        case _:
            return None


def equal_to_numbers(kind: ElementType, x: Residues, numbers: Residues) -> Residues:
    """Return whether integers equal known numbers."""
    x, numbers = np.broadcast_arrays(x, numbers)
    equal = field.subtract(_below(kind, x, field.add(numbers, field.ONE)), _below(kind, x, numbers))
    return np.where(x == numbers, field.ONE, equal)


def _below(kind: ElementType, x: Residues, bound: Residues) -> Residues:
    return field.mix(salt_of("less", kind.name), x, bound)


def _compared(direction: str, kind: ElementType, x: Prints, number: Prints) -> Prints:
    """Return whether integers are below known numbers, at most, …"""
    if direction in ("EQ", "NE"):
        equal = equal_to_numbers(kind, x.residues, number.residues)
        return Prints(equal if direction == "EQ" else field.subtract(field.ONE, equal))
    residues, bound = np.broadcast_arrays(x.residues, number.residues)
    bound = bound if direction in ("LT", "GE") else field.add(bound, field.ONE)
    is_below = _below(kind, residues, bound)
    if direction in ("LT", "LE"):
        return Prints(is_below, bag=_bag(_BELOW, residues, bound, number.value))
    return Prints(field.subtract(field.ONE, is_below), bag=_bag(_AT_LEAST, residues, bound, number.value))


def _bag(code: int, residues: Residues, bound: Residues, numbers: Array) -> Bag | None:
    """Return the bag of comparisons with numbers; None if some are so large that residues have no order."""
    if (np.abs(np.asarray(numbers, np.float64)) >= _LARGEST).any():
        return None
    return Bag(np.full(residues.shape, code, np.uint64), np.ones_like(residues), residues, bound)


def _in_range(a: Prints, b: Prints) -> Prints | None:
    """Return whether numbers are at least some and below others: 1 less than the sum of both, or 0."""
    assert a.bag is not None
    assert b.bag is not None
    is_range = (a.bag.code == _AT_LEAST) & (b.bag.code == _BELOW)
    is_exchanged = (a.bag.code == _BELOW) & (b.bag.code == _AT_LEAST)
    is_pair = (is_range | is_exchanged) & (a.bag.sum == b.bag.sum)
    if not is_pair.any():
        return None
    first, second = a.bag.scrambled, b.bag.scrambled
    low, high = np.where(is_range, first, second), np.where(is_range, second, first)
    both = field.subtract(field.add(a.residues, b.residues), field.ONE)
    both = np.where(_signed(low) < _signed(high), both, np.uint64(0))
    return Prints(np.where(is_pair, both, field.multiply(a.residues, b.residues)))


def _signed(residues: Residues) -> Array:
    """Return known numbers, of which negative ones have residues above half of the prime."""
    numbers = residues.astype(np.int64)
    return np.where(numbers > field.PRIME // 2, numbers - field.PRIME, numbers)
