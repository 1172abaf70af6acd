"""The layout of a result whose shape the text leaves out."""

from __future__ import annotations

import pytest

from hloom.ir.module import HloModule
from tests.reducers import ADD, comparison

SELECT = comparison("GE", name="ge")
BODIES = {
    "clamp": "l = f32[] parameter(0)\n x = f32[2,3]{0,1} parameter(1)\n ROOT r = clamp(l, x, l)",
    "cholesky": "x = f32[3,3]{0,1} parameter(0)\n ROOT r = cholesky(x), lower=true",
    "triangular-solve": (
        "a = f32[2,2] parameter(0)\n b = f32[2,3]{0,1} parameter(1)\n ROOT r = triangular-solve(a, b), "
        "left_side=true, lower=true, unit_diagonal=false, transpose_a=NO_TRANSPOSE"
    ),
    "batch-norm-inference": (
        "x = f32[2,3]{0,1} parameter(0)\n s = f32[3] parameter(1)\n "
        "ROOT r = batch-norm-inference(x, s, s, s, s), epsilon=1, feature_index=1"
    ),
    "batch-norm-training": (
        "x = f32[2,3]{0,1} parameter(0)\n s = f32[3] parameter(1)\n "
        "ROOT r = batch-norm-training(x, s, s), epsilon=1, feature_index=1"
    ),
    "select-and-scatter": (
        "x = f32[4,3]{0,1} parameter(0)\n y = f32[2,3] parameter(1)\n i = f32[] parameter(2)\n "
        "ROOT r = select-and-scatter(x, y, i), window={size=2x1 stride=2x1}, select=ge, scatter=add"
    ),
    "scatter": (
        "x = f32[4,3]{0,1} parameter(0)\n i = s32[2] parameter(1)\n y = f32[2,3] parameter(2)\n "
        "ROOT r = scatter(x, i, y), update_window_dims={1}, inserted_window_dims={0}, "
        "scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add"
    ),
}  # fmt: skip


@pytest.mark.parametrize("opcode", BODIES)
def test_operations_that_keep_the_layout_of_an_operand(opcode: str) -> None:
    module = HloModule.from_text(f"HloModule m\n{ADD}{SELECT}ENTRY e {{\n {BODIES[opcode]}\n}}")
    shape = module.entry.root.shape
    if shape.is_tuple:
        shape = shape.tuple_shapes[0]
    assert shape.layout is not None
    assert shape.layout.minor_to_major == (0, 1)


@pytest.mark.parametrize("opcode", BODIES)
def test_layouts_as_xla_infers_them(opcode: str) -> None:
    _hlo = pytest.importorskip("jaxlib._hlo")

    text = f"HloModule m\n{ADD}{SELECT}ENTRY e {{\n {BODIES[opcode]}\n}}"
    assert HloModule.from_text(text).to_text().strip() == _hlo.hlo_module_from_text(text).to_string().strip()
