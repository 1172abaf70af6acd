"""Every emitter and element rule of the cpu backend; importing this module registers them."""

from hloom.cpu import contraction, matrix_product, movement, reduction, scatter, sorting, update, windows

__all__ = [
    "contraction",
    "matrix_product",
    "movement",
    "reduction",
    "scatter",
    "sorting",
    "update",
    "windows",
]
