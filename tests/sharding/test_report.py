"""The report of a sharded program: bytes, axes, loops, memory; the commands that print it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import hloom
from hloom.errors import HloError
from hloom.ir.module import HloModule
from hloom.sharding import partitioned_program, report
from hloom.sharding.reading.meshes import mesh_of, parse_mesh
from hloom.sharding.reporting.topologies import Link
from hloom.tools.cli import main
from tests import agreement
from tests.raised_rules import printed
from tests.sharding.runs import tile_of

STEP = r"""HloModule step, frontend_attributes={xla.sdy.meshes={mesh = #sdy.mesh<["data"=2, "model"=2]>}}

condition {
  c = (s32[], f32[8,16], f32[16,16]) parameter(0)
  n = s32[] get-tuple-element(c), index=0
  k = s32[] constant(3)
  ROOT p = pred[] compare(n, k), direction=LT
}

body {
  c = (s32[], f32[8,16], f32[16,16]) parameter(0)
  n = s32[] get-tuple-element(c), index=0
  x = f32[8,16] get-tuple-element(c), index=1
  w = f32[16,16] get-tuple-element(c), index=2
  o = s32[] constant(1)
  m = s32[] add(n, o)
  d = f32[8,16] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0},
    metadata={op_name="jit(f)/dot" source_file="model.py" source_line=7}
  ROOT t = (s32[], f32[8,16], f32[16,16]) tuple(m, d, w)
}

ENTRY e {
  x = f32[8,16] parameter(0), frontend_attributes={
    xla.sdy.sharding="#sdy.sharding<@mesh, [{\"data\"}, {}]>"}
  w = f32[16,16] parameter(1), frontend_attributes={
    xla.sdy.sharding="#sdy.sharding<@mesh, [{\"model\"}, {}]>"}
  b = f32[16] parameter(2)
  z = s32[] constant(0)
  t = (s32[], f32[8,16], f32[16,16]) tuple(z, x, w)
  l = (s32[], f32[8,16], f32[16,16]) while(t), condition=condition, body=body
  y = f32[8,16] get-tuple-element(l), index=1
  s = f32[8,16] broadcast(b), dimensions={1}
  ROOT r = f32[8,16] add(y, s)
}
"""


def step() -> HloModule:
    return HloModule.from_text(STEP)


def hloom_command(*arguments: object) -> Any:
    return CliRunner().invoke(main, [str(a) for a in arguments])


def test_a_collective_in_a_loop_counts_for_each_iteration() -> None:
    found = report(step())
    assert (found.devices, dict(found.mesh)) == (4, {"data": 2, "model": 2})
    (row,) = found.collectives
    assert (row.op_name, row.source, row.axes) == ("jit(f)/dot", "model.py:7", "model")
    # Each device of an axis of 2 sends its half of what is gathered, or all of what is summed.
    amount = {"all-gather": 16 * 16 // 2 * 4, "all-reduce": 4 * 16 * 4}[row.opcode]
    assert (row.bytes, row.times, found.bytes_per_step) == (amount, 3, 3 * amount)
    agreement.near(np.float64(found.seconds), np.float64(3 * (1e-6 + amount / 100e9)), 4)
    assert found.replicated == (("b", 64),)
    assert found.argument_bytes == 4 * 16 * 4 + 8 * 16 * 4 + 64
    assert found.peak_bytes >= found.argument_bytes + found.result_bytes
    assert found.unknown_loops == 0


def test_a_larger_mesh_has_smaller_tiles() -> None:
    found = report(step(), {"data": 4, "model": 8})
    assert found.devices == 32
    assert found.argument_bytes == 2 * 16 * 4 + 2 * 16 * 4 + 64
    assert {row.members for row in found.collectives} == {8}


@pytest.mark.parametrize(("members", "steps"), [(2, 1), (8, 3), (65536, 16)])
def test_the_estimate_counts_messages_that_follow_each_other(members: int, steps: int) -> None:
    text = """HloModule m, frontend_attributes={xla.sdy.meshes={mesh = #sdy.mesh<["data"=2]>}}
    ENTRY e { x = f32[65536] parameter(0), frontend_attributes={
      xla.sdy.sharding="#sdy.sharding<@mesh, [{\\"data\\"}]>"}
      ROOT y = f32[65536] negate(x), frontend_attributes={xla.sdy.sharding="#sdy.sharding<@mesh, [{}]>"} }"""
    links = {"data": Link(1.0, 1e30)}
    (row,) = report(HloModule.from_text(text), {"data": members}, links).collectives
    assert (row.opcode, row.members) == ("all-gather", members)
    assert steps <= row.seconds < steps * 1.001


def test_programs_run_on_tiles() -> None:
    module = step()
    random = np.random.default_rng(0)
    given = [random.integers(-2, 3, s).astype(np.float32) for s in ((8, 16), (16, 16), (16,))]
    cut = partitioned_program(module, 4)
    executable = hloom.compile(module, num_partitions=4, use_spmd_partitioning=True)
    results = executable.run(
        [[tile_of(a, t, n) for a, t in zip(given, cut.parameters, strict=True)] for n in range(4)]
    )
    whole = hloom.compile(module, "evaluator")(*given)
    for number, found in enumerate(results):
        agreement.equal(found, tile_of(whole, cut.results[0], number))


def test_the_commands_print_the_program_and_the_report(tmp_path: Path) -> None:
    file = tmp_path / "step.hlo"
    file.write_text(STEP)
    text = hloom_command("partition", file, "--mesh", "data=4,model=2").output
    assert HloModule.from_text(text).config.num_partitions == 8
    assert "f32[2,16]" in text
    hloom_command("partition", file, "--output", tmp_path / "one.hlo")
    assert HloModule.from_text((tmp_path / "one.hlo").read_text()).config.num_partitions == 4
    shown = hloom_command("shard", file).output
    assert "4 devices (data=2, model=2)" in shown and "model.py:7" in shown
    data = json.loads(hloom_command("shard", file, "--json", "--topology", "ethernet").output)
    assert data["bytes_per_step"] == report(step()).bytes_per_step
    links = tmp_path / "links.json"
    links.write_text('{"data": {"latency": 0, "bandwidth": 1}, "model": {"latency": 1, "bandwidth": 1e9}}')
    slow = json.loads(hloom_command("shard", file, "--json", "--topology", links).output)
    assert 3 <= slow["collectives"][0]["seconds"] < 3.001


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        (("--mesh", "data"), "mesh.notation"),
        (("--topology", "rope"), "report.topology"),
        (("--topology", "FILE"), "report.topology-file"),
    ],
)
def test_bad_options_end_with_a_message(arguments: tuple[str, str], rule: str, tmp_path: Path) -> None:
    file = tmp_path / "step.hlo"
    file.write_text(STEP)
    given = [str(file) if a == "FILE" else a for a in arguments]
    result = hloom_command("shard", file, *given)
    assert result.exit_code == 1 and f"[{rule}]" in printed(result.output)


def test_errors_of_the_functions() -> None:
    with pytest.raises(HloError, match=r"\[mesh\.notation\]"):
        parse_mesh("x=4,x=2")
    with pytest.raises(HloError, match=r"\[report\.program\]"):
        report("step")
    with pytest.raises(HloError, match=r"\[report\.topology\]"):
        report(step(), topology={})
    assert mesh_of(HloModule.from_text("HloModule m\nENTRY e { ROOT r = f32[] parameter(0) }")) == {}
