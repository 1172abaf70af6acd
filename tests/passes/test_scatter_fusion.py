"""scatter-fusion: what only a scatter uses, and what it leaves outside."""

from __future__ import annotations

import numpy as np

from hloom.passes.fusion.scatter_fusion import ScatterFusion
from tests.pass_checks import after, opcodes
from tests.reducers import binary

TEXT = (
    binary("add")
    + """
ENTRY e {
  x = f32[9] parameter(0)
  i = s32[5] parameter(1)
  u = f32[5] parameter(2)
  j = s32[5,1] reshape(i)
  v = f32[5] OPCODE(u)
  s = f32[9] scatter(x, j, v), update_window_dims={}, inserted_window_dims={0},
    scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=f
  ROOT r = (f32[9], RESULT) tuple(s, USED)
}"""
)
ARGUMENTS = [np.zeros(9, np.float32), np.arange(5, dtype=np.int32), np.ones(5, np.float32)]


def fused(opcode: str, result: str = "f32[5]", used: str = "u") -> list[str]:
    """The opcodes that remain in the entry."""
    text = TEXT.replace("OPCODE", opcode).replace("RESULT", result).replace("USED", used)
    module = after(text, ScatterFusion(), arguments=ARGUMENTS)
    assert opcodes(module)["scatter"] == 1
    return [i.opcode for i in module.entry.instructions if i.opcode not in ("parameter", "tuple")]


def test_indices_and_updates_join() -> None:
    assert fused("negate") == ["fusion"]


def test_a_value_that_is_needed_elsewhere_stays() -> None:
    assert sorted(fused("negate", "f32[5]", "v")) == ["fusion", "negate"]


def test_costly_operations_stay() -> None:
    assert sorted(fused("exponential")) == ["exponential", "fusion"]


def test_scatters_without_a_kernel_stay() -> None:
    text = TEXT.replace("OPCODE", "negate").replace("RESULT", "f32[5]").replace("USED", "u")
    module = after(text, ScatterFusion(accepts=lambda scatter: False), arguments=ARGUMENTS)
    assert opcodes(module)["fusion"] == 0


def test_fusions_join_with_what_they_compute() -> None:
    text = """
        g {
          u = f32[5] parameter(0)
          n = f32[5] negate(u)
          ROOT r = f32[5] add(n, u)
        }
        ENTRY e {
          x = f32[9] parameter(0)
          i = s32[5] parameter(1)
          u = f32[5] parameter(2)
          v = f32[5] fusion(u), kind=kLoop, calls=g
          ROOT s = f32[9] scatter(x, i, v), update_window_dims={}, inserted_window_dims={0},
            scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=f
        }"""
    module = after(binary("add") + text, ScatterFusion(), arguments=ARGUMENTS)
    (fusion,) = (i for i in module.entry.instructions if i.opcode == "fusion")
    inside = [i.opcode for i in fusion.called_computations[0].instructions if i.opcode != "parameter"]
    assert sorted(inside) == ["add", "negate", "scatter"]


SPLIT = (
    binary("add")
    + """
ENTRY e {
  x = f32[9,2,4] parameter(0)
  i = s32[5] parameter(1)
  u = f32[SIZES] parameter(2)
  v = f32[5,2,4] reshape(u)
  n = f32[5,2,4] negate(v)
  ROOT s = f32[9,2,4] scatter(x, i, n), update_window_dims={1,2}, inserted_window_dims={0},
    scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=f
}"""
)


def test_reshapes_that_join_indices_are_fused() -> None:
    """Those that would divide an index for each element of a window are arrays of their own."""
    for sizes, left in (((5, 8), ["fusion"]), ((5, 4, 2), ["fusion", "reshape"])):
        arrays = [np.zeros((9, 2, 4), np.float32), ARGUMENTS[1], np.ones(sizes, np.float32)]
        text = SPLIT.replace("SIZES", ",".join(map(str, sizes)))
        module = after(text, ScatterFusion(), arguments=arrays)
        assert sorted(i.opcode for i in module.entry.instructions if i.opcode != "parameter") == left
