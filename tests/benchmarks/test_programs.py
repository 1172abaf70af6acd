"""The benchmarks run: on a directory of programs, on the users' cases, on the loop of small steps."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hloom
from benchmarks import complaint_programs, complaints, scan
from benchmarks.__main__ import main
from benchmarks.agreement import agreement
from benchmarks.complaint_programs import COMPLAINTS, Complaint
from benchmarks.fresh import fresh_times
from benchmarks.machine import Machine
from benchmarks.sides import leaves_of, on_hloom, on_xla, warm_up
from tests.agreement import computed
from tests.agreement import near as assert_near

ROOT = Path(__file__).parents[2]

ADDING = "HloModule adding\n\nENTRY e {\n  x = f32[5] parameter(0)\n  ROOT y = f32[5] add(x, x)\n}\n"
MACHINE = Machine("a processor", 1, 0.0, {}, 1e11, 1e10)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a directory of two programs, one of which has no inputs."""
    monkeypatch.setattr("benchmarks.__main__.this_machine", lambda: MACHINE)
    monkeypatch.setattr("benchmarks.complaints.this_machine", lambda: MACHINE)
    (tmp_path / "adding.hlo").write_text(ADDING)
    (tmp_path / "lost.hlo").write_text(ADDING)
    described = {"adding": [{"dtype": "float32", "shape": [5], "kind": "normal", "mean": 0, "scale": 1}]}
    (tmp_path / "inputs.json").write_text(json.dumps(described))
    return tmp_path


def test_a_directory(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("jax")
    out, plot = folder / "out.json", folder / "out.svg"
    arguments = [str(folder), "--seconds", "0", "--no-fresh", "--json", str(out), "--plot", str(plot)]
    assert main(arguments) == 1
    found = json.loads(out.read_text())
    adding, lost = found["programs"]
    assert adding["name"] == "adding"
    assert adding["agree"] is True
    assert all(adding[key] > 0 for key in ("run", "xla_run", "compiled", "xla_compiled", "flops", "moved"))
    assert adding["faster"] == adding["xla_run"] / adding["run"]
    assert adding["fresh"] is None
    assert lost["run"] is None
    assert "does not describe 'lost'" in lost["error"]
    # exp(log(x)) loses up to |log(x)| units in the last place.
    assert_near(found["summary"]["faster"], adding["faster"], units=2 + abs(math.log(adding["faster"])))
    assert found["machine"]["processor"] == "a processor"
    assert plot.read_text().startswith("<svg")
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith("a processor, 1 threads")
    assert printed[-1].startswith("geometric mean, sum")


def test_some_programs_without_xla(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for module in ("__main__", "sides"):
        monkeypatch.setattr(f"benchmarks.{module}.xla_is_there", lambda: False)
    assert main([str(folder), "adding", "--seconds", "0", "--no-fresh"]) == 0
    printed = capsys.readouterr().out
    assert "hloom alone" in printed
    assert "lost" not in printed


def test_programs_that_are_not_there(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(folder), "adding", "missing"]) == 2
    assert "missing.hlo" in capsys.readouterr().err
    (folder / "empty").mkdir()
    assert main([str(folder / "empty")]) == 2


def test_the_module_is_a_command() -> None:
    command = [sys.executable, "-m", "benchmarks", "--help"]
    made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert "--plot" in made.stdout


def test_variables_that_slow_things_down_are_gone() -> None:
    environment = {**os.environ, "OPENBLAS_CORETYPE": "Haswell", "PYTHONDONTWRITEBYTECODE": "1"}
    code = (
        "import benchmarks, os, sys; assert 'numpy' not in sys.modules;"
        "print(*(name in os.environ for name in ('OPENBLAS_CORETYPE', 'PYTHONDONTWRITEBYTECODE')),"
        " sys.dont_write_bytecode)"
    )
    command = [sys.executable, "-c", code]
    made = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    assert made.stdout.split() == ["False"] * 3


# -- both sides


def test_both_sides_give_their_results() -> None:
    pytest.importorskip("jax")
    warm_up()
    x = np.arange(5, dtype=np.float32)
    for made in (on_hloom(ADDING, [x]), on_xla(ADDING, [x])):
        (result,) = made.values(made.call())
        assert np.array_equal(result, x + x)
        assert made.compile_seconds > 0
        assert made.temp_bytes == 0


def test_hloom_compiles_anew_whatever_the_cache_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HLOOM_CACHE", raising=False)
    for _ in range(2):
        made = on_hloom(ADDING, [np.zeros(5, np.float32)])
        assert not made.executable._programs[0].native.from_cache
    assert "HLOOM_CACHE" not in os.environ


def test_leaves() -> None:
    found = leaves_of((np.float32(1), (None, (np.arange(2),))))
    assert [a.tolist() for a in found] == [1, [0, 1]]


def test_compilation_in_fresh_processes(tmp_path: Path) -> None:
    (tmp_path / "adding.hlo").write_text(ADDING)
    found = fresh_times(tmp_path / "adding.hlo", tries=1)
    assert 0 < found.cached < found.cold
    assert not found.loads_llvm


def test_a_program_that_does_not_compile_in_a_fresh_process(tmp_path: Path) -> None:
    (tmp_path / "wrong.hlo").write_text("HloModule wrong")
    with pytest.raises(RuntimeError, match=r"ParseError"):
        fresh_times(tmp_path / "wrong.hlo")


# -- the users' cases

SMALL: dict[str, dict[str, Any]] = {
    "scalar_loop": {"iterations": 20},
    "argsort": {"rows": 3, "size": 50},
    "median": {"rows": 3, "size": 51},
    "cumsum": {"rows": 3, "size": 100},
    "cummax": {"rows": 50, "size": 7},
    "argmax": {"rows": 5, "size": 70},
    "scatter_add": {"rows": 50, "size": 5, "table": 9},
    "histogram": {"size": 1000, "bins": 9},
    "depthwise": {"batch": 2, "size": 7, "channels": 5},
    "grouped": {"batch": 2, "size": 7, "channels": 12, "groups": 4},
    "transposed": {"batch": 1, "size": 5, "channels": 3},
    "one_dimensional": {"batch": 2, "size": 40, "channels": 3, "features": 5},
    "three_dimensional": {"depth": 5, "size": 6, "channels": 3, "features": 4},
    "cholesky": {"count": 7},
    "solve": {"count": 7},
    "tiny_products": {"count": 11},
    "leading_sum": {"rows": 30, "size": 20},
    "pairs": {"size": 40},
    "folded_sort": {"size": 50},
    "folded_convolution": {"size": 20, "window": 5},
    "many_temporaries": {"count": 5, "size": 8},
}


@pytest.mark.parametrize("make", COMPLAINTS, ids=lambda make: make.__name__)
def test_hloom_and_the_library_agree(make: Callable[..., Complaint]) -> None:
    """On small arrays; the same functions make the large ones."""
    case = make(**SMALL.get(make.__name__, {}))
    made = on_hloom(case.text, case.inputs)
    found = made.values(made.call())
    if case.library is None:
        assert all(np.isfinite(a).all() for a in found)
        return
    wanted = [a.astype(f.dtype) for a, f in zip(leaves_of(case.library(*case.inputs)), found, strict=True)]
    same = agreement(found, wanted)
    assert same.agree, same


def test_every_case_has_a_name_of_its_own() -> None:
    assert set(SMALL) < {make.__name__ for make in COMPLAINTS}
    names = [make(**SMALL.get(make.__name__, {})).name for make in COMPLAINTS]
    assert len(set(names)) == len(names)


def test_some_of_the_cases(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("jax")
    small = (lambda: complaint_programs.cumsum(3, 20), lambda: complaint_programs.median(3, 21))
    monkeypatch.setattr(complaints, "COMPLAINTS", small)
    out = folder / "out.json"
    assert complaints.main(["CUMSUM", "--seconds", "0", "--json", str(out)]) == 0
    (row,) = json.loads(out.read_text())["cases"]
    assert row["name"] == "cumsum of rows"
    assert row["agree"] is True
    assert row["library_run"] > 0


# -- the loop of small steps


def test_the_loop_is_the_same_everywhere() -> None:
    a, x = scan.scan_inputs()
    steps = 8  # each multiplies the effect of one element's rounding by up to 4
    module = hloom.HloModule.from_text(scan.scan_text(steps))
    made = on_hloom(scan.scan_text(steps), [a, x])
    computed(made.values(made.call())[0], module, [a, x])
    computed(scan.scan_in_numpy(a, x, steps), module, [a, x])
    in_c = scan.scan_in_c(a, x, steps)
    if in_c is not None:
        computed(in_c.state, module, [a, x])
        assert 0 < in_c.seconds < 1e-3
