"""Replacements to consider: what they promise is what the program costs with them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from hloom.ir.module import HloModule
from hloom.sharding import report
from hloom.sharding.reporting.report import Report
from hloom.tools.cli import main
from tests.reducers import with_reducers

MESH = """HloModule m, frontend_attributes={xla.sdy.meshes={mesh = #sdy.mesh<["data"=2, "model"=4]>}}
"""


def tiled(*axes: str) -> str:
    cuts = ", ".join("{" + (f'\\"{axis}\\"' if axis else "") + "}" for axis in axes)
    return f'frontend_attributes={{xla.sdy.sharding="#sdy.sharding<@mesh, [{cuts}]>"}}'


def of(text: str, **options: Any) -> Report:
    return report(HloModule.from_text(MESH + text), **options)


LAYERS = """ENTRY e {{ x = f32[256,32] parameter(0), {x}
  v = f32[32,32] parameter(1), {w}
  w = f32[32,32] parameter(2), {w}
  y = f32[256,32] dot(x, v), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  ROOT z = f32[256,32] dot(y, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}, {x} }}
"""


def test_a_suggestion_saves_what_it_promises() -> None:
    """Weights cut over the axis of the batch are gathered; those of both layers change together."""
    have = of(LAYERS.format(x=tiled("data", ""), w=tiled("data", "")), tries=20)
    gathered = 2 * 32 * 32 * 4 // 2
    assert have.bytes_per_step == gathered
    (found,) = [one for one in have.suggestions if one.before == "[data, -]" and "32,32" in one.text]
    assert found.instructions == ("v", "w") and found.verified == "partitioned again"
    assert found.after == "[-, -]"
    better = of(LAYERS.format(x=tiled("data", ""), w=tiled("", "")))
    assert found.saved_bytes == have.bytes_per_step - better.bytes_per_step == gathered
    assert found.saved_memory == have.peak_bytes - better.peak_bytes


@pytest.mark.parametrize("x", [("data", ""), ("", "data"), ("model", ""), ("", "")])
@pytest.mark.parametrize("w", [("data", ""), ("", "model"), ("", "")])
def test_every_suggestion_is_right(x: tuple[str, str], w: tuple[str, str]) -> None:
    have = of(LAYERS.format(x=tiled(*x), w=tiled(*w)), tries=12)
    for found in have.suggestions:
        axes = ["" if cut == "-" else cut for cut in found.after.strip("[]").split(", ")]
        if any("+" in axis for axis in axes):
            continue
        chosen = {"x": x, "w": w} | {"x" if "x" in found.instructions else "w": tuple(axes)}
        better = of(LAYERS.format(**{name: tiled(*cut) for name, cut in chosen.items()}))
        assert found.saved_bytes == have.bytes_per_step - better.bytes_per_step
        assert found.saved_memory == have.peak_bytes - better.peak_bytes
        assert found.saved_bytes > 0 or found.saved_memory > 0


def test_the_annotation_of_a_tuple() -> None:
    text = """ENTRY e { x = f32[64,64] parameter(0), sharding={devices=[2,1,4]<=[8] last_tile_dim_replicate}
      y = f32[64,64] negate(x)
      ROOT t = (f32[64,64], f32[64,64]) tuple(y, x), sharding={
        {devices=[1,2,4]<=[8] last_tile_dim_replicate},
        {devices=[2,1,4]<=[8] last_tile_dim_replicate}} }"""
    have = of(text, tries=40)
    assert have.bytes_per_step == 64 * 64 * 4 // 4
    found = have.suggestions[0]
    assert found.saved_bytes == have.bytes_per_step
    assert (found.before, found.after) in [("[data, -]", "[-, data]"), ("[-, data]", "[data, -]")]


def test_memory_counts_more_where_it_lacks() -> None:
    """Weights on every device send nothing; cut, they are gathered, but each device holds a part."""
    text = LAYERS.format(x=tiled("data", ""), w=tiled("", "")).replace("256", "64")
    assert not [s for s in of(text, tries=30).suggestions if s.saved_bytes < 0]
    crowded = of(text, tries=30, memory=100)
    assert crowded.fits is False
    assert [s for s in crowded.suggestions if s.saved_bytes < 0 < s.saved_memory]


REGION = with_reducers("""HloModule m, num_partitions=2
  ENTRY e { x = f32[8,4] parameter(0)
    tile = f32[8,4] custom-call(x), custom_call_target="SPMDFullToShardShape"
    s = f32[8,4] all-reduce(tile), channel_id=1, replica_groups={{0,1}},
      use_global_device_ids=true, to_apply=add
    id = u32[] partition-id()
    n = s32[] convert(id)
    four = s32[] constant(4)
    start = s32[] multiply(n, four)
    zero = s32[] constant(0)
    part = f32[4,4] dynamic-slice(s, START, zero), dynamic_slice_sizes={4,4}
    ROOT w = f32[4,4] custom-call(part), custom_call_target="SPMDShardToFullShape" }""")


def test_sums_of_which_devices_take_a_part() -> None:
    found = report(HloModule.from_text(REGION.replace("START", "start")))
    (one,) = found.suggestions
    assert (one.kind, one.instructions, one.verified) == ("reduce-scatter", ("s",), "arithmetic")
    # All-reduce: 2 * 128 / 2 bytes; reduce-scatter: 128 / 2.
    assert found.bytes_per_step == 128 and one.saved_bytes == 64


@pytest.mark.parametrize("start", ["zero", "four", "n"])
def test_sums_of_which_devices_take_the_same_part(start: str) -> None:
    assert not report(HloModule.from_text(REGION.replace("START", start))).suggestions


def test_arrays_that_are_silently_whole() -> None:
    found = of(
        f"""ENTRY e {{ x = f32[64] parameter(0), {tiled("")}
      w = f32[64,3] parameter(1)
      s = f32[64,3] broadcast(x), dimensions={{0}},
        metadata={{op_name="jit(f)/tile" source_file="a.py" source_line=9}}
      ROOT d = f32[64,3,3] dot(s, w), lhs_batch_dims={{0}}, rhs_batch_dims={{0}} }}"""
    )
    by_name = {array.name: array for array in found.replicated_arrays}
    assert by_name["x"].is_annotated and not by_name["w"].is_annotated
    assert (by_name["w"].axis, by_name["w"].dimension) == ("model", 0)
    assert (by_name["w"].bytes, by_name["w"].saved) == (768, 768 * 3 // 4)
    assert (by_name["s"].op_name, by_name["s"].source) == ("jit(f)/tile", "a.py:9")
    assert [array.bytes for array in found.replicated_arrays] == sorted(
        (a.bytes for a in found.replicated_arrays), reverse=True
    )


def test_one_device_has_everything() -> None:
    assert (
        report(HloModule.from_text("HloModule m\nENTRY e { ROOT x = f32[9] parameter(0) }")).replicated_arrays
        == ()
    )


def test_the_command_prints_suggestions(tmp_path: Path) -> None:
    file = tmp_path / "m.hlo"
    file.write_text(MESH + LAYERS.format(x=tiled("data", ""), w=tiled("data", "")))
    shown = CliRunner().invoke(main, ["shard", str(file), "--suggest"]).output
    assert "f32[32,32] as [-, -] instead of [data, -]: %v, %w" in shown
    assert "saves 4.096 KB in a step" in shown
    data = json.loads(CliRunner().invoke(main, ["shard", str(file), "--suggest", "--json"]).output)
    assert data["suggestions"][0]["verified"] == "partitioned again"
    assert "to consider" not in CliRunner().invoke(main, ["shard", str(file)]).output
