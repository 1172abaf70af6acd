"""Use the movement that `test_additions` has added, alone and inside a kernel with other operations."""

from pathlib import Path

import numpy as np

import hloom
from hloom.cpu import emitters  # noqa: F401  (registers emitters)
from hloom.cpu.jit.compilation import optimize
from hloom.cpu.program import emit_program
from hloom.plan.iteration import accesses_of, unmerged_space
from hloom.plan.parts import kernel_parts

TEXT = """HloModule m, entry_computation_layout={(f32[6,40]{1,0})->f32[6,40]{1,0}}

ENTRY %main (x: f32[6,40]) -> f32[6,40] {
  %x = f32[6,40]{1,0} parameter(0)
  %n = f32[6,40]{1,0} negate(%x)
  ROOT %z = f32[6,40]{1,0} rotate(%n), dimensions={1}, amount=7
}
"""
x = np.arange(240, dtype=np.float32).reshape(6, 40)
module = hloom.HloModule.from_text(TEXT)
module.verify()
assert module.to_text().strip() == TEXT.strip()
assert hloom.HloModule.from_proto(module.to_proto()).to_text() == module.to_text()
for backend in ("evaluator", "cpu"):
    made = np.asarray(hloom.compile(module, backend=backend)(x))
    assert made.tobytes() == np.roll(-x, -7, 1).tobytes()
program = emit_program(optimize(module))
assert not program.host_calls and "masked.load" in program.text
root = module.entry.root
parts = kernel_parts(root)
space = unmerged_space(parts.inputs, parts.roots, parts.members)
assert len(accesses_of(parts.inputs, parts.roots, space.indices).linear) == 2
print("used", Path(hloom.__file__).parent)
