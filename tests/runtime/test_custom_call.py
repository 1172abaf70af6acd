"""C functions as targets of custom calls."""

from __future__ import annotations

import ctypes
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import hloom
from hloom.errors import EvaluationError
from hloom.runtime.custom_call import unregister_custom_call
from tests.devices import executable, fails, lists, program

SIGNATURE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p))
FLOAT = ctypes.POINTER(ctypes.c_float)


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    yield
    unregister_custom_call("myfunc")


def native(function: Callable[[Any, Any], None]) -> Any:
    """A C function pointer that runs a Python function over raw addresses."""
    return SIGNATURE(function)


def floats(address: int, count: int) -> Any:
    return np.ctypeslib.as_array(ctypes.cast(address, FLOAT), (count,))


def page_example(out: int, inputs: Any) -> None:
    """The page's myfunc: z[0][0] = x[1] + y[1][0]."""
    x, y, z = floats(inputs[0], 2), floats(inputs[1], 6), floats(out, 9)
    assert x.tolist() == [1, 2]
    assert y.tolist() == [10, 20, 30, 40, 50, 60]
    z[:] = 0
    z[0] = x[1] + y[3]


PAGE = program("""
  x = f32[2] constant({1, 2})
  y = f32[2,3] constant({{10, 20, 30}, {40, 50, 60}})
  ROOT z = f32[3,3] custom-call(x, y), custom_call_target="myfunc"
""")


@pytest.mark.parametrize("form", ["function", "address"])
def test_the_function_of_the_page(form: str) -> None:
    function = native(page_example)
    address = ctypes.cast(function, ctypes.c_void_p).value
    assert address is not None
    hloom.register_custom_call("myfunc", function if form == "function" else address)
    assert executable(PAGE)().tolist() == [[42, 0, 0], [0, 0, 0], [0, 0, 0]]


def test_a_library_function() -> None:
    """memcpy(out, in, n) takes more than it is given here, so a function of two pointers is made from it."""
    memcpy = ctypes.CDLL(None).memcpy

    def copy(out: int, inputs: Any) -> None:
        memcpy(ctypes.c_void_p(out), ctypes.c_void_p(inputs[0]), ctypes.c_size_t(8))

    hloom.register_custom_call("myfunc", native(copy))
    text = program('p = f32[2] parameter(0)\n ROOT r = f32[2] custom-call(p), custom_call_target="myfunc"')
    assert executable(text)([3, 4]).tolist() == [3, 4]


def test_elements_lie_in_the_order_of_the_layout() -> None:
    seen: list[list[float]] = []

    def target(out: int, inputs: Any) -> None:
        seen.append(floats(inputs[0], 6).tolist())
        floats(out, 6)[:] = [1, 2, 3, 4, 5, 6]

    hloom.register_custom_call("myfunc", native(target))
    text = program(
        "p = f32[2,3]{0,1} parameter(0)\n"
        'ROOT r = f32[3,2]{0,1} custom-call(p), custom_call_target="myfunc", '
        "operand_layout_constraints={f32[2,3]{0,1}}"
    )
    result = executable(text)(np.arange(6, dtype=np.float32).reshape(2, 3))
    assert seen == [[0, 3, 1, 4, 2, 5]]
    assert result.tolist() == [[1, 4], [2, 5], [3, 6]]


def test_tuples_are_arrays_of_pointers() -> None:
    def target(out: int, inputs: Any) -> None:
        pointers = ctypes.cast(inputs[0], ctypes.POINTER(ctypes.c_void_p))
        results = ctypes.cast(out, ctypes.POINTER(ctypes.c_void_p))
        first, second = floats(pointers[0] or 0, 2), floats(pointers[1] or 0, 1)
        floats(results[0] or 0, 1)[0] = first.sum()
        floats(results[1] or 0, 2)[:] = first * second[0]

    hloom.register_custom_call("myfunc", native(target))
    text = program("""
      p = (f32[2], f32[]) parameter(0)
      ROOT r = (f32[], f32[2]) custom-call(p), custom_call_target="myfunc"
    """)
    assert lists(executable(text)(([1, 2], 10))) == [3, [10, 20]]


def test_booleans_are_bytes() -> None:
    def target(out: int, inputs: Any) -> None:
        source = np.ctypeslib.as_array(ctypes.cast(inputs[0], ctypes.POINTER(ctypes.c_uint8)), (2,))
        result = np.ctypeslib.as_array(ctypes.cast(out, ctypes.POINTER(ctypes.c_uint8)), (2,))
        result[:] = 1 - source

    hloom.register_custom_call("myfunc", native(target))
    text = program('p = pred[2] parameter(0)\n ROOT r = pred[2] custom-call(p), custom_call_target="myfunc"')
    assert executable(text)([True, False]).tolist() == [False, True]


def test_only_the_original_signature() -> None:
    hloom.register_custom_call("myfunc", native(page_example))
    text = PAGE.replace('"myfunc"', '"myfunc", api_version=API_VERSION_STATUS_RETURNING')
    assert fails(executable(text), [[]]).rule == "custom-call.api-version"


@pytest.mark.parametrize("function", [None, "memcpy", True, 1.5])
def test_what_is_no_function(function: Any) -> None:
    with pytest.raises(EvaluationError) as caught:
        hloom.register_custom_call("myfunc", function)
    assert caught.value.rule == "custom-call.function"


def test_the_target_is_a_string() -> None:
    with pytest.raises(EvaluationError, match=r"custom-call\.name"):
        hloom.register_custom_call(3, abs)  # type: ignore[arg-type]


@pytest.mark.parametrize("backend", ["cpu", "evaluator"])
def test_an_exception_in_a_python_function_stays_the_cause(backend: str) -> None:
    def failing(_: Any) -> Any:
        raise KeyError("of the caller")

    hloom.register_custom_call("myfunc", failing)
    text = 'f32[2] custom-call(x), custom_call_target="myfunc"'
    module = hloom.HloModule.from_text(f"HloModule m\nENTRY e {{ x = f32[2] parameter(0) ROOT y = {text} }}")
    with pytest.raises(EvaluationError) as caught:
        hloom.compile(module, backend=backend)(np.ones(2, np.float32))
    cause = caught.value.__cause__
    assert isinstance(cause, KeyError)
    assert cause.__traceback__ is not None
    frames = traceback.extract_tb(cause.__traceback__)
    assert frames[-1].name == "failing"
    assert caught.value.instruction == "y"


@pytest.mark.parametrize("backend", ["cpu", "evaluator"])
def test_an_exception_of_a_conversion_stays_the_cause(backend: str) -> None:
    class Unconvertible:
        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            raise ZeroDivisionError("of the caller")

    hloom.register_custom_call("myfunc", lambda _: Unconvertible())
    text = 'f32[2] custom-call(x), custom_call_target="myfunc"'
    module = hloom.HloModule.from_text(f"HloModule m\nENTRY e {{ x = f32[2] parameter(0) ROOT y = {text} }}")
    with pytest.raises(EvaluationError, match=r"custom-call\.result") as caught:
        hloom.compile(module, backend=backend)(np.ones(2, np.float32))
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
