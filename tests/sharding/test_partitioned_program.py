"""All that partition a program get the same one: partitioned, its all-reduces combined."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

import hloom
from hloom.ir.module import HloModule
from hloom.sharding import partition, partitioned_program, report
from hloom.sharding.planning.decisions import Cause
from hloom.tools.cli import main
from hloom.tools.commands.whole_program import WholeProgram
from hloom.tools.viewer.sharding import partitioned as viewed

TEXT = """HloModule m
ENTRY e {
  a = f32[4,8] parameter(0), sharding={devices=[1,2]<=[2]}
  b = f32[8,4] parameter(1), sharding={devices=[2,1]<=[2]}
  c = f32[8,6] parameter(2), sharding={devices=[2,1]<=[2]}
  d = f32[4,4] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}, sharding={replicated}
  e = f32[4,6] dot(a, c), lhs_contracting_dims={1}, rhs_contracting_dims={0}, sharding={replicated}
  ROOT r = (f32[4,4], f32[4,6]) tuple(d, e), sharding={{replicated}, {replicated}}
}"""


def collectives(module: HloModule) -> list[tuple[str, int]]:
    found = [i for i in module.instructions() if i.operation.communicates]
    return [(i.opcode, len(i.operands)) for i in found]


def test_all_reduces_are_combined_with_their_cause() -> None:
    made = partitioned_program(HloModule.from_text(TEXT), 2)
    assert collectives(made.module) == [("all-reduce", 2)]
    (combined,) = (i for i in made.module.instructions() if i.opcode == "all-reduce")
    assert isinstance(made.causes[combined], Cause)
    assert partition is partitioned_program


def test_reports_the_viewer_and_runs_see_what_is_executed(tmp_path: Path) -> None:
    module = HloModule.from_text(TEXT)
    wanted = partitioned_program(module, 2).module.to_text()
    assert viewed(module, {"x": 2}).module.to_text() == wanted
    assert WholeProgram(module, "evaluator", 2)._partitioned.module.to_text() == wanted
    assert [row.times for row in report(module, {"x": 2}).collectives] == [1]
    file = tmp_path / "m.hlo"
    file.write_text(TEXT)
    assert "all-reduce" in CliRunner().invoke(main, ["partition", str(file), "--mesh", "x=2"]).output
    spmd = hloom.compile(module, num_partitions=2, use_spmd_partitioning=True)
    assert spmd.to_hlo().count(" all-reduce(") == 1
