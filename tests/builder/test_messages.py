"""Messages of xla_data.proto, and mappings with their fields, as arguments of the builder's functions."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from hloom import HloError
from hloom.ir.window import PaddingDimension
from hloom.proto.schema import xla_data_pb2 as xla
from tests.builder.building import ADD, built, ops


def same(first: Any, second: Any, *shapes: str) -> None:
    """Assert that two functions make one program."""
    assert built(first, *shapes).to_text() == built(second, *shapes).to_text()


def rule_of(function: Any, *shapes: str) -> str:
    with pytest.raises(HloError) as caught:
        built(function, *shapes)
    return caught.value.rule


EDGES = {"edge_padding_low": 1, "edge_padding_high": -1, "interior_padding": 2}


@pytest.mark.parametrize(
    "config",
    [
        xla.PaddingConfig(dimensions=[EDGES, {"edge_padding_high": 3}]),
        {"dimensions": [EDGES, {"edge_padding_high": 3}]},
        [EDGES, SimpleNamespace(edge_padding_high=3)],
        [PaddingDimension(1, -1, 2), PaddingDimension(0, 3)],
        [xla.PaddingConfig.PaddingConfigDimension(**EDGES), (0, 3)],
        SimpleNamespace(dimensions=[(1, -1, 2), [0, 3, 0]]),
    ],
)
def test_padding_config(config: Any) -> None:
    same(lambda x: ops.Pad(x, 0, config), lambda x: ops.Pad(x, 0, [(1, -1, 2), (0, 3, 0)]), "f32[4,5]")


def test_dot_dimension_numbers() -> None:
    numbers = {
        "lhs_contracting_dims": [2], "rhs_contracting_dims": [1], "lhs_batch_dims": [0], "rhs_batch_dims": [0]
    }  # fmt: skip
    long = {key.replace("_dims", "_dimensions"): value for key, value in numbers.items()}
    for given in (xla.DotDimensionNumbers(**long), long, SimpleNamespace(**long), SimpleNamespace(**numbers)):
        same(
            lambda x, y, given=given: ops.DotGeneral(x, y, given),
            lambda x, y: ops.DotGeneral(x, y, numbers),
            "f32[2,3,4]", "f32[2,4,5]",
        )  # fmt: skip


def test_ragged_dot_dimension_numbers() -> None:
    dot = {"lhs_contracting_dimensions": [1], "rhs_contracting_dimensions": [1]}
    message = xla.RaggedDotDimensionNumbers(
        dot_dimension_numbers=dot, lhs_ragged_dimensions=[0], rhs_group_dimensions=[0]
    )
    flat = {**dot, "lhs_ragged_dims": [0], "rhs_group_dims": [0]}
    same(
        lambda x, y, g: ops.RaggedDot(x, y, g, message),
        lambda x, y, g: ops.RaggedDot(x, y, g, flat),
        "f32[6,4]", "f32[3,4,5]", "s32[3]",
    )  # fmt: skip


def test_convolution_dimension_numbers() -> None:
    fields = {
        "input_batch_dimension": 0, "input_feature_dimension": 2, "input_spatial_dimensions": [1],
        "kernel_input_feature_dimension": 1, "kernel_output_feature_dimension": 2,
        "kernel_spatial_dimensions": [0], "output_batch_dimension": 0, "output_feature_dimension": 2,
        "output_spatial_dimensions": [1],
    }  # fmt: skip
    for given in (xla.ConvolutionDimensionNumbers(**fields), fields):
        same(
            lambda x, k, given=given: ops.ConvGeneral(x, k, [1], "SAME", given),
            lambda x, k: ops.ConvGeneral(x, k, [1], "SAME", "b0f_0io->b0f"),
            "f32[2,8,3]", "f32[3,3,5]",
        )  # fmt: skip


def test_groups_pairs_and_handles() -> None:
    groups = [xla.ReplicaGroup(replica_ids=[0, 2]), xla.ReplicaGroup(replica_ids=[1, 3])]
    same(
        lambda x: ops.AllReduce(x, ADD, groups, SimpleNamespace(handle=7)),
        lambda x: ops.AllReduce(x, ADD, [[0, 2], [1, 3]], 7),
        "f32[4]",
    )
    same(
        lambda x: ops.CollectivePermute(
            x, [xla.SourceTarget(source=0, target=1), {"source": 1, "target": 0}]
        ),
        lambda x: ops.CollectivePermute(x, [(0, 1), (1, 0)]),
        "f32[4]",
    )


def test_fields_that_are_not_there() -> None:
    assert rule_of(lambda x: ops.DotGeneral(x, x, 3), "f32[2]") == "builder.message"
    assert rule_of(lambda x: ops.DotGeneral(x, x, {"lhs": [0]}), "f32[2]") == "builder.attribute"
    assert rule_of(lambda x: ops.Pad(x, 0, [{"low": 1}]), "f32[2]") == "builder.message"
    incomplete = {"input_batch_dimension": 0}
    assert (
        rule_of(lambda x: ops.ConvGeneral(x, x, [1], "SAME", incomplete), "f32[2,2,2]") == "builder.message"
    )
    numbers = xla.DotDimensionNumbers(lhs_contracting_dimensions=[1], rhs_contracting_dimensions=[0])
    assert rule_of(lambda x: ops.DotGeneral(x, x, numbers), "f32[2]").startswith("dot.")
