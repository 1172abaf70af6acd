"""Random arguments of a program, drawn from a seed."""

from __future__ import annotations

import enum
from collections.abc import Sequence, Set
from contextlib import suppress
from typing import Any, Final

import ml_dtypes
import numpy as np

from hloom.debug.nonnegative import Leaf, nonnegative_leaves
from hloom.errors import HloError, expect
from hloom.ir.module import HloModule
from hloom.ir.value import Array, Value
from hloom.operations.structure import Constant
from hloom.records import dataclass
from hloom.shape.element_type import ElementType
from hloom.shape.shape import Shape

EDGE_SHARES: Final = (1 / 8, 1 / 64, 1 / 512)
"""Shares of edge values in an array; one is drawn per array, as a NaN hides all other errors of a sum."""
MOST_CONSTANTS: Final = 64
"""Most elements of a constant from which `constants_of` takes numbers; larger constants are tables."""
MOST_SCALAR: Final = 64
"""The largest magnitude of a scalar integer drawn from constants: it may be a trip count."""
MOST_REAL: Final = 1 << 20
"""The largest magnitude of a float drawn from constants."""
_finfo: Any = ml_dtypes.finfo


class Distribution(enum.Enum):
    """Distributions of random arguments; the value of a member is the phrase that reports print for it."""

    NORMAL = "random"
    """Normal floats, integers in [0, 8), and pred with probability 1/2."""
    TIES = "random integers"
    """Floats rounded to integers, so that equal ones occur."""
    SIGNED = "random signed"
    """Integers in [-8, 8); floats are multiples of 1/2 in [-4, 4)."""
    CONSTANTS = "constants"
    """One half is drawn as by `SIGNED`, the other from constants of the programs and their neighbours."""
    EDGES = "edge values"
    """As by `NORMAL`, with `edge_values` in each array."""
    EDGES_AND_TIES = "edge values and integers"
    """As by `TIES`, with `edge_values` in each array."""
    RANGE = "whole range"
    """Integers of the whole range, floats of any exponent."""

    @property
    def has_edges(self) -> bool:
        """Return whether some elements of each array drawn by this distribution are `edge_values`."""
        return self in (Distribution.EDGES, Distribution.EDGES_AND_TIES)

    @property
    def is_ordinary(self) -> bool:
        """Return whether all floats drawn by this distribution are finite and neither huge nor tiny."""
        return not self.has_edges and self is not Distribution.RANGE


def random_arguments(module: HloModule, seed: int, *, edges: bool = False) -> list[Value]:
    """Draw an argument for each parameter: normal floats, integers in [0, 8), pred with probability 1/2.

    Sums of squares, such as an optimizer's second moments, are drawn nonnegative (`nonnegative_leaves`).

    Args:
        module: the program.
        seed: the seed of the random generator.
        edges: include `edge_values` in each array, except in scalars, which stay small: they may be trip
            counts.

    Raises HloError (rule ``run.random-unbounded``) for a parameter of unbounded size.
    """
    expect(module, HloModule, "an HloModule")
    return drawn_arguments(module, seed, Distribution.EDGES if edges else Distribution.NORMAL)


def drawn_arguments(
    module: HloModule, seed: int, distribution: Distribution, constants: Sequence[float] = ()
) -> list[Value]:
    """Draw an argument for each parameter of a program's entry from a distribution.

    Sums of squares, such as an optimizer's second moments, are drawn nonnegative (`nonnegative_leaves`).

    Args:
        module: the program.
        seed: the seed of the random generator.
        distribution: how elements are drawn.
        constants: numbers to draw from, for `Distribution.CONSTANTS`; other distributions ignore them.
    """
    draw = _Draw(np.random.default_rng(seed), distribution, constants, nonnegative_leaves(module))
    return [draw.value(p.shape.to_static(), (n,)) for n, p in enumerate(module.entry.parameters)]


def constants_of(*modules: HloModule) -> list[float]:
    """Return the distinct numbers, ascending, in the programs' small constants.

    These have at most `MOST_CONSTANTS` elements. Complex constants and NaN are left out.
    """
    numbers: set[float] = set()
    for i in (i for module in modules for i in module.instructions()):
        is_real = i.shape.is_array and not i.shape.element_type.is_complex
        if is_real and isinstance(i.operation, Constant) and i.shape.element_count <= MOST_CONSTANTS:
            with suppress(HloError):  # elided elements
                numbers.update(np.asarray(i.operation.literal.numpy()).reshape(-1).tolist())
    return sorted(number for number in numbers if number == number)


def edge_values(element_type: ElementType) -> list[Any]:
    """Return values at which kernels tend to fail: NaN, infinities, zeros, subnormals, limits of the type."""
    dtype = element_type.numpy_dtype
    if element_type.is_predicate:
        return [False, True]
    if element_type.is_integer:
        least, most = element_type.limits
        return [least, most, 0, 1, *([-1] if least < 0 else [])]
    if element_type.is_complex:
        parts = [0.0, -0.0, 1.0, np.inf, np.nan]
        return [complex(re, im) for re in parts for im in parts]
    info = _finfo(dtype)
    limits = [info.max, info.smallest_normal, info.smallest_subnormal]
    corners = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        np.inf,
        -np.inf,
        np.nan,
        *map(float, limits),
        *(-float(x) for x in limits),
    ]
    with np.errstate(all="ignore"):
        return list(np.asarray(corners).astype(dtype))


@dataclass(frozen=True)
class _Draw:
    """Draws random values of given shapes.

    Attributes:
        generator: numpy's random generator.
        distribution: how elements are drawn.
        constants: numbers to draw from, for `Distribution.CONSTANTS`.
        nonnegative: the arrays to draw without negative numbers, each as the number of its parameter, then
            the indices in nested tuples.
    """

    generator: Any
    distribution: Distribution
    constants: Sequence[float]
    nonnegative: Set[Leaf]

    def value(self, shape: Shape, leaf: Leaf) -> Value:
        """Draw a value of the given shape: an array, a tuple of values, or None if the shape is a token.

        ``leaf`` is the number of the parameter, then the indices in nested tuples; it decides whether the
        value is drawn nonnegative. Raises HloError (rule ``run.random-unbounded``) for an unbounded shape.
        """
        if shape.is_tuple:
            return tuple([self.value(e, (*leaf, n)) for n, e in enumerate(shape.tuple_shapes)])
        if not shape.is_array:
            return None
        if shape.is_unbounded:
            message = f"a parameter of shape {shape} has no size to draw; give its value with --input"
            raise HloError(message, rule="run.random-unbounded")
        kind, dimensions = shape.element_type, shape.dimensions
        with np.errstate(all="ignore"):
            drawn = np.asarray(self._numbers(kind, dimensions)).astype(kind.numpy_dtype)
        if leaf in self.nonnegative and drawn.dtype.kind != "c":
            drawn = np.abs(drawn)
        if self.distribution.has_edges and shape.rank and drawn.size:
            self._add_edges(kind, drawn)
        return drawn

    def _add_edges(self, kind: ElementType, drawn: Array) -> None:
        choices = edge_values(kind)
        places = self.generator.random(drawn.shape) < self.generator.choice(EDGE_SHARES)
        picked = self.generator.integers(0, len(choices), drawn.shape)
        drawn[places] = np.asarray(choices, kind.numpy_dtype)[picked[places]]

    def _numbers(self, kind: ElementType, sizes: tuple[int, ...]) -> Array:
        if kind.is_predicate:
            return self.generator.integers(0, 2, sizes)
        if kind.is_integer:
            least, most = kind.limits
            return self._integers(least, most, sizes)
        reals = self._reals(kind, sizes)
        return reals + 1j * self._reals(kind, sizes) if kind.is_complex else reals

    def _integers(self, least: int, most: int, sizes: tuple[int, ...]) -> Array:
        draw = self.generator.integers
        match self.distribution:
            case Distribution.RANGE if sizes:
                wide = np.int64 if least else np.uint64
                return draw(least, most, sizes, dtype=wide, endpoint=True)
            case Distribution.SIGNED | Distribution.CONSTANTS:
                small = draw(max(least, -8), min(most, 7) + 1, sizes)
                near = [
                    int(x) + d for x in self.constants if x == x // 1 and abs(x) < 2**62 for d in (-1, 0, 1)
                ]
                limits = (least, most) if sizes else (max(least, -MOST_SCALAR), min(most, MOST_SCALAR))
                return self._mixed(small, [x for x in near if limits[0] <= x <= limits[1]])
            case _:
                return draw(max(least, 0), min(most, 7) + 1, sizes)

    def _reals(self, kind: ElementType, sizes: tuple[int, ...]) -> Array:
        generator = self.generator
        match self.distribution:
            case Distribution.SIGNED | Distribution.CONSTANTS:
                small = [x for x in self.constants if abs(x) <= MOST_REAL]
                return self._mixed(generator.integers(-8, 8, sizes) / 2, small)
            case Distribution.TIES | Distribution.EDGES_AND_TIES:
                return np.rint(generator.standard_normal(sizes))
            case Distribution.RANGE:
                info = _finfo(kind.numpy_dtype)
                return np.ldexp(
                    generator.uniform(-2, 2, sizes), generator.integers(info.minexp, info.maxexp, sizes)
                )
            case _:
                return generator.standard_normal(sizes)

    def _mixed(self, numbers: Array, others: Sequence[float]) -> Array:
        """Return a copy of ``numbers`` with about half of the elements replaced by random ones of ``others``.

        Returns ``numbers`` unchanged if the distribution is not `Distribution.CONSTANTS` or ``others`` is
        empty.
        """
        if self.distribution is not Distribution.CONSTANTS or not others:
            return numbers
        is_other = self.generator.integers(0, 2, numbers.shape).astype(bool)
        return np.where(is_other, self.generator.choice(np.asarray(others), numbers.shape), numbers)
