"""The meaning of every operation, one home per family; importing this room declares them all."""

from hloom.operations import (
    arithmetic,
    asynchronous,
    collectives,
    comparison,
    control_flow,
    conversion,
    custom_call,
    dynamic_slicing,
    exchanges,
    gather_scatter,
    movement,
    sorting,
    structure,
    transcendental,
    transfer,
    unary,
)

__all__ = [
    "arithmetic",
    "asynchronous",
    "collectives",
    "comparison",
    "control_flow",
    "conversion",
    "custom_call",
    "dynamic_slicing",
    "exchanges",
    "gather_scatter",
    "movement",
    "sorting",
    "structure",
    "transcendental",
    "transfer",
    "unary",
]
