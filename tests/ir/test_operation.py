"""Refusals of the base class of operations."""

from __future__ import annotations

from typing import Any

import pytest

import hloom.operations  # noqa: F401  (declares the operations)
from hloom.errors import EvaluationError, HloError, ShapeError
from hloom.ir.cursor import Cursor
from hloom.ir.operation import REGISTRY, Operation, operation
from hloom.operations.collectives import Collective

STATED = sorted(opcode for opcode, cls in REGISTRY.items() if cls.infer is Operation.infer)


def bare(cls: type[Operation]) -> Any:
    """Return an operation without attributes."""
    return object.__new__(cls)


def test_the_same_operations_need_a_stated_shape_and_infer_none() -> None:
    """Others that need one, such as all-gather without groups, infer it from some attributes only."""
    assert set(STATED) <= {opcode for opcode, cls in REGISTRY.items() if not cls.infers}


@pytest.mark.parametrize("opcode", STATED)
def test_shapes_that_must_be_stated_are_not_inferred(opcode: str) -> None:
    with pytest.raises(ShapeError) as caught:
        bare(REGISTRY[opcode]).infer()
    assert caught.value.rule == f"{opcode}.shape-stated"


def test_an_operation_without_an_evaluation_has_no_value() -> None:
    with pytest.raises(HloError) as caught:
        Operation.evaluate(bare(REGISTRY["add"]), None)  # type: ignore[arg-type]
    assert caught.value.rule == "evaluate.no-value"
    with pytest.raises(EvaluationError) as collective:
        Collective.combine(bare(REGISTRY["all-reduce"]), None, [], 0)  # type: ignore[arg-type]
    assert collective.value.rule == "evaluate.no-value"


def test_an_opcode_is_declared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(REGISTRY, "add", REGISTRY["add"])  # and restored
    with pytest.raises(TypeError, match="opcode 'add' is declared twice"):
        operation("add", "lhs rhs")(type("Sum", (Operation,), {}))
    assert REGISTRY["add"].__name__ == "Add"


def test_a_parameter_is_bound_and_never_evaluated() -> None:
    with pytest.raises(EvaluationError) as caught:
        bare(REGISTRY["parameter"]).evaluate(None)
    assert caught.value.rule == "evaluate.argument-missing"


def test_a_literal_does_not_stand_among_the_attributes() -> None:
    (literal,) = (a for a in REGISTRY["constant"].attributes if a.field == "literal")
    with pytest.raises(HloError) as caught:
        literal.codec.parse(Cursor("s32[] 1"))
    assert caught.value.rule == "constant.literal-place"
