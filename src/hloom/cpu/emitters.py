"""Register every emitter and element rule of the cpu backend on import."""

from hloom.codegen.rules import (
    bit_patterns,
    contraction,
    movement,
    ragged_dot,
    while_loop,
)
from hloom.codegen.rules import reduction as reduction_elements
from hloom.codegen.rules import windows as window_elements
from hloom.cpu.kernels import collectives, random
from hloom.cpu.kernels.convolution import convolution
from hloom.cpu.kernels.dot import matrix_product
from hloom.cpu.kernels.fourier import fourier
from hloom.cpu.kernels.linear_algebra import cholesky, triangular_solve
from hloom.cpu.kernels.movement import concatenation, scatter, update
from hloom.cpu.kernels.reduction import reduction, row_fusion
from hloom.cpu.kernels.sorting import sorting, top_k
from hloom.cpu.kernels.windows import scan, select_and_scatter, windows
from hloom.cpu.runtime import host

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
    "reduction_elements",
    "row_fusion",
    "scan",
    "scatter",
    "select_and_scatter",
    "sorting",
    "top_k",
    "triangular_solve",
    "update",
    "while_loop",
    "window_elements",
    "windows",
]
