"""Ranges of integers, and fingerprints of their comparisons with known numbers.

All of them are written by the function "less": x = c is x < c + 1 but not x < c. So the predicates that an
index equals each number of a range add up to the predicate that it is in the range.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from hloom.ir.instruction import HloInstruction
from hloom.ir.operation import Array, Operation
from hloom.ir.traits import Family, Range
from hloom.operations.arithmetic import And, Maximum, Minimum, Remainder
from hloom.operations.comparison import Clamp, Compare
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
            decided = _decided(direction, range_of(a, kind), range_of(b, kind))
            if decided is not None:
                shape = np.broadcast_shapes(a.shape, b.shape)
                return Prints(np.full(shape, int(decided), np.uint64), np.full(shape, decided))
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


def in_bounds(kind: ElementType, x: Prints, last: int) -> Residues:
    """Return whether integers are at least 0 and at most a number, as far as their type does not say so."""
    tests: list[Prints] = []
    for direction, number in (("GE", 0), ("LE", last)):
        if kind.limits[0] < 0 if direction == "GE" else number < kind.limits[1]:
            value = np.asarray(number, kind.numpy_dtype)
            test = compared_with_numbers(
                Compare(direction=direction), kind, [x, Prints(field.of_integers(value), value)]
            )
            assert test is not None
            tests.append(test)
    if len(tests) < 2:
        return tests[0].residues if tests else np.asarray(field.ONE)
    both = compared_with_numbers(And(), kind, tests)
    return field.multiply(*(test.residues for test in tests)) if both is None else both.residues


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


# -- ranges of all elements of an array


def derived_range(i: HloInstruction, operands: Sequence[Prints]) -> Range | None:
    """Return the range of an array of integers or predicates that its operation derives; None if unknown."""
    kind = i.shape.element_type
    is_local = i.operation.elementwise or i.operation.family is Family.MOVEMENT
    if not (is_local and (kind.is_integer or kind.is_predicate)):
        return None
    kinds = [o.shape.element_type for o in i.operands if o.shape.is_array]
    if not all(k.is_integer or k.is_predicate for k in kinds):
        return None
    ranges = [*map(range_of, operands, kinds)]
    derived = i.operation.value_range(kind, *ranges) if ranges else None
    sources = i.operation.element_sources(len(ranges))
    if derived is None and sources:
        derived = min(ranges[n][0] for n in sources), max(ranges[n][1] for n in sources)
    low, high = kind.limits
    return derived if derived is not None and low <= derived[0] and derived[1] <= high else None


def range_of(x: Prints, kind: ElementType) -> Range:
    """Return the range of the elements of an array of integers or predicates: that of their type at most."""
    if x.range is not None:
        return x.range
    if x.value is not None and x.value.size:
        numbers = x.value if x.value.dtype.kind in "biu" else x.value.astype(np.int64)
        return int(numbers.min()), int(numbers.max())
    return int(kind.limits[0]), int(kind.limits[1])


def within_range(operation: Operation, kind: ElementType, operands: Sequence[Prints]) -> Prints | None:
    """Return the operand that an operation of integers returns, as their ranges show; None if they do not."""
    if not kind.is_integer:
        return None
    ranges = [range_of(x, kind) for x in operands]
    match operation:
        case Maximum() | Minimum():
            (a, b), is_maximum = ranges, isinstance(operation, Maximum)
            for x, (low, high), other in zip(operands, (a, b), (b, a), strict=True):
                if other[1] <= low if is_maximum else high <= other[0]:
                    return x
        case Clamp() if ranges[0][1] <= ranges[1][0] and ranges[1][1] <= ranges[2][0]:
            return operands[1]
        case Remainder() if ranges[0][0] >= 0 and ranges[0][1] < ranges[1][0]:
            return operands[0]
        case _:
            pass
    return None


def _decided(direction: str, a: Range, b: Range) -> bool | None:
    """Return whether a comparison holds for all numbers of two ranges, or for none; None for others."""
    if direction in ("GT", "GE"):
        a, b, direction = b, a, _EXCHANGED[direction]
    if direction in ("EQ", "NE"):
        is_apart, is_same = a[1] < b[0] or b[1] < a[0], a[0] == a[1] == b[0] == b[1]
        return (direction == "NE") == is_apart if is_apart or is_same else None
    is_strict = direction == "LT"
    if a[1] + is_strict <= b[0]:
        return True
    return False if b[1] + (not is_strict) <= a[0] else None
