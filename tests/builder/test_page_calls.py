"""Every function of the operation-semantics page called in each way that the page writes it.

An entry holds the arguments in the order of the page's signature; those after the bar stand in the page's
table of arguments only. Each is used by position, by keyword, and, where the page writes `operands...`, one
by one.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from hloom import XlaBuilder, XlaOp
from hloom.proto.schema import xla_data_pb2 as xla
from tests.builder.building import ADD, GE, LT, built, ops, scalar

BAR = "|"
TWO = scalar(lambda a, b, c, d: ops.Tuple([a + c, b + d]), "f32", "f32", "f32", "f32")
DOUBLE = scalar(lambda x: x * 2, "f32")
TIMES = scalar(lambda x, y, z: x * y + z, "f32", "f32", "f32")


class Values:
    """Parameters of a program, made as they are asked for: `v["f32[4]"]` twice gives two of them."""

    def __init__(self) -> None:
        self.builder = XlaBuilder("f")
        self.count = 0

    def __getitem__(self, shape: str) -> XlaOp:
        self.count += 1
        return ops.Parameter(self.builder, self.count - 1, shape, f"p{self.count - 1}")


Arguments = Callable[[Values], list[tuple[str, Any]]]


def _norm(*names: str) -> Arguments:
    def arguments(v: Values) -> list[tuple[str, Any]]:
        wide = {"operand", "grad_output"}
        values = [(n, v["f32[2,3,4]" if n in wide else "f32[4]"]) for n in names]
        return [*values, ("epsilon", 0.5), ("feature_index", 2)]

    return arguments


def _conv(*further: tuple[str, Any]) -> Arguments:
    return lambda v: [
        ("lhs", v["f32[2,4,6,6]"]), ("rhs", v["f32[4,2,3,3]"]), ("window_strides", [1, 2]),
        ("padding", [(1, 1), (0, 2)]), *further, ("feature_group_count", 2), ("batch_group_count", 1),
    ]  # fmt: skip


GROUPS = [[0, 1], [2, 3]]
CALLS: dict[str, Arguments] = {
    "AfterAll": lambda v: [("operands", [ops.CreateToken(v.builder), ops.CreateToken(v.builder)])],
    "AllGather": lambda v: [
        ("operand", v["f32[4]"]), ("all_gather_dim", 0), ("shard_count", 2), ("replica_group_ids", GROUPS),
        ("channel_id", 3),
    ],
    "AllReduce": lambda v: [
        ("operand", v["f32[4]"]), ("computation", ADD), ("replica_group_ids", GROUPS), ("channel_id", 3)
    ],
    "AllToAll": lambda v: [
        ("operand", v["f32[4,16]"]), ("split_dimension", 1), ("concat_dimension", 0), ("split_count", 2),
        ("replica_groups", GROUPS),
    ],
    "BatchNormGrad": _norm("operand", "scale", "mean", "variance", "grad_output"),
    "BatchNormInference": _norm("operand", "scale", "offset", "mean", "variance"),
    "BatchNormTraining": _norm("operand", "scale", "offset"),
    "BitcastConvertType": lambda v: [("operand", v["f32[4]"]), ("new_element_type", "s32")],
    "Broadcast": lambda v: [("operand", v["f32[4]"]), ("broadcast_sizes", [2, 3])],
    "BroadcastInDim": lambda v: [
        ("operand", v["f32[4]"]), ("out_dim_size", [2, 4]), ("broadcast_dimensions", [1])
    ],
    "Call": lambda v: [("computation", ADD), ("args", [v["f32[]"], v["f32[]"]])],
    "Cholesky": lambda v: [("a", v["f32[3,3]"]), ("lower", False)],
    "Clamp": lambda v: [("min", v["f32[]"]), ("operand", v["f32[4]"]), ("max", v["f32[]"])],
    "Collapse": lambda v: [("operand", v["f32[4,2,3]"]), ("dimensions", [0, 1])],
    "CollectivePermute": lambda v: [("operand", v["f32[4]"]), ("source_target_pairs", [(0, 1), (1, 0)])],
    "Concatenate": lambda v: [("operands", [v["f32[4]"], v["f32[2]"]]), ("dimension", 0)],
    "Conditional": lambda v: [
        ("pred", v["pred[]"]), ("true_operand", v["f32[]"]), ("true_computation", DOUBLE),
        ("false_operand", v["f32[]"]), ("false_computation", DOUBLE),
    ],
    "Conditional of several branches": lambda v: [
        ("branch_index", v["s32[]"]), ("branch_computations", [DOUBLE, DOUBLE, DOUBLE]),
        ("branch_operands", [v["f32[]"], v["f32[]"], v["f32[]"]]),
    ],
    "Conv": _conv(),
    "ConvWithGeneralPadding": _conv(("lhs_dilation", [2, 1]), ("rhs_dilation", [1, 2])),
    "ConvertElementType": lambda v: [("operand", v["f32[4]"]), ("new_element_type", "s8")],
    "CrossReplicaSum": lambda v: [("operand", v["f32[4]"])],
    "CustomCall": lambda v: [
        ("target_name", "target"), ("args", [v["f32[2]"], v["f32[2,3]"]]), ("shape", "f32[3,3]")
    ],
    "Dot": lambda v: [("lhs", v["f32[2,3]"]), ("rhs", v["f32[3]"])],
    "DotGeneral": lambda v: [
        ("lhs", v["f32[2,3]"]), ("rhs", v["f32[4,3]"]),
        ("dimension_numbers",
         xla.DotDimensionNumbers(lhs_contracting_dimensions=[1], rhs_contracting_dimensions=[1])),
    ],
    "DynamicSlice": lambda v: [
        ("operand", v["f32[4,4]"]), ("start_indices", [v["s32[]"], v["s32[]"]]), ("size_indices", [1, 2])
    ],
    "DynamicUpdateSlice": lambda v: [
        ("operand", v["f32[4,4]"]), ("update", v["f32[1,2]"]), ("start_indices", [v["s32[]"], v["s32[]"]])
    ],
    "Add": lambda v: [("lhs", v["f32[2,3]"]), ("rhs", v["f32[3]"]), ("broadcast_dimensions", [1])],
    "Gt": lambda v: [("lhs", v["f32[2,3]"]), ("rhs", v["f32[3]"]), ("broadcast_dimensions", [1])],
    "LeTotalOrder": lambda v: [("lhs", v["f32[2,3]"]), ("rhs", v["f32[3]"]), ("broadcast_dimensions", [1])],
    "Tanh": lambda v: [("operand", v["f32[4]"])],
    "Fft": lambda v: [("operand", v["f32[4]"]), ("fft_type", "RFFT"), ("fft_length", [4])],
    "Gather": lambda v: [
        ("operand", v["f32[16,11]"]), ("start_indices", v["s32[5,1]"]), ("offset_dims", [1]),
        ("collapsed_slice_dims", [0]), ("slice_sizes", [1, 11]), ("start_index_map", [0]), (BAR, None),
        ("index_vector_dim", 1), ("indices_are_sorted", True),
    ],
    "GetDimensionSize": lambda v: [("operand", v["f32[4]"]), ("dimension", 0)],
    "SetDimensionSize": lambda v: [("operand", v["f32[4]"]), ("size", v["s32[]"]), ("dimension", 0)],
    "Infeed": lambda v: [("builder", v.builder), ("shape", "f32[4]")],
    "Iota": lambda v: [("builder", v.builder), ("shape", "f32[4,8]"), ("iota_dimension", 1)],
    "Map": lambda v: [
        ("operands", [v["f32[4]"], v["f32[4]"]]), ("computation", ADD), (BAR, None), ("dimensions", [0])
    ],
    "Pad": lambda v: [
        ("operand", v["f32[4]"]), ("padding_value", v["f32[]"]),
        ("padding_config", xla.PaddingConfig(dimensions=[{"edge_padding_low": 1, "interior_padding": 2}])),
    ],
    "Recv": lambda v: [("builder", v.builder), ("shape", "f32[4]"), ("channel_handle", {"handle": 1})],
    "Recv by channel_id": lambda v: [("builder", v.builder), ("shape", "f32[4]"), ("channel_id", 1)],
    "RecvDone": lambda v: [("context", ops.Recv(v.builder, "f32[4]", 1))],
    "Reduce": lambda v: [
        ("operands", [v["f32[4,2]"], v["f32[4,2]"]]), ("init_values", [v["f32[]"], v["f32[]"]]),
        ("computation", TWO), ("dimensions", [1]),
    ],
    "ReducePrecision": lambda v: [("operand", v["f32[4]"]), ("mantissa_bits", 10), ("exponent_bits", 5)],
    "ReduceScatter": lambda v: [
        ("operand", v["f32[4]"]), ("computation", ADD), ("scatter_dim", 0), ("shard_count", 2),
        ("replica_group_ids", GROUPS), ("channel_id", 3),
    ],
    "ReduceWindow": lambda v: [
        ("operands", [v["f32[4,6]"], v["f32[4,6]"]]), ("init_values", [v["f32[]"], v["f32[]"]]),
        ("computation", TWO), ("window_dimensions", [2, 3]), ("window_strides", [2, 1]), ("padding", "SAME"),
        (BAR, None), ("base_dilations", [1, 2]), ("window_dilations", [2, 1]),
    ],
    "ReplicaId": lambda v: [("builder", v.builder)],
    "Reshape": lambda v: [("operand", v["f32[4,6]"]), ("dimensions", [1, 0]), ("new_sizes", [8, 3])],
    "Reshape to sizes": lambda v: [("operand", v["f32[4,6]"]), ("new_sizes", [8, 3])],
    "Rev": lambda v: [("operand", v["f32[4,6]"]), ("dimensions", [1])],
    "RngNormal": lambda v: [("mu", v["f32[]"]), ("sigma", v["f32[]"]), ("shape", "f32[4]")],
    "RngUniform": lambda v: [("a", v["f32[]"]), ("b", v["f32[]"]), ("shape", "f32[4]")],
    "RngBitGenerator": lambda v: [
        ("algorithm", "RNG_PHILOX"), ("key", v["u64[2]"]), ("shape", "u32[4]")
    ],
    "Scatter": lambda v: [
        ("operands", [v["f32[4,3]"], v["f32[4,3]"]]), ("scatter_indices", v["s32[2,1]"]),
        ("updates", [v["f32[2,3]"], v["f32[2,3]"]]), ("update_computation", TWO), ("index_vector_dim", 1),
        ("update_window_dims", [1]), ("inserted_window_dims", [0]), ("scatter_dims_to_operand_dims", [0]),
        (BAR, None), ("indices_are_sorted", True), ("unique_indices", True),
    ],
    "Select": lambda v: [("pred", v["pred[4]"]), ("on_true", v["f32[4]"]), ("on_false", v["f32[4]"])],
    "SelectAndScatter": lambda v: [
        ("operand", v["f32[4,6]"]), ("select", GE), ("window_dimensions", [2, 3]), ("window_strides", [2, 3]),
        ("padding", "VALID"), ("source", v["f32[2,2]"]), ("init_value", v["f32[]"]), ("scatter", ADD),
    ],
    "Send": lambda v: [("operand", v["f32[4]"]), ("channel_handle", {"handle": 1})],
    "Send by channel_id": lambda v: [("operand", v["f32[4]"]), ("channel_id", 1)],
    "SendDone": lambda v: [("context", ops.Send(v["f32[4]"], 1))],
    "Slice": lambda v: [
        ("operand", v["f32[9]"]), ("start_indices", [2]), ("limit_indices", [8]), ("strides", [3])
    ],
    "Sort": lambda v: [
        ("operands", [v["f32[4]"]]), ("comparator", LT), ("dimension", 0), ("is_stable", True)
    ],
    "Transpose": lambda v: [("operand", v["f32[4,6]"]), (BAR, None), ("permutation", [1, 0])],
    "TriangularSolve": lambda v: [
        ("a", v["f32[3,3]"]), ("b", v["f32[3,2]"]), ("left_side", True), ("lower", False),
        ("unit_diagonal", True), ("transpose_a", "TRANSPOSE"),
    ],
    "While": lambda v: [
        ("condition", built(lambda x: x < 3, "f32[]")), ("body", DOUBLE), ("init", v["f32[]"])
    ],
}  # fmt: skip
"""The functions of the page that take arguments; one of each kind of elementwise functions."""

OTHER_SPELLINGS = {
    "replica_group_ids": "replica_groups", "scatter_dim": "scatter_dimension", "key": "initial_state",
}  # fmt: skip
"""Names in signatures that the page's tables spell otherwise."""


def text_of(
    name: str, call: Callable[[Callable[..., XlaOp], list[tuple[str, Any]]], XlaOp], *, whole: bool = True
) -> str:
    """The program that a call makes of the arguments, all of them or those of the signature."""
    values = Values()
    arguments = CALLS[name](values)
    names = [argument for argument, _ in arguments]
    if BAR in names:
        bar = names.index(BAR)
        arguments = arguments[:bar] + (arguments[bar + 1 :] if whole else [])
    return values.builder.build(call(getattr(ops, name.split()[0]), arguments)).to_text()


def by_keyword(function: Callable[..., XlaOp], arguments: list[tuple[str, Any]]) -> XlaOp:
    return function(**dict(arguments))


def by_position(function: Callable[..., XlaOp], arguments: list[tuple[str, Any]]) -> XlaOp:
    return function(*(value for _, value in arguments))


@pytest.mark.parametrize("name", sorted(CALLS.keys() - {"Transpose"}))
def test_the_signature_by_position_and_by_keyword(name: str) -> None:
    assert text_of(name, by_position, whole=False) == text_of(name, by_keyword, whole=False)


@pytest.mark.parametrize("name", CALLS)
def test_every_name_of_the_table_is_a_keyword(name: str) -> None:
    def other_spellings(function: Callable[..., XlaOp], arguments: list[tuple[str, Any]]) -> XlaOp:
        return function(**{OTHER_SPELLINGS.get(argument, argument): value for argument, value in arguments})

    assert text_of(name, by_keyword) == text_of(name, other_spellings)


ONE_BY_ONE = ("Concatenate", "Map", "Reduce", "ReduceWindow", "Scatter", "Call", "AfterAll", "CustomCall")


@pytest.mark.parametrize("name", ONE_BY_ONE)
def test_operands_one_by_one(name: str) -> None:
    def one_by_one(function: Callable[..., XlaOp], arguments: list[tuple[str, Any]]) -> XlaOp:
        lists = ("operands", "init_values", "updates", "args")
        return function(*(v for key, value in arguments for v in (value if key in lists else [value])))

    assert text_of(name, one_by_one, whole=False) == text_of(name, by_keyword, whole=False)


def test_flags_follow_the_dimension_numbers() -> None:
    gather = {"offset_dims": [1], "collapsed_slice_dims": [0], "start_index_map": [0], "index_vector_dim": 1}
    scatter = {
        "update_window_dims": [1], "inserted_window_dims": [0], "scatter_dims_to_operand_dims": [0],
        "index_vector_dim": 1,
    }  # fmt: skip
    for numbers in (gather, xla.GatherDimensionNumbers(**gather)):
        text = built(
            lambda o, i, n=numbers: ops.Gather(o, i, n, [1, 3], True), "f32[4,3]", "s32[2,1]"
        ).to_text()
        assert "index_vector_dim=1, slice_sizes={1,3}, indices_are_sorted=true" in text
    for numbers in (scatter, xla.ScatterDimensionNumbers(**scatter)):
        text = built(
            lambda o, i, u, n=numbers: ops.Scatter(o, i, u, ADD, n, True, True),
            "f32[4,3]", "s32[2,1]", "f32[2,3]",
        ).to_text()  # fmt: skip
        assert "index_vector_dim=1, indices_are_sorted=true, unique_indices=true" in text
    text = built(
        lambda o, i, u: ops.Scatter(o, i, u, ADD, 1, [1], [0], [0], False, True),
        "f32[4,3]", "s32[2,1]", "f32[2,3]",
    ).to_text()  # fmt: skip
    assert "unique_indices=true" in text
    assert "indices_are_sorted" not in text


def test_map_with_static_operands_behind_the_computation() -> None:
    text = built(lambda x, y, par1: ops.Map(x, y, TIMES, par1), "f32[4]", "f32[4]", "f32[]").to_text()
    assert text == built(
        lambda x, y, par1: ops.Map([x, y], TIMES, static_operands=[par1]), "f32[4]", "f32[4]", "f32[]"
    ).to_text()  # fmt: skip
    assert "map(%p0, %p1, %broadcast), dimensions={0}, to_apply" in text
    assert "constant(0.5)" in built(lambda x: ops.Map(x, ADD, 0.5, [0]), "f32[4]").to_text()


def test_functions_have_documentation_and_names() -> None:
    for name in CALLS:
        function = getattr(ops, name.split()[0])
        assert function.__doc__
        assert inspect.signature(function).parameters
