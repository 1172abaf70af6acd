"""Every emitter and element rule of the cpu backend; importing this module registers them."""

from hloom.cpu import collectives, host, random, turns
from hloom.cpu.convolution import convolution
from hloom.cpu.dot import contraction, matrix_product, ragged_dot
from hloom.cpu.linear_algebra import cholesky, fourier, triangular_solve
from hloom.cpu.movement import bit_patterns, concatenation, movement, scatter, update
from hloom.cpu.reduction import reduction, row_fusion
from hloom.cpu.sorting import sorting, top_k
from hloom.cpu.windows import scan, select_and_scatter, windows

__all__ = [
    "bit_patterns",
    "cholesky",
    "collectives",
    "concatenation",
    "contraction",
    "convolution",
    "fourier",
    "host",
    "matrix_product",
    "movement",
    "ragged_dot",
    "random",
    "reduction",
    "row_fusion",
    "scan",
    "scatter",
    "select_and_scatter",
    "sorting",
    "top_k",
    "triangular_solve",
    "turns",
    "update",
    "windows",
]
