"""The emitters of the cpu backend: element rules, and the kernels of each opcode.

Element rules are imported with this module, kernels with the first program that has one of their opcodes: a
new file in `cpu/kernels/` is named here.
"""

from hloom.codegen import rules
from hloom.cpu.program import HOST, KERNELS
from hloom.cpu.runtime.context import HOST_OPERATIONS, NATIVE_COLLECTIVES
from hloom.ir.registration import import_modules
from hloom.plan.registry import ATTENTION, ATTENTION_GRADIENT, ROW_FUSION

import_modules(rules.__name__, rules.__path__)

KERNELS.imported_from("hloom.cpu.kernels.attention.attention", ATTENTION)
KERNELS.imported_from("hloom.cpu.kernels.attention.gradient", ATTENTION_GRADIENT)
KERNELS.imported_from("hloom.cpu.kernels.collectives", "replica-id", "partition-id", *NATIVE_COLLECTIVES)
KERNELS.imported_from("hloom.cpu.kernels.convolution.convolution", "convolution")
KERNELS.imported_from("hloom.cpu.kernels.custom_calls", "custom-call")
KERNELS.imported_from("hloom.cpu.kernels.dot.matrix_product", "dot")
KERNELS.imported_from("hloom.cpu.kernels.fourier.fourier", "fft")
KERNELS.imported_from("hloom.cpu.kernels.linear_algebra.cholesky", "cholesky")
KERNELS.imported_from("hloom.cpu.kernels.linear_algebra.triangular_solve", "triangular-solve")
KERNELS.imported_from("hloom.cpu.kernels.movement.concatenation", "concatenate")
KERNELS.imported_from("hloom.cpu.kernels.movement.scatter", "scatter")
KERNELS.imported_from("hloom.cpu.kernels.movement.update", "dynamic-update-slice")
KERNELS.imported_from("hloom.cpu.kernels.random", "rng-bit-generator")
KERNELS.imported_from("hloom.cpu.kernels.reduction.reduction", "reduce")
KERNELS.imported_from("hloom.cpu.kernels.reduction.row_fusion", ROW_FUSION)
KERNELS.imported_from("hloom.cpu.kernels.sorting.sorting", "sort")
KERNELS.imported_from("hloom.cpu.kernels.sorting.top_k", "topk")
KERNELS.imported_from("hloom.cpu.kernels.windows.scan", "scan")
KERNELS.imported_from("hloom.cpu.kernels.windows.select_and_scatter", "select-and-scatter")
KERNELS.imported_from("hloom.cpu.kernels.windows.windows", "reduce-window")
KERNELS.imported_from("hloom.cpu.runtime.host", HOST, *HOST_OPERATIONS)
