"""Typed calls with stages and states, and calls that answer by a future: compiled C."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator

import numpy as np
import pytest

import hloom
from hloom.errors import EvaluationError
from hloom.operations.ffi_services import register_type
from hloom.runtime.custom_call import unregister_custom_call
from tests.runtime.compiled_handlers import compiled_handlers

COUNTER = """HloModule m
ENTRY e {
  ROOT r = s32[] custom-call(), custom_call_target="count", api_version=API_VERSION_TYPED_FFI,
    backend_config={first = FIRST : i64}, custom_call_has_side_effect=true
}
"""
DOUBLED = """HloModule m
ENTRY e {
  x = s32[] parameter(0)
  y = s32[] custom-call(x), custom_call_target="count", api_version=API_VERSION_TYPED_FFI, backend_config={}
  ROOT r = s32[] add(y, x)
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    made = compiled_handlers(tmp_path_factory.mktemp("ffi"))
    for kind in ("count", "step"):
        address = {
            part: ctypes.addressof(ctypes.c_char.in_dll(made, f"{kind}_{part}")) for part in ("type", "info")
        }
        register_type(kind, address["type"], address["info"])
    return made


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    yield
    unregister_custom_call("count")


def counter(first: int, backend: str) -> hloom.Executable:
    return hloom.compile(hloom.HloModule.from_text(COUNTER.replace("FIRST", str(first))), backend=backend)


def failure(program: hloom.Executable, *arguments: object) -> str:
    """Return why a program fails."""
    with pytest.raises(EvaluationError) as caught:
        program(*arguments)
    assert caught.value.rule == "custom-call.failed"
    return str(caught.value)


@pytest.mark.parametrize("backend", ["cpu", "evaluator"])
def test_a_state_lives_as_long_as_its_program(library: ctypes.CDLL, backend: str) -> None:
    stages = {
        "instantiate": library.count_begin,
        "prepare": library.count_prepare,
        "execute": library.count_run,
    }
    hloom.register_custom_call("count", stages)
    counts, steps = (ctypes.c_int.in_dll(library, name) for name in ("counts_alive", "steps_alive"))
    gc.collect()
    others = counts.value  # of programs that errors of earlier tests still refer to
    from_three, from_ten = counter(3, backend), counter(10, backend)
    assert [int(from_three()) for _ in range(3)] == [3, 4, 5]
    assert [int(from_ten()) for _ in range(2)] == [10, 11]
    assert int(from_three()) == 6
    assert (counts.value - others, steps.value) == (2, 0)
    del from_three
    gc.collect()
    assert counts.value - others == 1
    assert int(from_ten()) == 12
    assert "OUT_OF_RANGE: a negative count" in failure(counter(-1, backend))
    del from_ten
    gc.collect()
    assert counts.value - others == 0


@pytest.mark.parametrize("backend", ["cpu", "evaluator"])
def test_misused_states_are_errors(library: ctypes.CDLL, backend: str) -> None:
    begin = {"instantiate": library.count_begin}
    hloom.register_custom_call("count", {"execute": library.count_plainly})
    assert "NOT_FOUND: the stage instantiate has set no state" in failure(counter(1, backend))
    hloom.register_custom_call("count", {**begin, "execute": library.other_type})
    assert "INVALID_ARGUMENT: the state of the stage instantiate has another type" in failure(
        counter(1, backend)
    )
    hloom.register_custom_call(
        "count", {"instantiate": library.begin_twice, "execute": library.count_plainly}
    )
    assert "ALREADY_EXISTS: the stage instantiate has set a state already" in failure(counter(1, backend))
    hloom.register_custom_call(
        "count", {"prepare": library.begin_without_type, "execute": library.count_plainly}
    )
    assert "INVALID_ARGUMENT: the type of the state is not registered" in failure(counter(1, backend))
    hloom.register_custom_call("count", library.count_begin)
    assert "OUT_OF_RANGE: stage" in failure(counter(1, backend))
    hloom.register_custom_call("count", library.begin_twice)
    assert "INVALID_ARGUMENT: this call keeps no state" in failure(counter(1, backend))


@pytest.mark.parametrize("stages", [{}, {"instantiate": 1}, {"execute": 1, "finish": 1}])
def test_stages_have_xlas_names(stages: dict[str, int]) -> None:
    with pytest.raises(EvaluationError, match="instantiate, prepare, initialize, execute") as caught:
        hloom.register_custom_call("count", stages)
    assert caught.value.rule == "custom-call.stages"


def test_calls_of_the_original_form_have_no_stages(library: ctypes.CDLL) -> None:
    hloom.register_custom_call("count", {"execute": library.count_run})
    text = COUNTER.replace("API_VERSION_TYPED_FFI", "API_VERSION_ORIGINAL").replace("FIRST", "1")
    with pytest.raises(EvaluationError) as caught:
        hloom.compile(hloom.HloModule.from_text(text))()
    assert caught.value.rule == "custom-call.api-version"


@pytest.mark.parametrize("backend", ["cpu", "evaluator"])
def test_a_call_may_answer_by_a_future(library: ctypes.CDLL, backend: str) -> None:
    hloom.register_custom_call("count", library.doubled_later)
    run = hloom.compile(hloom.HloModule.from_text(DOUBLED), backend=backend)
    assert [int(run(np.int32(x))) for x in (1, 7, 0)] == [3, 21, 0]
    assert "OUT_OF_RANGE: a late refusal" in failure(run, np.int32(-1))
    assert int(run(np.int32(5))) == 15
