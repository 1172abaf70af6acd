"""The passes of the cpu backend, in order."""

from __future__ import annotations

from typing import Final, TypeAlias

from hloom.analysis.scalar_computations import applies_expressions
from hloom.hooks import EntryPoint
from hloom.ir.instruction import HloInstruction
from hloom.passes.collectives.collective_simplifier import CollectiveSimplifier
from hloom.passes.expand.async_collective_custom_calls import AsyncCollectiveCustomCalls
from hloom.passes.expand.batchnorm_expander import BatchNormExpander
from hloom.passes.expand.bitcast_expander import BitcastExpander
from hloom.passes.expand.call_inliner import CallInliner
from hloom.passes.expand.composite_functions import CompositeFunctions
from hloom.passes.expand.control_dependency_calls import ControlDependencyCalls
from hloom.passes.expand.fft_decomposer import FftDecomposer
from hloom.passes.expand.flatten_call_graph import FlattenCallGraph
from hloom.passes.expand.library_call_expander import LibraryCallExpander
from hloom.passes.expand.linear_algebra_upcaster import LinearAlgebraUpcaster
from hloom.passes.expand.map_inliner import MapInliner
from hloom.passes.expand.multi_slice_calls import MultiSliceCalls
from hloom.passes.expand.result_caster import ResultCaster
from hloom.passes.expand.rng_expander import RngExpander
from hloom.passes.expand.rotation_calls import RotationCalls
from hloom.passes.expand.scaled_dot_rewriter import ScaledDotRewriter
from hloom.passes.expand.scan_expander import ScanExpander, is_elementwise
from hloom.passes.expand.separable_windows import SeparableWindows
from hloom.passes.expand.sharding_remover import ShardingRemover
from hloom.passes.expand.shuffle_expander import ShuffleExpander
from hloom.passes.expand.single_result_tuples import SingleResultTuples
from hloom.passes.expand.sparse_constant_dots import SparseConstantDots
from hloom.passes.expand.stencil_convolutions import StencilConvolutions
from hloom.passes.expand.stencil_windows import StencilWindows
from hloom.passes.expand.synchronous_operations import SynchronousOperations
from hloom.passes.expand.topk_custom_calls import TopkCustomCalls
from hloom.passes.expand.topk_decomposer import TopkDecomposer
from hloom.passes.expand.triangular_solve_custom_calls import TriangularSolveCustomCalls
from hloom.passes.expand.unscheduler import Unscheduler
from hloom.passes.facts import FLAT
from hloom.passes.fusion.attention_fusion import AttentionFusion
from hloom.passes.fusion.attention_gradient import AttentionGradient
from hloom.passes.fusion.fusion import InstructionFusion
from hloom.passes.fusion.fusion_limiter import FusionLimiter
from hloom.passes.fusion.scatter_fusion import ScatterFusion
from hloom.passes.fusion.stencil_updates import StencilUpdates
from hloom.passes.fusion.tree_reduction_rewriter import TreeReductionRewriter
from hloom.passes.layout.convolution_canonicalization import ConvolutionCanonicalization
from hloom.passes.layout.convolution_layout import ConvolutionLayout
from hloom.passes.layout.dot_decomposer import DotDecomposer
from hloom.passes.layout.product_views import ProductViews
from hloom.passes.layout.split_k import SplitK
from hloom.passes.layout.transpose_motion import TransposeMotion
from hloom.passes.loops.elementwise_loop_fusion import ElementwiseLoopFusion
from hloom.passes.loops.in_place_accumulation import InPlaceAccumulation
from hloom.passes.loops.loop_stack_reuse import LoopStackReuse
from hloom.passes.loops.previous_values import PreviousValueUpdates
from hloom.passes.loops.stack_allocation import StackAllocation
from hloom.passes.loops.while_loop_components import WhileLoopComponents
from hloom.passes.loops.while_loop_dot_code_motion import WhileLoopDotCodeMotion
from hloom.passes.loops.while_loop_dot_layout import WhileLoopDotLayout
from hloom.passes.loops.while_loop_gather_code_motion import WhileLoopGatherCodeMotion
from hloom.passes.loops.while_loop_invariant_code_motion import WhileLoopInvariantCodeMotion
from hloom.passes.loops.while_loop_simplifier import WhileLoopSimplifier
from hloom.passes.loops.while_loop_skewing import WhileLoopSkewing
from hloom.passes.loops.while_loop_trip_count_annotator import WhileLoopTripCountAnnotator
from hloom.passes.loops.while_state_tuples import WhileStateTuples
from hloom.passes.pipeline import Pipeline
from hloom.passes.schedule.memory_scheduler import HloMemoryScheduler
from hloom.passes.schedule.subviews import ArraySubviews
from hloom.passes.simplify.algebraic_simplifier import AlgebraicSimplifier
from hloom.passes.simplify.common_subexpressions import CommonSubexpressionElimination
from hloom.passes.simplify.computation_deduplicator import ComputationDeduplicator
from hloom.passes.simplify.conditional_simplifier import ConditionalSimplifier
from hloom.passes.simplify.constant_folding import ConstantFolding
from hloom.passes.simplify.dead_code import DeadCodeElimination
from hloom.passes.simplify.indexing_simplifiers import GatherSimplifier, ScatterSimplifier, SortSimplifier
from hloom.passes.simplify.integer_range_simplifier import IntegerDivision, IntegerRangeSimplifier
from hloom.passes.simplify.zero_sized_elimination import ZeroSizedHloElimination

# What the kernels of products accept; their modules are imported for the first program with a product.
_PREDICATE: TypeAlias = EntryPoint[[HloInstruction], bool]
has_kernel: Final[_PREDICATE] = EntryPoint("hloom.cpu.kernels.dot.matrix_product:has_kernel")
prefetches: Final[_PREDICATE] = EntryPoint("hloom.cpu.kernels.dot.matrix_product:prefetches")
product_of: Final[EntryPoint[[HloInstruction], object]] = EntryPoint("hloom.cpu.kernels.dot.gemm:product_of")
fuses_epilogue: Final[_PREDICATE] = EntryPoint("hloom.cpu.kernels.convolution.convolution:fuses_epilogue")
has_attention_kernel: Final[_PREDICATE] = EntryPoint(
    "hloom.cpu.kernels.attention.attention_plan:has_attention_kernel"
)
has_gradient_kernel: Final[_PREDICATE] = EntryPoint(
    "hloom.cpu.kernels.attention.gradient_plan:has_gradient_kernel"
)


def is_product(dot: HloInstruction) -> bool:
    """Return whether a matrix-multiplication kernel should compute a dot.

    It should if the dot is not small, and if the layout of its operands and result suits the kernel.
    """
    return product_of(dot) is not None


def can_fuse_epilogue(product: HloInstruction) -> bool:
    """Return whether the kernel of a dot or convolution can apply elementwise operations to its result."""
    return is_product(product) if product.opcode == "dot" else fuses_epilogue(product)


def has_row_kernel(fusion: HloInstruction) -> bool:
    """Return whether the attention kernel can compute a fusion.

    For a fusion with a tuple result: whether the kernel of attention's gradient can.
    """
    return has_gradient_kernel(fusion) if fusion.shape.is_tuple else has_attention_kernel(fusion)


# Canonicalization: express operations by others, so that fewer kinds remain.
EXPANSION: Final = Pipeline(
    [
        BitcastExpander(),
        Unscheduler(),
        ControlDependencyCalls(),
        MultiSliceCalls(),
        RotationCalls(),
        ShuffleExpander(),
        ShardingRemover(),
        ScanExpander(keeps=is_elementwise),
        CompositeFunctions(),
        CallInliner(),
        MapInliner(),
        SingleResultTuples(),
        BatchNormExpander(),
        LibraryCallExpander(),
        AsyncCollectiveCustomCalls(),
        SynchronousOperations(),
        CollectiveSimplifier(),
        TopkCustomCalls(),
        TriangularSolveCustomCalls(),
        TopkDecomposer(),
        RngExpander(),
        LinearAlgebraUpcaster(),
        FftDecomposer(),
        ScaledDotRewriter(),
        ResultCaster(),
        FlattenCallGraph(),
        WhileStateTuples(),
        ZeroSizedHloElimination(),
        ComputationDeduplicator(),
    ],
    title="expansion",
)

# Simplification: fewer instructions.
SIMPLIFICATION: Final = Pipeline(
    [
        CommonSubexpressionElimination(),
        DeadCodeElimination(),
        AlgebraicSimplifier(),
        ConstantFolding(),
        WhileLoopSimplifier(),
        ConditionalSimplifier(),
        IntegerRangeSimplifier(),
        GatherSimplifier(),
        ScatterSimplifier(),
        SortSimplifier(),
    ],
    until_stable=True,
    assumes=frozenset((FLAT,)),
    title="simplification",
)

# Products in the forms that have kernels; loop-invariant code outside of loops.
CANONICALIZATION: Final = Pipeline(
    [
        TransposeMotion(),
        ConvolutionCanonicalization(is_product),
        DotDecomposer(is_product),
        WhileLoopComponents(),
        WhileLoopSkewing(),
        WhileLoopDotCodeMotion(),
        SparseConstantDots(),
        WhileLoopInvariantCodeMotion(),
    ],
    assumes=frozenset((FLAT,)),
    title="canonicalization",
)

CPU_PIPELINE: Final = Pipeline(
    [
        EXPANSION,
        SIMPLIFICATION,
        CANONICALIZATION,
        SIMPLIFICATION,
        LoopStackReuse(),
        InPlaceAccumulation(),
        PreviousValueUpdates(),
        WhileLoopDotLayout(),
        WhileLoopGatherCodeMotion(),
        SplitK(),
        WhileLoopInvariantCodeMotion(),
        IntegerDivision(),
        CommonSubexpressionElimination(),
        AttentionGradient(has_row_kernel),
        WhileLoopTripCountAnnotator(),
        ElementwiseLoopFusion(),
        StackAllocation(),
        StencilConvolutions(),
        SeparableWindows(),
        StencilWindows(),
        ConvolutionLayout(),
        TreeReductionRewriter(),
        StencilUpdates(),
        InstructionFusion(products=can_fuse_epilogue, prefetches=prefetches),
        ProductViews(has_kernel),
        ScatterFusion(applies_expressions),
        FusionLimiter(),
        DeadCodeElimination(),
        AttentionFusion(has_attention_kernel),
        HloMemoryScheduler(),
        ArraySubviews(),
    ],
    title="cpu",
)
