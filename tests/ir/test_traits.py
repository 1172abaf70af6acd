"""Traits: every operation states them, and they are true of what it evaluates to."""

from __future__ import annotations

import numpy as np
import pytest

import hloom.operations  # noqa: F401
from hloom.evaluate.evaluator import Evaluator
from hloom.ir.instruction import HloInstruction
from hloom.ir.operation import REGISTRY, Operation
from hloom.ir.traits import ElementCost, Family, Traits
from hloom.shape.element_type import ElementType
from hloom.tools.pages.op_example import example_of
from tests.evaluation import evaluate
from tests.samples import sample

REQUIRED = ("family", "element_cost", "roundoff")
COMMUTATIVE = [opcode for opcode, operation in REGISTRY.items() if operation.commutative]
FLOATS = ("f64", "f32", "bf16", "f16", "f8e5m2", "f8e4m3fn")
TYPES = [t for t in ElementType.all() if t.is_integer or t.is_predicate or t.name in FLOATS]


@pytest.mark.parametrize("opcode", REGISTRY)
def test_each_operation_states_its_family_and_its_cost(opcode: str) -> None:
    for trait in REQUIRED:
        stated = [c for c in REGISTRY[opcode].__mro__ if trait in vars(c) and c not in (Traits, Operation)]
        assert stated, f"{opcode} does not state {trait}"


@pytest.mark.parametrize("opcode", REGISTRY)
def test_families_and_traits_agree(opcode: str) -> None:
    operation = REGISTRY[opcode]
    if operation.elementwise:
        assert operation.family is Family.ELEMENTWISE
        assert operation.element_cost <= ElementCost.TRANSCENDENTAL
    if operation.family in (Family.COLLECTIVE, Family.TRANSFER) and not operation.distinct:
        assert operation.communicates
    if operation.idempotent:
        assert operation.commutative
    if operation.side_effect:
        assert operation.family in (Family.TRANSFER, Family.RANDOM)


@pytest.mark.parametrize("opcode", COMMUTATIVE)
@pytest.mark.parametrize("element_type", TYPES, ids=lambda t: t.name)
def test_neutral_elements_change_no_bit(opcode: str, element_type: ElementType) -> None:
    operation = REGISTRY[opcode]
    neutral = operation().neutral_element(element_type)
    kinds = operation.accepts  # type: ignore[attr-defined]
    if element_type not in kinds:
        pytest.skip(f"{opcode} does not take {element_type.name}")
    assert neutral is not None
    low, high = element_type.limits
    values = [0, 1, low, high] + ([-0.0] if element_type.is_floating else [])
    x = np.stack([np.asarray(v).astype(element_type.numpy_dtype) for v in values])
    e = np.full(x.shape, np.asarray(neutral).astype(element_type.numpy_dtype))
    name, n = element_type.name, len(values)
    text = f"p = {name}[{n}] parameter(0)  q = {name}[{n}] parameter(1)  ROOT r = {name}[{n}] {opcode}(p, q)"
    for a, b in ((x, e), (e, x)):
        assert np.asarray(evaluate(text, a, b)).tobytes() == x.tobytes()


@pytest.mark.parametrize("name", ["f16", "bf16", "f32", "f64"])
@pytest.mark.parametrize(
    "operation",
    [o for o in REGISTRY.values() if o.never_negative_zero and o.elementwise],
    ids=lambda o: o.opcode,
)
def test_no_result_is_negative_zero_where_the_trait_says_so(operation: type[Operation], name: str) -> None:
    text = f"x = {name}[64] parameter(0)\nROOT r = {name}[64] {operation.opcode}(x)"
    result = np.asarray(evaluate(text, sample(name, 64)))
    assert not np.any((result == 0) & np.signbit(result.astype(np.float64)))


@pytest.mark.parametrize("opcode", REGISTRY)
def test_result_elements_come_from_the_stated_operands(opcode: str) -> None:
    """Of the instruction in the operation's example."""
    example = example_of(opcode)
    assert example is not None
    module = example.module()
    found = next(i for i in module.instructions() if i.opcode == opcode)
    sources = found.operation.element_sources(len(found.operands))
    assert all(0 <= n < len(found.operands) for n in sources)
    if not sources or found.parent is not module.entry or module.entry.parameters:
        return

    def elements(i: HloInstruction) -> set[bytes]:
        module.entry.root = i
        array = np.asarray(Evaluator().run(module.entry, []))
        return {element.tobytes() for element in array.ravel()}

    assert elements(found) <= set().union(*(elements(found.operands[n]) for n in sources))
