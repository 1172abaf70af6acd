"""Asynchronous transfers from the host: pieces, failures, layouts, and JAX's transfers between processes."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.jax_platform.process import run_program
from tests.jax_platform.test_abi import ASK
from tests.jax_platform.test_distributed import printed

MANAGER = """
import hloom.jax
hloom.jax.register(as_cpu=True)
import jax, numpy as np
from hloom.jax.pjrt.element_types import NUMBERS
from hloom.shape import element_type
F32 = NUMBERS[element_type.F32]
jax.devices()
memory = client.clients[0].devices[0].memories[0]
held = []

def pointer(array):
    return array.ctypes.data

def specification(*sizes):
    held.append(np.array(sizes, np.int64))
    return abi.struct("ShapeSpec")(dims=pointer(held[-1]), num_dims=len(sizes), element_type=F32)

def manager(*shapes):
    kind = abi.struct("ShapeSpec")
    specifications = (kind * len(shapes))(*(specification(*sizes) for sizes in shapes))
    return answer(
        "Client_CreateBuffersForAsyncHostToDevice", client=client.clients[0].handle, memory=memory.handle,
        shape_specs=ctypes.addressof(specifications), num_shape_specs=len(shapes),
    ).transfer_manager

def of_manager(name, handle, **fields):
    return answer("AsyncHostToDeviceTransferManager_" + name, transfer_manager=handle, **fields)

def buffer_of(handle, number):
    return of_manager("RetrieveBuffer", handle, buffer_index=number).buffer_out

def send(handle, number, array, offset=0, last=True):
    of_manager("TransferData", handle, buffer_index=number, data=pointer(array), offset=offset,
               transfer_size=array.nbytes, is_last_transfer=last)

def is_ready(buffer):
    event = answer("Buffer_ReadyEvent", buffer=buffer).event
    return bool(answer("Event_IsReady", event=event).is_ready)

def received(buffer, count):
    array = np.zeros(count, np.float32)
    answer("Buffer_CopyRawToHost", buffer=buffer, dst=pointer(array), offset=0, transfer_size=array.nbytes)
    return array.tolist()

def refusal(function, *arguments, **fields):
    try:
        function(*arguments, **fields)
    except ValueError as error:
        return str(error)
"""


def answers(program: str) -> list[str]:
    return run_program(ASK + MANAGER + program, "stock").splitlines()


def test_pieces_fill_a_buffer() -> None:
    program = """
m = manager((2, 3), (4,))
print(of_manager("BufferCount", m).buffer_count, of_manager("BufferSize", m, buffer_index=1).buffer_size)
print(of_manager("Device", m).device_out == client.clients[0].devices[0].handle)
x = np.arange(6, dtype=np.float32)
buffer = buffer_of(m, 0)
send(m, 0, x[4:], 16, last=False)
print(is_ready(buffer))
send(m, 0, x[:4])
print(is_ready(buffer), is_ready(buffer_of(m, 1)))
send(m, 1, x[:4])
other = buffer_of(m, 1)
of_manager("AddMetadata", m)
of_manager("Destroy", m)
print(received(buffer, 6), received(other, 4))
"""
    wanted = ["2 16", "True", "False", "True False", "[0.0, 1.0, 2.0, 3.0, 4.0, 5.0] [0.0, 1.0, 2.0, 3.0]"]
    assert answers(program) == wanted


def test_failures_reach_those_who_wait() -> None:
    program = """
m = manager((4,), (4,), (4,))
buffers = [buffer_of(m, n) for n in range(3)]
x = np.ones(4, np.float32)
text = np.frombuffer(b"cut off", np.uint8)
of_manager("SetBufferError", m, buffer_index=0, error_code=13, error_message=pointer(text),
           error_message_size=text.size)
print(refusal(received, buffers[0], 4))
send(m, 1, x)
print(refusal(send, m, 1, x), refusal(send, m, 0, x), sep="; ")
print(refusal(send, m, 2, x, 4), refusal(send, m, 3, x), sep="; ")
of_manager("Destroy", m)
print(refusal(received, buffers[2], 4), received(buffers[1], 4))
print(refusal(received, buffers[1], 5))
"""
    assert answers(program) == [
        "cut off",
        "buffer 1 is complete; buffer 0 is complete",
        "16 bytes from 4 of a buffer of 16; no buffer 3: there are 3",
        "the transfers to a buffer ended before the last one [1.0, 1.0, 1.0, 1.0]",
        "bytes beyond the end of the buffer",
    ]


def test_arrays_of_another_layout() -> None:
    program = """
m = manager((2, 3), (2, 3))
x = np.arange(6, dtype=np.float32)
sizes, order = np.array([2, 3], np.int64), np.array([0, 1], np.int64)
layout = abi.struct("MemoryLayout")(minor_to_major=pointer(order), minor_to_major_size=2)
for number, address in enumerate((0, ctypes.addressof(layout))):
    of_manager("TransferLiteral", m, buffer_index=number, data=pointer(x), shape_dims=pointer(sizes),
               shape_num_dims=2, shape_element_type=F32, shape_layout=address)
    print(received(buffer_of(m, number), 6))
print(refusal(of_manager, "TransferLiteral", m, buffer_index=0, shape_element_type=F32))
"""
    assert answers(program) == [
        "[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]",
        "[0.0, 2.0, 4.0, 1.0, 3.0, 5.0]",
        "an array of 4 bytes for a buffer of 24",
    ]


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_arrays_go_to_another_process(tmp_path: Path) -> None:
    """The process that sends does not wait, and ends before the other one has pulled everything."""
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(2)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        ports = [probe.getsockname()[1] for probe in probes]
    settings = f"""
import sys, jax
jax.config.update("jax_force_dcn_cross_host_transfers", True)
jax.config.update("jax_cross_host_transfer_socket_address", f"127.0.0.1:{{{ports}[int(sys.argv[1])]}}")
jax.config.update("jax_cross_host_transfer_transfer_size", 1 << 16)
"""
    program = """
large = np.arange(1 << 18, dtype=np.float32).reshape(512, 512)
for spec in P("x"), P():
    here, there = (
        NamedSharding(Mesh(np.array(jax.local_devices(process_index=p)), "x"), spec) for p in range(2)
    )
    sent = jax.device_put(jax.device_put(large, here), there).block_until_ready()
    print(rank, [np.array_equal(shard.data, large[shard.index]) for shard in sent.addressable_shards])
"""
    lines = printed(program, tmp_path, 2, settings=settings)
    assert lines == ["0 []", "0 []", "1 [True, True]", "1 [True, True]"]
