"""Active lanes of a vector move to the front, in order."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from hloom.codegen.compaction import compaction_lanes, compress
from hloom.codegen.llvm import I32, PTR, Module
from hloom.codegen.target import host
from hloom.cpu.jit.llvm import generate_module
from hloom.cpu.jit.loader import LoadedObject


@pytest.mark.skipif(not compaction_lanes(host()), reason="the processor compacts no vectors")
def test_every_mask_of_eight_lanes() -> None:
    lanes = compaction_lanes(host())
    f = Module(host()).function("f", [PTR, PTR, PTR], internal=False)
    numbers, chosen, packed = f.parameters
    vector = I32.vector(lanes)
    f.store(compress(f.load(vector, numbers), f.load(vector, chosen).compare("ne", 0)), packed)
    f.finish()
    loaded = LoadedObject([generate_module(f.module)], {}.get, f.module.data)
    call = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3)(loaded.symbols["f"])
    values = np.arange(100, 100 + lanes, dtype=np.int32)
    for mask in range(256):
        active = np.array([mask >> lane % 8 & 1 for lane in range(lanes)], np.int32)
        result = np.zeros(lanes, np.int32)
        call(values.ctypes.data, active.ctypes.data, result.ctypes.data)
        wanted = values[active != 0]
        assert result[: len(wanted)].tolist() == wanted.tolist()
