"""Futexes and pauses: threads sleep until they are woken; each processor has its instruction and number."""

from __future__ import annotations

import ctypes
import threading
import time

import pytest

from hloom.codegen.llvm import I32, I64, PTR, Function, Value
from hloom.codegen.llvm.atomics import Atomic
from hloom.codegen.llvm.routines import Library, routine
from hloom.codegen.llvm.structured import repeat
from hloom.codegen.target import Target, host
from hloom.cpu.jit.externals import address_of
from hloom.cpu.jit.llvm import generate, generate_module
from hloom.cpu.jit.loader import LoadedObject
from hloom.cpu.runtime.routines.processor import futex_wait, futex_wait_for, futex_wake
from hloom.cpu.runtime.support_code import support_code


@routine(exported=True, word=PTR)
def wait_while_zero(f: Function, word: Value) -> None:
    with repeat(f) as loop:
        loop.leave_if(Atomic(I32, word).load("acquire").compare("ne", 0))
        futex_wait(f, word, f.constant(I32, 0))


@routine(exported=True, word=PTR)
def set_and_wake(f: Function, word: Value) -> None:
    Atomic(I32, word).store(1, "release")
    futex_wake(f, word)


@routine(exported=True, word=PTR, value=I32, nanoseconds=I64)
def wait_for(f: Function, word: Value, value: Value, nanoseconds: Value) -> None:
    futex_wait_for(f, word, value, nanoseconds)


@pytest.fixture(scope="module")
def code() -> LoadedObject:
    library = Library(host()).add([wait_while_zero, set_and_wake, wait_for])
    return LoadedObject([generate_module(library)], address_of)


def test_all_sleepers_are_woken(code: LoadedObject) -> None:
    word = ctypes.c_int32(0)
    wait, wake = (
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(code.symbols[name])
        for name in ("wait_while_zero", "set_and_wake")
    )
    threads = [threading.Thread(target=wait, args=(ctypes.addressof(word),), daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
    time.sleep(0.05)
    assert all(thread.is_alive() for thread in threads)
    wake(ctypes.addressof(word))
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)


@pytest.mark.parametrize(("value", "seconds"), [(5, 0.03), (5, 1.01), (6, 0.0)])
def test_a_wait_ends_at_its_time_or_for_another_value(code: LoadedObject, value: int, seconds: float) -> None:
    word = ctypes.c_int32(5)
    wait = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64)(code.symbols["wait_for"])
    begin = time.monotonic()
    wait(ctypes.addressof(word), value, int(seconds * 1e9) or 3_600_000_000_000)
    assert time.monotonic() - begin >= seconds


@pytest.mark.parametrize(
    ("triple", "pause", "number"),
    [("x86_64-linux-gnu", "pause", "$202"), ("aarch64-linux-gnu", "yield", "#98")],
)
def test_processors_have_their_own_pause_and_number(triple: str, pause: str, number: str) -> None:
    target = Target.named(triple)
    texts = [generate(t, target, inline_and_promote=True, assembly=True) for t, _ in support_code(target)]
    lines = b"".join(texts).decode().splitlines()
    assert any(line.split() == [pause] for line in lines)
    assert any(line.endswith(number) or f"{number}," in line for line in lines)
