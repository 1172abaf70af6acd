"""Degrees of fingerprints, from which the probability of a wrong proof follows.

A fingerprint is the value of a quotient of two polynomials in random numbers: the fingerprints of the
arguments, and the results of random functions. Two different quotients of degree d have equal values with a
probability of at most 2 d / PRIME.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

from hloom.ir.instruction import HloInstruction
from hloom.ir.traits import Family
from hloom.operations.arithmetic import (
    Add,
    And,
    Divide,
    Maximum,
    Minimum,
    Multiply,
    Or,
    Power,
    Remainder,
    ShiftLeft,
    Subtract,
    Xor,
)
from hloom.operations.comparison import Clamp, Compare, Select
from hloom.operations.contraction import Dot
from hloom.operations.conversion import Convert, Copy
from hloom.operations.convolution import Convolution
from hloom.operations.dynamic_slicing import DynamicUpdateSlice
from hloom.operations.reduction import Reduce
from hloom.operations.transcendental import Logistic, ReciprocalSquareRoot
from hloom.operations.unary import Negate, Not
from hloom.operations.window_reduction import ReduceWindow
from hloom.shape.element_type import F32, F64

LARGEST_POWER: Final = 64
"""The largest exponent of a power that is multiplied out."""


class Degree(NamedTuple):
    """The degree of a quotient of polynomials: the larger degree of numerator and denominator.

    Attributes:
        degree: an upper bound of the degree.
        is_fraction: whether the denominator is not constant. The denominator of a sum of such fractions is
            the product of their denominators.
    """

    degree: int = 1
    is_fraction: bool = False


RANDOM: Final = Degree()
"""The degree of a random number."""


CONSTANT: Final = Degree(0)
"""The degree of a number that depends on no argument."""


def largest(degrees: Sequence[Degree]) -> Degree:
    """Return the degree of an array whose elements are taken from several arrays."""
    return Degree(max((d.degree for d in degrees), default=1), any(d.is_fraction for d in degrees))


def product(degrees: Sequence[Degree]) -> Degree:
    """Return the degree of a product of factors of some degrees."""
    return Degree(max(1, sum(d.degree for d in degrees)), any(d.is_fraction for d in degrees))


def total(degrees: Sequence[Degree], terms: int = 1) -> Degree:
    """Return the degree of a sum of `terms` elements from each of several arrays."""
    bound = largest(degrees)
    return Degree(product(degrees).degree * terms, True) if bound.is_fraction else bound


def degree_of(
    i: HloInstruction, degrees: Sequence[Degree], *, forms_ring: bool, has_fractions: bool
) -> Degree:
    """Return the degree of the elements of an instruction's result.

    Args:
        i: an instruction that computes an array.
        degrees: the degrees of its operands.
        forms_ring: whether sums and products of its element type are those of the field.
        has_fractions: whether 1 / x of unknown elements is the inverse in the field.
    """
    operation, kind = i.operation, i.shape.element_type
    match operation:
        case Copy() | Convert() | Maximum() | Minimum() | Clamp():
            return largest(degrees)
        case Select():
            return product([degrees[0], total(degrees[1:])])
        case DynamicUpdateSlice() if any(d is not CONSTANT for d in degrees[2:]):
            changes = total(degrees[:2], i.operands[1].shape.element_count)
            return product([changes, Degree(i.shape.rank)])
        case _ if operation.family is Family.MOVEMENT:
            return largest(degrees)
        case _ if kind.is_predicate:
            compares = isinstance(operation, Compare) and i.operands[0].shape.element_type.is_predicate
            logical = compares or isinstance(operation, And | Or | Xor | Not | Multiply | Add)
            return product(degrees) if logical else _reduced(i, degrees)
        case _ if not forms_ring or (kind.is_floating and kind not in (F32, F64)):
            return RANDOM
        case And() | Or() | ShiftLeft():
            return largest(degrees)
        case Add() | Subtract() | Negate():
            return total(degrees)
        case Multiply():
            return product(degrees)
        case Divide() | Remainder() if kind.is_integer:
            return Degree(2)
        case Divide():
            numerator, denominator = degrees
            if not (has_fractions or denominator is CONSTANT):
                denominator = RANDOM
            is_fraction = numerator.is_fraction or (has_fractions and denominator is not CONSTANT)
            return product([numerator, denominator])._replace(is_fraction=is_fraction)
        case Power():
            return Degree(degrees[0].degree * LARGEST_POWER, has_fractions)
        case Logistic() | ReciprocalSquareRoot():
            return Degree(1, has_fractions)
        case Dot() | Convolution():
            return total([product(degrees)], terms_of(i))
        case _:
            return _reduced(i, degrees)


def terms_of(i: HloInstruction) -> int:
    """Return the number of terms that an element of a dot, convolution or reduction combines, at least 1."""
    operands = [o.shape for o in i.operands]
    sizes = operands[0].dimensions
    match i.operation:
        case Dot(lhs_contracting_dims=summed) | Reduce(dimensions=summed):
            terms = [sizes[d] for d in summed]
        case Convolution(dim_labels=labels):
            features = labels.kernel_output_feature_dimension
            terms = [n for d, n in enumerate(operands[1].dimensions) if d != features]
        case ReduceWindow(window=window):
            terms = [each.size for each in window]
        case _:
            terms = sizes
    return max(1, math.prod(terms))


def _reduced(i: HloInstruction, degrees: Sequence[Degree]) -> Degree:
    """Return the degree of a reduction's result; that of a random number for other operations.

    Products, and reductions of predicates, have the degree of a product of all operand elements.
    """
    if not isinstance(i.operation, Reduce | ReduceWindow):
        return RANDOM
    root = i.called_computations[0].root.operation
    terms = terms_of(i)
    if isinstance(root, Multiply) or i.shape.element_type.is_predicate:
        return Degree(terms * product(degrees).degree, largest(degrees).is_fraction)
    return total(degrees, terms) if isinstance(root, Add) else largest(degrees)
