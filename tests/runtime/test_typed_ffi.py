"""Handlers of XLA's typed FFI as targets of custom calls: compiled C, and the attributes that they get."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import hloom
from hloom.errors import EvaluationError, HloError
from hloom.operations.ffi import Handler
from hloom.operations.ffi_attributes import parse_attributes
from hloom.runtime.custom_call import unregister_custom_call
from tests import agreement
from tests.runtime.compiled_handlers import compiled_handlers

MODULE = """HloModule m
ENTRY e {
  x = f32[2,3] parameter(0)
  ROOT r = (f32[2,3]{0,1}, s64[3]) custom-call(x), custom_call_target="typed",
    operand_layout_constraints={f32[2,3]{0,1}}, api_version=API_VERSION_TYPED_FFI,
    backend_config="{sizes = array<i64: 3, 4, 5>, scale = 2.0 : f32, nested = {f = true}, name = \\"four\\"}"
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return compiled_handlers(tmp_path_factory.mktemp("ffi"))


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    yield
    unregister_custom_call("typed")


@pytest.mark.parametrize("backend", ["cpu", "evaluator"])
def test_a_handler_gets_buffers_and_attributes(library: ctypes.CDLL, backend: str) -> None:
    hloom.register_custom_call("typed", library.handler)
    run = hloom.compile(hloom.HloModule.from_text(MODULE), backend=backend)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    y, z = run(x)
    agreement.equal(y, 2 * x + np.array([[0, 2, 4], [1, 3, 5]]))
    assert z.tolist() == [4, 12, 1]
    with pytest.raises(EvaluationError, match="OUT_OF_RANGE: a negative first element") as caught:
        run(x - 1)
    assert caught.value.rule == "custom-call.failed"
    agreement.equal(run(x)[0], y)


LOOP = """HloModule m
body {
  p = (s32[], f32[2,3]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[2,3] get-tuple-element(p), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  c = (f32[2,3], s64[3]) custom-call(x), custom_call_target="typed", api_version=API_VERSION_TYPED_FFI,
    backend_config={scale = 1.0 : f32, sizes = array<i64: 3, 4, 5>, nested = {f = true}, name = "four"}
  y = f32[2,3] get-tuple-element(c), index=0
  ROOT r = (s32[], f32[2,3]) tuple(next, y)
}
condition {
  p = (s32[], f32[2,3]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(100)
  ROOT r = pred[] compare(i, n), direction=LT
}
ENTRY e {
  x = f32[2,3] parameter(0)
  zero = s32[] constant(0)
  t = (s32[], f32[2,3]) tuple(zero, x)
  w = (s32[], f32[2,3]) while(t), condition=condition, body=body
  ROOT r = f32[2,3] get-tuple-element(w), index=1
}
"""


def test_native_code_calls_handlers(library: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python is entered for errors alone; each run calls the function that the target then has."""
    run = hloom.compile(hloom.HloModule.from_text(LOOP))
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    with pytest.raises(EvaluationError) as caught:
        run(x)
    assert caught.value.rule == "custom-call.target-registered"
    hloom.register_custom_call("typed", library.handler)
    monkeypatch.setattr(Handler, "__call__", None)
    agreement.equal(run(x), x + 100 * np.arange(6).reshape(2, 3))
    with pytest.raises(EvaluationError, match="OUT_OF_RANGE: a negative first element") as caught:
        run(x - 1)
    assert caught.value.rule == "custom-call.failed"
    hloom.register_custom_call("typed", library.later)
    with pytest.raises(EvaluationError) as caught:
        run(x)
    assert caught.value.rule == "custom-call.future"
    hloom.register_custom_call("typed", lambda x: (x + 2, np.zeros(3, np.int64)))
    agreement.equal(run(x), x + 200)


def test_a_python_function_may_take_any_configuration() -> None:
    hloom.register_custom_call("typed", lambda x, backend_config: x + len(backend_config))
    text = """HloModule m
ENTRY e {
  x = f32[3] parameter(0)
  ROOT r = f32[3] custom-call(x), custom_call_target="typed", api_version=API_VERSION_TYPED_FFI,
    backend_config="any"
}"""
    agreement.equal(hloom.compile(hloom.HloModule.from_text(text))(np.ones(3, np.float32)), np.full(3, 4.0))


def test_what_is_not_offered_is_an_error(library: ctypes.CDLL) -> None:
    address = ctypes.cast(library.stream, ctypes.c_void_p).value
    assert address is not None
    hloom.register_custom_call("typed", address)
    with pytest.raises(EvaluationError, match="UNIMPLEMENTED: hloom does not offer XLA_FFI_Stream_Get"):
        hloom.compile(hloom.HloModule.from_text(MODULE))(np.zeros((2, 3), np.float32))


def test_a_future_of_another_make_is_refused(library: ctypes.CDLL) -> None:
    hloom.register_custom_call("typed", library.later)
    with pytest.raises(EvaluationError) as caught:
        hloom.compile(hloom.HloModule.from_text(MODULE))(np.zeros((2, 3), np.float32))
    assert caught.value.rule == "custom-call.future"


def test_handlers_of_jaxlib_run() -> None:
    lapack = pytest.importorskip("jaxlib.lapack")
    capsule = next(
        capsule for name, capsule, _ in lapack.registrations()["cpu"] if name == "lapack_dpotrf_ffi"
    )
    pytest.importorskip("jaxlib.cpu._lapack").initialize()
    hloom.register_custom_call("typed", capsule)
    module = hloom.HloModule.from_text("""HloModule m
ENTRY e {
  a = f64[2,2]{0,1} parameter(0)
  ROOT c = (f64[2,2]{0,1}, s32[]) custom-call(a), custom_call_target="typed",
    api_version=API_VERSION_TYPED_FFI, operand_layout_constraints={f64[2,2]{0,1}},
    backend_config={uplo = 76 : ui8}
}""")
    factor, info = hloom.compile(module)(np.array([[4.0, 9.0], [2.0, 5.0]]))
    assert (np.tril(factor).tolist(), int(info)) == ([[2, 0], [1, 2]], 0)


def test_other_versions_are_refused() -> None:
    hloom.register_custom_call("typed", ctypes.CDLL(None).abs)
    text = MODULE.replace("API_VERSION_TYPED_FFI", "API_VERSION_STATUS_RETURNING")
    with pytest.raises(HloError) as caught:
        hloom.compile(hloom.HloModule.from_text(text))(np.zeros((2, 3), np.float32))
    assert caught.value.rule == "custom-call.api-version"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", {}),
        ("{}", {}),
        ("{a = 76 : ui8, b = -1 : i32}", {"a": np.uint8(76), "b": np.int32(-1)}),
        ("{a = 7, b = 2.5e-01}", {"a": np.int64(7), "b": np.float64(0.25)}),
        ("{a = 0x7FC00000 : f32}", {"a": np.float32("nan")}),
        ('{"odd name" = "x\\"y", unit}', {"odd name": 'x"y', "unit": {}}),
        ("{a = {b = {c = false}}}", {"a": {"b": {"c": np.False_}}}),
        ("{a = array<f64: 1.0, -2.0>}", {"a": np.array([1.0, -2.0])}),
        ("{a = array<i32>}", {"a": np.array([], np.int32)}),
        ("{a = array<i1: true, false>}", {"a": np.array([True, False])}),
    ],
)  # fmt: skip
def test_attributes_are_read(text: str, wanted: dict[str, Any]) -> None:
    found = parse_attributes(text)
    np.testing.assert_equal(found, wanted)
    assert list(map(type, found.values())) == list(map(type, wanted.values()))
    for name, value in wanted.items():
        assert not isinstance(value, np.ndarray) or found[name].dtype == value.dtype


@pytest.mark.parametrize(
    "text",
    ["L", "{a}}", "{a =", "{a = 300 : ui8}", "{a = 1 : f16}", "{a = dense<1>}", "{a = 1 b = 2}", "{1 = 2}"],
)  # fmt: skip
def test_other_backend_configs_are_refused(text: str) -> None:
    with pytest.raises(HloError) as caught:
        parse_attributes(text)
    assert caught.value.rule == "ffi.attributes"
