"""The command line, command by command."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from click.testing import CliRunner, Result

from hloom import HloModule, Literal, Snapshot, save, save_snapshot
from hloom.tools.cli import main
from tests import agreement
from tests.arrays import f32
from tests.raised_rules import printed
from tests.reducers import with_reducers

PROGRAM = """HloModule scaled

ENTRY e {
  x = f32[2,2] parameter(0)
  t = (f32[], bf16[2]) parameter(1)
  s = f32[] get-tuple-element(t), index=0
  b = f32[2,2] broadcast(s), dimensions={}
  v = bf16[2] get-tuple-element(t), index=1
  y = f32[2,2] multiply(x, b)
  ROOT r = (f32[2,2], bf16[2]) tuple(y, v)
}
"""

SUM = with_reducers("""HloModule m

ENTRY e {
  p = f32[] parameter(0)
  ROOT r = f32[] all-reduce(p), replica_groups={}, to_apply=add
}
""")


def hloom(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(a) for a in arguments], catch_exceptions=False)


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "scaled.hlo"
    path.write_text(PROGRAM)
    return path


def test_help_lists_the_commands() -> None:
    output = hloom("--help").output
    for command in ("run", "verify", "print", "layout", "op", "diff", "draw", "stats", "aot"):
        assert f"\n  {command}" in output


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys; sys.argv = ['hloom', '--help']; from hloom.tools.cli import main\n"
        "try: main()\nexcept SystemExit: print(*sorted({m.split('.')[0] for m in sys.modules}))"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert not {"numpy", "scipy", "rich", "google", "jax", "llvmlite"} & set(loaded.split())


# -- run


def test_run_with_inputs_from_files(tmp_path: Path, program: Path) -> None:
    np.save(tmp_path / "x.npy", f32([[1, 2], [3, 4]]))
    np.savez(tmp_path / "t.npz", s=np.float32(10), v=np.array([1.5, -2.0], ml_dtypes.bfloat16))
    result = hloom(
        "run",
        program,
        "--input",
        tmp_path / "x.npy",
        "--input",
        tmp_path / "t.npz",
        "--output",
        tmp_path / "out",
    )
    assert result.exit_code == 0, result.output
    assert "result.0: f32[2,2]" in result.output
    assert np.load(tmp_path / "out" / "result.0.npy").tolist() == [[10, 20], [30, 40]]
    assert "on cpu" in result.output


def test_run_at_random_is_the_same_for_a_seed(program: Path) -> None:
    first, second, third = (hloom("run", program, "--random", seed) for seed in (1, 1, 2))
    assert first.exit_code == 0, first.output
    assert first.output.split("\n")[1:5] == second.output.split("\n")[1:5] != third.output.split("\n")[1:5]


def test_run_on_several_devices(tmp_path: Path) -> None:
    path = tmp_path / "sum.hlo"
    path.write_text(SUM)
    np.save(tmp_path / "p.npy", np.float32(3))
    result = hloom("run", path, "--input", tmp_path / "p.npy", "--num-replicas", 2, "--output", tmp_path)
    assert "device 1 result: f32[]" in result.output
    assert np.load(tmp_path / "device_0.result.npy") == 6


WHOLE = """HloModule m, num_partitions=4

ENTRY e {
  x = f32[4,2] parameter(0), sharding={devices=[4,1]<=[4]}
  t = (f32[4,2], s32[]) parameter(1)
  cut = f32[4,2] copy(x), sharding={devices=[4,1]<=[4]}
  tile = f32[1,2] custom-call(cut), custom_call_target="SPMDFullToShardShape", sharding={manual}
  device = u32[] partition-id(), sharding={manual}
  number = f32[] convert(device), sharding={manual}
  spread = f32[1,2] broadcast(number), dimensions={}, sharding={manual}
  moved = f32[1,2] add(tile, spread), sharding={manual}
  y = f32[4,2] custom-call(moved), custom_call_target="SPMDShardToFullShape", sharding={devices=[4,1]<=[4]}
  other = f32[4,2] get-tuple-element(t), index=0
  n = (f32[4,2]) tuple(other)
  ROOT r = (f32[4,2], (f32[4,2])) tuple(y, n)
}
"""


@pytest.mark.parametrize("backend", ["cpu", "evaluator"])
def test_run_of_a_whole_program_with_regions_of_tiles(tmp_path: Path, backend: str) -> None:
    (tmp_path / "m.hlo").write_text(WHOLE)
    x = np.arange(8, dtype=np.float32).reshape(4, 2)
    for name, value in (("x", x), ("y", 2 * x), ("z", np.int32(3))):
        np.save(tmp_path / f"{name}.npy", value)
    inputs = [word for name in "xyz" for word in ("--input", tmp_path / f"{name}.npy")]
    result = hloom("run", tmp_path / "m.hlo", *inputs, "--output", tmp_path, "--backend", backend)
    assert result.exit_code == 0, result.output
    agreement.same(np.load(tmp_path / "result.0.npy"), x + np.arange(4, dtype=np.float32)[:, None])
    agreement.same(np.load(tmp_path / "result.1.0.npy"), 2 * x)


SHARDED = """HloModule m, num_partitions=2
ENTRY e {
  x = f32[3,2] parameter(0), sharding={devices=[2,1]<=[2]}
  ROOT y = f32[3,2] negate(x), sharding={devices=[1,2]<=[2]}
}
"""


def test_run_of_a_partitioned_program_stores_tiles_and_reads_them(tmp_path: Path) -> None:
    (tmp_path / "m.hlo").write_text(SHARDED)
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    np.save(tmp_path / "x.npy", x)
    state = tmp_path / "state"
    words = ("--input", tmp_path / "x.npy", "--partition", "--output-tiles", state)
    result = hloom("run", tmp_path / "m.hlo", *words)
    assert result.exit_code == 0, result.output
    assert f"wrote {state / 'result'}" in result.output
    assert sorted(each.name for each in (state / "result").iterdir()) == [".zarray", "0.0", "0.1"]
    for more in (("--partition",), ("--num-partitions", 1)):
        result = hloom("run", tmp_path / "m.hlo", "--input", state, "--output", tmp_path, *more)
        assert result.exit_code == 0, result.output
        agreement.same(np.load(tmp_path / "result.npy"), x)


def test_run_stores_tiles_of_partitioned_programs_only(tmp_path: Path) -> None:
    (tmp_path / "m.hlo").write_text(SHARDED)
    words = ("run", tmp_path / "m.hlo", "--random", 1, "--output-tiles", tmp_path / "state")
    assert "run.tiles" in refusal(*words)
    assert "stored.not-found" in refusal("run", tmp_path / "m.hlo", "--input", tmp_path)


def test_run_of_a_snapshot_compares_with_its_result(tmp_path: Path) -> None:
    from hloom.proto.literal import write_literal
    from hloom.proto.schema.hlo_pb2 import HloModuleProto, HloProto, HloSnapshot

    module = HloModule.from_text(
        "HloModule m\nENTRY e {\n  p = f32[2] parameter(0)\n  ROOT r = f32[2] negate(p)\n}\n"
    )
    proto = HloProto(hlo_module=HloModuleProto.FromString(module.to_proto()))
    for result, words in (([-1, -2], "equal to the snapshot's result"), ([-1, 0], "largest difference is 2")):
        snapshot = HloSnapshot(hlo=proto)
        write_literal(Literal(f32([1, 2])), snapshot.arguments.add())
        write_literal(Literal(f32(result)), snapshot.result)
        path = tmp_path / "snapshot.pb"
        path.write_bytes(snapshot.SerializeToString())
        assert words in hloom("run", path).output


def test_run_of_a_snapshot_without_its_arguments(tmp_path: Path) -> None:
    """XLA stores neither donated arguments nor the result of such a run."""
    module = HloModule.from_text(
        "HloModule m\nENTRY e {\n  p = f32[] parameter(0)\n  ROOT r = f32[] negate(p)\n}\n"
    )
    save_snapshot(Snapshot(module, ((),), Literal(())), tmp_path / "snapshot.pb")
    assert "run.snapshot-arguments" in refusal("run", tmp_path / "snapshot.pb")
    assert "negate" in hloom("print", tmp_path / "snapshot.pb").output
    assert hloom("run", tmp_path / "snapshot.pb", "--random", 1).exit_code == 0
    save_snapshot(Snapshot(module, ((Literal(np.float32(2)),),), Literal(())), tmp_path / "snapshot.pb")
    assert "not compared: the snapshot's result is ()" in hloom("run", tmp_path / "snapshot.pb").output


def refusal(*arguments: object) -> str:
    result = hloom(*arguments)
    assert result.exit_code == 1
    assert "Traceback" not in result.output
    return printed(result.output)


def test_run_says_what_is_missing(tmp_path: Path, program: Path) -> None:
    assert "run.argument-count" in refusal("run", program)
    assert "x: f32[2,2]" in refusal("run", program)
    np.save(tmp_path / "x.npy", np.float32(1))
    one = ("--input", tmp_path / "x.npy")
    assert "run.argument-count" in refusal("run", program, *one)
    assert "run.argument-source" in refusal("run", program, *one, "--random", 1)
    (tmp_path / "x.npy").write_text("no array")
    assert "run.input-file" in refusal("run", program, *one)
    assert "compile.backend" in refusal("run", program, "--backend", "abacus", "--random", 1)
    (tmp_path / "unbounded.hlo").write_text(
        "HloModule m\nENTRY e {\n  p = f32[?] parameter(0)\n  ROOT r = f32[?] negate(p)\n}\n"
    )
    assert "run.random-unbounded" in refusal("run", tmp_path / "unbounded.hlo", "--random", 1)


# -- verify, print


def test_verify(tmp_path: Path, program: Path) -> None:
    assert "ok" in hloom("verify", program).output
    bad = tmp_path / "bad.hlo"
    bad.write_text(PROGRAM.replace("multiply(x, b)", "multiply(x, s)"))
    output = refusal("verify", bad)
    assert "multiply.same-dimensions" in output
    assert "in instruction %y" in output
    assert "bad.hlo" in output


def test_errors_of_text_have_a_place_and_a_caret(tmp_path: Path) -> None:
    bad = tmp_path / "bad.hlo"
    bad.write_text(PROGRAM.replace("multiply(", "multipyl("))
    output = refusal("verify", bad)
    assert "bad.hlo:9:" in output
    assert "\n" + " " * 17 + "^" in output


@pytest.mark.parametrize("form", ["text", "short", "canonical", "fingerprint", "pbtxt", "json"])
def test_print_in_every_form(tmp_path: Path, program: Path, form: str) -> None:
    output = hloom("print", program, "--format", form).output
    assert "multiply" in output
    if form in ("text", "short", "pbtxt", "json"):
        (tmp_path / "again").write_text(output)
        assert hloom("diff", program, tmp_path / "again").exit_code == 0


def test_print_as_a_proto(tmp_path: Path, program: Path) -> None:
    assert hloom("print", program, "--format", "proto", "-o", tmp_path / "m.pb").exit_code == 0
    assert "equal" in hloom("diff", program, tmp_path / "m.pb").output


def test_print_switches(program: Path) -> None:
    assert "{1,0}" not in hloom("print", program, "--no-layouts").output.split("ENTRY")[1]
    assert "%" not in hloom("print", program, "--no-percent").output
    assert "multiply(f32[2,2]{1,0} %x" in hloom("print", program, "--operand-shapes").output


def test_json_has_the_names_of_the_proto(program: Path) -> None:
    message = json.loads(hloom("print", program, "--format", "json").output)
    assert message["hlo_module"]["entry_computation_name"] == "e"


def test_a_program_of_stablehlo_runs_and_is_printed(tmp_path: Path) -> None:
    pytest.importorskip("jax")
    path = tmp_path / "double.mlir"
    path.write_text(
        "func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {\n"
        "  %y = stablehlo.add %x, %x : tensor<2xf32>\n  return %y : tensor<2xf32>\n}\n"
    )
    np.save(tmp_path / "x.npy", np.array([1.5, -2], np.float32))
    assert "[ 3. -4.]" in hloom("run", path, "--input", tmp_path / "x.npy").output
    assert "f32[2]{0} add(" in hloom("print", path).output
    printed = hloom("print", path, "--format", "stablehlo").output
    (tmp_path / "again.mlir").write_text(printed)
    assert "stablehlo.add" in printed
    assert "equal" in hloom("diff", path, tmp_path / "again.mlir").output


# -- layout, op


def test_layout_in_words_and_as_a_drawing(tmp_path: Path) -> None:
    output = hloom("layout", "f32[3,5]{1,0:T(2,2)}").output
    assert "96 bytes" in output
    assert "(23)" in output
    assert "(23)" not in hloom("layout", "f32[3,5]{1,0:T(2,2)}", "--no-drawing").output
    for suffix in ("svg", "png"):
        assert hloom("layout", "f32[3,5]{1,0:T(2,2)}", "-o", tmp_path / f"l.{suffix}").exit_code == 0
        assert (tmp_path / f"l.{suffix}").stat().st_size > 1000
    assert "layout.tile-size-positive" in refusal("layout", "f32[3]{0:T(0)}")


def test_op_lists_and_shows() -> None:
    assert "138 operations" in hloom("op").output
    page = hloom("op", "gather").output
    assert "gather.offset_dims-sorted" in page
    assert "=> s32[2,2] { { 5, 6 }, { 1, 2 } }" in page
    assert hloom("op", "pad", "--format", "markdown").output.startswith("# pad\n")
    assert "hloom.ops.DotGeneral(lhs, rhs," in hloom("op", "DotGeneral").output
    output = refusal("op", "gathr")
    assert "op.known" in output
    assert "did you mean gather" in output


# -- diff, draw, stats


def test_diff_shows_what_is_different(tmp_path: Path, program: Path) -> None:
    other = tmp_path / "other.hlo"
    other.write_text(PROGRAM.replace("multiply", "add").replace(" y", " z").replace("(y", "(z"))
    result = hloom("diff", program, other)
    assert result.exit_code == 1
    assert "- %y = f32[2,2]{1,0} multiply(%x, %b)" in result.output
    assert "+ %z = f32[2,2]{1,0} add(%x, %b)" in result.output
    assert "1 changed, 0 removed, 0 added, 6 equal" in result.output


def test_draw_in_every_form(tmp_path: Path, program: Path) -> None:
    for suffix, start in ((".svg", "<svg"), (".html", "<!doctype html>"), (".dot", "digraph")):
        path = tmp_path / f"graph{suffix}"
        assert "7 instructions in 1 computation" in hloom("draw", program, "--out", path).output
        assert path.read_text().startswith(start)
    assert "draw.suffix" in refusal("draw", program, "-o", tmp_path / "graph.bmp")


def test_stats_of_a_compilation(program: Path) -> None:
    phases = json.loads(hloom("stats", program, "--compile", "--json").output)["compilation"]["phases"]
    assert {"algsimp", "fusion", "generate code"} <= {row["name"] for row in phases}
    lines = hloom("stats", program, "--compile").output.partition("\nCompilation\n")[2].splitlines()
    assert [line for line in lines if line.startswith("    algsimp")] and " s of CPU time in " in lines[0]


def test_stats(program: Path) -> None:
    assert json.loads(hloom("stats", program, "--json").output)["cost"]["flops"] == 4
    output = hloom("stats", program).output
    assert "7 instructions in 1 computation" in output
    assert "4 flop" in output


def test_a_missing_file_is_no_traceback(tmp_path: Path) -> None:
    assert hloom("verify", tmp_path / "none.hlo").exit_code == 2


def test_an_empty_result_is_saved(tmp_path: Path) -> None:
    module = HloModule.from_text("HloModule m\nENTRY e {\n  ROOT r = f32[0] constant({})\n}\n")
    save(module, tmp_path / "empty.pb")
    assert hloom("run", tmp_path / "empty.pb", "--output", tmp_path).exit_code == 0
    assert np.load(tmp_path / "result.npy").shape == (0,)


# -- bad input ends with a message


def test_verify_goes_on_behind_a_wrong_program(tmp_path: Path, program: Path) -> None:
    bad, empty = tmp_path / "bad.hlo", tmp_path / "empty.hlo"
    bad.write_text("ENTRY e {\n  p = f32[2] parameter(0)\n  ROOT n = f32[3] negate(p)\n}\n")
    empty.write_bytes(b"")
    result = hloom("verify", bad, program, empty)
    assert result.exit_code == 1
    assert f"{bad}:3:8: the shape is stated as f32[3]" in result.output
    assert "\n  " + " " * 7 + "^" in result.output
    assert f"{program}: scaled, 7 instructions" in result.output
    assert f"error: {empty} holds no program: it is empty" in result.output


@pytest.mark.parametrize(
    "data",
    [b"", b"\0\1\2\xff", b"\x1f\x8b", bytes(range(256)) * 20, b"hello world", b"\xef\xbb\xbf", b"{}", b"-"],
)
@pytest.mark.parametrize("command", ["verify", "print", "run", "stats", "draw"])
def test_what_is_no_program_is_refused_by_every_command(tmp_path: Path, command: str, data: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(data)
    out = ("--out", tmp_path / "graph.svg") if command == "draw" else ()
    assert f"error: {path}" in refusal(command, path, *out)


def test_a_program_comes_from_the_standard_input() -> None:
    for command in (["print", "-"], ["stats", "-"], ["run", "-", "--random", "1"]):
        found = subprocess.run(
            [sys.executable, "-m", "hloom", *command],
            input=PROGRAM,
            capture_output=True,
            text=True,
            check=True,
        )
        assert "scaled" in found.stdout


def huge_header(path: Path) -> None:
    np.save(path, np.zeros(3))
    path.write_bytes(path.read_bytes().replace(b"(3,)", b"(999999999999,)").replace(b" " * 9, b"", 1))


def flipped_bit(path: Path) -> None:
    np.savez(path, x=np.zeros(3))
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("objects.npy", lambda path: np.save(path, np.array([None]), allow_pickle=True)),
        ("empty.npy", lambda path: path.write_bytes(b"")),
        ("header.npy", lambda path: path.write_bytes(b"\x93NUMPY\x01\x00\xff\xff{")),
        ("short.npy", lambda path: path.write_bytes(b"\x93NUMPY\x01\x00")),
        ("huge.npy", huge_header),
        ("zip.npz", lambda path: path.write_bytes(b"PK\3\4")),
        ("damaged.npz", flipped_bit),
    ],
)
def test_files_without_arrays_are_refused(
    tmp_path: Path, program: Path, name: str, write: Callable[[Path], object]
) -> None:
    write(tmp_path / name)
    message = refusal("run", program, "--input", tmp_path / name)
    assert name in message
    assert "run.input-file" in message


def test_files_that_cannot_be_written(program: Path) -> None:
    nowhere = program / "below" / "a.file"
    for arguments in (
        ("run", program, "--random", 1, "--output", nowhere),
        ("print", program, "-o", nowhere),
        ("draw", program, "--out", nowhere.with_suffix(".svg")),
        ("layout", "f32[2]", "--out", nowhere.with_suffix(".svg")),
    ):
        assert f"error: {nowhere.with_suffix('')}" in refusal(*arguments)
    assert hloom("run", program, "--random", -1).exit_code == 2


def test_names_of_operations_as_people_write_them() -> None:
    for name in ("all-gather", "AllGather", "all_gather", " ALL-GATHER "):
        assert hloom("op", name).output.startswith("all-gather(operands...)")


def test_shapes_that_cannot_be_drawn_are_explained() -> None:
    output = hloom("layout", "f32[?]").output
    assert "any size" in output
    assert not output.endswith("\n\n")


# -- several programs in one file


def test_several_programs_in_one_file(tmp_path: Path) -> None:
    path = tmp_path / "two.hlo"
    path.write_text(PROGRAM + "\n// -----\n\n" + SUM)
    printed = hloom("print", path).output
    assert [part.split(",")[0] for part in printed.split("// -----\n\n")] == [
        "HloModule scaled",
        "HloModule m",
    ]
    again = tmp_path / "again.hlo"
    again.write_text(printed)
    assert hloom("print", again).output == printed
    assert "print.one-program" in refusal("print", path, "--format", "proto")
    assert "file.one-program" in refusal("run", path, "--random", 1)
    assert "contains 2 programs; only the first is used" in hloom("stats", path).output


def test_print_writes_what_xla_writes_to_the_last_byte(program: Path, tmp_path: Path) -> None:
    module = HloModule.from_text(PROGRAM)
    assert hloom("print", program).output == module.to_text(xla_version="0.12")
    assert hloom("print", program, "--xla-version", "0.10.2").output == module.to_text()
    hloom("print", program, "-o", tmp_path / "out.hlo")
    assert (tmp_path / "out.hlo").read_text() == module.to_text(xla_version="0.12")
    assert hloom("opt", program, "--passes=dce", "--xla-version=0.11").output.count("%t#0") == 1
    for version in ("new", "9.9"):
        refused = hloom("print", program, "--xla-version", version)
        assert refused.exit_code == 2
        assert "a version of XLA is that of a jaxlib, from 0.10 to 0.12" in refused.output
