"""Access analysis: what it says a kernel reads is what the generated code reads."""

from __future__ import annotations

import pytest

from hloom.codegen.elements import Elements, View
from hloom.codegen.llvm import I64, PTR, Module
from hloom.codegen.loops import root_values
from hloom.codegen.target import host
from hloom.cpu import emitters  # noqa: F401  (registers element rules)
from hloom.cpu.pipeline import CPU_PIPELINE
from hloom.ir.affine import Index, Variable
from hloom.ir.instruction import HloInstruction
from hloom.plan.iteration import accesses_of, planned_space, read_where_written, result_shapes, unmerged_space
from hloom.plan.parts import kernel_parts
from tests.evaluation import parse
from tests.reducers import ADD

PROGRAMS = {
    "elementwise": "x = f32[6,8] parameter(0)  y = f32[6,8] parameter(1)  ROOT r = f32[6,8] add(x, y)",
    "broadcast": (
        "x = f32[8] parameter(0)  b = f32[6,8] broadcast(x), dimensions={1}  "
        "ROOT r = f32[6,8] negate(b)"
    ),
    "transpose": "x = f32[8,6] parameter(0)  ROOT r = f32[6,8] transpose(x), dimensions={1,0}",
    "reshape": "x = f32[48] parameter(0)  ROOT r = f32[6,8] reshape(x)",
    "uneven reshape": (
        "x = f32[4,9] parameter(0)  s = f32[4,6] slice(x), slice={[0:4],[1:7]}  "
        "ROOT r = f32[8,3] reshape(s)"
    ),
    "slice": "x = f32[9,8] parameter(0)  ROOT r = f32[4,8] slice(x), slice={[1:9:2],[0:8]}",
    "reverse": "x = f32[6,8] parameter(0)  ROOT r = f32[6,8] reverse(x), dimensions={1}",
    "pad": (
        "x = f32[6,8] parameter(0)  z = f32[] constant(0)  "
        "ROOT r = f32[9,8] pad(x, z), padding=1_2x0_0"
    ),
    "dilated pad": (
        "x = f32[4] parameter(0)  z = f32[] constant(0)  ROOT r = f32[9] pad(x, z), padding=1_1_1"
    ),
    "concatenate": (
        "x = f32[2,8] parameter(0)  y = f32[4,8] parameter(1)  "
        "ROOT r = f32[6,8] concatenate(x, y), dimensions={0}"
    ),
    "iota": (
        "i = f32[6,8] iota(), iota_dimension=1  x = f32[6,8] parameter(0)  "
        "ROOT r = f32[6,8] add(x, i)"
    ),
    "dynamic slice": (
        "x = f32[6,8] parameter(0)  i = s32[] parameter(1)  j = s32[] parameter(2)  "
        "ROOT r = f32[2,8] dynamic-slice(x, i, j), dynamic_slice_sizes={2,8}"
    ),
    "update": (
        "x = f32[6,8] parameter(0)  u = f32[2,8] parameter(1)  i = s32[] parameter(2)  "
        "j = s32[] parameter(3)  ROOT r = f32[6,8] dynamic-update-slice(x, u, i, j)"
    ),
    "gather": (
        "x = f32[6,8] parameter(0)  i = s32[5] parameter(1)  "
        "ROOT r = f32[5,8] gather(x, i), offset_dims={1}, collapsed_slice_dims={0}, "
        "start_index_map={0}, index_vector_dim=1, slice_sizes={1,8}"
    ),
    "bits": "x = s8[6,4] parameter(0)  ROOT r = s32[6] bitcast-convert(x)",
    "reduce": (
        "x = f32[6,4,8] parameter(0)  z = f32[] parameter(1)  "
        "ROOT r = f32[6,8] reduce(x, z), dimensions={1}, to_apply=add"
    ),
    "window": (
        "x = f32[9,8] parameter(0)  z = f32[] parameter(1)  "
        "ROOT r = f32[9,8] reduce-window(x, z), window={size=3x1 pad=1_1x0_0}, to_apply=add"
    ),
    "dot": (
        "x = f32[6,5] parameter(0)  y = f32[5,8] parameter(1)  "
        "ROOT r = f32[6,8] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    ),
    "convolution": (
        "x = f32[1,6,6,2] parameter(0)  k = f32[3,3,2,4] parameter(1)  "
        "ROOT r = f32[1,6,6,4] convolution(x, k), window={size=3x3 pad=1_1x1_1}, "
        "dim_labels=b01f_01io->b01f"
    ),
}  # fmt: skip


def program(text: str) -> HloInstruction:
    entry = "\n  ".join(text.split("  "))
    return parse(f"HloModule m\n{ADD}ENTRY e {{\n  {entry}\n}}").entry.root


def closure(root: HloInstruction) -> tuple[list[HloInstruction], list[HloInstruction]]:
    """The parameters that a result is made of, and what is computed on the way."""
    order = root.parent.post_order()  # type: ignore[union-attr]
    return [i for i in order if i.opcode == "parameter"], [i for i in order if i.opcode != "parameter"]


def emitted(inputs: list[HloInstruction], root: HloInstruction, indices: tuple[Index, ...]) -> Elements:
    """The elements of a result, emitted."""
    function = Module(host()).function("f", [PTR] * len(inputs))
    views = {
        i: View(p, i.shape.element_type, i.shape.dimensions)
        for i, p in zip(inputs, function.parameters, strict=True)
    }
    elements = Elements(function, 0, views)
    variables = {v for index in indices for v, _ in index.terms}
    for variable in variables:
        variable.value = function.poison(I64)
    root_values(elements, [root], indices)
    return elements


def along(index: Index, variables: set[Variable]) -> frozenset[tuple[Variable, int]]:
    """The terms of an index in the kernel's own loops."""
    return frozenset((v, c) for v, c in index.terms if v in variables)


@pytest.mark.parametrize("name", PROGRAMS)
def test_planned_accesses_are_those_of_the_code(name: str) -> None:
    root = program(PROGRAMS[name])
    inputs, members = closure(root)
    space = unmerged_space(inputs, [root], members)
    planned = accesses_of(inputs, [root], space.indices)
    code = emitted(inputs, root, space.indices)
    variables = set(space.variables)
    assert {along(x, variables) for x in planned.linear} == {along(x, variables) for x in code.accesses}
    assert planned.pinned & variables == code.pinned & variables


@pytest.mark.parametrize(
    ("name", "trips"),
    [
        ("elementwise", [48]),
        ("broadcast", [6, 8]),
        ("transpose", [6, 8]),
        ("reshape", [48]),
        ("slice", [4, 8]),
        ("pad", [9, 8]),
        ("reduce", [6, 8]),
    ],
)
def test_loops_are_merged_where_all_accesses_advance_by_one_stride(name: str, trips: list[int]) -> None:
    root = program(PROGRAMS[name])
    inputs, members = closure(root)
    assert [v.trips for v in planned_space(inputs, [root], members).variables] == trips


def test_only_operands_read_where_they_are_written_may_be_overwritten() -> None:
    text = (
        "x = f32[4,4] parameter(0)  y = f32[4,4] parameter(1)  t = f32[4,4] transpose(y), dimensions={1,0}  "
        "ROOT r = f32[4,4] add(x, t)"
    )
    root = program(text)
    inputs, _ = closure(root)
    assert {i.name for i in read_where_written(inputs, root)} == {"x"}


def test_kernels_of_a_compiled_program_have_a_space_of_their_results() -> None:
    module = parse(
        "HloModule m\nENTRY e { x = f32[6,8] parameter(0)  y = f32[8] parameter(1)  "
        "b = f32[6,8] broadcast(y), dimensions={1}  s = f32[6,8] add(x, b)  ROOT r = f32[6,8] tanh(s) }"
    )
    CPU_PIPELINE.run(module)
    parts = kernel_parts(module.entry.root)
    inputs, roots, members = parts.inputs, parts.roots, parts.members
    space = planned_space(inputs, roots, members)
    assert [v.trips for v in space.variables] == [*result_shapes(roots)[0].dimensions]
