"""Folding, conditionals, equal computations, arrays without elements, dots, schedules."""

from __future__ import annotations

import numpy as np
import pytest

from hloom.analysis.updates import Updates
from hloom.passes.expand.unscheduler import Unscheduler
from hloom.passes.layout.convolution_canonicalization import ConvolutionCanonicalization
from hloom.passes.layout.dot_decomposer import DotDecomposer
from hloom.passes.schedule.memory_scheduler import HloMemoryScheduler, memory_order
from hloom.passes.simplify.algebraic_simplifier import AlgebraicSimplifier
from hloom.passes.simplify.constant_folding import ConstantFolding
from hloom.passes.simplify.dead_code import DeadCodeElimination
from hloom.passes.simplify.indexing_simplifiers import GatherSimplifier, ScatterSimplifier, SortSimplifier
from hloom.passes.simplify.integer_range_simplifier import IntegerRangeSimplifier
from tests.evaluation import parse
from tests.pass_checks import after, opcodes

# -- constant folding; see also tests/hlo/passes/constant_folding.hlo


@pytest.mark.parametrize(
    "body",
    [
        "i = s32[1000,1000] iota(), iota_dimension=0\nROOT r = s32[1000,1000] add(i, i)",
        "c = f32[] constant(1)\nROOT r = f32[100000] broadcast(c), dimensions={}",
        "c = f32[2] constant({1, 2})\nz = f32[] constant(0)\nROOT r = f32[2000002] pad(c, z), "
        "padding=0_2000000",
    ],
)
def test_small_programs_do_not_become_large(body: str) -> None:
    module = parse(body)
    assert not ConstantFolding().run(module)


def test_folding_takes_no_longer_than_it_may() -> None:
    rows = ", ".join("{" + ", ".join(str((i * j) % 7) for j in range(64)) + "}" for i in range(64))
    steps = "\n".join(
        f"d{n} = f32[64,64] dot(d{n - 1}, d{n - 1}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"
        for n in range(1, 60)
    )
    module = parse(f"d0 = f32[64,64] constant({{{rows}}})\n{steps}\nROOT r = f32[64,64] negate(d59)")
    ConstantFolding(work=1 << 19, total_work=1 << 21).run(module)
    most = (1 << 21) // 64**3
    assert 59 - most <= opcodes(module)["dot"] < 59


def test_what_has_no_value_is_left_alone() -> None:
    module = parse("c = f32[4] constant({...})\nROOT r = f32[4] negate(c)")
    assert not ConstantFolding().run(module)


# -- computations, elements


def test_indices_that_are_looked_up_need_no_check() -> None:
    body = """x = f32[9] parameter(0)
i = s32[1] constant({4})
z = s32[] constant(0)
b = s32[1] broadcast(z), dimensions={}
n = pred[1] compare(i, b), direction=LT
t = s32[] constant(9)
c = s32[1] broadcast(t), dimensions={}
a = s32[1] add(i, c)
s = s32[1] select(n, a, i)
ROOT r = f32[] gather(x, s), offset_dims={}, collapsed_slice_dims={0}, start_index_map={0},"""
    body += " index_vector_dim=0, slice_sizes={1}"
    module = after(
        body,
        IntegerRangeSimplifier(),
        AlgebraicSimplifier(),
        GatherSimplifier(),
        ConstantFolding(),
        AlgebraicSimplifier(),
        DeadCodeElimination(),
    )
    assert {"gather", "select", "dynamic-slice"}.isdisjoint(opcodes(module))


def test_ranges_decide_only_what_they_know() -> None:
    body = (
        "i = s32[9] iota(), iota_dimension=0\nk = s32[] parameter(0)\nb = s32[9] broadcast(k), "
        "dimensions={}\n"
        "c = pred[9] compare(i, b), direction=LT\nn = s32[] constant(9)\nm = s32[9] broadcast(n), "
        "dimensions={}\n"
        "d = pred[9] compare(i, m), direction=LT\nROOT r = pred[9] and(c, d)"
    )
    module = after(body, IntegerRangeSimplifier(), AlgebraicSimplifier(), DeadCodeElimination())
    assert opcodes(module)["compare"] == 1


def test_an_update_of_one_row_is_no_scatter() -> None:
    text = (
        "HloModule m\nf { a = f32[] parameter(0)\n ROOT b = f32[] parameter(1)\n}\nENTRY e {\n x = f32[6,"
        "3] parameter(0)\n"
        " i = s32[1] parameter(1)\n u = f32[3] parameter(2)\n ROOT r = f32[6,3] scatter(x, i, u), "
        "update_window_dims={0},"
        " inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=0, "
        "to_apply=f\n}\n"
    )
    x, u = np.arange(18, dtype=np.float32).reshape(6, 3), np.ones(3, np.float32)
    for i in (-1, 0, 5, 6, 2**31 - 1):
        module = after(text, ScatterSimplifier(), arguments=[x, np.array([i], np.int32), u])
        assert opcodes(module)["scatter"] == 0


def test_a_sort_carries_what_is_used() -> None:
    text = (
        "HloModule m\nf { a = f32[] parameter(0)\n b = f32[] parameter(1)\n c = s32[] parameter(2)\n d = "
        "s32[] parameter(3)\n"
        " ROOT r = pred[] compare(a, b), direction=LT\n}\nENTRY e {\n x = f32[9] parameter(0)\n y = s32[9] "
        "parameter(1)\n"
        " s = (f32[9], s32[9]) sort(x, y), dimensions={0}, to_apply=f\n ROOT r = f32[9] "
        "get-tuple-element(s), index=0\n}\n"
    )
    module = after(text, SortSimplifier(), AlgebraicSimplifier(), DeadCodeElimination())
    assert module.entry.root.opcode == "sort"


# -- products


def test_a_dot_is_left_as_it_is_where_it_would_be_no_product() -> None:
    body = (
        "x = f32[5,3] parameter(0)\ny = f32[5,4] parameter(1)\nt = f32[3,5] transpose(x), dimensions={1,"
        "0}\n"
        "ROOT r = f32[3,4] dot(t, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    )
    rows_first = DotDecomposer(lambda dot: dot.operation.lhs_contracting_dims == (1,))  # type: ignore[attr-defined]
    assert opcodes(after(body, rows_first))["transpose"] == 1
    assert opcodes(after(body, DotDecomposer()))["transpose"] == 0


def test_a_dot_that_is_no_product_becomes_one() -> None:
    body = (
        "x = f32[3,5,2] parameter(0)\ny = f32[5,4] parameter(1)\n"
        "ROOT r = f32[3,2,4] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    )
    inner_last = DotDecomposer(lambda dot: dot.operation.lhs_contracting_dims == (2,))  # type: ignore[attr-defined]
    module = after(body, inner_last)
    assert opcodes(module)["transpose"] == 1


def test_convolutions_are_dots_only_where_these_are_products() -> None:
    body = (
        "x = f32[2,6,3] parameter(0)\nk = f32[1,3,4] parameter(1)\n"
        "ROOT r = f32[2,6,4] convolution(x, k), window={size=1}, dim_labels=b0f_0io->b0f"
    )
    assert opcodes(after(body, ConvolutionCanonicalization()))["dot"] == 1
    assert opcodes(after(body, ConvolutionCanonicalization(lambda dot: False)))["convolution"] == 1


# -- schedules


def test_the_order_frees_memory_as_soon_as_it_can() -> None:
    lines = ["z = f32[] constant(0)"]
    for n in range(8):
        lines += [f"v{n} = f32[] parameter({n})", f"b{n} = f32[1000] broadcast(v{n}), dimensions={{}}",
                  f"e{n} = f32[1000] exponential(b{n})"]  # fmt: skip
    lines += [f"r{n} = f32[1] slice(e{n}), slice={{[3:4]}}" for n in range(8)]
    module = parse(
        "\n".join(lines) + "\nROOT t = (" + ", ".join(["f32[1]"] * 8) + ") "
        "tuple(" + ", ".join(f"r{n}" for n in range(8)) + ")"
    )
    order, peak = memory_order(module.entry, {}, Updates(module))
    assert set(order) == set(module.entry.instructions)
    assert peak < 3 * 4000
    assert memory_order(module.entry, {}, Updates(module))[0] == order


def test_a_scheduled_module_is_in_order() -> None:
    module = after(
        "x = f32[4] parameter(0)\na = f32[4] exponential(x)\nb = f32[4] negate(x)\nROOT r = f32[4] add(b, a)",
        HloMemoryScheduler(),
    )
    assert module.config.is_scheduled


def test_a_schedule_that_is_dropped_keeps_the_order_of_effects() -> None:
    text = """HloModule m, is_scheduled=true
ENTRY e {
  x = f32[4] parameter(0)
  k = token[] after-all()
  b = token[] outfeed(x, k), outfeed_shape=f32[4]
  a = token[] outfeed(x, k), outfeed_shape=f32[4]
  ROOT r = (token[], token[]) tuple(a, b)
}
"""
    module = parse(text)
    Unscheduler().run(module)
    module.verify()
    order = [i.name for i in module.entry.post_order()]
    assert order.index("b") < order.index("a")
