"""The binary interface: fields lie where native code reads them."""

from __future__ import annotations

import pytest
from tests.jax_platform.process import run_program

from hloom.jax.pjrt import abi


@pytest.mark.parametrize("version", [90, 104, 105, abi.CLAIMED_VERSION, abi.MINOR_VERSION])
def test_callers_of_every_version_are_served(version: int) -> None:
    program = f"""
import hloom.jax.pjrt.abi
hloom.jax.pjrt.abi.CLAIMED_VERSION = {version}
import hloom.jax
hloom.jax.register(as_cpu=True)
import jax, jax.numpy as jnp
print(jax.jit(lambda x: x + 1)(jnp.arange(3.0)), jax.devices()[0].default_memory().kind)
try:
    jax.jit(lambda x: x + 2, compiler_options={{"bad": "x"}})(1.0)
except jax.errors.JaxRuntimeError as error:
    print(error)
"""
    printed = run_program(program, "stock").splitlines()
    assert printed == ["[1. 2. 3.] device", "INVALID_ARGUMENT: No such compile option: 'bad'"]


def test_the_table_has_every_function_once() -> None:
    assert len(set(abi.FUNCTIONS)) == len(abi.FUNCTIONS) == 138
    assert abi.FUNCTIONS.index("LoadedExecutable_Execute") == 55


def test_no_function_is_null_and_later_ones_refuse() -> None:
    program = """
import ctypes
import hloom.jax
hloom.jax.register(as_cpu=True)
from hloom.jax.pjrt import abi
from hloom.jax.table import table
size = ctypes.c_size_t.from_address(table().address).value // 8
words = (ctypes.c_uint64 * (size + 64)).from_address(table().address)
print(size == 5 + len(abi.FUNCTIONS), all(words[5:]))

class Message(abi.HEAD.ctypes_class):
    _fields_ = (("error", ctypes.c_void_p), ("message", ctypes.c_char_p), ("size", ctypes.c_size_t))

function = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
for number in (size, size + 63, 5 + abi.FUNCTIONS.index("Client_DmaMap")):
    error = function(words[number])(ctypes.addressof(abi.HEAD.ctypes_class(16, None)))
    said, code = Message(error=error), abi.struct("Error_GetCode")(error=error)
    function(words[5 + abi.FUNCTIONS.index("Error_Message")])(ctypes.addressof(said))
    function(words[5 + abi.FUNCTIONS.index("Error_GetCode")])(ctypes.addressof(code))
    print(code.code, said.message.decode())
"""
    later = f"12 hloom implements PJRT's interface up to version 0.{abi.MINOR_VERSION}"
    printed = run_program(program, "stock").splitlines()
    assert printed == ["True True", later, later, "12 hloom does not implement PJRT_Client_DmaMap"]


def test_callers_have_no_fields_that_the_table_lacks() -> None:
    """A newer jaxlib states larger structs: add its fields to `hloom.jax.pjrt.abi`."""
    program = """
import ctypes
from hloom.jax.pjrt import api
called, larger, original = set(), set(), api.callback_of

def recording(function, arguments):
    def call(args):
        called.add(arguments.__name__)
        if args.struct_size > ctypes.sizeof(arguments):
            larger.add(arguments.__name__)
        function(args)
    return original(call, arguments)

api.callback_of = recording
import hloom.jax
hloom.jax.register(as_cpu=True)
import jax, jax.numpy as jnp, numpy as np
compiled = jax.jit(lambda x: x @ x.T).lower(jnp.ones((2, 3))).compile()
compiled(jax.device_put(np.ones((2, 3), np.float32), jax.devices()[0]))
compiled.memory_analysis(), compiled.cost_analysis(), compiled.as_text()
print(len(called) > 20, sorted(larger))
"""
    assert run_program(program, "stock") == "True []\n"


def test_topologies_and_parameters_are_described() -> None:
    program = """
import hloom.jax
hloom.jax.register(as_cpu=True)
import ctypes, jax
from hloom.jax.devices import client
from hloom.jax.pjrt import abi, api, handles
from hloom.jax.programs import executables
executable = jax.jit(lambda x, y: x + y).lower(1.0, 2.0).compile()
topology = client.clients[0].topology.handle

def answer(name, **given):
    args = abi.struct(name)(**given)
    api.implementation(name)(args)
    return args

prints = [answer("TopologyDescription_Fingerprint", topology=topology).fingerprint for _ in range(2)]
print(prints[0] == prints[1] != 0)
kinds = answer("TopologyDescription_GetMemorySpaceKindIds", topology=topology)
print(handles.words_at(kinds.memory_space_kind_ids, kinds.num_memory_space_kind_ids, ctypes.c_int32))
loaded = [h for h, o in handles.Handle._alive.items() if isinstance(o, executables.LoadedExecutable)][-1]
found = answer("Executable_ParameterMemoryKinds", executable=loaded)
names = handles.words_at(found.memory_kinds, found.num_parameters, ctypes.c_void_p)
sizes = handles.words_at(found.memory_kind_sizes, found.num_parameters, ctypes.c_size_t)
print([ctypes.string_at(name, size).decode() for name, size in zip(names, sizes)])
"""
    printed = run_program(program, "stock").splitlines()
    assert printed == ["True", "[0, 1, 2]", "['device', 'device']"]
