"""Precision, algorithm and sparsity of contractions, in text and proto."""

from __future__ import annotations

import pytest

from hloom.ir.contraction import (
    ALGORITHMS,
    PrecisionCodec,
    Sparsity,
    SparsityCodec,
    TensorSparsity,
)
from hloom.ir.cursor import Cursor
from hloom.ir.instruction import HloInstruction
from hloom.proto.schema.hlo_pb2 import HloInstructionProto
from hloom.proto.schema.xla_data_pb2 import PrecisionConfig
from tests.evaluation import parse


def instruction(operation: str) -> HloInstruction:
    operands = "a = f32[4,8] parameter(0)\nb = f32[8,4] parameter(1)"
    return parse(f"{operands}\nROOT r = f32[4,4] {operation}").entry.root


def printed(operation: str) -> str:
    return instruction(operation).parent.module.to_text()  # type: ignore[union-attr]


DOT = "dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
CONVOLUTION = "convolution(a, b), dim_labels=bf_io->bf"


@pytest.mark.parametrize(
    "operation",
    [
        DOT + ", operand_precision={high,highest}",
        DOT + ", algorithm=dot_bf16_bf16_f32_x3",
        DOT + ", operand_precision={highest,highest}, algorithm=dot_f32_f32_f32",
        CONVOLUTION + ", convolution_kind=fprop, operand_precision={high,default}",
        CONVOLUTION + ", sparsity_config={lhs={sparsity=2x4 dimension=1 stride=1}}",
        CONVOLUTION + ", sparsity_config={rhs={sparsity=1x2 dimension=0 stride=0}}",
    ],
)
def test_what_is_not_the_default_is_printed(operation: str) -> None:
    assert operation.split("), ")[1] in printed(operation)


@pytest.mark.parametrize(
    ("written", "plain"),
    [
        (DOT + ", operand_precision={default,default}, algorithm=unset", DOT),
        (CONVOLUTION + ", convolution_kind=unset, feature_group_count=1, sparsity_config={}", CONVOLUTION),
    ],
)
def test_defaults_are_not_printed_and_make_no_difference(written: str, plain: str) -> None:
    assert printed(written) == printed(plain)
    assert instruction(written).operation == instruction(plain).operation


def test_algorithms_are_numbered_as_in_the_proto() -> None:
    for word, number in ALGORITHMS.items():
        assert PrecisionConfig.Algorithm.Value("ALG_" + word.upper()) == number


@pytest.mark.parametrize("precisions", [("high", "default"), ("default", "default"), ("highest",)])
def test_precisions_through_a_proto(precisions: tuple[str, ...]) -> None:
    codec, message = PrecisionCodec(2), HloInstructionProto()
    codec.write(message.precision_config, "operand_precision", precisions)
    assert codec.read(message.precision_config, "operand_precision") == precisions


def test_no_precisions_are_the_default() -> None:
    message = HloInstructionProto()
    assert PrecisionCodec(2).read(message.precision_config, "operand_precision") == ("default", "default")


@pytest.mark.parametrize(
    "sparsity",
    [
        Sparsity(),
        Sparsity(lhs=TensorSparsity(2, 4, 1, 1)),
        Sparsity(TensorSparsity(1, 2), TensorSparsity(3, 8)),
    ],
)
def test_sparsity_through_text_and_proto(sparsity: Sparsity) -> None:
    codec, message = SparsityCodec(), HloInstructionProto()
    codec.write(message, "sparsity_config", sparsity)
    assert codec.read(message, "sparsity_config") == sparsity
    assert codec.parse(Cursor(codec.text(sparsity))) == sparsity
