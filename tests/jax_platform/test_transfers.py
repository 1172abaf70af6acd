"""Transfers of host arrays to the device: which of them native code copies."""

from __future__ import annotations

from tests.jax_platform.process import run_program

PROGRAM = """
import sys
import jax, numpy as np

def python_transfers(array):
    called = []
    jax.device_put(array)
    sys.setprofile(lambda frame, event, _: event == "call" and called.append(frame.f_code.co_name))
    result = jax.device_put(array)
    sys.setprofile(None)
    assert result.shape == array.shape and np.array_equal(result, array), array
    return called.count("from_host")

for shape in (4,), (), (2, 3), (1, 3, 1), (0,), (2, 0), (0, 3), (4, 0, 5):
    array = np.zeros(shape, bool)
    print(shape, python_transfers(array), python_transfers(np.ones(shape, np.float32)))
print("transposed", python_transfers(np.arange(6.0, dtype=np.float32).reshape(2, 3).T))
print("narrow", python_transfers(np.zeros(4, jax.numpy.int4)))
"""


def test_native_code_transfers_row_major_arrays_also_without_elements() -> None:
    """The strides of numpy's arrays without elements are zeros."""
    lines = run_program(PROGRAM, "cpu").splitlines()
    assert [line.split(") ")[-1] for line in lines[:8]] == ["0 0"] * 8
    assert lines[8:] == ["transposed 1", "narrow 1"]
