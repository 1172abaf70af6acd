"""Call the function of PJRT that `test_additions.py` adds."""

from __future__ import annotations

import ctypes
from pathlib import Path

import hloom
from hloom.jax.pjrt import abi
from hloom.jax.pjrt.native import native
from hloom.jax.pjrt.structs import DEVICE

device = DEVICE.allocate(is_own=1)
args = abi.arguments("Device_PoisonExecution").allocate(device=device.address)
function = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(native().symbols["PJRT_Device_PoisonExecution"])
assert function(args.address) is None
assert args["poisoned"] == 1
print("used", Path(hloom.__file__).parent)
