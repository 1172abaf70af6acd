"""Folders of dumps: their programs and stages, and the commands that take them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from hloom import HloError
from hloom.dumps import dumped_programs, largest_program
from hloom.tools.cli import main

SMALL = """HloModule small

ENTRY e {
  p = f32[4] parameter(0)
  ROOT n = f32[4] negate(p)
}
"""
LARGE = """HloModule large

ENTRY e {
  p = f32[4] parameter(0)
  q = f32[4] multiply(p, p)
  ROOT r = f32[4] add(q, p)
}
"""


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    """A folder with two programs, as `--xla_dump_to` writes them."""
    files = {
        "module_0001.jit_small.before_optimizations.txt": SMALL,
        "module_0001.jit_small.cpu_after_optimizations-buffer-assignment.txt": "BufferAssignment",
        "module_0002.jit_large.before_optimizations.txt": LARGE,
        "module_0002.jit_large.0010.simplification.after_dce.before_cse.txt": LARGE,
        "module_0002.jit_large.0009.simplification.after_pipeline-start.before_dce.txt": LARGE,
        "module_0002.jit_large.cpu_after_optimizations.txt": LARGE,
        "module_0002.jit_large.debug_options": "",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def hloom(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(a) for a in arguments], catch_exceptions=False)


def test_programs_have_their_stages_in_the_order_of_compilation(dump: Path) -> None:
    small, large = dumped_programs(dump)
    assert (small.name, large.name) == ("module_0001.jit_small", "module_0002.jit_large")
    assert [stage.title for stage in small.stages] == ["before optimizations"]
    assert [stage.title for stage in large.stages] == [
        "before optimizations",
        "start of simplification",
        "after dce (simplification)",
        "cpu after optimizations",
    ]
    assert [stage.after for stage in large.passes] == ["pipeline-start", "dce"]
    assert largest_program(dump) == large
    assert largest_program(dump, "small") == small


def test_a_folder_of_plain_files_has_a_program_for_each(tmp_path: Path) -> None:
    (tmp_path / "a.hlo").write_text(SMALL)
    (tmp_path / "b.pb.gz").write_bytes(b"")
    (tmp_path / "notes.md").write_text("")
    assert [program.name for program in dumped_programs(tmp_path)] == ["a.hlo", "b.pb.gz"]


def test_folders_without_the_program_are_refused(
    dump: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    for folder, matching, rule in (
        (tmp_path_factory.mktemp("empty"), "", "dump.folder"),
        (dump, "other", "dump.program"),
        (dump, "(", "dump.expression"),
    ):
        with pytest.raises(HloError) as caught:
            dumped_programs(folder, matching)
        assert caught.value.rule == rule


@pytest.mark.parametrize(
    "command",
    ["run --random 0", "check", "trace", "stats", "print", "opt --passes=dce", "draw --out {0}/g.svg",
     "aot -o {0}/object"],
)  # fmt: skip
def test_commands_take_the_largest_program_of_a_folder(command: str, dump: Path, tmp_path: Path) -> None:
    name, *options = command.format(tmp_path).split()
    result = hloom(name, dump, *options)
    assert result.exit_code == 0, result.output
    assert "module_0002.jit_large.before_optimizations.txt: the largest of 2 programs" in result.stderr
    chosen = hloom(name, dump, "--program", "small", *options)
    assert chosen.exit_code == 0, chosen.output
    assert "the largest" not in chosen.stderr


def test_two_folders_are_compared(dump: Path) -> None:
    assert hloom("diff", dump, dump).output.endswith("equal\n")
    assert hloom("diff", dump, dump / "module_0001.jit_small.before_optimizations.txt").exit_code == 1


def test_verify_checks_every_stage_and_names_the_invalid_file(dump: Path) -> None:
    result = hloom("verify", dump)
    assert result.exit_code == 0
    assert result.stdout.endswith("5 of 5 files are valid\n")
    invalid = dump / "module_0002.jit_large.0010.simplification.after_dce.before_cse.txt"
    invalid.write_text(LARGE.replace("add(q, p)", "add(q, x)"))
    result = hloom("verify", dump)
    assert result.exit_code == 1
    assert f"{invalid}:6:" in result.stderr
    assert result.stdout.endswith("4 of 5 files are valid\n")


def test_an_error_names_the_file_of_the_folder(dump: Path) -> None:
    file = dump / "module_0002.jit_large.before_optimizations.txt"
    file.write_text(LARGE.replace("multiply(p, p)", "multiply(p, x)") + "// larger than the other program")
    assert f"error: {file}:5:" in hloom("stats", dump).stderr


def test_results_of_many_arrays_are_summarized(tmp_path: Path) -> None:
    names = [f"p{n}" for n in range(120)]
    lines = [f"  {name} = f32[9] parameter({n})" for n, name in enumerate(names)]
    root = f"  ROOT t = ({', '.join(['f32[9]'] * 120)}) tuple({', '.join(names)})"
    file = tmp_path / "many.hlo"
    file.write_text("\n".join(["HloModule many", "ENTRY e {", *lines, root, "}"]))
    np.savez(tmp_path / "ones.npz", *[np.ones(9, np.float32)] * 120)
    summary, *values = hloom("run", file, "--input", tmp_path / "ones.npz").output.splitlines()
    assert summary.endswith("; 120 arrays, 4.32 kB")
    assert values[0] == "result.0: f32[9] 9 elements, min 1, max 1, mean 1"
    assert values[-2:] == ["... and 20 more arrays", "--all prints every array in full"]
    everything = hloom("run", file, "--input", tmp_path / "ones.npz", "--all").output.splitlines()
    assert len(everything) == 1 + 2 * 120


def test_an_object_file_gets_its_suffix(dump: Path, tmp_path: Path) -> None:
    assert hloom("aot", dump, "-o", tmp_path / "lenet").exit_code == 0
    assert (tmp_path / "lenet.o").is_file()
    assert (tmp_path / "lenet.h").is_file()
