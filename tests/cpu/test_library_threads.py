"""The number of threads of a library: 1 while programs call it, restored by the last call."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import pytest

from hloom.cpu.runtime.support import support


class Setting:
    """A library's number of threads, and what it was set to."""

    def __init__(self, threads: int) -> None:
        self.threads, self.assigned = threads, list[int]()
        self._get = ctypes.CFUNCTYPE(ctypes.c_int)(lambda: self.threads)
        self._set = ctypes.CFUNCTYPE(None, ctypes.c_int)(self._assign)

    def _assign(self, threads: int) -> None:
        self.threads = threads
        self.assigned.append(threads)

    def enter(self) -> None:
        self._call("hloom_library_enter")

    def leave(self) -> None:
        self._call("hloom_library_leave")

    def _call(self, name: str) -> None:
        pointers = (ctypes.cast(f, ctypes.c_void_p) for f in (self._get, self._set))
        ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(support().symbols[name])(*pointers)


def reset() -> None:
    ctypes.CFUNCTYPE(None)(support().symbols["hloom_library_reset"])()


@pytest.fixture
def setting() -> Iterator[Setting]:
    yield Setting(4)
    reset()


def test_the_last_of_nested_calls_restores_the_number(setting: Setting) -> None:
    setting.enter()
    setting.enter()
    assert setting.threads == 1
    setting.leave()
    assert setting.threads == 1
    setting.leave()
    assert setting.assigned == [1, 4]


def test_a_library_with_one_thread_is_left_alone(setting: Setting) -> None:
    setting.threads = 1
    setting.enter()
    setting.leave()
    assert setting.assigned == []


def test_a_forked_child_forgets_the_calls_of_other_threads(setting: Setting) -> None:
    setting.enter()
    reset()
    setting.threads = 3
    setting.enter()
    setting.leave()
    assert setting.assigned == [1, 1, 3]


def test_libraries_without_the_setting() -> None:
    symbols = support().symbols
    assert ctypes.CFUNCTYPE(ctypes.c_int)(symbols["hloom_library_get_one"])() == 1
    ctypes.CFUNCTYPE(None, ctypes.c_int)(symbols["hloom_library_set_none"])(1)
