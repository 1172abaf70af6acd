"""Use the element type that `test_additions` has added, in every way that element types are used."""

from pathlib import Path

import ml_dtypes
import numpy as np

import hloom
from hloom.shape.element_type import ElementType

LAYOUT = "{(f8new[256]{0}, f8new[256]{0})->(f8new[256]{0}, f32[256]{0}, f8new[3]{0})}"
TEXT = f"""HloModule m, entry_computation_layout={LAYOUT}
"""
TEXT += """
ENTRY %main (x: f8new[256], y: f8new[256]) -> (f8new[256], f32[256], f8new[3]) {
  %x = f8new[256]{0} parameter(0)
  %y = f8new[256]{0} parameter(1)
  %s = f8new[256]{0} add(%x, %y)
  %t = f8new[256]{0} ceil(%x)
  %w = f32[256]{0} convert(%t)
  %c = f8new[3]{0} constant({0.5, -inf, nan(0x1)})
  ROOT %r = (f8new[256]{0}, f32[256]{0}, f8new[3]{0}) tuple(%s, %w, %c)
}
"""
DTYPE = np.dtype(ml_dtypes.float8_e3m4)
kind = ElementType.parse("f8new")
assert kind.number == 40 and ElementType.from_number(40) is kind and ElementType.from_dtype(DTYPE) is kind
module = hloom.HloModule.from_text(TEXT)
module.verify()
assert module.to_text().strip() == TEXT.strip()
assert hloom.HloModule.from_proto(module.to_proto()).to_text() == module.to_text()
x = np.arange(256, dtype=np.uint8).view(DTYPE)
y = x[::-1].copy()
wide = x.astype(np.float32)
with np.errstate(all="ignore"):
    wanted = (
        (wide + y.astype(np.float32)).astype(DTYPE),
        np.ceil(wide).astype(DTYPE).astype(np.float32),
        np.array([0x20, 0xF0, 0x71], np.uint8).view(DTYPE),
    )
for backend in ("evaluator", "cpu"):
    made = hloom.compile(module, backend=backend)(x, y)
    for found, value in zip(made, wanted, strict=True):
        assert found.dtype == value.dtype
        assert found.astype(np.float32).tobytes() == value.astype(np.float32).tobytes()
    assert made[2].tobytes() == wanted[2].tobytes()
print("used", Path(hloom.__file__).parent)
