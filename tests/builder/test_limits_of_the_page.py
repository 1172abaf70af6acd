"""Programs that the operation-semantics page rules out are refused as they are built."""

from __future__ import annotations

from typing import Any

import pytest

from hloom import HloError, Shape
from tests.builder.building import ADD, built, ops, scalar


def rule_of(function: Any, *shapes: str) -> str:
    with pytest.raises(HloError) as caught:
        built(function, *shapes)
    return caught.value.rule


def shape_of(function: Any, *shapes: str) -> str:
    return built(function, *shapes).entry.root.shape.to_string(layout=False)


# -- sizes


@pytest.mark.parametrize("size", [-1, -2, -(1 << 63)])
@pytest.mark.parametrize(
    "function",
    [
        lambda x, n: ops.Reshape(x, [n, 2]),
        lambda x, n: ops.Reshape(x, [0], [n]),
        lambda x, n: ops.Broadcast(x, [n]),
        lambda x, n: ops.BroadcastInDim(x, [n, 4], [1]),
        lambda x, n: ops.BroadcastInDim(x, [n], [0]),
        lambda x, n: ops.DynamicReshape(x, [4], [n], [True]),
    ],
)
def test_negative_sizes(function: Any, size: int) -> None:
    assert rule_of(lambda x: function(x, size), "f32[4]") == "builder.sizes"


@pytest.mark.parametrize(
    ("function", "rule"),
    [
        (lambda x: ops.DynamicSlice(x, [0], [-1]), "dynamic-slice."),
        (lambda x: ops.Gather(x, [0], [0], [], [-1], [0], 0), "gather."),
        (lambda x: ops.ReduceWindow(x, 0, ADD, [-1], [1], "VALID"), "reduce-window."),
        (lambda x: ops.ReduceWindow(x, 0, ADD, [0], [1], "VALID"), "reduce-window."),
        (lambda x: ops.Slice(x, [-1], [2], [1]), "slice."),
        (lambda x: ops.Slice(x, [3], [2], [1]), "slice."),
        (lambda x: ops.Slice(x, [0], [5], [1]), "slice."),
        (lambda x: ops.Slice(x, [0], [4], [0]), "slice."),
    ],
)
def test_sizes_of_parts(function: Any, rule: str) -> None:
    assert rule_of(function, "f32[4]").startswith(rule)


def test_parts_of_size_0_are_taken_as_by_xla() -> None:
    assert shape_of(lambda x: ops.DynamicSlice(x, [1, 1], [0, 3]), "f32[8,3]") == "f32[0,3]"
    assert shape_of(lambda x, u: ops.DynamicUpdateSlice(x, u, [1, 1]), "f32[8,3]", "f32[0,3]") == "f32[8,3]"


def test_unbounded_shapes_stay_unbounded() -> None:
    assert shape_of(lambda x: x + 1, "f32[?,3]") == "f32[?,3]"
    assert shape_of(lambda x: x[:, 0], "f32[4,3]") == "f32[4]"


@pytest.mark.parametrize("dimensions", [[3], [-1], [0, 1, 2, 3], [2, 3]])
def test_collapse_of_a_dimension_that_is_not_there(dimensions: list[int]) -> None:
    rule = rule_of(lambda x: ops.Collapse(x, dimensions), "f32[4,2,3]")
    assert rule == "collapse.dimensions-in-range"


@pytest.mark.parametrize(
    "function",
    [
        lambda x: ops.GetDimensionSize(x, -1),
        lambda x: ops.GetDimensionSize(x, 2),
        lambda x: ops.SetDimensionSize(x, 1, -1),
        lambda x: ops.Concatenate(x, x, -1),
        lambda x: ops.Concatenate(x, x, 2),
        lambda x: ops.AllToAll(x, -1, 0, 4),
        lambda x: ops.AllToAll(x, 0, -1, 4),
        lambda x: ops.AllToAll(x, 2, 0, 4),
        lambda x: ops.AllGather(x, 2, 2),
    ],
)
def test_dimensions_are_numbers_from_0_to_the_rank(function: Any) -> None:
    assert "." in rule_of(function, "f32[4,4]")


# -- element types that differ


@pytest.mark.parametrize(
    ("types", "result"),
    [
        (("f32", "f32", "f32"), "f32"), (("f32", "f16", "f32"), "f16"), (("f16", "f32", "bf16"), "f32"),
        (("f32", "s32", "f32"), ""), (("s32", "s64", "s32"), ""),
    ],
)  # fmt: skip
def test_clamp_of_mixed_types_has_the_type_of_the_operand(types: tuple[str, ...], result: str) -> None:
    shapes = [f"{t}[4]" for t in types]
    if result:
        assert shape_of(ops.Clamp, *shapes) == f"{result}[4]"
    else:
        assert rule_of(ops.Clamp, *shapes) == "clamp.same-element-type"


@pytest.mark.parametrize(
    ("on_true", "on_false", "result"),
    [("f32", "f16", "f32"), ("bf16", "f16", "bf16"), ("f32", "s32", ""), ("s64", "s32", "")],
)
def test_select_of_mixed_types(on_true: str, on_false: str, result: str) -> None:
    shapes = ["pred[4]", f"{on_true}[4]", f"{on_false}[4]"]
    if result:
        assert shape_of(ops.Select, *shapes) == f"{result}[4]"
    else:
        assert rule_of(ops.Select, *shapes) == "select.same-element-type"
    assert rule_of(ops.Select, "s32[4]", "f32[4]", "f32[4]").startswith("select.")


@pytest.mark.parametrize(
    ("lhs", "rhs", "result"),
    [
        ("f32", "f16", "f32"), ("f32", "s32", "f32"), ("s32", "s64", "s64"), ("bf16", "f16", "bf16"),
        ("s8", "u8", "s8"), ("f8e5m2", "f8e4m3fn", "f8e5m2"), ("c64", "f32", "c64"),
    ],
)  # fmt: skip
def test_dot_of_mixed_types(lhs: str, rhs: str, result: str) -> None:
    assert shape_of(ops.Dot, f"{lhs}[4]", f"{rhs}[4]") == f"{result}[]"


# -- devices


def test_groups_have_as_many_devices_as_the_counts_say() -> None:
    for function in (
        lambda x: ops.AllToAll(x, 1, 0, 2, [[0, 1, 2, 3]]),
        lambda x: ops.AllToAll(x, 1, 0, 0),
        lambda x: ops.AllToAll(x, 1, 0, -4),
        lambda x: ops.AllGather(x, 0, 2, [[0, 1, 2, 3]]),
        lambda x: ops.AllGather(x, 0),
        lambda x: ops.AllGather(x, 0, None, [[0, 1]], 1, False),
        lambda x: ops.ReduceScatter(x, ADD, 0, 4, [[0, 1], [2, 3]]),
        lambda x: ops.ReduceScatter(x, ADD, 0),
    ):
        assert rule_of(function, "f32[4,16]") == "collective.shard-count"
    assert rule_of(lambda x: ops.AllToAll(x, 1, 0, 3), "f32[4,16]") == "collective.shards-divide"
    assert (
        rule_of(lambda x: ops.AllToAll(ops.Tuple([x, x]), 0, 0, 2), "f32[4]") == "all-to-all.operand-arrays"
    )


def test_the_number_of_devices_follows_from_the_groups() -> None:
    groups = [[0, 1, 2], [3, 4, 5]]
    assert shape_of(lambda x: ops.AllGather(x, 1, replica_groups=groups), "f32[4,6]") == "f32[4,18]"
    assert shape_of(lambda x: ops.ReduceScatter(x, ADD, 1, replica_groups=groups), "f32[4,6]") == "f32[4,2]"
    # With a channel but without global ids the replicas of a group meet in every partition.
    assert shape_of(lambda x: ops.AllGather(x, 0, 4, [[0, 1]], 1, False), "f32[4]") == "f32[16]"


def test_all_to_all_writes_out_the_group_of_all() -> None:
    text = built(lambda x: ops.AllToAll(x, 0, 1, 4), "f32[4,16]").to_text()
    assert "replica_groups={{0,1,2,3}}" in text


def test_collectives_of_tuples() -> None:
    for count in (1, 2):
        shape = shape_of(lambda x, n=count: ops.ReduceScatter(ops.Tuple([x] * n), ADD, 0, 2), "f32[4]")
        assert shape == "(" + ", ".join(["f32[2]"] * count) + ")"
        shape = shape_of(lambda x, n=count: ops.AllGather(ops.Tuple([x] * n), 0, 2), "f32[4]")
        assert shape == "(" + ", ".join(["f32[8]"] * count) + ")"


# -- contexts


@pytest.mark.parametrize(
    "function",
    [
        lambda x: ops.GetTupleElement(ops.Recv(x.builder, "f32[2]", 1), 0),
        lambda x: ops.GetTupleElement(ops.Send(x, 1), 0),
        lambda x: ops.Tuple([ops.Send(x, 1)]),
        lambda x: ops.SendDone(ops.Recv(x.builder, "f32[2]", 1)),
        lambda x: ops.RecvDone(ops.Send(x, 1)),
        lambda x: ops.RecvDone(ops.Tuple([x, x])),
        lambda x: ops.SendDone(ops.Parameter(x.builder, 1, "(f32[2], u32[], token[])")),
        lambda x: ops.OptimizationBarrier(ops.Send(x, 1)),
    ],
)
def test_contexts_are_for_the_done_operation_only(function: Any) -> None:
    assert rule_of(function, "f32[2]") == "builder.context"


# -- map


def test_map_of_scalars_and_static_operands() -> None:
    assert shape_of(lambda x, s: ops.Map([s, x], ADD), "f32[4,3]", "f32[]") == "f32[4,3]"
    assert rule_of(lambda x: ops.Map(x, ADD, static_operands=[x]), "f32[4]") == "map.static-operands"
    assert rule_of(lambda x: ops.Map([], ADD), "f32[4]") == "map.operands"
    twice = scalar(lambda x, n: ops.ConvertElementType(n, "f32") * x, "f32", "s32")
    assert shape_of(lambda x: ops.Map(x, twice, 3), "f32[4]") == "f32[4]"


def test_infeed_takes_no_nested_tuples() -> None:
    """Text may have them, as XLA's verifier allows."""
    assert shape_of(lambda b: ops.Infeed(b, Shape.parse("(f32[], s32[])"))) == "(f32[], s32[])"
    assert rule_of(lambda b: ops.Infeed(b, Shape.parse("(f32[], (s32[]))"))) == "infeed.nested-tuple"


# -- tokens


def test_operands_of_after_all_are_tokens() -> None:
    """Text may have arrays there, as XLA's verifier allows."""
    assert rule_of(ops.AfterAll, "f32[4]") == "after-all.operand-tokens"
