"""Registration of programs, and the forms of their results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import jax
import numpy as np

from hloom.error_bounds.floating import Array, eps, ulp, wide

Program = Callable[[], Any]

PROGRAMS: Final[dict[str, Program]] = {}


def program(function: Program) -> Program:
    """Register a program under the name of its function."""
    if function.__name__ in PROGRAMS:
        raise ValueError(f"there are two programs {function.__name__}")
    PROGRAMS[function.__name__] = function
    return function


@dataclass(frozen=True)
class Close:
    """An array, and how far each element of another computation of it may lie."""

    value: Array
    bound: Array


@dataclass(frozen=True)
class Computed:
    """Leaves of the results of a module of HLO (a serialized HloModuleProto), and its arguments."""

    values: list[Array]
    module: bytes
    arguments: list[Array]


def array(value: Any) -> Array:
    """Return an array of numpy; of random keys their words."""
    if hasattr(value, "dtype") and jax.numpy.issubdtype(value.dtype, jax.dtypes.prng_key):
        value = jax.random.key_data(value)
    return np.asarray(value)


def close(value: Any, bound: Any) -> Close:
    """Return a result that may differ by a bound."""
    found = array(value)
    return Close(found, np.broadcast_to(np.asarray(bound, np.float64), found.shape))


def units(value: Any, count: float) -> Close:
    """Return a result that may differ by some units in the last place of each element."""
    found = array(value)
    return close(found, count * ulp(np.abs(wide(found)), found.dtype))


def normwise(value: Any, size: float, terms: int, condition: float = 1.0) -> Close:
    """Return a result of dense linear algebra.

    Two backward stable computations, each with an error of ``4 n eps`` times the norm of the data, differ by
    twice that, times the condition number (Higham, Accuracy and Stability of Numerical Algorithms, ch. 7).
    """
    found = array(value)
    return close(found, 8 * terms * eps(found.dtype) * condition * size)


def computed(function: Callable[..., Any], *arguments: Any) -> Computed:
    """Run a function under jit on arrays; its results may differ by the error of what its HLO computes."""
    jitted = jax.jit(function, keep_unused=True)
    values = [array(leaf) for leaf in jax.tree.leaves(jitted(*arguments))]
    module: Any = jitted.lower(*arguments).compiler_ir("hlo")
    given = [np.asarray(leaf) for leaf in jax.tree.leaves(arguments)]
    return Computed(values, module.as_serialized_hlo_module_proto(), given)


def message_of(
    call: Callable[[], Any], kind: type[BaseException] | tuple[type[BaseException], ...] = Exception
) -> str:
    """Return the message of the error that a call raises; it must raise one."""
    try:
        call()
    except kind as error:
        return str(error)
    raise AssertionError("nothing was raised")


def numbers(*shape: int, seed: int = 0, dtype: Any = np.float32) -> Array:
    """Return normally distributed numbers."""
    return np.asarray(np.random.RandomState(seed).standard_normal(shape)).astype(dtype)


def integers(*shape: int, low: int = -100, high: int = 100, seed: int = 0, dtype: Any = np.int32) -> Array:
    """Return integers of an interval."""
    return np.random.RandomState(seed).randint(low, high, shape).astype(dtype)
