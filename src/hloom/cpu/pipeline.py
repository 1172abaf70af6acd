"""The passes of the cpu backend, in order."""

from __future__ import annotations

from typing import Final

from hloom.cpu.gemm import product_of
from hloom.ir.instruction import HloInstruction
from hloom.passes.batchnorm_expander import BatchNormExpander
from hloom.passes.bitcast_expander import BitcastExpander
from hloom.passes.call_inliner import CallInliner
from hloom.passes.common_subexpressions import CommonSubexpressionElimination
from hloom.passes.dead_code import DeadCodeElimination
from hloom.passes.flatten_call_graph import FlattenCallGraph
from hloom.passes.fusion import Fusion
from hloom.passes.linear_algebra_upcaster import LinearAlgebraUpcaster
from hloom.passes.map_inliner import MapInliner
from hloom.passes.pipeline import Pipeline
from hloom.passes.rng_expander import RngExpander
from hloom.passes.synchronous_operations import SynchronousOperations
from hloom.passes.topk_decomposer import TopkDecomposer


def is_product(dot: HloInstruction) -> bool:
    """Whether a dot becomes a matrix product, which can end in elementwise operations."""
    return product_of(dot) is not None


CPU_PIPELINE: Final = Pipeline(
    [
        CallInliner(),
        MapInliner(),
        BatchNormExpander(),
        BitcastExpander(),
        SynchronousOperations(),
        TopkDecomposer(),
        RngExpander(),
        LinearAlgebraUpcaster(),
        FlattenCallGraph(),
        Pipeline([CommonSubexpressionElimination(), DeadCodeElimination()], until_stable=True),
        Fusion(products=is_product),
        DeadCodeElimination(),
    ]
)
