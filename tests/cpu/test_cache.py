"""The cache of compiled code: what is kept, what is thrown away, and what a damaged file does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hloom.cpu.jit import cache
from hloom.cpu.jit.cache import CodeCache, Entry, configured_cache, key_of
from hloom.errors import HloError

ENTRY = Entry({"temp_bytes": 64, "names": ["a", "b"]}, [b"code", b"", b"more code"])

PROGRAM = """
import sys, time, numpy as np, hloom
module = hloom.HloModule.from_text('''HloModule m
ENTRY entry {
  p = f32[8] parameter(0)
  c = f32[8] constant({1,2,3,4,5,6,7,8})
  ROOT s = f32[8] add(p, c)
}''')
exe = hloom.compile(module, backend="cpu")
assert exe(np.ones(8, np.float32)).tolist() == [2, 3, 4, 5, 6, 7, 8, 9]
print("llvmlite" in sys.modules or "hloom.cpu.jit.llvm" in sys.modules, "hloom.cpu.program" in sys.modules)
"""


def run(directory: Path, **environment: str) -> str:
    """Compile and run a program in a process of its own; says whether it loaded LLVM, and the emitters."""
    variables = {k: v for k, v in os.environ.items() if not k.startswith("HLOOM_")}
    variables |= {"HLOOM_CACHE_DIR": str(directory), **environment}
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=variables)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


# -- entries


def test_an_entry_is_read_as_it_was_written() -> None:
    assert Entry.from_bytes(ENTRY.to_bytes()) == ENTRY
    assert Entry.from_bytes(Entry({}, []).to_bytes()) == Entry({}, [])


def test_a_damaged_entry_is_none() -> None:
    data = ENTRY.to_bytes()
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 1
        assert Entry.from_bytes(bytes(damaged)) is None
    for length in range(len(data)):
        assert Entry.from_bytes(data[:length]) is None


# -- the directory


def test_what_is_put_can_be_got(tmp_path: Path) -> None:
    made = CodeCache(tmp_path / "deep" / "directory", 1 << 20)
    assert made.get("key") is None
    assert made.put("key", ENTRY)
    assert made.get("key") == ENTRY
    assert made.get("other") is None
    assert (tmp_path / "deep" / "directory").stat().st_mode & 0o777 == 0o700


def test_a_damaged_file_is_removed(tmp_path: Path) -> None:
    made = CodeCache(tmp_path, 1 << 20)
    made.put("key", ENTRY)
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:-1])
    assert made.get("key") is None
    assert not file.exists()


def test_files_of_other_users_are_not_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = CodeCache(tmp_path, 1 << 20)
    made.put("key", ENTRY)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    assert made.get("key") is None


def test_what_was_used_longest_ago_goes_first(tmp_path: Path) -> None:
    large = Entry({}, [bytes(1000)])
    size = len(large.to_bytes())
    made = CodeCache(tmp_path, 5 * size)
    for number in range(5):
        made.put(f"key{number}", large)
        os.utime(next(tmp_path.glob(f"key{number}*")), (number, number))
    assert made.get("key0") is not None  # which makes it the latest
    made.put("key5", large)
    assert [made.get(f"key{n}") is not None for n in range(6)] == [True, False, False, False, True, True]


def test_what_is_too_large_is_not_kept(tmp_path: Path) -> None:
    made = CodeCache(tmp_path, 100)
    assert not made.put("key", Entry({}, [bytes(1000)]))
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_cannot_be_written_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    made = CodeCache(tmp_path / "file", 1 << 20)
    monkeypatch.setenv("HLOOM_CACHE_DIR", str(tmp_path / "file"))
    with pytest.warns(RuntimeWarning, match="not kept"):
        assert not made.put("key", ENTRY)


# -- keys


def test_keys_differ_where_parts_do() -> None:
    keys = [key_of("ab", "c"), key_of("a", "bc"), key_of("abc"), key_of("abc", ""), key_of(b"ab", "c")]
    assert len(set(keys)) == 4
    assert keys[0] == keys[4]


def test_keys_follow_the_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    before = key_of("a")
    monkeypatch.setattr(cache, "compiler_identity", lambda: "another compiler")
    assert key_of("a") != before


# -- the environment


def test_the_environment_configures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HLOOM_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    found = configured_cache()
    assert found is not None
    assert found.directory == tmp_path / "hloom"
    monkeypatch.setenv("HLOOM_CACHE_LIMIT", "3")
    monkeypatch.setenv("HLOOM_CACHE_DIR", str(tmp_path / "own"))
    found = configured_cache()
    assert found is not None
    assert (found.directory, found.limit) == (tmp_path / "own", 3 << 20)
    monkeypatch.setenv("HLOOM_CACHE", "0")
    assert configured_cache() is None


def test_a_wrong_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOOM_CACHE_LIMIT", "much")
    with pytest.raises(HloError) as caught:
        configured_cache()
    assert caught.value.rule == "cpu.cache-limit"


# -- whole processes


def test_a_warm_start_loads_neither_llvm_nor_the_emitters(tmp_path: Path) -> None:
    assert run(tmp_path) == "True True"
    assert run(tmp_path) == "False False"


def test_damaged_programs_are_compiled_again(tmp_path: Path) -> None:
    run(tmp_path)
    for file in tmp_path.iterdir():
        file.write_bytes(file.read_bytes()[:-3] + b"xyz")
    assert run(tmp_path) == "True True"
    assert run(tmp_path) == "False False"


def test_the_cache_can_be_off(tmp_path: Path) -> None:
    assert run(tmp_path, HLOOM_CACHE="0") == "True True"
    assert list(tmp_path.iterdir()) == []


def test_processes_at_the_same_time(tmp_path: Path) -> None:
    variables = {**os.environ, "HLOOM_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", PROGRAM]
    running = [subprocess.Popen(command, env=variables, stdout=subprocess.DEVNULL) for _ in range(4)]
    assert [process.wait() for process in running] == [0] * 4
    assert run(tmp_path) == "False False"
    assert not [file for file in tmp_path.iterdir() if file.name.startswith(".")]
