"""Fingerprints of arrays: a residue for each element, a number that identifies the element's expression.

Two elements with equal residues are, but for an unlikely collision, results of equal expressions of the
program's arguments. `Algebra` says which expressions are equal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import numpy as np

from hloom.ir.traits import Range
from hloom.proofs import field
from hloom.proofs.degrees import RANDOM, Degree
from hloom.proofs.field import Residues
from hloom.records import dataclass
from hloom.shape.element_type import ElementType


@dataclass(frozen=True, slots=True)
class Bag:
    """For each element of an array the multiset of operands of the operation that computed it.

    Attributes:
        code: the operation, associative and commutative; 0 for elements with one operand, themselves.
        count: the number of operands.
        sum: the sum of the operands' residues: with one operand, its residue.
        scrambled: the sum of a random function of each operand, which the operation chooses.
    """

    code: Residues
    count: Residues
    sum: Residues
    scrambled: Residues

    @staticmethod
    def of(opcode: str, x: Prints, neutral: Residues | None) -> Bag:
        """Return the operands of an operation that computed an array.

        Elements that another operation computed are the operands, except those equal to `neutral`, the
        fingerprint of the operation's neutral element (None if there is none).
        """
        code = np.full(x.shape, field.salt_of(opcode), np.uint64)
        count = np.ones_like(x.residues) if neutral is None else (x.residues != neutral).astype(np.uint64)
        scrambled = field.mix(field.salt_of("operand", opcode), x.residues)
        single = Bag(code, count, x.residues * count, scrambled * count)
        return single if x.bag is None else x.bag.where(x.bag.code == code, single)

    @staticmethod
    def single(x: Prints) -> Bag:
        """Return the operands of the elements of an array that such operations computed."""
        if x.bag is not None:
            return x.bag
        none = np.zeros_like(x.residues)
        return Bag(none, none, none, none)

    def where(self, condition: Any, other: Bag) -> Bag:
        """Return these operands where a condition holds, elsewhere those of another bag."""
        return Bag(*(np.where(condition, mine, others) for mine, others in zip(self.parts, other.parts)))

    @property
    def parts(self) -> tuple[Residues, Residues, Residues, Residues]:
        """The arrays of this bag."""
        return self.code, self.count, self.sum, self.scrambled

    def without(self, opcode: str, operand: Residues) -> tuple[Residues, Any]:
        """Return the other one of two operands, and where an operation has two, one of which is the given.

        Only of these two residues both the sum and the sum of their random functions are those of the bag.
        """
        other = field.subtract(self.sum, operand)
        salt = field.salt_of("operand", opcode)
        scrambled = field.add(field.mix(salt, other), field.mix(salt, operand))
        is_pair = (self.code == field.salt_of(opcode)) & (self.count == 2)
        return other, is_pair & (self.scrambled == scrambled)

    def joined(self, other: Bag) -> Bag:
        """Return the union, with multiplicity, of the operands of two arrays, element by element."""
        add = field.add
        return Bag(
            self.code,
            self.count + other.count,
            add(self.sum, other.sum),
            add(self.scrambled, other.scrambled),
        )

    def total(self, opcode: str) -> Bag:
        """Return the union, with multiplicity, of the operands of all elements along axis 0."""
        count = np.asarray(self.count.sum(axis=0, dtype=np.uint64))
        code = np.full(count.shape, field.salt_of(opcode), np.uint64)
        return Bag(code, count, field.total(self.sum), field.total(self.scrambled))

    def prints(self, opcode: str, neutral: Residues | None) -> Prints:
        """Return the fingerprints of the results: the neutral element where there are no operands."""
        several = field.mix(field.salt_of(opcode), self.scrambled)
        none = np.uint64(0) if neutral is None else neutral
        residues = np.where(self.count == 1, self.sum, np.where(self.count == 0, none, several))
        return Prints(np.asarray(residues), bag=self)

    def moved(self, move: Callable[[Residues], Residues]) -> Bag:
        """Return the operands of the elements that a function of arrays picks, repeats or rearranges."""
        return Bag(*(np.asarray(move(part)) for part in self.parts))


@dataclass(frozen=True, slots=True)
class Prints:
    """The fingerprints of an array.

    Attributes:
        residues: the residue of each element.
        value: the elements as numbers, if they depend on no argument of the program; else None.
        bag: the operands of the operation that computed the elements, if their order and grouping do not
            matter.
        format: the narrower float type from which the elements were converted; they are exact in it. `PRED`
            of integers: they are 0 or 1.
        degree: an upper bound of the degree of every element.
        range: the least and the largest number that elements may be, of integers and predicates; None: not
            less than all of the type.
    """

    residues: Residues
    value: Any = None
    bag: Bag | None = None
    format: ElementType | None = None
    degree: Degree = RANDOM
    range: Range | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The dimensions of the array."""
        return self.residues.shape

    def moved(self, move: Callable[[Any], Any]) -> Prints:
        """Return the fingerprints of the elements that a function of arrays picks, repeats or rearranges."""
        value = None if self.value is None else np.asarray(move(self.value))
        bag = None if self.bag is None else self.bag.moved(move)
        return replace(self, residues=np.asarray(move(self.residues)), value=value, bag=bag)

    def whole(self, salt: int) -> Residues:
        """Return one residue for the array, a function of its dimensions and of its elements in order."""
        flat = self.residues.reshape(-1)
        sizes = field.salt_of(salt, self.shape)
        return np.asarray(field.sequence(sizes, flat))


def residues_of(value: Any, *, signed_zeros: bool) -> Residues:
    """Return the residues of known numbers; equal integers, fractions and predicates have equal residues.

    With `signed_zeros`, -0.0 has another residue than 0.0.
    """
    array: Any = np.asarray(value)
    kind = ElementType.from_dtype(array.dtype)
    if kind.is_predicate or kind.is_integer:
        return np.asarray(field.of_integers(array))
    if kind.is_complex:
        parts = [residues_of(part, signed_zeros=signed_zeros) for part in (array.real, array.imag)]
        return np.asarray(field.add(parts[0], field.multiply(parts[1], IMAGINARY_UNIT)))
    residues = field.of_floats(array)
    if signed_zeros:
        number = array.astype(np.float64)
        residues = np.where((number == 0) & np.signbit(number), NEGATIVE_ZERO, residues)
    return np.asarray(residues)


NEGATIVE_ZERO: Final = field.mix(field.salt_of("negative zero"), np.zeros((), np.uint64))
IMAGINARY_UNIT: Final = field.mix(field.salt_of("imaginary unit"), np.zeros((), np.uint64))
