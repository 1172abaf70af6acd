"""Every operation runs on the cpu backend: as elements, by an emitter, by the host, or expanded by a pass."""

from __future__ import annotations

import pytest

import hloom.operations  # noqa: F401
from hloom.codegen.elements import LEAF_RULES, RULES
from hloom.codegen.elementwise.registry import LOWERINGS
from hloom.cpu import emitters  # noqa: F401
from hloom.cpu.pipeline import CPU_PIPELINE
from hloom.cpu.program import KERNELS
from hloom.cpu.runtime.context import HOST_OPERATIONS
from hloom.ir.operation import REGISTRY
from hloom.tools.pages.op_example import example_of
from tests.native_runs import Native

FRAME = frozenset((
    "after-all", "call", "conditional", "constant", "fusion", "get-tuple-element", "parameter", "tuple",
    "while",
))  # fmt: skip
"""Operations that the program emitter implements."""

EXPANDERS = {
    "batch-norm-grad": "batchnorm_expander",
    "batch-norm-inference": "batchnorm_expander",
    "batch-norm-training": "batchnorm_expander",
    "copy-done": "synchronous-operations",
    "copy-start": "synchronous-operations",
    "rng": "rng-expander",
    "scaled-dot": "scaled-dot-rewriter",
    "shuffle": "shuffle_expander",
}
"""Operations that never reach the emitter, with the pass that removes them."""


def lowering_of(opcode: str) -> str:
    if opcode in EXPANDERS:
        return "expander"
    if opcode in FRAME or REGISTRY[opcode].aliases_operand:
        return "frame"
    if opcode in HOST_OPERATIONS:
        return "host"
    if opcode in KERNELS:
        return "emitter"
    if REGISTRY[opcode].declares_element() or opcode in RULES or opcode in LEAF_RULES:
        return "elements"
    return "elementwise" if REGISTRY[opcode].elementwise and opcode in LOWERINGS else ""


@pytest.mark.parametrize("opcode", sorted(REGISTRY))
def test_every_operation_has_a_lowering(opcode: str) -> None:
    assert lowering_of(opcode)


def test_expanders_are_in_the_pipeline() -> None:
    assert set(EXPANDERS.values()) <= {p.name for p in CPU_PIPELINE.flat()}


def test_only_what_talks_to_others_needs_the_host() -> None:
    alone = {o for o in HOST_OPERATIONS if not hasattr(REGISTRY[o], "begin")}
    assert alone == {
        "all-gather-done", "all-reduce-done", "async-done", "async-start", "bitcast",
        "collective-permute-done", "get-dimension-size", "infeed", "map", "outfeed", "recv", "recv-done",
        "rng-get-and-update-state", "send", "send-done", "set-dimension-size",
    }  # fmt: skip


@pytest.mark.parametrize("opcode", sorted(REGISTRY))
def test_every_example_compiles(opcode: str) -> None:
    example = example_of(opcode)
    assert example is not None
    Native(example.module())
