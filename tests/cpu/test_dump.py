"""XLA_FLAGS: dumps of a compilation under XLA's names."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import numpy as np
import pytest

import hloom
from hloom import HloError
from hloom.buffers.report import human_bytes
from hloom.cpu.dump_options import DumpOptions, dump_options
from hloom.files import load, load_snapshot
from hloom.runtime.executable import Executable
from tests.evaluation import parse
from tests.reducers import with_reducers

PROGRAM = with_reducers("""
HloModule jit_layer

ENTRY main {
  x = f32[64,8] parameter(0)
  w = f32[8,16] parameter(1)
  c = f32[12] constant({1,2,3,4,5,6,7,8,9,10,11,12})
  padding = f32[] constant(0.5)
  wide = f32[16] pad(c, padding), padding=2_2
  d = f32[64,16] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata={op_name="product"}
  spread = f32[64,16] broadcast(wide), dimensions={1}
  e = f32[64,16] add(d, spread)
  zero = f32[] constant(0)
  unused = f32[64,16] negate(e)
  sums = f32[64] reduce(e, zero), dimensions={1}, to_apply=add
  ROOT r = (f32[64], f32[64,16]) tuple(sums, e)
}
""")


def compiled(monkeypatch: pytest.MonkeyPatch, flags: str, text: str = PROGRAM) -> Executable:
    """Compile a program while XLA_FLAGS have a value."""
    monkeypatch.setenv("XLA_FLAGS", flags)
    return hloom.compile(parse(text), backend="cpu")


def files(folder: Path) -> dict[str, Path]:
    """Return the dumps by the part after number and name, in the order of their names."""
    found: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        match = re.fullmatch(r"module_\d{4}\.jit_layer\.(.*)", path.name)
        assert match is not None, path.name
        found[match[1]] = path
    return found


def test_a_compilation_leaves_xlas_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "new" / "dumps"
    module = parse(PROGRAM)
    executable = compiled(monkeypatch, f"--xla_dump_to={folder}")
    found = files(folder)
    assert list(found) == [
        "before_optimizations.txt",
        "cpu_after_optimizations-buffer-assignment.txt",
        "cpu_after_optimizations-kernel-plans.txt",
        "cpu_after_optimizations.txt",
        "debug_options",
        "ir-no-opt.ll",
        "ir-with-opt.ll",
        "obj-file.part0.o",
        "s",
    ]
    assert found["before_optimizations.txt"].read_text() == module.to_text()
    assert found["cpu_after_optimizations.txt"].read_text() == executable.to_hlo()
    assert found["ir-no-opt.ll"].read_text() == executable.to_llvm()
    assert found["ir-with-opt.ll"].read_text() == executable.to_llvm()
    assert found["s"].read_text() == executable.to_asm()
    assert found["obj-file.part0.o"].read_bytes().startswith(b"\x7fELF")
    plans = found["cpu_after_optimizations-kernel-plans.txt"].read_text()
    assert "hero dot" in plans
    assert found["debug_options"].read_text() == f'xla_dump_to: "{folder}"\n'


def test_the_cache_does_not_keep_dumps_from_being_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = PROGRAM
    for folder in (tmp_path / "first", tmp_path / "second"):
        executable = compiled(monkeypatch, f"--xla_dump_to={folder}", text)
        x, w = np.ones((64, 8), np.float32), np.ones((8, 16), np.float32)
        assert executable(x, w)[0].tolist() == [16 * 8 + 78 + 4 * 0.5] * 64
    names = [list(files(tmp_path / which)) for which in ("first", "second")]
    assert names[0] == names[1]


def test_without_flags_about_dumps_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    compiled(monkeypatch, "--xla_force_host_platform_device_count=8")
    assert not list(tmp_path.iterdir())
    assert capsys.readouterr().out == ""


def test_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One file before the first pass, and one after each that changed something."""
    flags = f"--xla_dump_to={tmp_path} --xla_dump_hlo_pass_re=.*"
    executable = compiled(monkeypatch, flags)
    steps = {name: path for name, path in files(tmp_path).items() if name[0].isdigit()}
    names = list(steps)
    assert names[0] == "0000.cpu.after_pipeline-start.before_expansion.txt"
    assert [int(name[:4]) for name in names] == list(range(len(names)))
    assert any(re.match(r"\d{4}\.simplification\.after_dce\.before_algsimp\.txt", name) for name in names)
    assert any(re.match(r"\d{4}\.cpu\.after_fusion\.before_[\w-]+\.txt", name) for name in names)
    assert names[-1].endswith(".after_hlo-memory-scheduler.before_array-subviews.txt")
    assert steps[names[-1]].read_text() == executable.to_hlo()
    assert "fusion(" not in steps[names[1]].read_text()


@pytest.mark.parametrize(
    ("flags", "wanted"),
    [
        ("--xla_dump_hlo_pass_re=^fusion$", {"convolution-layout", "fusion", "dce", "hlo-memory-scheduler"}),
        (
            "--xla_dump_hlo_pass_re=. --xla_dump_hlo_pipeline_re=^simpl",
            {"dce", "algsimp", "constant_folding"},
        ),
        ("--xla_dump_hlo_pass_re=nothing", set[str]()),
    ],
)
def test_some_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: str, wanted: set[str]) -> None:
    compiled(monkeypatch, f"--xla_dump_to={tmp_path} {flags}")
    passes = {match[1] for name in files(tmp_path) if (match := re.search(r"\.after_(.+)\.before_", name))}
    assert passes <= wanted
    assert bool(passes) == bool(wanted)


def test_protos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = PROGRAM
    executable = compiled(monkeypatch, f"--xla_dump_to={tmp_path} --xla_dump_hlo_as_proto", text)
    found = files(tmp_path)
    assert "before_optimizations.txt" not in found
    assert load(found["before_optimizations.hlo.pb"]).to_text() == parse(text).to_text()
    assert load(found["cpu_after_optimizations.hlo.pb"]).to_text() == executable.to_hlo()


def test_protos_in_gzip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flags = "--xla_dump_hlo_as_proto --xla_dump_compress_protos=true --xla_dump_hlo_as_text"
    compiled(monkeypatch, f"--xla_dump_to={tmp_path} {flags}")
    found = files(tmp_path)
    assert gzip.decompress(found["before_optimizations.hlo.pb.gz"].read_bytes())
    assert found["before_optimizations.txt"].read_text().startswith("HloModule jit_layer")


@pytest.mark.parametrize(
    ("flag", "there", "gone"),
    [
        ("", 'metadata={op_name="product"}', "{1, 2, 3, 4"),
        ("--xla_dump_large_constants", "{1, 2, 3, 4", "constant({...})"),
        ("--xla_dump_disable_metadata", "dot(", "metadata"),
        ("--xla_dump_hlo_as_long_text=false", "x.1 = f32", "%x = f32"),
    ],
)
def test_the_form_of_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flag: str, there: str, gone: str
) -> None:
    compiled(monkeypatch, f"--xla_dump_to={tmp_path} {flag}")
    text = files(tmp_path)["before_optimizations.txt"].read_text()
    assert there.replace("x.1", "x") in text
    assert gone not in text


def test_every_run_can_be_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = PROGRAM
    executable = compiled(monkeypatch, f"--xla_dump_to={tmp_path} --xla_dump_hlo_snapshots", text)
    draws = np.random.default_rng(0)
    results = []
    for _ in range(2):
        x = draws.normal(size=(64, 8)).astype(np.float32)
        results.append((x, executable(x, np.ones((8, 16), np.float32))))
    for number, (x, result) in enumerate(results):
        snapshot = load_snapshot(files(tmp_path)[f"execution_{number:04d}.hlo_snapshot.pb"])
        assert snapshot.module.to_text() == parse(text).to_text()
        assert np.array_equal(snapshot.runs[0][0].numpy(), x)
        assert snapshot.result is not None
        assert np.array_equal(snapshot.result.elements[1].numpy(), result[1])


def test_names_of_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in XLA: no special characters, and no program name if it would be too long."""
    module = parse(PROGRAM.replace("jit_layer", "m"))
    monkeypatch.setenv("XLA_FLAGS", f"--xla_dump_to={tmp_path}")
    for name in ("a/b[c] d\\e", "n" * 260):
        module.name = name
        hloom.compile(module, backend="cpu")
    names = {re.sub(r"module_\d{4}", "module", p.name) for p in tmp_path.iterdir()}
    assert "module.a_b_c__d_e.before_optimizations.txt" in names
    assert "module.before_optimizations.txt" in names


def test_a_time_in_front(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flags = f"--xla_dump_to={tmp_path} --xla_dump_include_timestamp"
    compiled(monkeypatch, flags)
    times = {int(path.name.split(".")[0]) for path in tmp_path.iterdir()}
    assert len(times) == 1
    assert times.pop() > 1_600_000_000_000_000


def test_some_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = PROGRAM
    compiled(monkeypatch, f"--xla_dump_to={tmp_path}/a --xla_dump_hlo_module_re=other", text)
    compiled(monkeypatch, f"--xla_dump_to={tmp_path}/b --xla_dump_hlo_module_re=^jit_", text)
    compiled(monkeypatch, f"--xla_dump_to={tmp_path}/c --xla_dump_max_hlo_modules=0", text)
    assert [path.name for path in tmp_path.iterdir()] == ["b"]


@pytest.mark.parametrize("flags", ["--xla_dump_to=-", "--xla_dump_hlo_as_text"])
def test_the_standard_output(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], flags: str
) -> None:
    compiled(monkeypatch, flags)
    printed = capsys.readouterr().out
    assert re.search(r"\*\*\* Begin module_\d{4}\.jit_layer\.before_optimizations\.txt \*\*\*\n", printed)
    assert "ENTRY %main" in printed


def test_the_buffer_assignment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = with_reducers("""
HloModule jit_layer

ENTRY main {
  p = (f32[64,64], s32[3]) parameter(0)
  x = f32[64,64] get-tuple-element(p), index=0
  y = f32[64,64] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  z = f32[64,64] dot(y, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  zero = f32[] constant(0)
  c = f32[16] constant({1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16})
  sums = f32[64] reduce(z, zero), dimensions={0}, to_apply=add
  ROOT r = (f32[64], f32[16]) tuple(sums, c)
}
""")
    executable = compiled(monkeypatch, f"--xla_dump_to={tmp_path}", text)
    report = files(tmp_path)["cpu_after_optimizations-buffer-assignment.txt"].read_text()
    assert report.startswith("BufferAssignment:\nallocation 0: size ")
    assert f"size {executable.memory.temp}, preallocated-temp:\n" in report
    assert "size 16384, parameter 0, shape |f32[64,64]| at ShapeIndex {0}:\n" in report
    assert "size 12, parameter 0, shape |s32[3]| at ShapeIndex {1}:\n" in report
    assert "size 256, maybe-live-out:\n" in report
    assert re.search(r"size 64, constant:\n value: <\d+ c @0> \(size=64,offset=0\): f32\[16\]\{0\}", report)
    assert re.search(r"<\d+ y @0> \(size=16384,offset=\d+\): f32\[64,64\]\{1,0\}", report)
    assert re.search(r"Total bytes used: \d+ \([\d.]+KiB\)\n$", report)


@pytest.mark.parametrize(
    ("size", "words"),
    [(0, "0B"), (1023, "1023B"), (11100, "10.8KiB"), (3 << 20, "3.0MiB"), (1 << 60, "1024.0PiB")],
)
def test_bytes_in_words(size: int, words: str) -> None:
    assert human_bytes(size) == words


# -- the flags


def test_flags_as_xla_reads_them() -> None:
    options = dump_options(
        "--xla_dump_to='/a b' --xla_dump_hlo_as_text=1 --xla_dump_hlo_as_proto=false"
        " --xla_cpu_enable_fast_math --xla_dump_max_hlo_modules=-3 --xla_dump_hlo_pass_re=x=y"
    )
    assert options == DumpOptions(
        dump_to="/a b", dump_hlo_as_text=True, dump_max_hlo_modules=-3, dump_hlo_pass_re="x=y"
    )
    assert options.text_form() == (
        'xla_dump_to: "/a b"\nxla_dump_hlo_as_text: true\nxla_dump_hlo_pass_re: "x=y"\n'
        "xla_dump_max_hlo_modules: -3\n"
    )


def test_flags_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "flags").write_text("--xla_dump_to=here\n--xla_dump_hlo_as_text\n")
    options = dump_options(str(tmp_path / "flags"))
    assert (options.directory, options.as_text) == ("here", True)


def test_a_file_of_flags_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(HloError) as caught:
        dump_options(str(tmp_path / "flags"))
    assert caught.value.rule == "dump.flags-file"


@pytest.mark.parametrize(
    "flag",
    [
        "--xla_dump_hlo_as_text=maybe",
        "--xla_dump_max_hlo_modules=many",
        "--xla_dump_max_hlo_modules",
        "--xla_dump_to",
        "--xla_dump_hlo_pass_re=(",
    ],
)
def test_flags_that_make_no_sense(flag: str) -> None:
    with pytest.raises(HloError) as caught:
        dump_options(flag)
    assert caught.value.rule == "dump.flag-value"


def test_flags_that_are_not_followed_are_named() -> None:
    with pytest.warns(RuntimeWarning, match="does not follow --xla_dump_hlo_as_dot"):
        dump_options("--xla_dump_to=here --xla_dump_hlo_as_dot")


def test_a_directory_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(HloError) as caught:
        compiled(monkeypatch, f"--xla_dump_to={tmp_path / 'file'}")
    assert caught.value.rule == "dump.directory"


@pytest.mark.parametrize("name", ["a\0b", "a/b", "..", "a" * 300, "a\nb"])
def test_any_name_of_a_module_can_be_dumped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("XLA_FLAGS", f"--xla_dump_to={tmp_path / 'dumps'}")
    module = parse(PROGRAM)
    module.name = name
    hloom.compile(module)
    files = list((tmp_path / "dumps").glob("module_*before_optimizations*"))
    assert [load(path).entry.name for path in files] == ["main"]
    assert [path.name for path in tmp_path.iterdir()] == ["dumps"]
