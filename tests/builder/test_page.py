"""Every function of the operation-semantics page is in `hloom.ops`, under its name and with its arguments."""

from __future__ import annotations

import inspect

import pytest

from hloom import ops

PAGE = {
    "AfterAll": "operands",
    "AllGather": "operand all_gather_dim shard_count replica_group_ids channel_id",
    "AllReduce": "operand computation replica_group_ids channel_id",
    "AllToAll": "operand split_dimension concat_dimension split_count replica_groups",
    "BatchNormGrad": "operand scale mean variance grad_output epsilon feature_index",
    "BatchNormInference": "operand scale offset mean variance epsilon feature_index",
    "BatchNormTraining": "operand scale offset epsilon feature_index",
    "BitcastConvertType": "operand new_element_type",
    "Broadcast": "operand broadcast_sizes",
    "BroadcastInDim": "operand out_dim_size broadcast_dimensions",
    "Call": "computation args",
    "Cholesky": "a lower",
    "Clamp": "min operand max",
    "Collapse": "operand dimensions",
    "CollectivePermute": "operand source_target_pairs",
    "Concatenate": "operands dimension",
    "Conv": "lhs rhs window_strides padding feature_group_count batch_group_count",
    "ConvWithGeneralPadding": "lhs rhs window_strides padding lhs_dilation rhs_dilation feature_group_count "
    "batch_group_count",
    "ConvertElementType": "operand new_element_type",
    "CrossReplicaSum": "operand replica_groups",
    "CustomCall": "target_name args shape",
    "Dot": "lhs rhs",
    "DotGeneral": "lhs rhs dimension_numbers",
    "DynamicSlice": "operand start_indices size_indices",
    "DynamicUpdateSlice": "operand update start_indices",
    "Fft": "operand fft_type fft_length",
    "Gather": "operand start_indices offset_dims collapsed_slice_dims slice_sizes start_index_map",
    "GetDimensionSize": "operand dimension",
    "SetDimensionSize": "operand size dimension",
    "GetTupleElement": "tuple_data index",
    "Infeed": "shape",
    "Iota": "shape iota_dimension",
    "Map": "operands computation dimensions",
    "OptimizationBarrier": "operand",
    "Outfeed": "operand shape_with_layout outfeed_config",
    "Pad": "operand padding_value padding_config",
    "PartitionId": "",
    "Recv": "shape channel_handle",
    "RecvDone": "context",
    "Reduce": "operands init_values computation dimensions",
    "ReducePrecision": "operand mantissa_bits exponent_bits",
    "ReduceScatter": "operand computation scatter_dim shard_count replica_group_ids channel_id",
    "ReduceWindow": "operands init_values computation window_dimensions window_strides padding",
    "ReplicaId": "",
    "Reshape": "operand dimensions new_sizes",
    "Rev": "operand dimensions",
    "RngBitGenerator": "algorithm key shape",
    "RngNormal": "mu sigma shape",
    "RngUniform": "a b shape",
    "Scatter": "operands scatter_indices updates update_computation index_vector_dim update_window_dims "
    "inserted_window_dims scatter_dims_to_operand_dims",
    "Select": "pred on_true on_false",
    "SelectAndScatter": "operand select window_dimensions window_strides padding source init_value scatter",
    "Send": "operand channel_handle",
    "SendDone": "context",
    "Slice": "operand start_indices limit_indices strides",
    "Sort": "operands comparator dimension is_stable",
    "TopK": "operand k largest",
    "Transpose": "operand permutation",
    "TriangularSolve": "a b left_side lower unit_diagonal transpose_a",
    "Tuple": "elements",
    "While": "condition body init",
    "CollectiveBroadcast": "operand replica_groups channel_id",
    "RaggedAllToAll": "input input_offsets send_sizes output output_offsets recv_sizes replica_groups "
    "channel_id",
    "RaggedDot": "lhs rhs group_sizes dimension_numbers",
}  # fmt: skip

SAME_ARGUMENT = {"operand": "operands", "replica_group_ids": "replica_groups", "key": "initial_state"}

BINARY = """
    Add Sub Mul Div Rem Max Min LogicalAnd LogicalOr And Or Xor Pow Atan2 Complex ShiftLeft
    ShiftRightArithmetic ShiftRightLogical Eq Ne Ge Gt Le Lt EqTotalOrder NeTotalOrder GeTotalOrder
    GtTotalOrder LeTotalOrder LtTotalOrder
""".split()  # noqa: SIM905
UNARY = """
    Abs Ceil Cos Exp Floor Imag IsFinite Log LogicalNot Not Logistic PopulationCount Neg Real Rsqrt Sign
    Sqrt Cbrt Tanh Round RoundNearestEven Sin Tan Exp2 Expm1 Log1p Log2 Erf Clz Copy Conj
""".split()  # noqa: SIM905
FURTHER = """
    Conditional CompositeCall CustomCall ConcatInDim ConvGeneral ConvGeneralDilated
    ConvWithGeneralDimensions AllGatherTuple AllReduceTuple AllToAllTuple AsyncStart AsyncUpdate
    AsyncDone AllGatherStart AllGatherDone AllReduceStart AllReduceDone CollectivePermuteStart
    CollectivePermuteDone CollectiveReduce CopyStart CopyDone CreateToken InfeedWithToken
    OutfeedWithToken SendWithToken RecvWithToken SendToHost RecvFromHost ReduceAll Scan ScaledDot
    DynamicReshape RemoveDynamicDimension
    PadInDim SliceInDim StochasticConvertType Compare Mulhi AddDependency Parameter ConstantR0
    ConstantR1 ConstantR2 ConstantLiteral ConstantFromArray Fusion Bitcast RngGetAndUpdateState
""".split()  # noqa: SIM905


@pytest.mark.parametrize(("name", "arguments"), PAGE.items())
def test_function_has_the_arguments_of_the_page_in_their_order(name: str, arguments: str) -> None:
    signature = inspect.signature(getattr(ops, name))
    have = [p for p in signature.parameters if p != "builder"]
    want = arguments.split()
    assert have[: len(want)] == [
        a if a == h else SAME_ARGUMENT.get(a, a) for a, h in zip(want, have, strict=False)
    ]


@pytest.mark.parametrize("name", [*BINARY, *UNARY, *FURTHER])
def test_function_exists_and_says_what_it_does(name: str) -> None:
    assert getattr(ops, name).__doc__
    assert name in ops.__all__


@pytest.mark.parametrize("name", BINARY)
def test_binary_functions_take_broadcast_dimensions(name: str) -> None:
    assert list(inspect.signature(getattr(ops, name)).parameters) == ["lhs", "rhs", "broadcast_dimensions"]
