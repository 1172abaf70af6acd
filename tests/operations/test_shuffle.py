"""shuffle: rotation along dimensions."""

from __future__ import annotations

import numpy as np
import pytest

import hloom
from hloom.errors import HloError
from hloom.ir.module import HloModule
from tests.agreement import equal

X = np.arange(24, dtype=np.int32).reshape(4, 6)


def program(attributes: str) -> HloModule:
    return HloModule.from_text(
        f"ENTRY e {{ x = s32[4,6] parameter(0)\n ROOT r = s32[4,6] shuffle(x), {attributes} }}"
    )


@pytest.mark.parametrize("backend", ["evaluator", "cpu"])
@pytest.mark.parametrize(
    ("dimensions", "shifts"), [((0,), (1,)), ((1,), (-8,)), ((1, 0), (7, 2)), ((0, 1), (4, 0)), ((0,), (0,))]
)
def test_element_i_is_element_i_plus_shift(backend: str, dimensions: tuple, shifts: tuple) -> None:
    lists = [",".join(map(str, numbers)) for numbers in (dimensions, shifts)]
    module = program(f"dimensions={{{lists[0]}}}, mode=rotate, shifts={{{lists[1]}}}")
    module.verify()
    wanted = X
    for dimension, shift in zip(dimensions, shifts, strict=True):
        places = (np.arange(X.shape[dimension]) + shift) % X.shape[dimension]
        wanted = np.take(wanted, places, dimension)
    equal(hloom.compile(module, backend)(X), wanted)
    assert HloModule.from_proto(module.to_proto()).to_text() == module.to_text()


@pytest.mark.parametrize(
    ("attributes", "rule"),
    [
        ("dimensions={}, mode=rotate, shifts={}", "shuffle.shifts"),
        ("dimensions={0,1}, mode=rotate, shifts={1}", "shuffle.shifts"),
        ("dimensions={2}, mode=rotate, shifts={1}", "shuffle.dimension-range"),
        ("dimensions={0,0}, mode=rotate, shifts={1,1}", "shuffle.dimensions-unique"),
        ("dimensions={0}, mode=permute, shifts={1}", "text.syntax"),
        ("dimensions={0}, mode=rotate", "text.attribute-missing"),
    ],
)
def test_rules(attributes: str, rule: str) -> None:
    with pytest.raises(HloError) as caught:
        program(attributes).verify()
    assert caught.value.rule == rule


def test_only_arrays_are_shuffled() -> None:
    attributes = "dimensions={}, mode=rotate, shifts={}"
    text = f"ENTRY e {{ t = token[] after-all()\n ROOT r = token[] shuffle(t), {attributes} }}"
    with pytest.raises(HloError) as caught:
        HloModule.from_text(f"HloModule m\n{text}").verify()
    assert caught.value.rule == "shuffle.operand-array"
