"""Random arguments of a program, drawn from a seed."""

from __future__ import annotations

from collections.abc import Set
from typing import Any, Final

import ml_dtypes
import numpy as np

from hloom.debug.nonnegative import Leaf, nonnegative_leaves
from hloom.errors import HloError
from hloom.ir.module import HloModule
from hloom.ir.value import Array, Value
from hloom.shape.element_type import ElementType
from hloom.shape.shape import Shape

EDGE_SHARES: Final = (1 / 8, 1 / 64, 1 / 512)
"""Shares of edge values in arrays, one of which is drawn: a NaN hides all other errors of a sum."""
_finfo: Any = ml_dtypes.finfo


def random_arguments(module: HloModule, seed: int, *, edges: bool = False, ties: bool = False) -> list[Value]:
    """Draw arguments from a seed: normal floats, integers in [0, 8), and pred with probability 1/2.

    Sums of squares, such as an optimizer's second moments, are drawn nonnegative (`nonnegative_leaves`).

    Args:
        module: the program.
        seed: the seed.
        edges: include `edge_values` in each array. Scalars stay small, since they may be trip counts.
        ties: round the floats to integers, so that equal ones occur.

    Raises HloError by ``run.random-unbounded`` for a parameter of unbounded size.
    """
    generator = np.random.default_rng(seed)
    nonnegative = nonnegative_leaves(module)
    return [
        _random(p.shape.to_static(), generator, edges, ties, (number,), nonnegative)
        for number, p in enumerate(module.entry.parameters)
    ]


def edge_values(element_type: ElementType) -> list[Any]:
    """Return values of an element type at which kernels fail: NaN, infinities, zeros, subnormals, limits."""
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


def _random(
    shape: Shape,
    generator: np.random.Generator,
    edges: bool,
    ties: bool,
    leaf: Leaf,
    nonnegative: Set[Leaf],
) -> Value:
    if shape.is_tuple:
        elements = enumerate(shape.tuple_shapes)
        return tuple([_random(e, generator, edges, ties, (*leaf, n), nonnegative) for n, e in elements])
    if not shape.is_array:
        return None
    if shape.is_unbounded:
        message = f"a parameter of shape {shape} has no size to draw; give its value with --input"
        raise HloError(message, rule="run.random-unbounded")
    drawn = _drawn(shape.element_type, shape.dimensions, generator, ties)
    if leaf in nonnegative and drawn.dtype.kind != "c":
        drawn = np.abs(drawn)
    if edges and shape.rank and drawn.size:
        choices = edge_values(shape.element_type)
        places = generator.random(shape.dimensions) < generator.choice(EDGE_SHARES)
        picked = generator.integers(0, len(choices), shape.dimensions)
        for number, choice in enumerate(choices):
            drawn[places & (picked == number)] = choice
    return drawn


def _drawn(
    element_type: ElementType, sizes: tuple[int, ...], generator: np.random.Generator, ties: bool
) -> Array:
    dtype = element_type.numpy_dtype
    if element_type.is_predicate:
        return np.asarray(generator.integers(0, 2, sizes)).astype(bool)
    if element_type.is_integer:
        least, most = element_type.limits
        drawn = generator.integers(max(int(least), 0), min(int(most), 7) + 1, sizes)
        return np.asarray(drawn).astype(dtype)
    values = generator.standard_normal(sizes)
    if element_type.is_complex:
        values = values + 1j * generator.standard_normal(sizes)
    return np.asarray(np.round(values) if ties else values).astype(dtype)
