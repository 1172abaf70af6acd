"""The meaning of every operation, one home per family; importing this room declares them all."""

from hloom.operations import (
    arithmetic,
    comparison,
    conversion,
    dynamic_slicing,
    gather_scatter,
    movement,
    sorting,
    structure,
    transcendental,
    unary,
)

__all__ = [
    "arithmetic",
    "comparison",
    "conversion",
    "dynamic_slicing",
    "gather_scatter",
    "movement",
    "sorting",
    "structure",
    "transcendental",
    "unary",
]
