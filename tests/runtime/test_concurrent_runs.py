"""Several runs of one executable at a time: from threads, and from a custom call of the program itself."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import hloom
from hloom.runtime.custom_call import unregister_custom_call
from tests.evaluation import parse

CALLING = """
ENTRY e { x = f32[2] parameter(0)
          a = f32[2] add(x, x)
          ROOT y = f32[2] custom-call(a), custom_call_target="concurrent" }
"""
STATEFUL = """
ENTRY e { x = f32[2] parameter(0)
          s = u64[2] rng-get-and-update-state(), delta=1
          ROOT y = f32[2] custom-call(x), custom_call_target="concurrent" }
"""
FEEDING = """
ENTRY e { x = f32[2] parameter(0)
          k = token[] after-all()
          i = (f32[2], token[]) infeed(k)
          v = f32[2] get-tuple-element(i), index=0
          a = f32[2] add(x, v)
          ROOT y = f32[2] custom-call(a), custom_call_target="concurrent" }
"""
BACKENDS = ("cpu", "evaluator")


@pytest.fixture
def register() -> Iterator[Callable[[Callable[..., Any]], None]]:
    """Register the custom call of the programs above."""
    yield lambda function: hloom.register_custom_call("concurrent", function)
    unregister_custom_call("concurrent")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("replicas", [1, 2])
def test_a_program_that_runs_itself(register: Any, backend: str, replicas: int) -> None:
    exe = hloom.compile(parse(CALLING), backend=backend, num_replicas=replicas)
    single = hloom.compile(parse(CALLING), backend=backend)
    register(lambda v: exe.run([[v]] * replicas)[0] if v[0] < 10 else v)
    for _ in range(2):
        assert [y.tolist() for y in exe.run([[np.ones(2, np.float32)]] * replicas)] == [[16, 16]] * replicas
    register(lambda v: single(v) if v[0] < 10 else v)
    assert single(np.ones(2, np.float32)).tolist() == [16, 16]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_program_that_waits_for_another_thread_that_runs_it(register: Any, backend: str) -> None:
    exe = hloom.compile(parse(CALLING), backend=backend)
    with ThreadPoolExecutor(8) as pool:
        register(lambda v: pool.submit(exe, v).result(30) if v[0] < 10 else v)
        assert exe(np.ones(2, np.float32)).tolist() == [16, 16]


@pytest.mark.parametrize("backend", BACKENDS)
def test_recursion_without_end_is_an_error(register: Any, backend: str) -> None:
    exe = hloom.compile(parse(CALLING), backend=backend)
    register(lambda v: exe(v))
    with pytest.raises((hloom.HloError, RecursionError)) as caught:
        exe(np.ones(2, np.float32))
    error: BaseException | None = caught.value
    while error is not None and not isinstance(error, RecursionError):
        error = error.__cause__ or error.__context__
    assert isinstance(error, RecursionError)
    register(lambda v: v)
    assert exe(np.ones(2, np.float32)).tolist() == [2, 2]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("text", [STATEFUL, FEEDING], ids=["random", "infeed"])
def test_a_program_with_state_does_not_run_itself(register: Any, backend: str, text: str) -> None:
    exe = hloom.compile(parse(text), backend=backend)
    rules: list[str] = []

    def again(v: Any) -> Any:
        with pytest.raises(hloom.EvaluationError) as caught:
            exe(v)
        rules.append(caught.value.rule)
        return v

    register(again)
    if text is FEEDING:
        exe.devices[0].transfer_to_infeed(np.ones(2, np.float32))
    assert exe(np.ones(2, np.float32)).tolist() in ([1, 1], [2, 2])
    assert rules == ["run.reentrant"]
    register(lambda v: v)
    if text is FEEDING:
        exe.devices[0].transfer_to_infeed(np.ones(2, np.float32))
    assert exe(np.ones(2, np.float32)).tolist() in ([1, 1], [2, 2])


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_program_with_state_runs_once_at_a_time(register: Any, backend: str) -> None:
    """Threads wait for each other, and each takes one value of the infeed."""
    exe = hloom.compile(parse(FEEDING), backend=backend)
    inside, most, lock = 0, 0, threading.Lock()

    def watch(v: Any) -> Any:
        nonlocal inside, most
        with lock:
            inside += 1
            most = max(most, inside)
        threading.Event().wait(0.01)
        with lock:
            inside -= 1
        return v

    register(watch)
    for n in range(8):
        exe.devices[0].transfer_to_infeed(np.full(2, n, np.float32))
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda _: float(exe(np.zeros(2, np.float32))[0]), range(8)))
    assert sorted(results) == list(range(8)) and most == 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_many_threads_run_one_executable(register: Any, backend: str) -> None:
    register(lambda v: v + 1)
    calling = hloom.compile(parse(CALLING), backend=backend)
    text = """
    ENTRY e { x = f32[200,200] parameter(0)
      d = f32[200,200] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
      t = f32[200,200] transpose(d), dimensions={1,0}
      ROOT y = f32[200,200] add(t, d) }"""
    plain = hloom.compile(parse(text), backend=backend)

    def both(n: int) -> tuple[list[float], set[float]]:
        x = np.full((200, 200), n, np.float32)
        return calling(x[0, :2]).tolist(), set(np.unique(plain(x)).tolist())

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(both, range(40)))
    assert results == [([2 * n + 1] * 2, {2 * n * n * 200}) for n in range(40)]
