"""Profiles of programs on several devices: the time of each collective, waiting apart from moving."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import hloom
from hloom.errors import HloError
from hloom.ir.module import HloModule
from hloom.sharding import partitioned_program
from hloom.tools.cli import main
from tests.reducers import with_reducers
from tests.sharding.runs import tile_of

SUMMED = with_reducers("""HloModule m, num_partitions=2
  body { p = (s32[], f32[64]) parameter(0)
    n = s32[] get-tuple-element(p), index=0
    one = s32[] constant(1)
    m = s32[] add(n, one)
    x = f32[64] get-tuple-element(p), index=1
    y = f32[64] cosine(x)
    ROOT t = (s32[], f32[64]) tuple(m, y) }
  condition { p = (s32[], f32[64]) parameter(0)
    n = s32[] get-tuple-element(p), index=0
    id = u32[] partition-id()
    signed = s32[] convert(id)
    rounds = s32[] constant(300000)
    most = s32[] multiply(signed, rounds)
    ROOT r = pred[] compare(n, most), direction=LT }
  ENTRY e { x = f32[64] parameter(0)
    zero = s32[] constant(0)
    t = (s32[], f32[64]) tuple(zero, x)
    l = (s32[], f32[64]) while(t), condition=condition, body=body
    y = f32[64] get-tuple-element(l), index=1
    ROOT s = f32[64] all-reduce(y), channel_id=1, replica_groups={{0,1}},
      use_global_device_ids=true, to_apply=add }
""")
"""Partition 0 goes to the sum at once, partition 1 after 300,000 iterations."""

SHARDED = """HloModule m
  ENTRY e { x = f32[8,8] parameter(0), sharding={devices=[2,1]<=[2]}
    ROOT y = f32[8,8] add(x, x), sharding={devices=[1,2]<=[2]} }
"""

PERMUTED = """HloModule m, replica_count=2
  ENTRY e { x = f32[8] parameter(0)
    started = (f32[8], f32[8]) collective-permute-start(x), source_target_pairs={{0,1},{1,0}}
    ROOT done = f32[8] collective-permute-done(started) }
"""


def test_a_device_that_comes_early_waits_in_the_collective() -> None:
    exe = hloom.compile(HloModule.from_text(SUMMED))
    x = np.ones(64, np.float32)
    for _ in range(10):  # a busy machine may start partition 0 after the loop of the other one
        profile = exe.profile([[x], [x]])
        early, late = (device.collectives for device in profile.devices)
        if early[0].waiting > late[0].waiting:
            break
    assert early[0].waiting > late[0].waiting
    assert [line.runs for line in (*early, *late)] == [1, 1]
    assert 0 < late[0].waiting <= late[0].seconds
    (mean,) = profile.collectives
    assert mean.seconds == (early[0].seconds + late[0].seconds) / 2
    assert profile.seconds == max(device.seconds for device in profile.devices)
    assert max(line.runs for line in profile.lines) >= 300_000  # the partition's own number counts


def test_a_partitioned_program_shows_its_collectives() -> None:
    module = HloModule.from_text(SHARDED)
    exe = hloom.compile(module, num_partitions=2, use_spmd_partitioning=True)
    x = np.ones((8, 8), np.float32)
    (tiling,) = partitioned_program(module, 2).parameters
    profile = exe.profile([[tile_of(x, tiling, n)] for n in range(2)])
    (line,) = profile.collectives
    assert "all-to-all(" in line.text and 0 < line.waiting < line.seconds
    assert "waiting" in str(profile) and "on 2 devices" in str(profile)
    data = json.loads(json.dumps(profile.to_json()))
    assert len(data["devices"]) == 2 and data["lines"][0]["seconds"] == profile.lines[0].seconds


def test_collectives_of_the_host_tell_waiting_too() -> None:
    start = SUMMED.index("    ROOT s = ")
    text = f"""{SUMMED[:start]}
    begun = (f32[64], f32[64]) collective-permute-start(y), channel_id=1,
      source_target_pairs={{{{0,1}},{{1,0}}}}
    between = f32[64] negate(y), control-predecessors={{begun}}
    ROOT done = f32[64] collective-permute-done(begun), control-predecessors={{between}} }}"""
    exe = hloom.compile(HloModule.from_text(text))
    x = np.ones(64, np.float32)
    for _ in range(10):  # a busy machine may start partition 0 after the loop of the other one
        early, _ = exe.profile([[x], [x]]).devices
        lines = {line.name: line for line in early.collectives}
        assert set(lines) == {"begun", "done"}
        if lines["done"].waiting:
            break
    assert 0 < lines["done"].waiting <= lines["done"].seconds


def test_devices_without_collectives_and_with_programs_of_their_own() -> None:
    def module(opcode: str) -> HloModule:
        return HloModule.from_text(f"""HloModule m
          ENTRY e {{ x = f32[99] parameter(0)
            ROOT {opcode} = f32[99] {opcode}(x) }}""")

    x = np.ones(99, np.float32)
    same = hloom.compile(module("sine"), num_replicas=3).profile([[x]] * 3)
    assert len(same.devices) == 3 and len(same.lines) == 1 and not same.collectives
    own = hloom.compile([module("sine"), module("tanh")]).profile([[x], [x]])
    assert {line.name for line in own.lines} == {"sine", "tanh"}
    assert own.lines[0].seconds == max(device.lines[0].seconds for device in own.devices)


@pytest.mark.parametrize("arguments", [(), ([],), (1,), ([[]], [[]])])
def test_each_device_needs_arguments(arguments: tuple[object, ...]) -> None:
    exe = hloom.compile(HloModule.from_text(PERMUTED))
    with pytest.raises(HloError) as caught:
        exe.profile(*arguments)
    assert caught.value.rule == "run.device-count"


def test_the_time_of_a_run_is_that_of_its_instructions() -> None:
    """Threads that wait for Python do not count."""
    module = HloModule.from_text(SHARDED)
    exe = hloom.compile(module, num_partitions=2, use_spmd_partitioning=True)
    x = np.ones((8, 4), np.float32)
    for device in exe.profile([[x.reshape(4, 8)]] * 2).devices:
        assert sum(line.seconds for line in device.lines) <= device.seconds


def test_a_program_on_whole_arguments(tmp_path: Path) -> None:
    file = tmp_path / "m.hlo"
    file.write_text(SHARDED.replace("HloModule m", "HloModule m, num_partitions=2"))
    words = ["run", str(file), "--partition", "--random", "1", "--quiet", "--profile"]
    shown = CliRunner().invoke(main, words).output
    assert "on 2 devices" in shown and "all-to-all(" in shown


@pytest.mark.parametrize("text", [SUMMED, PERMUTED])
def test_the_commands_profile_several_devices(text: str, tmp_path: Path) -> None:
    file = tmp_path / "m.hlo"
    file.write_text(text)
    shown = CliRunner().invoke(main, ["run", str(file), "--random", "1", "--quiet", "--profile"])
    assert shown.exit_code == 0 and "waiting for other devices" in shown.output
    page = tmp_path / "page.html"
    made = CliRunner().invoke(main, ["view", str(file), "--random", "1", "-o", str(page)])
    assert made.exit_code == 0 and "time" in made.output
