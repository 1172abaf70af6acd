"""Calls from native code into Python: values, errors, threads, and what is on its way."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import hloom
from hloom.errors import EvaluationError, HloError
from hloom.runtime.custom_call import register_custom_call, unregister_custom_call
from tests.devices import program
from tests.evaluation import parse

Register = Callable[[str, Any], None]


@pytest.fixture
def register() -> Iterator[Register]:
    """Registers targets, and forgets them after the test."""
    names: list[str] = []

    def add(name: str, function: Any) -> None:
        names.append(name)
        register_custom_call(name, function)

    yield add
    for name in names:
        unregister_custom_call(name)


CALL = 'x = f32[4] parameter(0)\nROOT r = f32[4] custom-call(x), custom_call_target="test_target"'


def compiled(text: str, **options: Any) -> hloom.Executable:
    exe = hloom.compile(parse(text), backend="cpu", **options)
    exe.host_timeout = 0.0
    return exe


def test_values_go_in_and_out(register: Register) -> None:
    register("test_target", lambda x: x * 2)
    x = np.arange(4, dtype=np.float32)
    assert compiled(CALL)(x).tolist() == [0, 2, 4, 6]


def test_operands_belong_to_the_function(register: Register) -> None:
    kept: list[Any] = []
    register("test_target", lambda x: kept.append(x) or x + 1)
    exe = compiled(CALL)
    exe(np.zeros(4, np.float32))
    exe(np.ones(4, np.float32))
    assert [k.tolist() for k in kept] == [[0] * 4, [1] * 4]


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt(), SystemExit(3), RecursionError()])
def test_whatever_is_raised_comes_out(register: Register, error: BaseException) -> None:
    def fail(x: Any) -> Any:
        raise error

    register("test_target", fail)
    wanted = EvaluationError if isinstance(error, Exception) else type(error)
    exe = compiled(CALL)
    for _ in range(2):
        with pytest.raises(wanted) as caught:
            exe(np.zeros(4, np.float32))
        if isinstance(caught.value, HloError):
            assert caught.value.rule == "custom-call.failed"
            assert caught.value.instruction == "r"


def test_nothing_runs_after_an_error(register: Register) -> None:
    ran: list[str] = []

    def first(x: Any) -> Any:
        raise ValueError

    register("first", first)
    register("second", lambda x: ran.append("second") or x)
    text = """
    x = f32[4] parameter(0)
    a = f32[4] custom-call(x), custom_call_target="first"
    ROOT b = f32[4] custom-call(a), custom_call_target="second"
    """
    with pytest.raises(EvaluationError):
        compiled(text)(np.zeros(4, np.float32))
    assert not ran


def test_inside_of_loops(register: Register) -> None:
    register("test_target", lambda x: x + 1)
    text = """HloModule m
    body { s = f32[3] parameter(0)
      ROOT r = f32[3] custom-call(s), custom_call_target="test_target" }
    condition { s = f32[3] parameter(0)
      e = f32[1] slice(s), slice={[0:1]}
      v = f32[] reshape(e)
      l = f32[] constant(10)
      ROOT c = pred[] compare(v, l), direction=LT }
    ENTRY e { x = f32[3] parameter(0)
      ROOT w = f32[3] while(x), condition=condition, body=body }"""
    assert compiled(text)(np.array([0, 1, 2], np.float32)).tolist() == [10, 11, 12]


def test_a_program_may_run_another(register: Register) -> None:
    inner = compiled("x = f32[4] parameter(0)\nROOT r = f32[4] add(x, x)")
    nested = compiled(CALL.replace("test_target", "inner_target"))
    register("inner_target", lambda x: inner(x))
    register("test_target", lambda x: nested(x) + 1)
    assert compiled(CALL)(np.ones(4, np.float32)).tolist() == [3] * 4


def test_threads_do_not_disturb_each_other(register: Register) -> None:
    register("test_target", lambda x: time.sleep(0.001) or x * 2)
    exes = [compiled(CALL) for _ in range(4)]
    failures: list[str] = []

    def work(number: int) -> None:
        for k in range(20):
            x = np.full(4, number * 100 + k, np.float32)
            if exes[number](x).tolist() != (x * 2).tolist():
                failures.append(f"{number}, {k}")

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_every_element_type_and_tuples(register: Register) -> None:
    register("test_target", lambda t, u: (u, t[1], t[0]))
    text = """
    t = (bf16[2], s4[3]) parameter(0)
    u = pred[2,0] parameter(1)
    ROOT r = (pred[2,0], s4[3], bf16[2]) custom-call(t, u), custom_call_target="test_target"
    """
    import ml_dtypes

    t = np.array([1, 2], ml_dtypes.bfloat16), np.array([-1, 2, -8], ml_dtypes.int4)
    u, s, b = compiled(text)(t, np.zeros((2, 0), bool))
    assert u.shape == (2, 0)
    assert s.astype(int).tolist() == [-1, 2, -8]
    assert b.astype(float).tolist() == [1, 2]


def test_one_byte_is_enough_for_a_placeholder_id() -> None:
    text = program(
        """
        x = pred[] parameter(0)
        s = pred[] all-reduce-start(x), to_apply=either
        ROOT d = pred[] all-reduce-done(s)""",
        "either { x = pred[] parameter(0)\n y = pred[] parameter(1)\n ROOT r = pred[] or(x, y) }",
    )
    exe = compiled(text, num_replicas=2)
    assert [bool(r) for r in exe.run([[np.False_], [np.True_]])] == [True, True]


DOUBLE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p))


def test_c_functions_work_on_the_programs_own_memory(register: Register) -> None:
    seen: list[int] = []

    @DOUBLE
    def double(out: int, given: Any) -> None:
        seen.append(given[0])
        x = (ctypes.c_float * 4).from_address(given[0])
        y = (ctypes.c_float * 4).from_address(out)
        for k in range(4):
            y[k] = 2 * x[k]

    register("test_target", double)
    x = np.arange(4, dtype=np.float32)
    assert compiled(CALL)(x).tolist() == [0, 2, 4, 6]
    assert seen == [x.ctypes.data]
    columns = CALL.replace("f32[4]", "f32[2,2]{0,1}")
    x = np.array([[0, 1], [2, 3]], np.float32)
    assert compiled(columns)(x).tolist() == [[0, 2], [4, 6]]
    assert seen[1] != x.ctypes.data
