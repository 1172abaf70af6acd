"""Tools to find wrong results: compare, bisect, reduce and trace programs.

::

    hloom.debug.check(module, [x, y], backend="cpu", against="evaluator")
    hloom.debug.bisect(module, [x, y])        # the pass and the rewrite that change the result
    hloom.debug.reduce(module, [x, y], hloom.debug.two_backends_differ("cpu"))
    hloom.debug.nan_origin(f, *args)          # the first operation of a JAX function that yields NaN
    hloom.debug.trace(module, [x, y]).first_nan
    hloom.debug.optimized(module, "cse,algsimp,fusion")

Names are imported at their first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from hloom.debug.bisection import bisect as bisect
    from hloom.debug.checking import check as check
    from hloom.debug.conditions import command as command
    from hloom.debug.conditions import fails as fails
    from hloom.debug.conditions import two_backends_differ as two_backends_differ
    from hloom.debug.inputs import random_arguments as random_arguments
    from hloom.debug.jax_functions import infinity_origin as infinity_origin
    from hloom.debug.jax_functions import nan_origin as nan_origin
    from hloom.debug.optimization import optimized as optimized
    from hloom.debug.reduction import reduce as reduce
    from hloom.debug.tolerance import Tolerance as Tolerance
    from hloom.debug.tracing import trace as trace

_HOMES: Final = {
    "Tolerance": "tolerance",
    "bisect": "bisection",
    "check": "checking",
    "command": "conditions",
    "fails": "conditions",
    "infinity_origin": "jax_functions",
    "nan_origin": "jax_functions",
    "optimized": "optimization",
    "random_arguments": "inputs",
    "reduce": "reduction",
    "trace": "tracing",
    "two_backends_differ": "conditions",
}
__all__ = sorted(_HOMES)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'hloom.debug' has no attribute {name!r}")
    return getattr(import_module(f"hloom.debug.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
