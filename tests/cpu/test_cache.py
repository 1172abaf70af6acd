"""The cache of compiled code: entries that are kept, evicted, and damaged."""

from __future__ import annotations

import hashlib
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import hloom
from hloom.codegen.target import host
from hloom.cpu.jit import cache
from hloom.cpu.jit.cache import CodeCache, Entry, configured_cache, key_of
from hloom.cpu.jit.llvm import generate
from hloom.cpu.native import compile_or_load
from hloom.errors import HloError
from tests.arrays import f32
from tests.evaluation import parse

KEY = "0123456789abcdef0123456789abcdef0123456f"
OTHER = KEY.replace("f", "e")
ENTRY = Entry({"temp_bytes": 64, "names": ["a", "b"]}, [b"code", b"", b"more code"])

TEXT = """HloModule m
ENTRY entry {
  p = f32[8] parameter(0)
  c = f32[8] constant({1,2,3,4,5,6,7,8})
  ROOT s = f32[8] add(p, c)
}"""
PROGRAM = f"""
import sys, numpy as np, hloom
exe = hloom.compile(hloom.HloModule.from_text({TEXT!r}), backend="cpu")
assert exe(np.ones(8, np.float32)).tolist() == [2, 3, 4, 5, 6, 7, 8, 9]
print("llvmlite" in sys.modules or "hloom.cpu.jit.llvm" in sys.modules, "hloom.cpu.program" in sys.modules)
"""


def key(number: int) -> str:
    """A key; one that ends in 0 makes the cache look for what to evict."""
    return f"{number:039x}0"


def run(directory: Path, **environment: str) -> str:
    """Compile and run a program in a separate process; return whether it loaded LLVM, and the emitters."""
    variables = {k: v for k, v in os.environ.items() if not k.startswith("HLOOM_")}
    variables |= {"HLOOM_CACHE_DIR": str(directory), **environment}
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=variables)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def entries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a cache in which the program is."""
    directory = tmp_path_factory.mktemp("entries")
    assert run(directory) == "True True"
    return directory


@pytest.fixture
def warm(entries: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(entries, tmp_path, dirs_exist_ok=True))


# -- entries


def test_an_entry_is_read_as_it_was_written() -> None:
    assert Entry.from_bytes(ENTRY.to_bytes(KEY), KEY) == ENTRY
    assert Entry.from_bytes(Entry({}, []).to_bytes(KEY), KEY) == Entry({}, [])


def test_a_damaged_entry_is_none() -> None:
    data = ENTRY.to_bytes(KEY)
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 1
        assert Entry.from_bytes(bytes(damaged), KEY) is None
    for length in range(len(data)):
        assert Entry.from_bytes(data[:length], KEY) is None


# -- the directory


def test_what_is_put_can_be_got(tmp_path: Path) -> None:
    made = CodeCache(tmp_path / "deep" / "directory", 1 << 20)
    assert made.get(KEY) is None
    assert made.put(KEY, ENTRY)
    assert made.get(KEY) == ENTRY
    assert made.get(OTHER) is None
    assert (tmp_path / "deep" / "directory").stat().st_mode & 0o777 == 0o700


def test_a_damaged_file_is_removed(tmp_path: Path) -> None:
    made = CodeCache(tmp_path, 1 << 20)
    made.put(KEY, ENTRY)
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:-1])
    assert made.get(KEY) is None
    assert not file.exists()


def test_files_of_other_users_are_not_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = CodeCache(tmp_path, 1 << 20)
    made.put(KEY, ENTRY)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.warns(RuntimeWarning, match="other users own it"):
        assert made.get(KEY) is None


def test_what_was_used_longest_ago_goes_first(tmp_path: Path) -> None:
    large = Entry({}, [bytes(1000)])
    size = len(large.to_bytes(KEY))
    made = CodeCache(tmp_path, 5 * size)
    for number in range(5):
        made.put(key(number), large)
        os.utime(next(tmp_path.glob(f"{key(number)}*")), (number, number))
    assert made.get(key(0)) is not None  # which makes it the latest
    made.put(key(5), large)
    assert [made.get(key(n)) is not None for n in range(6)] == [True, False, False, False, True, True]


def test_what_is_too_large_is_not_kept(tmp_path: Path) -> None:
    made = CodeCache(tmp_path, 100)
    assert not made.put(KEY, Entry({}, [bytes(1000)]))
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_cannot_be_written_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    made = CodeCache(tmp_path / "file", 1 << 20)
    monkeypatch.setenv("HLOOM_CACHE_DIR", str(tmp_path / "file"))
    with pytest.warns(RuntimeWarning, match="not kept"):
        assert not made.put(KEY, ENTRY)


# -- files that are not the cache's own, or that others may write


def test_an_entry_belongs_to_its_key() -> None:
    assert Entry.from_bytes(ENTRY.to_bytes(KEY), OTHER) is None


@pytest.mark.parametrize(
    "pieces",
    [
        [], [KEY.encode()], [KEY.encode(), b"{"], [KEY.encode(), b"[]"], [KEY.encode(), b"\xff"],
        [KEY.encode(), b"[" * 100_000],
    ],
)  # fmt: skip
def test_a_malformed_body_is_a_miss(tmp_path: Path, pieces: list[bytes]) -> None:
    """The digest is right, but the content is not an entry."""
    header = b"".join(struct.pack("<Q", n) for n in [len(pieces), *map(len, pieces)])
    for body in (header + b"".join(pieces), header[:-1], header + b"".join(pieces) + b"more", b""):
        data = cache._MAGIC + hashlib.sha256(body).digest() + body
        assert Entry.from_bytes(data, KEY) is None
        (tmp_path / f"{KEY}.hloomcode").write_bytes(data)
        assert CodeCache(tmp_path, 1 << 20).get(KEY) is None


@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_links_to_other_entries(tmp_path: Path, link: Callable[[Path, Path], None]) -> None:
    made = CodeCache(tmp_path, 1 << 20)
    made.put(KEY, ENTRY)
    link(tmp_path / f"{KEY}.hloomcode", tmp_path / f"{OTHER}.hloomcode")
    assert made.get(OTHER) is None
    assert made.put(OTHER, Entry({}, [b"new"])) and made.get(OTHER) == Entry({}, [b"new"])
    assert made.get(KEY) == ENTRY


def test_links_from_outside_are_not_followed(tmp_path: Path) -> None:
    """Even to an intact entry of the same key."""
    made, other = CodeCache(tmp_path / "a", 1 << 20), CodeCache(tmp_path / "b", 1 << 20)
    made.put(KEY, ENTRY)
    other.put(OTHER, ENTRY)
    (tmp_path / "b" / f"{KEY}.hloomcode").symlink_to(tmp_path / "a" / f"{KEY}.hloomcode")
    assert made.get(KEY) == ENTRY and other.get(KEY) is None


def test_a_fifo_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / f"{KEY}.hloomcode", 0o600)
    assert CodeCache(tmp_path, 1 << 20).get(KEY) is None


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_entries_that_others_may_write_are_not_trusted(tmp_path: Path, mode: int) -> None:
    made = CodeCache(tmp_path, 1 << 20)
    made.put(KEY, ENTRY)
    (tmp_path / f"{KEY}.hloomcode").chmod(mode)
    assert made.get(KEY) is None
    assert made.put(KEY, ENTRY) and made.get(KEY) == ENTRY


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o1777])
def test_directories_that_others_may_write_are_not_used(tmp_path: Path, mode: int) -> None:
    made = CodeCache(tmp_path / "d", 1 << 20)
    made.put(KEY, ENTRY)
    (tmp_path / "d").chmod(mode)
    cache._warn_once.cache_clear()
    with pytest.warns(RuntimeWarning, match="chmod go-w"):
        assert made.get(KEY) is None
    assert not made.put(OTHER, ENTRY)
    (tmp_path / "d").chmod(0o700)
    assert made.get(KEY) == ENTRY and made.get(OTHER) is None


def test_eviction_removes_its_own_files_only(tmp_path: Path) -> None:
    """Names and magic strings must both be those of the cache."""
    foreign = {
        ".bashrc": b"mine" * 1000, "notes.hloomcode": cache._MAGIC + b"mine" * 1000,
        f"{key(1)}.hloomcode": b"mine" * 1000, f"{key(2)}.hloomcode.txt": cache._MAGIC + b"mine" * 1000,
        f".{key(1)}-0123": cache._MAGIC * 1000, f"{key(3)}.hloomcode.d/file": b"mine",
    }  # fmt: skip
    for name, content in foreign.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
        os.utime(tmp_path / name, (1, 1))
    abandoned = tmp_path / f".{key(4)}-0123456789abcdef.hloomcode"
    fresh = tmp_path / f".{key(5)}-0123456789abcdef.hloomcode"
    for file in (abandoned, fresh):
        file.write_bytes(cache._MAGIC)
    os.utime(abandoned, (1, 1))
    made = CodeCache(tmp_path, 3000)
    for number in range(10, 20):
        assert made.put(key(number), Entry({}, [bytes(1000)]))
    assert {name: (tmp_path / name).read_bytes() for name in foreign} == foreign
    assert fresh.exists() and not abandoned.exists()
    assert made.get(key(10)) is None and made.get(key(19)) is not None


def test_a_file_without_magic_is_replaced_but_never_removed(tmp_path: Path) -> None:
    file = tmp_path / f"{KEY}.hloomcode"
    file.write_bytes(b"mine")
    made = CodeCache(tmp_path, 1 << 20)
    assert made.get(KEY) is None and file.read_bytes() == b"mine"


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


def test_a_warm_start_loads_neither_llvm_nor_the_emitters(warm: Path) -> None:
    assert run(warm) == "False False"


def test_damaged_programs_are_compiled_again(warm: Path) -> None:
    for file in warm.iterdir():
        file.write_bytes(file.read_bytes()[:-3] + b"xyz")
    assert run(warm) == "True True"
    assert run(warm) == "False False"


@pytest.mark.parametrize(
    "change",
    [
        {"signature": "f32[9] f32[9]"}, {"temp_bytes": -1}, {"work": "many"}, {"argument_bytes": 3},
        {"data": ["constant0", "constant1", "constant2"]}, {"shares": 0}, {"data": [1]},
    ],
)  # fmt: skip
def test_programs_with_wrong_facts_are_compiled_again(
    warm: Path, change: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key and the digest are right, the facts are not those of the program."""
    monkeypatch.setenv("HLOOM_CACHE_DIR", str(warm))
    assert compile_or_load(parse(TEXT)).from_cache
    for file in warm.iterdir():
        found = Entry.from_bytes(file.read_bytes(), file.stem)
        assert found is not None
        if found.facts:
            file.write_bytes(Entry({**found.facts, **change}, found.parts).to_bytes(file.stem))
            file.chmod(0o600)
    assert not compile_or_load(parse(TEXT)).from_cache
    assert compile_or_load(parse(TEXT)).from_cache


CALLING = """HloModule calling, replica_count=2
add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }
ENTRY entry {
  x = f32[2] parameter(0)
  ROOT s = f32[2] all-reduce(x), replica_groups={{0,1}}, to_apply=add
}"""


def test_collectives_of_a_program_in_the_cache_need_no_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HLOOM_CACHE_DIR", str(tmp_path))
    assert not compile_or_load(parse(CALLING)).from_cache
    monkeypatch.delattr("hloom.cpu.jit.compilation.optimize")
    assert compile_or_load(parse(CALLING)).from_cache
    results: list[np.ndarray] = hloom.compile(parse(CALLING)).run([[f32([1, 2])], [f32([3, 4])]])
    assert [result.tolist() for result in results] == [[4, 6], [4, 6]]


def test_a_program_without_its_entry_function_is_compiled_again(warm: Path) -> None:
    other = generate("define void @other() {\n  ret void\n}\n", host())
    entries = {file: Entry.from_bytes(file.read_bytes(), file.stem) for file in warm.iterdir()}
    ((program, facts),) = [(file, e.facts) for file, e in entries.items() if e is not None and e.facts]
    program.write_bytes(Entry(facts, [other]).to_bytes(program.stem))
    assert run(warm) == "True True"


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
