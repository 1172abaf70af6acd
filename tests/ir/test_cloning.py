"""Deep copies of modules, in the same and in other element types."""

from __future__ import annotations

from typing import Any

import numpy as np

from hloom.evaluate.evaluator import Evaluator
from hloom.ir.cloning import clone_with_types
from hloom.ir.module import HloModule
from hloom.operations.structure import Constant
from hloom.shape.element_type import C64, C128, F32, F64, ElementType
from hloom.shape.shape import Shape
from tests import agreement
from tests.arrays import f64, s32
from tests.evaluation import parse
from tests.reducers import with_reducers

PROGRAM = with_reducers("""
HloModule m, entry_computation_layout={(f32[2]{0}, s32[])->(f32[], c64[2]{0}, f32[2]{0})}
ENTRY e {
  x = f32[2]{0} parameter(0)
  n = s32[] parameter(1)
  tenth = f32[] constant(0.1)
  pair = (f32[], s32[]) constant((0.1, 3))
  part = f32[] get-tuple-element(pair), index=0
  sum = f32[] reduce(x, part), dimensions={0}, to_apply=add
  called = f32[2]{0} custom-call(x), custom_call_target="Sharding", operand_layout_constraints={f32[2]{0}}
  both = c64[2]{0} complex(x, called)
  ROOT r = (f32[], c64[2]{0}, f32[2]{0}) tuple(sum, both, called)
}
""")


def doubled(element_type: ElementType) -> ElementType:
    return {F32: F64, C64: C128}.get(element_type, element_type)


def test_every_type_changes_and_nothing_else() -> None:
    """Constants keep their values: 0.1 in f32, not the f64 nearest to its text."""
    module = parse(PROGRAM)
    copy = clone_with_types(module, doubled)
    copy.verify()
    wide = PROGRAM.replace("f32", "f64").replace("c64", "c128").replace("0.1", repr(float(np.float32(0.1))))
    assert copy.to_text() == HloModule.from_text(wide).to_text()
    assert module.to_text() == HloModule.from_text(PROGRAM).to_text()
    (tenth,) = [i.operation for i in copy.entry.instructions if i.name == "tenth"]
    assert isinstance(tenth, Constant)
    agreement.equal(tenth.literal.array, np.float64(np.float32(0.1)))
    x = f64([1, 2])
    found: Any = Evaluator().run(copy.entry, [x, s32(0)])
    agreement.equal(found[0], 3 + np.float64(np.float32(0.1)))


def test_elided_constants_stay_elided() -> None:
    module = parse("ENTRY e { ROOT c = f32[4] constant({...}) }")
    operation = clone_with_types(module, doubled).entry.root.operation
    assert isinstance(operation, Constant) and operation.literal.is_elided
    assert operation.literal.shape == Shape.parse("f64[4]{0}")
