"""Costs of operations, counted by hand."""

from __future__ import annotations

import pytest

import hloom
from hloom.analysis.cost import Cost, instruction_cost, module_cost, trip_count
from tests.cpu.test_row_stream import layers
from tests.evaluation import parse
from tests.reducers import ADD


@pytest.mark.parametrize(
    ("text", "flops", "bytes"),
    [
        ("p = f32[4,5] parameter(0)\n ROOT r = f32[4,5] add(p, p)", 20, 160),
        ("p = f32[4,5] parameter(0)\n ROOT r = f32[5,4] transpose(p), dimensions={1,0}", 0, 160),
        ("p = f32[4,5] parameter(0)\n ROOT r = f32[20] reshape(p)", 0, 0),
        (
            "p = f32[4,5] parameter(0)\n q = f32[5,3] parameter(1)\n "
            "ROOT r = f32[4,3] dot(p, q), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
            2 * 4 * 3 * 5,
            4 * (20 + 15 + 12),
        ),
        (
            "p = f32[2,6,6,3] parameter(0)\n k = f32[3,3,3,8] parameter(1)\n "
            "ROOT r = f32[2,4,4,8] convolution(p, k), window={size=3x3}, dim_labels=b01f_01io->b01f",
            2 * (2 * 4 * 4 * 8) * 9 * 3,
            4 * (2 * 36 * 3 + 27 * 8 + 2 * 16 * 8),
        ),
        ("p = f32[100] parameter(0)\n ROOT r = f32[10] slice(p), slice={[0:10]}", 0, 80),
        (
            "p = f32[100] parameter(0)\n q = f32[5] parameter(1)\n i = s32[] parameter(2)\n "
            "ROOT r = f32[100] dynamic-update-slice(p, q, i)",
            0,
            40,
        ),
    ],
)
def test_counts(text: str, flops: float, bytes: float) -> None:
    assert module_cost(parse(text)) == Cost(flops, bytes=bytes)


PARAMETERS = "p = f32[100] parameter(0)\n q = f32[5] parameter(1)\n i = s32[] parameter(2)"


@pytest.mark.parametrize(
    ("members", "bytes"),
    [
        ("s = f32[10] slice(p), slice={[0:10]}\n ROOT r = f32[10] negate(s)", 40 + 40),
        (
            "s = f32[10] dynamic-slice(p, i), dynamic_slice_sizes={10}\n ROOT r = f32[10] negate(s)",
            4 + 40 + 40,
        ),
        # the whole array is read elsewhere
        (
            "s = f32[10] slice(p), slice={[0:10]}\n n = f32[100] negate(p)\n "
            "ROOT r = (f32[10], f32[100]) tuple(s, n)",
            400 + 40 + 400,
        ),
        # slices overlap: no more is read than there is
        (
            "s = f32[90] slice(p), slice={[0:90]}\n t = f32[90] slice(p), slice={[10:100]}\n "
            "ROOT r = f32[90] add(s, t)",
            400 + 360,
        ),
        (
            "g = f32[10,10] reshape(p)\n z = s32[] constant(0)\n s = f32[1,10] dynamic-slice(g, z, z), "
            "dynamic_slice_sizes={1,10}\n ROOT r = f32[10] reshape(s)",
            40 + 40,
        ),
        # an update in place stores the new elements, and one of a computed array all of them
        ("n = f32[5] negate(q)\n ROOT r = f32[100] dynamic-update-slice(p, n, i)", 4 + 20 + 20),
        ("n = f32[100] negate(p)\n ROOT r = f32[100] dynamic-update-slice(n, q, i)", 4 + 20 + 400 + 400),
        (
            "u = f32[100] dynamic-update-slice(p, q, i)\n ROOT r = f32[100] negate(u)",
            4 + 20 + 400 + 400,
        ),
    ],
)
def test_fusions_read_parts_of_their_operands(members: str, bytes: float) -> None:
    text = f"HloModule m\nbody {{ {PARAMETERS}\n {members}\n}}\nENTRY e {{ {PARAMETERS}\n {members}\n}}"
    result = parse(text).entry.root.shape
    call = f"ROOT f = {result} fusion(p, q, i), kind=kLoop, calls=body"
    fused = f"HloModule m\nbody {{ {PARAMETERS}\n {members}\n}}\nENTRY e {{ {PARAMETERS}\n {call}\n}}"
    assert module_cost(parse(fused)).bytes == bytes


def test_slices_that_stay_where_they_are_move_nothing() -> None:
    module = layers("f32", 1, 301, 517)
    matrices = 2 * 301 * 517 * 4  # of two iterations
    assert matrices <= hloom.compile(module).cost.bytes < matrices * 1.02


def test_transcendental_functions_are_counted_by_themselves() -> None:
    text = "p = f32[4,5] parameter(0)\n ROOT r = f32[4,5] exponential(p)"
    assert module_cost(parse(text)) == Cost(0, transcendentals=20, bytes=160)


def test_reductions_count_their_computation() -> None:
    text = f"HloModule m\n{ADD}\nENTRY e {{ p = f32[8,4] parameter(0)\n z = f32[] constant(0)\n "
    text += "ROOT r = f32[4] reduce(p, z), dimensions={0}, to_apply=add }"
    assert instruction_cost(parse(text).entry.root).flops == 28
    assert instruction_cost(parse(text.replace("f32[8,4]", "f32[0,4]")).entry.root).flops == 0


@pytest.mark.parametrize(
    ("window", "result", "flops"),
    [
        ("size=1x3", "8,4", 32 * 2),
        ("size=1x6 pad=0_0x5_0", "8,6", 48),  # a running sum
        ("size=1x6 pad=0_0x0_5", "8,6", 48),
        ("size=8x6 pad=7_0x5_0", "8,6", 48 * 3),
        ("size=1x6", "8,1", 8 * 5),
    ],
)
def test_windows_count_what_they_combine(window: str, result: str, flops: float) -> None:
    text = f"HloModule m\n{ADD}\nENTRY e {{ p = f32[8,6] parameter(0)\n z = f32[] constant(0)\n "
    text += f"ROOT r = f32[{result}] reduce-window(p, z), window={{{window}}}, to_apply=add }}"
    assert instruction_cost(parse(text).entry.root).flops == flops


def test_loops_count_as_often_as_they_are_known_to_run() -> None:
    text = """HloModule m
cond { s = (f32[9]) parameter(0)
  ROOT t = pred[] constant(false) }
body { s = (f32[9]) parameter(0)
  x = f32[9] get-tuple-element(s), index=0
  y = f32[9] add(x, x)
  ROOT t = (f32[9]) tuple(y) }
ENTRY e { p = (f32[9]) parameter(0)
  ROOT w = (f32[9]) while(p), condition=cond, body=body, backend_config={"known_trip_count":{"n":"11"}} }"""
    module = parse(text)
    assert trip_count(module.entry.root) == 11
    assert module_cost(module) == Cost(99, bytes=11 * 72)
