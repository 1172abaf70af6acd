"""The binary interface: fields lie where native code reads them."""

from __future__ import annotations

import pytest

from hloom.jax.pjrt import abi
from tests.jax_platform.process import run_program


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
import hloom.jax
hloom.jax.register(as_cpu=True)
from hloom.jax.pjrt import abi
from hloom.jax.table import table
function = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
words = (ctypes.c_uint64 * (5 + len(abi.FUNCTIONS))).from_address(table().address)
originals, called, larger = words[:], set(), set()

def recording(name, original):
    def call(address):
        called.add(name)
        if abi.HEAD.record(address)["struct_size"] > abi.arguments(name).size:
            larger.add(name)
        return original(address)
    return function(call)

held = [recording(name, function(address)) for name, address in zip(abi.FUNCTIONS, originals[5:])]
words[5:] = [ctypes.cast(callback, ctypes.c_void_p).value for callback in held]
import jax, jax.numpy as jnp, numpy as np
compiled = jax.jit(lambda x: x @ x.T).lower(jnp.ones((2, 3))).compile()
compiled(jax.device_put(np.ones((2, 3), np.float32), jax.devices()[0]))
compiled.memory_analysis(), compiled.cost_analysis(), compiled.as_text()
print(len(called) > 50, sorted(larger))
words[:] = originals
"""
    assert run_program(program, "stock") == "True []\n"


ASK = """
import ctypes
from hloom.jax.devices import client
from hloom.jax.pjrt import abi, handles
from hloom.jax.pjrt.native import native
from hloom.jax.programs.executables import LoadedExecutable
from hloom.jax.table import table
words = (ctypes.c_uint64 * (5 + len(abi.FUNCTIONS))).from_address(table().address)

def answer(name, **handle):
    args = abi.struct(name)(**handle)
    function = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
    error = function(words[5 + abi.FUNCTIONS.index(name)])(ctypes.addressof(args))
    if not error:
        return args
    said = abi.struct("Error_Message")(error=error)
    function(words[5 + abi.FUNCTIONS.index("Error_Message")])(ctypes.addressof(said))
    raise ValueError(ctypes.string_at(said.message, said.message_size).decode())

def last_executable():
    return [h for h, o in handles.Handle._alive.items() if isinstance(o, LoadedExecutable)][-1]
"""


def test_topologies_and_parameters_are_described() -> None:
    program = """
import hloom.jax
hloom.jax.register(as_cpu=True)
import jax
executable = jax.jit(lambda x, y: x + y).lower(1.0, 2.0).compile()
topology = answer("Client_TopologyDescription", client=client.clients[0].handle).topology
prints = [answer("TopologyDescription_Fingerprint", topology=topology).fingerprint for _ in range(2)]
print(prints[0] == prints[1] != 0)
kinds = answer("TopologyDescription_GetMemorySpaceKindIds", topology=topology)
print(handles.read_array(kinds.memory_space_kind_ids, kinds.num_memory_space_kind_ids, ctypes.c_int32))
kinds = answer("Executable_ParameterMemoryKinds", executable=last_executable())
names = handles.read_array(kinds.memory_kinds, kinds.num_parameters, ctypes.c_void_p)
sizes = handles.read_array(kinds.memory_kind_sizes, kinds.num_parameters, ctypes.c_size_t)
print([ctypes.string_at(name, size).decode() for name, size in zip(names, sizes)])
text = answer("TopologyDescription_Serialize", topology=topology)
print(ctypes.string_at(text.serialized_bytes, text.serialized_bytes_size).decode().endswith(", 1 device"))
print(text.serialized_topology_deleter == native().symbols["pjrt_nothing"])
"""
    printed = run_program(ASK + program, "stock").splitlines()
    assert printed == ["True", "[0, 1, 2]", "['device', 'device']", "True", "True"]


def test_deleted_executables_run_to_the_end_of_their_queue() -> None:
    """Deleting refuses new runs; queued ones still have their program."""
    program = """
import os
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
import hloom.jax
hloom.jax.register(as_cpu=True)
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P

def run_and_delete(x):
    long = jax.jit(lambda x: jax.lax.fori_loop(0, 50, lambda i, y: jnp.tanh(y @ y), x).sum(0))
    compiled = long.lower(x).compile()
    executable = last_executable()
    results = [compiled(x) for _ in range(3)]
    answer("LoadedExecutable_Delete", executable=executable)
    print(answer("LoadedExecutable_IsDeleted", executable=executable).is_deleted)
    try:
        compiled(x)
    except ValueError as error:
        print("was deleted" in str(error))
    print(all(np.array_equal(r, results[0]) for r in results))

x = np.full((256, 256), 0.01, np.float32)
run_and_delete(jax.device_put(x, jax.devices()[0]))
run_and_delete(jax.device_put(x, NamedSharding(jax.make_mesh((2,), ("a",)), P(None, "a"))))
"""
    assert run_program(ASK + program, "stock").splitlines() == ["1", "True", "True"] * 2
