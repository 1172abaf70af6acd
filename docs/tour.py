"""A tour of hloom, from a shape to a compiled program: ``python docs/tour.py``.

Each section prints its results; read the code beside the output. The tests run this file.
"""

from __future__ import annotations

import numpy as np

import hloom
from hloom import ops

# %% 1. Shapes ----------------------------------------------------------------------------------------------
# A shape has an element type, dimensions, and a layout, which defines the array's order in memory:
# minor_to_major lists the dimensions from the fastest varying one; tiles divide the array into blocks.

shape = hloom.Shape.parse("f32[4,8]{1,0:T(2,4)(2,1)}")
print(shape.element_type, shape.dimensions, shape.layout.minor_to_major, shape.layout.tiles)

# The picture of figure 2 in XLA's page: the linear index of each element.
for y in range(4):
    print(" ".join(f"{hloom.linear_index(shape, (y, x)):3}" for x in range(8)))

# %% 2. Literals --------------------------------------------------------------------------------------------
# A literal has values and a shape. Its bytes are those in the memory of a device.

literal = hloom.Literal(np.arange(32, dtype=np.float32).reshape(4, 8), shape)
print("first tile in memory:", np.frombuffer(literal.to_bytes(), np.float32)[:8])

# %% 3. Operations ------------------------------------------------------------------------------------------
# The meaning of every operation is one class. The registry knows them all by opcode.

from hloom.ir.operation import REGISTRY  # noqa: E402

print(len(REGISTRY), "operations; slice is declared by", REGISTRY["slice"].__module__)
print("its attributes:", [attribute.name for attribute in REGISTRY["slice"].attributes])

# Its shape rule, without any program around it:
slice_ = REGISTRY["reverse"](dimensions=(0,))
print("reverse of f32[3,5] is", slice_.infer(hloom.Shape.parse("f32[3,5]")))

# %% 4. A module --------------------------------------------------------------------------------------------
# A module has computations, a computation has instructions, an instruction applies an operation to operands.

module = hloom.HloModule.from_text("""
HloModule tour

larger { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT m = f32[] maximum(a, b) }

ENTRY main {
  x = f32[2,3] parameter(0)
  lowest = f32[] constant(-inf)
  ROOT best = f32[2] reduce(x, lowest), dimensions={1}, to_apply=larger
}
""")
for instruction in module.entry.instructions:
    users = [user.name for user in instruction.users]
    print(f"{instruction.name:8} {instruction.opcode:10} {instruction.shape!s:14} used by {users}")

# %% 5. Verified, printed -----------------------------------------------------------------------------------
# The verifier runs the rules of each operation. An error has the name of the rule that is broken.

module.verify()
print(module.to_text())
try:
    hloom.HloModule.from_text(
        "HloModule m\nENTRY e {\n  p = f32[4] parameter(0)\n  ROOT r = f32[4] reverse(p), dimensions={1}\n}"
    ).verify()
except hloom.HloError as error:
    print("refused:", error)

# %% 6. Evaluated -------------------------------------------------------------------------------------------
# The evaluator calls `evaluate` of each operation, in order, on whole arrays.

run = hloom.compile(module, backend="evaluator")
print(run(np.float32([[1, 7, 3], [np.nan, 5, 6]])), "- a maximum with NaN is NaN, as specified")

# %% 7. Built -----------------------------------------------------------------------------------------------
# The same reduce, built by functions.

b = hloom.XlaBuilder("larger")
m = ops.Max(
    ops.Parameter(b, 0, hloom.Shape.parse("f32[]"), "a"), ops.Parameter(b, 1, hloom.Shape.parse("f32[]"), "b")
)
larger = b.build(m)
b = hloom.XlaBuilder("built")
x = ops.Parameter(b, 0, hloom.Shape.parse("f32[2,3]"), "x")
built = b.build(ops.Reduce(x, ops.Constant(b, np.float32(-np.inf)), larger, [1]))
print(hloom.compile(built, backend="evaluator")(np.float32([[1, 7, 3], [4, 5, 6]])))

# %% 8. Rewritten -------------------------------------------------------------------------------------------
# An instruction has a list of its users. A rewrite adds the new instruction and replaces the uses of the old.

from hloom.ir.instruction import HloInstruction  # noqa: E402

entry = module.entry
root = entry.root
negated = entry.add(HloInstruction("negated", REGISTRY["negate"](), root.shape, [root]))
entry.root = negated
module.verify()
print(hloom.compile(module, backend="evaluator")(np.float32([[1, 7, 3], [4, 5, 6]])))

# %% 9. Compiled --------------------------------------------------------------------------------------------
# Passes rewrite the module and group instructions into fusions; the module becomes one native function.
# The cpu backend is the default of hloom.compile.

run = hloom.compile(module)
print(run(np.float32([[1, 7, 3], [np.nan, 5, 6]])), "- the same, from native code")
print(run.to_hlo())
print(run.to_llvm().count("\n"), "lines of LLVM,", run.to_asm().count("\n"), "of assembly;", run.memory)
print("Next: docs/architecture.md describes the packages, docs/compiler.md the compiler.")
