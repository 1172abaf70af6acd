"""`Executable.donate`: results take the memory of NumPy arrays that the program donates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import hloom
from hloom.cpu.runtime import entry
from hloom.errors import HloError
from tests import agreement
from tests.arrays import f32
from tests.evaluation import parse

APPEND = """
HloModule append, input_output_alias={ {1}: (0, {}, may-alias) }
ENTRY main {
  cache = f32[6,4] parameter(0)
  row = f32[1,4] parameter(1)
  position = s32[] parameter(2)
  zero = s32[] constant(0)
  sum = f32[1,4] add(row, row)
  longer = f32[6,4] dynamic-update-slice(cache, row, position, zero)
  ROOT r = (f32[1,4], f32[6,4]) tuple(sum, longer)
}
"""
IN_TUPLE = """
HloModule in_a_tuple, input_output_alias={ {}: (0, {1}, may-alias) }
ENTRY main {
  pair = (f32[3], f32[3]) parameter(0)
  a = f32[3] get-tuple-element(pair), index=0
  b = f32[3] get-tuple-element(pair), index=1
  ROOT sum = f32[3] add(a, b)
}
"""
EXCHANGE = """
HloModule exchange, input_output_alias={ {0}: (0, {}, may-alias) }
ENTRY main {
  a = f32[3] parameter(0)
  reversed = f32[3] reverse(a), dimensions={0}
  ROOT r = (f32[3], f32[3]) tuple(reversed, a)
}
"""
SCALAR = """
HloModule scalar, input_output_alias={ {}: (0, {}, may-alias) }
ENTRY main { x = f32[] parameter(0)  one = f32[] constant(1)  ROOT y = f32[] add(x, one) }
"""


@pytest.fixture(params=["native", "python"])
def checked(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run by the builtin, and by the function for arguments that do not fit it."""
    if request.param == "python":
        monkeypatch.setattr(entry, "layout_is_known", lambda: False)


def arguments() -> tuple[Any, ...]:
    return np.arange(24, dtype=np.float32).reshape(6, 4), f32([[7, 8, 9, 10]]), np.int32(2)


def refusal(call: Callable[[], object]) -> str:
    with pytest.raises(HloError) as caught:
        call()
    assert caught.value.rule == "run.donation"
    return caught.value.message


@pytest.mark.usefixtures("checked")
def test_a_result_is_the_array_of_the_argument() -> None:
    exe = hloom.compile(parse(APPEND))
    cache, row, position = arguments()
    before = cache.copy()
    kept = exe(cache, row, position)
    agreement.same(cache, before)  # a call changes no argument
    results = exe.donate(cache, row, position)
    assert results[1] is cache
    assert results[0] is not row
    agreement.same(results, kept)
    again = exe.donate(cache, row, np.int32(3))[1]
    assert again is cache
    agreement.same(again, np.concatenate([before[:2], row, row, before[4:]]))


@pytest.mark.usefixtures("checked")
def test_arrays_of_other_memory_may_be_donated() -> None:
    exe = hloom.compile(parse(APPEND))
    cache, row, position = arguments()
    memory = np.zeros((2, 6, 4), np.float32)
    memory[1] = cache
    part = memory[1]
    assert exe.donate(part, row, position)[1] is part
    agreement.same(memory[1], exe(cache, row, position)[1])
    agreement.same(memory[0], np.zeros((6, 4), np.float32))


@pytest.mark.usefixtures("checked")
def test_a_result_that_cannot_be_written_there_is_a_new_array() -> None:
    exe = hloom.compile(parse(EXCHANGE))
    reversed, kept = exe.donate(a := f32([1, 2, 3]))
    assert reversed is not a
    agreement.same((reversed, kept), (f32([3, 2, 1]), f32([1, 2, 3])))


def test_an_element_of_a_tuple_and_a_scalar_are_donated() -> None:
    b = f32([10, 20, 30])
    assert hloom.compile(parse(IN_TUPLE)).donate((f32([1, 2, 3]), b)) is b
    agreement.same(b, f32([11, 22, 33]))
    x = np.array(1, np.float32)
    assert hloom.compile(parse(SCALAR)).donate(x) is x
    agreement.same(x, np.array(2, np.float32))


def test_prepared_arguments_are_kept() -> None:
    exe = hloom.compile(parse(APPEND))
    cache, row, position = arguments()
    with exe.prepare(row=row) as prepared:
        assert prepared.donate(cache, position)[1] is cache
    cache, before = arguments()[0], arguments()[0]
    with exe.prepare(cache=cache) as prepared:
        assert prepared.donate(row, position)[1] is not cache
    agreement.same(cache, before)


@pytest.mark.usefixtures("checked")
def test_what_cannot_be_donated_is_refused() -> None:
    exe = hloom.compile(parse(APPEND))
    cache, row, position = arguments()
    shared = np.zeros((7, 4), np.float32)
    read_only = cache.copy()
    read_only.flags.writeable = False
    for array, reason in (
        (read_only, "it is read-only"),
        (cache.T.copy().T, "it is not contiguous and aligned"),
        (cache.tolist(), "it is of type list, not a NumPy array"),
    ):
        message = refusal(lambda array=array: exe.donate(array, row, position))
        assert message == f"argument 0 (%cache) cannot be donated: {reason}"
    assert "it shares memory" in refusal(lambda: exe.donate(shared[:6], shared[5:6], position))
    assert exe.donate(shared[:6], shared[6:], position)[1].base is shared
    nibbles = np.full((6, 4), 0x51, np.uint8).view(ml_dtypes.int4)  # with bits that are no part of an element
    exe = hloom.compile(parse(APPEND.replace("f32[", "s4[")))
    assert "converted" in refusal(lambda: exe.donate(nibbles, nibbles[:1].copy(), position))


def test_other_backends_and_several_devices_refuse() -> None:
    with pytest.raises(HloError) as caught:
        hloom.compile(parse(APPEND), backend="evaluator").donate(*arguments())
    assert caught.value.rule == "compile.not-offered"
    with pytest.raises(HloError) as caught:
        hloom.compile(parse(APPEND), num_replicas=2).donate(*arguments())
    assert caught.value.rule == "run.one-device"
