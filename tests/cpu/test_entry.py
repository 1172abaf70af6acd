"""Calling native programs from Python: the builtin, its fallback to Python, memory."""

from __future__ import annotations

import ctypes
import gc
import subprocess
import sys
import threading
import time
import weakref
from typing import Any, cast

import ml_dtypes
import numpy as np
import pytest

import hloom
from hloom.cpu.runtime import entry
from hloom.cpu.runtime.numpy_interface import layout_is_known
from hloom.cpu.runtime.recycled_memory import recycled_memory
from hloom.cpu.runtime.structs import DESCRIPTOR
from hloom.errors import HloError
from hloom.runtime.executable import Executable
from tests.arrays import f32, s32
from tests.devices import program
from tests.evaluation import parse

DOUBLE = program("p = f32[2,3] parameter(0)\n ROOT r = f32[2,3] add(p, p)")
BIG = program("p = f32[600,1024] parameter(0)\n ROOT r = f32[600,1024] add(p, p)")
NESTED = program("""
  p = f32[600,1024] parameter(0)
  a = f32[600,1024] add(p, p)
  t = (f32[600,1024]) tuple(a)
  ROOT r = ((f32[600,1024])) tuple(t)""")
PAIR = program("""
  p = f32[2] parameter(0)
  q = s32[3] parameter(1)
  a = f32[2] add(p, p)
  b = s32[3] multiply(q, q)
  ROOT r = (s32[3], f32[2]) tuple(b, a)""")


def compiled(text: str) -> Executable:
    return hloom.compile(parse(text), backend="cpu")


def both(text: str, *arguments: Any) -> tuple[Any, Any]:
    """Return the results of the compiled program and of the evaluator."""
    return compiled(text)(*arguments), hloom.compile(parse(text), backend="evaluator")(*arguments)


def refusals(text: str, *arguments: Any) -> list[tuple[str, str]]:
    """Return rule and message with which each backend refuses arguments."""
    found: list[tuple[str, str]] = []
    for backend in ("cpu", "evaluator"):
        with pytest.raises(HloError) as caught:
            hloom.compile(parse(text), backend=backend)(*arguments)
        found.append((caught.value.rule, caught.value.message))
    return found


@pytest.fixture
def no_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Assert that programs run on exactly fitting arrays without the fallback."""
    assert layout_is_known()

    def refuse(self: Executable, *arguments: Any) -> Any:
        raise AssertionError("the builtin asked Python")

    monkeypatch.setattr(Executable, "_call_checked", refuse)


@pytest.mark.parametrize(
    ("place", "value"),
    [("sys.maxsize", 2**31 - 1), ("sys.implementation.name", "pypy"), ("numpy.__version__", "1.26.4")],
)
def test_other_interpreters_and_versions_of_numpy_have_other_layouts(
    monkeypatch: pytest.MonkeyPatch, place: str, value: Any
) -> None:
    unchecked = layout_is_known.__wrapped__
    assert unchecked()
    monkeypatch.setattr(place, value)
    assert not unchecked()


# -- calls that the builtin handles


@pytest.mark.usefixtures("no_python")
def test_arrays_that_fit() -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    result = compiled(DOUBLE)(x)
    assert type(result) is np.ndarray
    assert (result.dtype, result.tolist()) == (np.float32, (2 * x).tolist())
    assert result.flags.owndata and result.flags.writeable and result.flags.c_contiguous


@pytest.mark.usefixtures("no_python")
def test_several_arrays_in_a_tuple() -> None:
    result = compiled(PAIR)(f32([1, 2]), s32([1, 2, 3]))
    assert type(result) is tuple
    assert [r.tolist() for r in result] == [[1, 4, 9], [2, 4]]


@pytest.mark.usefixtures("no_python")
@pytest.mark.parametrize(
    ("kind", "dtype"),
    [
        ("f32", np.float32), ("f64", np.float64), ("f16", np.float16), ("bf16", ml_dtypes.bfloat16),
        ("s8", np.int8), ("u8", np.uint8), ("s32", np.int32), ("s64", np.int64), ("u64", np.uint64),
        ("c64", np.complex64),
    ],
)  # fmt: skip
def test_element_types(kind: str, dtype: Any) -> None:
    result = compiled(program(f"p = {kind}[4] parameter(0)\n ROOT r = {kind}[4] add(p, p)"))(
        np.arange(4).astype(dtype)
    )
    assert result.dtype == dtype
    assert result.astype(np.float64 if kind != "c64" else np.complex64).tolist() == [0, 2, 4, 6]


@pytest.mark.usefixtures("no_python")
def test_scalars_and_nothing() -> None:
    assert (
        compiled(program("p = f32[] parameter(0)\n ROOT r = f32[] add(p, p)"))(np.array(3, np.float32)).shape
        == ()
    )
    assert compiled(program("ROOT r = s32[2] constant({1, 2})"))().tolist() == [1, 2]
    empty = compiled(program("p = f32[0,3] parameter(0)\n ROOT r = f32[0,3] add(p, p)"))
    assert empty(np.zeros((0, 3), np.float32)).shape == (0, 3)
    assert compiled(program("p = f32[2] parameter(0)\n ROOT r = () tuple()"))(np.zeros(2, np.float32)) == ()


@pytest.mark.usefixtures("no_python")
def test_a_parameter_that_is_the_result() -> None:
    x = f32([1, 2])
    result = compiled(program("ROOT p = f32[2] parameter(0)"))(x)
    result[:] = 0
    assert x.tolist() == [1, 2]


# -- calls that go to the fallback


@pytest.mark.parametrize(
    "argument",
    [
        [[1, 2, 3], [4, 5, 6]],
        ((1.5, 2, 3), (4, 5, 6)),
        f32([[1, 4], [2, 5], [3, 6]]).T,
        np.arange(24, dtype=np.float32).reshape(4, 6)[::2, ::2],
        np.frombuffer(b"x" + bytes(24), np.uint8)[1:].view(np.float32).reshape(2, 3),
        np.arange(6, dtype=">f4").reshape(2, 3),
        f32([[1, 2, 3], [4, 5, 6]]).view(np.matrix),
        hloom.Literal(f32([[1, 2, 3], [4, 5, 6]])),
    ],
)
def test_what_else_counts_as_an_argument(argument: Any) -> None:
    result, wanted = both(DOUBLE, argument)
    assert type(result) is np.ndarray
    assert result.tolist() == wanted.tolist()


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        (np.zeros((2, 3), np.float32),) * 2,
        (np.zeros((2, 4), np.float32),),
        (np.zeros((3, 2), np.float32),),
        (np.zeros(6, np.float32),),
        (np.zeros((2, 3, 1), np.float32),),
        (np.zeros((2, 3), np.float64),),
        (np.zeros((2, 3), np.int32),),
        ("text",),
        (None,),
        (object(),),
    ],
)
def test_what_does_not_fit_is_refused_as_by_the_evaluator(arguments: tuple[Any, ...]) -> None:
    mine, wanted = refusals(DOUBLE, *arguments)
    assert mine == wanted


def test_nested_tuples_and_tokens() -> None:
    text = program("""
      p = (f32[2], (s32[2], token[])) parameter(0)
      a = f32[2] get-tuple-element(p), index=0
      b = (s32[2], token[]) get-tuple-element(p), index=1
      c = f32[2] add(a, a)
      ROOT r = ((s32[2], token[]), f32[2]) tuple(b, c)""")
    (integers, token), floats = compiled(text)((f32([1, 2]), ([3, 4], None)))
    assert (integers.tolist(), token, floats.tolist()) == ([3, 4], None, [2, 4])


def test_an_unknown_layout_of_arrays_leaves_everything_to_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry, "layout_is_known", lambda: False)
    exe = compiled(PAIR)
    result = exe(f32([1, 2]), s32([1, 2, 3]))
    assert [r.tolist() for r in result] == [[1, 4, 9], [2, 4]]


# -- memory


def test_large_results_are_aligned_and_can_be_resized() -> None:
    result = compiled(BIG)(np.ones((600, 1024), np.float32))
    assert result.ctypes.data % 64 == 0
    assert (result == 2).all()
    assert cast("Any", np)._core.multiarray.get_handler_name(result) == "hloom"
    result.resize((700, 1024), refcheck=False)
    assert (result[:600] == 2).all()
    assert (result[600:] == 0).all()
    result.resize((10,), refcheck=False)
    assert result.tolist() == [2] * 10


def test_results_of_nested_tuples_are_recycled() -> None:
    exe = compiled(NESTED)
    result: Any = exe(np.ones((600, 1024), np.float32))[0][0]
    address = result.ctypes.data
    assert cast("Any", np)._core.multiarray.get_handler_name(result) == "hloom"
    assert cast("Any", np)._core.multiarray.get_handler_name(np.empty(600)) == "default_allocator"
    del result
    assert exe(np.ones((600, 1024), np.float32))[0][0].ctypes.data == address


def test_memory_of_results_is_used_again() -> None:
    exe, x = compiled(BIG), np.ones((600, 1024), np.float32)
    first = exe(x)
    second = exe(x)
    place = first.ctypes.data
    assert second.ctypes.data != place
    del first
    assert exe(x).ctypes.data == place


def test_no_more_is_free_than_the_limit() -> None:
    record = recycled_memory().record
    exe, x = compiled(BIG), np.ones((600, 1024), np.float32)
    results = [exe(x) for _ in range(6)]
    limit = record["limit"]
    try:
        record["limit"] = record["free_bytes"] + 2 * 4 * 1024 * 1024
        results.clear()
        assert record["free_bytes"] <= record["limit"]
    finally:
        record["limit"] = limit


def test_nothing_leaks() -> None:
    exe = compiled(PAIR)
    p, q = f32([1, 2]), s32([1, 2, 3])
    exe(p, q)
    counted = (p, q, np.dtype(np.float32), np.dtype(np.int32), recycled_memory().handler)
    # Garbage of earlier tests refers to the same data types: collect it before each count.
    gc.collect()
    before = [sys.getrefcount(o) for o in counted]
    for _ in range(1000):
        exe(p, q)
        with pytest.raises(HloError):
            exe(p)
    gc.collect()
    after = [sys.getrefcount(o) for o in counted]
    # One reference too many or too few a call is a difference of 1000; a test's worker may hold a few.
    assert all(abs(a - b) < 500 for a, b in zip(after, before))


def test_the_function_keeps_the_program() -> None:
    exe = compiled(DOUBLE)
    call: Any = exe._call
    del exe
    gc.collect()
    assert call(np.ones((2, 3), np.float32)).tolist() == [[2, 2, 2]] * 2
    assert call([[1, 2, 3]] * 2).tolist() == [[2, 4, 6]] * 2


def test_an_executable_goes_with_its_last_reference() -> None:
    exe = compiled(DOUBLE)
    exe(np.ones((2, 3), np.float32))
    gone = weakref.ref(cast("Any", exe._programs[0]).native)
    del exe
    gc.collect()
    assert gone() is None


NEEDS_ROOM = program("""
  p = f32[256,300] parameter(0)
  q = f32[300,256] parameter(1)
  d = f32[256,256] dot(p, q), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT e = f32[256,256] dot(d, d), lhs_contracting_dims={1}, rhs_contracting_dims={0}""")


def test_several_threads_may_call_one_program() -> None:
    exe = compiled(NEEDS_ROOM)
    assert exe.memory.temp > 0
    generator = np.random.default_rng(0)
    inputs = [
        (
            generator.normal(size=(256, 300)).astype(np.float32),
            generator.normal(size=(300, 256)).astype(np.float32),
        )
        for _ in range(4)
    ]
    wanted = [exe(*pair) for pair in inputs]
    wrong: list[int] = []

    def work(number: int) -> None:
        for _ in range(40):
            if not np.array_equal(exe(*inputs[number]), wanted[number]):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_nothing_depends_on_what_was_in_the_arena() -> None:
    exe = compiled(NEEDS_ROOM)
    x, y = np.ones((256, 300), np.float32), np.ones((300, 256), np.float32)
    wanted = exe(x, y)
    descriptor = DESCRIPTOR.record(cast("Any", exe._call).__self__.ctypes.data)
    ctypes.memset(descriptor["arena"], 0xFF, exe.memory.temp)
    assert np.array_equal(exe(x, y), wanted)


def test_long_programs_let_other_threads_run() -> None:
    size = 1500
    exe = compiled(
        program(f"""
          p = f32[{size},{size}] parameter(0)
          d = f32[{size},{size}] dot(p, p), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
          ROOT e = f32[{size},{size}] dot(d, p), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}""")
    )
    x = np.zeros((size, size), np.float32)
    running, ticks = threading.Event(), [0]

    def tick() -> None:
        while not running.is_set():
            ticks[0] += 1
            time.sleep(0.001)

    def ticks_during_a_run() -> int:
        before = ticks[0]
        exe(x)
        return ticks[0] - before

    clock = threading.Thread(target=tick)
    clock.start()
    exe(x)
    # A busy machine may keep the other thread waiting during one run, not during all of them.
    found = any(ticks_during_a_run() >= 2 for _ in range(20))
    running.set()
    clock.join()
    assert found


LATE = """
import json, numpy, hloom
text = 'HloModule m  ENTRY main { p = f32[64,64] parameter(0)  ROOT s = f32[64,64] add(p, p) }'
run = hloom.compile(hloom.HloModule.from_text(text), backend="cpu")
kept = run(numpy.ones((64, 64), numpy.float32))
json.late = lambda: kept
"""


def test_results_may_live_longer_than_all_modules() -> None:
    """References of another module to a program's globals are freed after hloom's modules are."""
    done = subprocess.run([sys.executable, "-c", LATE], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, (done.returncode, done.stderr)
