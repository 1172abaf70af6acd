"""Search for the operation of a JAX function that yields a NaN or an infinity."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec

import numpy as np

from hloom.debug.tracing import Event, first_event
from hloom.errors import HloError, expect
from hloom.ir.module import HloModule


def nan_origin(function: Callable[..., object], *arguments: object) -> Event | None:
    """Return the first operation of a JAX function whose value has a NaN; None if there is none.

    ``print`` of the returned event shows the operation, its source line and the values of its operands. The
    function is called with ``arguments`` and traced as by `jax.jit`; it may be a transformed one, such as
    ``jax.grad(loss)``.

    Raises HloError (rule ``debug.jax``) if jax is not installed.
    """
    return origin(function, arguments, lambda event: event.has_nan)


def infinity_origin(function: Callable[..., object], *arguments: object) -> Event | None:
    """Return the first operation of a JAX function whose value has an infinity; None if there is none.

    The function is called with ``arguments``; see `nan_origin`.
    """
    return origin(function, arguments, lambda event: event.has_infinity)


def origin(
    function: Callable[..., object], arguments: tuple[object, ...], wanted: Callable[[Event], bool]
) -> Event | None:
    """Trace a JAX function to HLO, and run it on ``arguments`` in the evaluator.

    Returns the event of the first computed value for which ``wanted`` returns true; None if there is none.
    Raises HloError (rule ``debug.jax``) if jax is not installed.
    """
    if find_spec("jax") is None:
        raise HloError("functions of JAX need jax; pip install 'hloom[jax]'", rule="debug.jax")
    expect(function, Callable, "a function")
    jax: object = import_module("jax")
    arrays = [np.asarray(jax.numpy.asarray(leaf)) for leaf in jax.tree.leaves(arguments)]
    lowered = jax.jit(function, keep_unused=True).lower(*arguments)
    module = HloModule.from_proto(lowered.compiler_ir("hlo").as_serialized_hlo_module_proto())
    return first_event(module, arrays, wanted)
