"""Programs of a few lines: their registration, and how `benchmarks.child` runs them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import numpy as np

Array = np.ndarray[Any, Any]
Draw = Callable[[np.random.Generator], Array]
"""Draws an argument."""
GROUPS: Final = sorted(path.stem for path in (Path(__file__).parent / "groups").glob("[a-z]*.py"))


@dataclass(frozen=True)
class Program:
    """A function of arrays, its arguments, and the group that it belongs to."""

    function: Callable[..., Any]
    arguments: Sequence[Draw]
    group: str


PROGRAMS: Final[dict[str, Program]] = {}
"""The programs of the groups that have been imported, by name."""


def program(*arguments: Draw) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function as a program with these arguments."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        group = function.__module__.rpartition(".")[2]
        PROGRAMS[function.__name__] = Program(function, arguments, group)
        return function

    return register


def all_programs() -> dict[str, Program]:
    """Import all groups; return their programs by name."""
    for group in GROUPS:
        import_module(f"benchmarks.small_programs.groups.{group}")
    return PROGRAMS


def normal(*shape: int, scale: float = 1.0, dtype: str = "float32") -> Draw:
    """Draw numbers of a normal distribution."""
    return lambda generator: generator.normal(0, scale, shape).astype(dtype)


def uniform(*shape: int, high: float = 1.0) -> Draw:
    """Draw f32 numbers in [0, high)."""
    return lambda generator: generator.uniform(0, high, shape).astype(np.float32)


def integers(high: int, *shape: int) -> Draw:
    """Draw s32 integers in [0, high)."""
    return lambda generator: generator.integers(0, high, shape).astype(np.int32)


def in_order(draw: Draw) -> Draw:
    """Draw sorted numbers."""
    return lambda generator: np.sort(draw(generator))


def key(generator: np.random.Generator) -> Array:
    """Return the data of a key of JAX's random numbers."""
    return generator.integers(0, 1 << 32, 2).astype(np.uint32)


class Model:
    """A program as `benchmarks.child` runs it."""

    def __init__(self, name: str) -> None:
        self.program = all_programs()[name]

    def build(self) -> Any:
        """Return the jitted function and its arguments."""
        import jax

        generator = np.random.default_rng(0)
        arrays = [draw(generator) for draw in self.program.arguments]
        jax.config.update("jax_enable_x64", any(a.dtype == np.float64 for a in arrays))
        return jax.jit(self.program.function), [jax.numpy.asarray(a) for a in arrays]

    def step(self, state: Any) -> Any:
        """Run the function; return the state and the results."""
        function, arguments = state
        return state, function(*arguments)
