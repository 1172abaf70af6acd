"""The run time's native code that comes with the package: whose sources it is of, and when it is used."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import hloom
from hloom.codegen.target import QUICK, host
from hloom.cpu.runtime import built_code
from hloom.cpu.runtime.built_code import SOURCES, read_code, write_code
from hloom.cpu.runtime.support import load_code
from hloom.tools.run_time_code import ARCHITECTURES, KINDS, compile_run_time

PACKAGE = Path(hloom.__file__).parent
NO_PART_OF_CODE = {
    *("__init__.py", "errors.py", "hooks.py", "records.py", "regex.py", "visible.py", "jax/plugin.py"),
    *("ir/collector.py", "ir/registration.py", "jaxlib/private.py", "cpu/__init__.py", "codegen/__init__.py"),
    *("ir/__init__.py", "jax/__init__.py", "jaxlib/__init__.py"),
}
"""Files that emitters import, or whose packages they are in, and that contain nothing of the code."""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(built_code, "_FOLDER", tmp_path / "built")
    return tmp_path / "built"


def test_code_is_read_as_it_was_written() -> None:
    assert read_code("support", "x86_64") is None
    write_code("support", "x86_64", [b"first", b"second"])
    assert read_code("support", "x86_64") == [b"first", b"second"]
    assert read_code("support", "aarch64") is None
    assert read_code("pjrt", "x86_64") is None


def test_code_of_other_sources_or_damaged_code_is_not_used(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_code("support", "x86_64", [b"object"])
    write_code("pjrt", "x86_64", [b"object"])
    (file,) = folder.glob("pjrt-*")
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    assert read_code("pjrt", "x86_64") is None
    monkeypatch.setattr(built_code, "_key", lambda: "of other sources")
    assert read_code("support", "x86_64") is None


def test_the_sources_are_all_that_emitters_import() -> None:
    program = """
import sys
import hloom.cpu.runtime.support_code, hloom.jax.pjrt.routines
print(*(m.__file__ for name, m in sys.modules.items() if name.partition(".")[0] == "hloom"), sep="\\n")
"""
    child = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    files = {Path(line).relative_to(PACKAGE).as_posix() for line in child.stdout.splitlines()}
    assert "cpu/runtime/routines/pool.py" in files
    assert {f for f in files if not f.startswith(SOURCES)} <= NO_PART_OF_CODE


@pytest.mark.parametrize("is_built", [False, True])
def test_programs_run_with_the_built_code_or_compile_it(folder: Path, tmp_path: Path, is_built: bool) -> None:
    """A program that compiles the code keeps it in the cache."""
    if is_built:
        compile_run_time()
        assert {f.name for f in folder.iterdir()} == {
            f"{k}-{a}.hloomcode" for k in KINDS for a in ARCHITECTURES
        }
    program = f"""
import pathlib, numpy
from hloom.cpu.runtime import built_code, support
built_code._FOLDER = pathlib.Path({str(folder)!r})
import hloom
from hloom.cpu.jit.cache import configured_cache
text = "HloModule m\\nENTRY e {{ x = f32[1000] parameter(0) ROOT r = f32[1000] add(x, x) }}"
result = hloom.compile(hloom.HloModule.from_text(text), backend="cpu")(numpy.arange(1000, dtype="f"))
assert (numpy.asarray(result) == 2 * numpy.arange(1000)).all()
print(configured_cache().get(support._key("support")) is not None)
"""
    environment = {"HLOOM_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": str(PACKAGE.parent)}
    child = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert child.stdout.strip() == str(not is_built)


def test_code_that_cannot_be_loaded_is_compiled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    write_code("trial", host().architecture, [b"no object file"])
    monkeypatch.setenv("HLOOM_CACHE", "0")
    text = "define void @nothing() {\n  ret void\n}\n"
    assert "nothing" in load_code("trial of a test", lambda: [(text, QUICK)], lambda _: None).symbols
