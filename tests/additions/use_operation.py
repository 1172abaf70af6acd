"""Use the operation that `test_additions` has added, in every way that operations are used."""

from pathlib import Path

import numpy as np

import hloom
from hloom.errors import HloError
from hloom.ir.operation import REGISTRY

TEXT = """HloModule m, entry_computation_layout={(f32[3]{0}, f32[70]{0})->f32[70,3]{1,0}}

ENTRY %main (x: f32[3], y: f32[70]) -> f32[70,3] {
  %x = f32[3]{0} parameter(0)
  %y = f32[70]{0} parameter(1)
  ROOT %z = f32[70,3]{1,0} outer-sum(%x, %y), transposed=true
}
"""
x, y = np.array([1, 2, 3], np.float32), np.arange(70, dtype=np.float32)
module = hloom.HloModule.from_text(TEXT)
module.verify()
assert module.to_text().strip() == TEXT.strip()
assert hloom.HloModule.from_proto(module.to_proto()).to_text() == module.to_text()
for text, wanted in (
    (TEXT, np.add.outer(y, x)),
    (TEXT.replace(", transposed=true", "").replace("70,3", "3,70"), np.add.outer(x, y)),
):
    for backend in ("evaluator", "cpu"):
        made = hloom.compile(hloom.HloModule.from_text(text), backend=backend)(x, y)
        assert made.tolist() == wanted.tolist()  # sums of small integers are exact
builder = hloom.XlaBuilder("built")
operands = [hloom.ops.Parameter(builder, n, hloom.Shape.parse("f32[5]"), f"p{n}") for n in range(2)]
assert "outer-sum(%p0, %p1)" in builder.build(hloom.ops.OuterSum(*operands)).to_text()
try:
    hloom.HloModule.from_text(
        TEXT.replace("%x = f32[3]{0}", "%x = f32[]").replace("x: f32[3]", "x: f32[]")
    ).verify()
except HloError as error:
    assert error.rule == "outer-sum.vectors", error
else:
    raise AssertionError("a scalar is not refused")
assert "outer-sum" in REGISTRY
print("used", Path(hloom.__file__).parent)
