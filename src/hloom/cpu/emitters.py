"""Every emitter and element rule of the cpu backend; importing this module registers them."""

from hloom.cpu import (
    bit_patterns,
    contraction,
    convolution,
    host,
    matrix_product,
    movement,
    random,
    reduction,
    row_fusion,
    scatter,
    select_and_scatter,
    sorting,
    top_k,
    update,
    windows,
)

__all__ = [
    "bit_patterns",
    "contraction",
    "convolution",
    "host",
    "matrix_product",
    "movement",
    "random",
    "reduction",
    "row_fusion",
    "scatter",
    "select_and_scatter",
    "sorting",
    "top_k",
    "update",
    "windows",
]
