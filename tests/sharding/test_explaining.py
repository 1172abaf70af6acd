"""Why collectives are needed: the instruction, the tiles before and after, the reason, the origin of cuts."""

from __future__ import annotations

import json

import pytest

from hloom.ir.module import HloModule
from hloom.sharding import report
from hloom.sharding.reading.meshes import coordinate_text, tiling_text
from hloom.sharding.reporting.explanations import Why
from hloom.sharding.reporting.report import Report
from hloom.sharding.tiling.coordinates import Coordinate
from hloom.sharding.tiling.tiling import Tiling
from tests.reducers import ADD, with_reducers

MESH = """HloModule m, frontend_attributes={xla.sdy.meshes={mesh = #sdy.mesh<["data"=2, "model"=2]>}}
"""


def tiled(*axes: str) -> str:
    """Return the annotation of an array whose dimensions are cut over axes; "" is whole."""
    cuts = ", ".join("{" + (f'\\"{axis}\\"' if axis else "") + "}" for axis in axes)
    return f'frontend_attributes={{xla.sdy.sharding="#sdy.sharding<@mesh, [{cuts}]>"}}'


def of(text: str) -> Report:
    return report(HloModule.from_text(MESH + text))


def only(text: str) -> Why:
    """Return why the only collective of a program is needed."""
    (row,) = of(text).collectives
    return row.why


def test_a_contraction_of_cut_operands_gives_partial_results() -> None:
    why = only(f"""ENTRY e {{ x = f32[8,16] parameter(0), {tiled("", "model")}
      w = f32[16,4] parameter(1), {tiled("model", "")}
      ROOT d = f32[8,4] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}},
        metadata={{op_name="jit(f)/dot" source_file="model.py" source_line=7}} }}""")
    assert (why.kind, why.instruction, why.opcode) == ("reduction", "d", "dot")
    assert (why.op_name, why.source) == ("jit(f)/dot", "model.py:7")
    assert why.reason == (
        "devices hold partial results: the contracting dimension of %d is sharded over model like %x"
    )
    assert why.origins == ("model: the annotation of %x",)
    # 2 * 128 / 2 bytes of sums; gathering both operands costs at least 16 * 4 / 2 elements more.
    assert why.bytes == 128 and why.other_bytes > why.bytes


def test_elements_of_tuples_have_the_origin_of_what_the_tuple_was_made_of() -> None:
    why = only(f"""ENTRY e {{ x = f32[8,16] parameter(0), {tiled("", "model")}
      w = f32[16,4] parameter(1), {tiled("model", "")}
      t = (f32[16,4], f32[8,16]) tuple(w, x)
      b = (f32[16,4], f32[8,16]) opt-barrier(t)
      v = f32[16,4] get-tuple-element(b), index=0
      y = f32[8,16] get-tuple-element(b), index=1
      ROOT d = f32[8,4] dot(y, v), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}} }}""")
    assert why.reason == (
        "devices hold partial results: the contracting dimension of %d is sharded over model like %x"
    )


def test_an_operation_that_needs_a_dimension_whole() -> None:
    why = only(f"""less {{ a = f32[] parameter(0)
        b = f32[] parameter(1)
        ROOT c = pred[] compare(a, b), direction=LT }}
      ENTRY e {{ x = f32[8] parameter(0), {tiled("data")}
        y = f32[8] exponential(x)
        ROOT s = f32[8] sort(y), dimensions={{0}}, to_apply=less }}""")
    assert (why.kind, why.instruction, why.value) == ("operand", "s", "y")
    assert (why.before, why.after) == ("[data]", "[-]")
    assert why.reason == "sort needs dimension 0 replicated"
    assert why.origins == ("data: the annotation of %x, forward through 1 operations",)


def test_an_annotation_that_differs_from_what_is_computed() -> None:
    found = of(f"""ENTRY e {{ x = f32[8,8] parameter(0), {tiled("data", "")}
      y = f32[8,8] negate(x), {tiled("", "data")}
      ROOT z = f32[8,8] exponential(y) }}""")
    (row,) = found.collectives
    assert row.why.kind in ("annotation", "operand") and row.opcode == "all-to-all"
    assert (row.why.before, row.why.after) == ("[data, -]", "[-, data]")
    assert row.why.origins == ("data: the annotation of %x", "data: the annotation of %y")
    # The wish of the operand loses against the annotation.
    (conflict,) = found.conflicts
    assert conflict.instruction == "y"
    assert conflict.kept == ("%y: dimension 1 of %y over data",)
    assert conflict.lost == ("%x: dimension 0 of %y over data",)
    assert conflict.bytes == row.bytes <= conflict.other_bytes


def test_the_result_of_the_program() -> None:
    why = only(f"""ENTRY e {{ x = f32[8] parameter(0), {tiled("data")}
      ROOT t = (f32[8]) tuple(x), sharding={{{{replicated}}}} }}""")
    assert (why.kind, why.instruction, why.value) == ("result", "", "x")
    assert why.reason == "the program states [-] for its result; it is computed as [data]"


LOOP = with_reducers("""
  less { p = (s32[], f32[8]) parameter(0)
    n = s32[] get-tuple-element(p), index=0
    k = s32[] constant(5)
    ROOT c = pred[] compare(n, k), direction=LT }
  body { p = (s32[], f32[8]) parameter(0)
    n = s32[] get-tuple-element(p), index=0
    one = s32[] constant(1)
    m = s32[] add(n, one)
    x = f32[8] get-tuple-element(p), index=1
    xs = f32[8,2] broadcast(x), dimensions={0}
    f = f32[] constant(0)
    y = f32[8] reduce(xs, f), dimensions={1}, to_apply=add, ANNOTATION
    ROOT t = (s32[], f32[8]) tuple(m, y) }
  ENTRY e { x = f32[8] parameter(0), INITIAL
    zero = s32[] constant(0)
    t = (s32[], f32[8]) tuple(zero, x)
    ROOT l = (s32[], f32[8]) while(t), condition=less, body=body }
""")


CUT_INSIDE = LOOP.replace("ANNOTATION", tiled("data")).replace("INITIAL", tiled(""))


def test_a_loop_carries_arrays_in_one_tiling() -> None:
    (row,) = of(CUT_INSIDE).collectives
    assert (row.why.kind, row.why.instruction, row.times) == ("loop", "l", 5)
    assert row.why.reason == "a loop carries [-]; its initial value or its body gives [data]"


def test_branches_give_their_results_in_one_tiling() -> None:
    why = only(
        ADD
        + f"""one {{ x = f32[8] parameter(0)
        ROOT y = f32[8] exponential(x), {tiled("data")} }}
      other {{ x = f32[8] parameter(0)
        xs = f32[8,2] broadcast(x), dimensions={{0}}
        f = f32[] constant(0)
        ROOT y = f32[8] reduce(xs, f), dimensions={{1}}, to_apply=add, {tiled("model")} }}
      ENTRY e {{ p = pred[] parameter(0)
        x = f32[8] parameter(1)
        q = f32[8] parameter(2)
        ROOT c = f32[8] conditional(p, x, q), true_computation=one, false_computation=other }}"""
    )
    assert (why.kind, why.instruction) == ("branches", "c")
    assert why.reason == "a conditional gives [data], one of its branches [model]; its selector is replicated"


def test_neighbors_send_halos() -> None:
    found = of(f"""ENTRY e {{ x = f32[8] parameter(0), {tiled("data")}
      zero = f32[] constant(0)
      ROOT p = f32[8] pad(x, zero), padding=1_-1, {tiled("data")} }}""")
    assert {row.why.kind for row in found.collectives} == {"halo"}
    assert {row.opcode for row in found.collectives} == {"collective-permute"}
    why = found.collectives[0].why
    assert why.reason == "pad reads elements of other tiles: dimension 0 of %p is sharded over data like %x"


def test_a_call_on_one_device_and_a_collective_of_the_program() -> None:
    found = of(f"""ENTRY e {{ x = f32[8] parameter(0), {tiled("data")}
      ROOT c = f32[8] custom-call(x), custom_call_target="f", sharding={{maximal device=1}} }}""")
    assert {row.why.kind for row in found.collectives} == {"device"}
    (row,) = report(
        HloModule.from_text(
            with_reducers("""HloModule m, num_partitions=2
      ENTRY e { x = f32[8] parameter(0)
        tile = f32[8] custom-call(x), custom_call_target="SPMDFullToShardShape"
        s = f32[8] all-reduce(tile), channel_id=1, replica_groups={{0,1}},
          use_global_device_ids=true, to_apply=add
        ROOT w = f32[8] custom-call(s), custom_call_target="SPMDShardToFullShape" }""")
        )
    ).collectives
    assert row.why == Why("program", reason="the program itself states it")


def test_a_dimension_that_an_axis_cuts_already() -> None:
    found = of(f"""ENTRY e {{ x = f32[64,16] parameter(0), {tiled("data", "")}
      w = f32[16,4] parameter(1), {tiled("", "data")}
      ROOT d = f32[64,4] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}} }}""")
    (row,) = found.collectives
    assert row.why.value == "w" and (row.why.before, row.why.after) == ("[-, data]", "[-, -]")
    assert row.why.reason == "data is used already: dimension 0 of %d is sharded over data like %x"
    (conflict,) = found.conflicts
    assert conflict.kept == ("%x: dimension 0 of %d over data", "%d: dimension 0 of %d over data")
    assert conflict.lost == ("%w: dimension 1 of %d over data",)


def test_propagation_backward_is_named() -> None:
    found = of(f"""ENTRY e {{ x = f32[8,16] parameter(0)
      w = f32[16,4] parameter(1), {tiled("model", "")}
      d = f32[8,4] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
      y = f32[8,4] negate(d)
      ROOT z = f32[8,4] exponential(y), {tiled("model", "")} }}""")
    (row,) = found.collectives
    assert (row.opcode, row.why.kind, row.why.instruction) == ("reduce-scatter", "reduction", "d")
    assert row.why.origins == (
        "model: the annotation of %w",
        "model: the annotation of %z, propagated through 2 elementwise operations",
    )


def test_a_parameter_that_is_left_to_propagation() -> None:
    head = MESH.replace("HloModule m,", "HloModule m, allow_spmd_sharding_propagation_to_parameters={true},")
    text = f"""less {{ a = f32[] parameter(0)
        b = f32[] parameter(1)
        ROOT c = pred[] compare(a, b), direction=LT }}
      ENTRY e {{ x = f32[8] parameter(0)
        y = f32[8] negate(x), {tiled("data")}
        s = f32[8] sort(x), dimensions={{0}}, to_apply=less
        ROOT r = (f32[8], f32[8]) tuple(y, s) }}"""
    (row,) = report(HloModule.from_text(head + text)).collectives
    assert (row.why.value, row.why.before) == ("x", "[data]")
    assert row.why.origins == ("data: the annotation of %y, propagated through 1 elementwise operations",)


def test_reports_are_json_data() -> None:
    found = of(CUT_INSIDE)
    data = json.loads(json.dumps(found.to_json()))
    assert data["collectives"][0]["why"]["kind"] == "loop"
    assert data["conflicts"] == []


@pytest.mark.parametrize(
    ("digits", "text"),
    [
        ([(2, 4)], "x"),
        ([(1, 8)], "x+y"),
        ([(1, 2), (2, 4)], "y+x"),
        ([(4, 2)], "x:(1)2"),
        ([(2, 2)], "x:(2)2"),
        ([(1, 4)], "x:(2)2+y"),
    ],
)
def test_cuts_are_named_by_axes(digits: list[tuple[int, int]], text: str) -> None:
    assert coordinate_text(Coordinate.along(digits, 8), {"x": 4, "y": 2}) == text


def test_tilings_without_axes_are_in_hlo_notation() -> None:
    tiling = Tiling((2, 1), (Coordinate.along([(1, 2)], 2), Coordinate(2)), 2)
    assert tiling_text(tiling, {}) == "{devices=[2,1]<=[2]}"
    assert tiling_text(tiling, {"x": 2}) == "[x, -]"
    assert tiling_text(Tiling((1,), (Coordinate(2),), 2, Coordinate.along([(1, 2)], 2)), {"x": 2}) == (
        "[-], partial sums over x"
    )
