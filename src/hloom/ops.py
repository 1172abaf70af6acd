"""The functions of the operation-semantics page: ``hloom.ops.Clamp(lo, x, hi)`` and all others.

Every function appends to the program of its operands and returns the new value; functions without operands
take the builder first. Names, arguments and their order are the page's; XlaBuilder's further functions
are included. A number, list or array in place of a value becomes a constant.

::

    b = hloom.XlaBuilder("f")
    x = hloom.ops.Parameter(b, 0, hloom.Shape.parse("f32[4]"), "x")
    computation = b.build(x * 2 + hloom.ops.Sin(x))
"""

from collections.abc import Callable

from hloom.builder import (
    collectives,
    contraction,
    control_flow,
    data_movement,
    elementwise,
    indexing,
    reduction,
)
from hloom.builder.builder import XlaOp
from hloom.builder.collectives import *
from hloom.builder.contraction import *
from hloom.builder.control_flow import *
from hloom.builder.data_movement import *
from hloom.builder.derived import derived_function
from hloom.builder.elementwise import *
from hloom.builder.indexing import *
from hloom.builder.reduction import *

__all__: list[str] = []
__all__ += collectives.__all__
__all__ += contraction.__all__
__all__ += control_flow.__all__
__all__ += data_movement.__all__
__all__ += elementwise.__all__
__all__ += indexing.__all__
__all__ += reduction.__all__


def __getattr__(name: str) -> Callable[..., XlaOp]:
    """Derive the function of an operation that was declared without one of its own; see CONTRIBUTING.md."""
    function = derived_function(name)
    if function is None:
        raise AttributeError(f"module 'hloom.ops' has no function {name!r}")
    return function
