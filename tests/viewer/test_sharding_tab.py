"""The viewer's tab of sharding, in a browser."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from hloom import HloModule
from hloom.sharding import report
from hloom.tools.cli import main
from hloom.tools.viewer.sharding import is_sharded, sharding_part
from tests.viewer.conftest import Viewed

PROGRAM = """HloModule model, num_partitions=4, \
frontend_attributes={xla.sdy.meshes={mesh = #sdy.mesh<["data"=2, "model"=2]>}}

ENTRY %main (x: f32[256,32], w: f32[32,32]) -> f32[256,32] {
  %x = f32[256,32]{1,0} parameter(0), \
frontend_attributes={xla.sdy.sharding="#sdy.sharding<@mesh, [{\\"data\\"}, {}]>"}
  %w = f32[32,32]{1,0} parameter(1), \
frontend_attributes={xla.sdy.sharding="#sdy.sharding<@mesh, [{\\"data\\"}, {}]>"}
  ROOT %product = f32[256,32]{1,0} dot(%x, %w), lhs_contracting_dims={1}, rhs_contracting_dims={0}, \
metadata={op_name="jit(f)/dot_general" source_file="model.py" source_line=12}
}
"""


def test_collectives_lead_to_what_needs_them(view: Callable[..., Path], viewed: Viewed) -> None:
    viewed.open(view(PROGRAM, options=("--suggest", "--no-compile")), "#tab=sharding")
    found = report(HloModule.from_text(PROGRAM))
    head = viewed.texts("#tab-sharding .bar-of-tab")[0]
    assert head.startswith("4 devices (data=2, model=2)") and "each sends 2.05 kB in a step" in head
    assert found.bytes_per_step == 2048
    cells = viewed.texts(".collectives tr:nth-child(2) td")
    assert cells[:3] == ["all-gather", "1", "data"]
    assert cells[8:11] == ["%product", "jit(f)/dot_general, model.py:12", "[data, -] → [-, -]"]
    viewed.page.locator(".collectives tr:nth-child(2)").click()
    viewed.page.wait_for_selector("#details h2:has-text('product')")
    assert "data: the annotation of %w" in viewed.texts("#tab-sharding .reason")[0]
    headings = viewed.texts("#tab-sharding h3")
    assert "To consider, each by itself" in headings
    assert any("saves 2.05 kB in a step" in line for line in viewed.texts(".lines-of-sharding td"))
    viewed.page.locator(".collectives th", has_text="axis").click()
    assert viewed.texts(".collectives th.chosen") == ["axis"]
    assert not viewed.errors


def test_programs_without_shardings_have_no_tab(tmp_path: Path) -> None:
    module = HloModule.from_text(PROGRAM)
    assert is_sharded(module, {})
    plain = "HloModule m\nENTRY e { ROOT x = f32[2] parameter(0) }"
    assert not is_sharded(HloModule.from_text(plain), {})
    file = tmp_path / "m.hlo"
    file.write_text(plain)
    done = CliRunner().invoke(main, ["view", str(file), "-o", str(tmp_path / "page.html")])
    assert done.exit_code == 0 and done.output.endswith("code\n")


def test_the_data_of_the_tab_are_those_of_the_report(tmp_path: Path) -> None:
    data: Any = sharding_part(HloModule.from_text(PROGRAM), {"data": 4, "model": 2}, 0)["sharding"]
    assert data["devices"] == 8 and "timeline" not in data["memory"]
    assert len(json.loads(json.dumps(data))["collectives"]) == len(data["collectives"]) > 0
    file = tmp_path / "m.hlo"
    file.write_text(PROGRAM)
    options = ["view", str(file), "--no-compile", "-o", str(tmp_path / "page.html")]
    assert "sharding" in CliRunner().invoke(main, options).output
    assert CliRunner().invoke(main, [*options, "--mesh", "data"]).exit_code == 1


def test_the_program_of_one_device_is_a_stage_that_runs(view: Callable[..., Path], viewed: Viewed) -> None:
    viewed.open(view(PROGRAM, options=("--random", "1")), "#tab=passes")
    stages = viewed.texts(".stages li > span")
    assert stages[:2] == ["model", "after spmd-partitioner"]
    viewed.page.locator("#tabs button", has_text="Time").click()
    viewed.page.wait_for_selector("#tab-time .times td")
    assert "on 4 devices" in viewed.texts("#tab-time .bar-of-tab b")[0]
    rows = viewed.texts(".times tr td:first-child")
    assert any("all-gather" in row for row in rows)


def test_programs_for_many_devices_are_shown_but_not_run(tmp_path: Path) -> None:
    file = tmp_path / "m.hlo"
    file.write_text(PROGRAM)
    options = ["view", str(file), "--mesh", "data=32,model=64", "-o", str(tmp_path / "page.html")]
    done = CliRunner().invoke(main, options)
    assert done.exit_code == 0 and "memory, code, sharding" in done.output
    run = CliRunner().invoke(main, [*options, "--random", "1"])
    assert run.exit_code == 2 and "2,048 devices" in run.output
