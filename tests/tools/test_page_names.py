"""Every name of XLA's page on operation semantics leads to the page of an operation."""

from __future__ import annotations

import pytest

from hloom import ops
from hloom.ir.operation import REGISTRY
from hloom.tools.pages.page_names import builder_function, opcode_of

HEADINGS = {
    "BitcastConvertType": "bitcast-convert",
    "BroadcastInDim": "broadcast",
    "Clz": "count-leading-zeros",
    "Collapse": "reshape",
    "Conv": "convolution",
    "ConvWithGeneralPadding": "convolution",
    "ConvertElementType": "convert",
    "CrossReplicaSum": "all-reduce",
    "DotGeneral": "dot",
    "Eq": "compare",
    "Exp": "exponential",
    "LogicalAnd": "and",
    "Max": "maximum",
    "Mul": "multiply",
    "OptimizationBarrier": "opt-barrier",
    "Rev": "reverse",
    "RngNormal": "rng",
    "RngUniform": "rng",
    "SendToHost": "send",
    "Sub": "subtract",
}


@pytest.mark.parametrize(("name", "opcode"), HEADINGS.items())
def test_functions_of_the_page(name: str, opcode: str) -> None:
    assert opcode_of(name) == opcode
    assert builder_function(name) is getattr(ops, name)


def test_every_function_of_the_builder_has_a_page() -> None:
    assert {name for name in ops.__all__ if opcode_of(name) not in REGISTRY} == set()


@pytest.mark.parametrize("name", ["all-gather", "AllGather", "all_gather", "ALLGATHER"])
def test_opcodes_in_any_spelling(name: str) -> None:
    assert opcode_of(name) == "all-gather"
    assert builder_function(name) is None


def test_other_names() -> None:
    assert opcode_of("gathr") is None
