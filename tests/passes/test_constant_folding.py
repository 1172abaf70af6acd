"""Constants of every kind are folded, without dimensions too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hloom.passes.simplify.constant_folding import ConstantFolding, closed_value, closed_work
from tests import agreement
from tests.evaluation import parse
from tests.native_runs import compiled
from tests.pass_checks import after
from tests.samples import ARRAY_TYPES, COMPLEX, INTEGERS


def folded(text: str) -> Any:
    """Return the value of the constant to which a program is folded."""
    operation: Any = after(text, ConstantFolding()).entry.root.operation
    return operation.literal.numpy()


RAGGED = """HloModule m
ENTRY e {
  a = f32[3,2] constant({{1, 2}, {3, 4}, {5, 6}})
  b = f32[2,2,1] constant({{{1}, {2}}, {{10}, {20}}})
  sizes = s32[2] constant({1, 2})
  ROOT y = f32[3,1] ragged-dot(a, b, sizes), lhs_contracting_dims={1}, rhs_contracting_dims={1},
    lhs_ragged_dims={0}, rhs_group_dims={0}
}"""
SCALED = """HloModule m
ENTRY e {
  a = f32[2,2] constant({{1, 2}, {3, 4}})
  as = f32[2,1] constant({{1}, {10}})
  b = f32[2,2] constant({{1, 0}, {2, 1}})
  bs = f32[1,2] constant({{2, 3}})
  ROOT y = f32[2,2] scaled-dot(a, as, b, bs), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}"""


@pytest.mark.parametrize("text", [RAGGED, SCALED], ids=["ragged", "scaled"])
def test_products_of_more_than_two_operands(text: str) -> None:
    module = after(text, ConstantFolding())
    assert module.entry.root.opcode == "constant"
    agreement.computed(compiled(text)(), parse(text), [])


@pytest.mark.parametrize("kind", ARRAY_TYPES)
@pytest.mark.parametrize(
    "expression", ["reverse(x), dimensions={}", "slice(x), slice={}", "copy(x)", "convert(x)"]
)
def test_scalars_of_every_type(kind: str, expression: str) -> None:
    number = {"pred": "true", "s1": "-1"}.get(kind, "(1, 0)" if kind in COMPLEX else "1")
    text = f"x = {kind}[] constant({number})\nROOT y = {kind}[] {expression}"
    agreement.same(compiled(text)(), folded(text))


@pytest.mark.parametrize("kind", INTEGERS)
@pytest.mark.parametrize("opcode", ["add", "subtract", "multiply", "and", "or", "xor"])
def test_arithmetic_of_integer_scalars(kind: str, opcode: str) -> None:
    one = -1 if kind == "s1" else 1
    text = f"x = {kind}[] constant({one})\ny = {kind}[] constant(0)\nROOT z = {kind}[] {opcode}(x, y)"
    value = folded(text)
    wanted = {"add": 1, "subtract": 1, "multiply": 0, "and": 0, "or": 1, "xor": 1}[opcode]
    assert value.shape == ()
    assert int(value) == wanted * one
    agreement.same(compiled(text)(), value)


@pytest.mark.parametrize(
    ("source", "target"), [("f64", "pred"), ("pred", "u2"), ("f8e4m3", "s4"), ("s32", "f4e2m1fn")]
)
def test_conversions_of_scalars(source: str, target: str) -> None:
    number = "true" if source == "pred" else "1"
    text = f"x = {source}[] constant({number})\nROOT y = {target}[] convert(x)"
    value = folded(text)
    assert value.shape == ()
    assert float(value) == 1
    assert np.asarray(compiled(text)()).dtype == value.dtype


def test_values_that_depend_on_constants_alone_are_known_if_they_are_little_work() -> None:
    def value(size: int, what: str) -> Any:
        text = f"""
            p = f32[{size},{size}] parameter(0)
            i = f32[{size},{size}] iota(), iota_dimension=0
            d = f32[{size},{size}] dot(i, {what}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
            ROOT s = f32[{size},{size}] add(d, i)"""
        entry = parse(text).entry
        return closed_value(entry.root) if entry.root in closed_work(entry) else None

    numbers = np.arange(9, dtype=np.float32)[:, None] * np.ones(9, np.float32)
    agreement.same(value(9, "i"), numbers @ numbers + numbers)
    assert value(9, "p") is None
    assert value(4096, "i") is None
