"""The processes of ``jax.distributed``: how they find each other, and the transport between their programs.

JAX gives a new client the rank of its process, and the functions of its key-value store. In the store each
process publishes its number of devices, its listening address, and its MPI rank if MPI started it. Messages
go over TCP. The data of native collectives go over MPI if MPI connects all processes.
"""

from __future__ import annotations

import atexit
import ctypes
import hashlib
import itertools
import json
import secrets
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from hloom.errors import HloError, plural
from hloom.jax.pjrt import abi
from hloom.jax.pjrt.errors import INTERNAL, PjrtError
from hloom.jax.pjrt.native import native
from hloom.jaxlib import private
from hloom.lifetime import keep_for_ever
from hloom.records import dataclass

if TYPE_CHECKING:
    from hloom.devices.transport import Transport
    from hloom.ir.module import HloModule
    from hloom.runtime.connections import Connections

_SECONDS: Final = 300
"""Time limit for all processes to create their clients."""
_MAX_VALUE_BYTES: Final = 1 << 16
_MAX_DEVICES: Final = 1 << 16
"""Limit of the devices of a process."""
_CALLBACK: Final = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
_DELETER: Final = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_ERROR: Final = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint32, ctypes.c_char_p, ctypes.c_size_t)
_raised: Final[list[str]] = []
_clients: Final = itertools.count()


def _store_error(code: int, message: bytes, size: int) -> int:
    """Return the address of a new PJRT error for a failed access to JAX's key-value store.

    JAX's functions that read and write the store call this if they fail. The message of the error is the
    first ``size`` bytes of ``message``; `KeyValueStore` raises an exception with it.
    """
    _raised.append(ctypes.string_at(message, size).decode("utf-8", "replace"))
    return native().error(code, _raised[-1])


_STORE_ERROR: Final = _ERROR(_store_error)


class KeyValueStore:
    """JAX's distributed key-value store, which all processes share; keys and values are strings.

    Args:
        args: the arguments of ``PJRT_Client_Create``, which hold the addresses of the store's functions.
        prefix: the prefix of all keys.
    """

    def __init__(self, args: ctypes.Structure, prefix: str) -> None:
        self._prefix = prefix
        self._get = _CALLBACK(args.kv_get_callback), args.kv_get_user_arg
        self._put = _CALLBACK(args.kv_put_callback), args.kv_put_user_arg

    def put(self, key: str, value: str) -> None:
        """Store ``value`` under ``key``. Raises PjrtError if the store fails."""
        function, user = self._put
        name, content = (self._prefix + key).encode(), value.encode()
        args = abi.struct("KeyValuePut")()
        keys, values = ctypes.create_string_buffer(name), ctypes.create_string_buffer(content)
        args.key, args.key_size = ctypes.addressof(keys), len(name)
        args.value, args.value_size = ctypes.addressof(values), len(content)
        self._call(function, args, user)

    def get(self, key: str) -> str:
        """Wait until ``key`` has a value; return the value.

        Raises PjrtError if the store fails, or if the key has no value within the time limit.
        """
        function, user = self._get
        name = (self._prefix + key).encode()
        args = abi.struct("KeyValueGet")()
        keys = ctypes.create_string_buffer(name)
        args.key, args.key_size, args.timeout_in_ms = ctypes.addressof(keys), len(name), 1000 * _SECONDS
        self._call(function, args, user)
        if args.value_size > _MAX_VALUE_BYTES:
            raise PjrtError(INTERNAL, f"the key {key} has a value of {plural(args.value_size, 'byte')}")
        value = ctypes.string_at(args.value, args.value_size)
        if args.value_deleter_callback:
            _DELETER(args.value_deleter_callback)(args.value)
        return value.decode()

    @staticmethod
    def _call(function: Any, args: ctypes.Structure, user: int | None) -> None:
        maker = ctypes.cast(_STORE_ERROR, ctypes.c_void_p)
        args.struct_size, args.user_arg = ctypes.sizeof(args), user
        args.callback_error = ctypes.addressof(maker)
        error = function(ctypes.addressof(args))
        if error:
            raise PjrtError(INTERNAL, f"jax.distributed's key-value store: {_raised.pop()}")


@dataclass(frozen=True, slots=True)
class Processes:
    """The processes of a platform: this one alone, or all that ``jax.distributed`` connects.

    Attributes:
        rank: the rank of this process.
        devices: the number of devices of each process, by rank.
        transport: a function that opens a program's transport, by which its processes exchange data; None if
            there is one process. Its arguments are the number that identifies the program, the ranks of the
            program's processes, and for each device the index of its process in these ranks.
    """

    rank: int = 0
    devices: tuple[int, ...] = (1,)
    transport: Callable[[int, Sequence[int], Sequence[int]], Transport] | None = None

    def of_program(self, module: HloModule, processes: Sequence[int], devices: Sequence[int]) -> Transport:
        """Open the transport by which the processes of a program's devices exchange data.

        Args:
            module: the partitioned program, which runs on each device.
            processes: for each device the rank of its process.
            devices: for each device its id.
        """
        assert self.transport is not None
        ranks = sorted(set(processes))
        owners = [ranks.index(process) for process in processes]
        return self.transport(program_number(module, devices), ranks, owners)


def program_number(module: HloModule, devices: Sequence[int]) -> int:
    """Return a 64-bit number by which all processes identify a program on its devices.

    It is a digest of the module's name, the device ids, and the collectives with the shapes of their operands
    and results. Other instructions are left out: a constant, for example, may be the rank of the process.
    """
    digest = hashlib.sha256(f"{module.name} {list(devices)}".encode())
    for instruction in module.instructions():
        if getattr(instruction.operation, "channel_id", None) is not None:
            shapes = [str(operand.shape) for operand in instruction.operands]
            digest.update(f"{instruction.operation} {shapes} {instruction.shape}".encode())
    return int.from_bytes(digest.digest()[:8], "little")


def connect(args: ctypes.Structure, options: dict[str, int], platform: str, devices: int) -> Processes:
    """Connect this process to the other processes of the platform, if there are any.

    Args:
        args: the arguments of ``PJRT_Client_Create``, which hold the functions of JAX's key-value store.
        options: the integer options in ``args``; ``node_id`` is the rank of this process (default 0),
            ``num_nodes`` the number of processes (default 1).
        platform: the name of the platform.
        devices: the number of devices of this process.

    Returns the `Processes` of the platform. Raises PjrtError if the key-value store fails, and HloError (rule
    ``processes.connect``) if the processes cannot connect in time.
    """
    rank, count = options.get("node_id", 0), options.get("num_nodes", 1)
    if count <= 1:
        return Processes(devices=(devices,))
    from hloom.runtime import handshakes, mpi_data
    from hloom.runtime.connections import Connections
    from hloom.runtime.sockets import SocketTransport

    store = KeyValueStore(args, f"hloom/{platform}/{next(_clients)}/")
    coordinator: str = private.distributed_state().coordinator_address or "127.0.0.1:1"
    listener = handshakes.listen(coordinator)
    if rank == 0:
        store.put("secret", secrets.token_hex(32))
    record = [devices, socket.gethostname(), *listener.getsockname()[:2], mpi_data.rank_of_process()]
    store.put(f"process/{rank}", json.dumps(record))
    rows = [ProcessRecord.parsed(store.get(f"process/{n}")) for n in range(count)]
    secret = bytes.fromhex(store.get("secret"))
    sockets = handshakes.connect(rank, [row.address for row in rows], listener, secret, _SECONDS)
    connections = Connections(rank, [row.host for row in rows], sockets)
    mpi_ranks = [row.mpi_rank for row in rows]
    communicators = mpi_data.ProgramCommunicators(mpi_ranks) if mpi_data.connects(mpi_ranks) else None
    atexit.register(_end, connections)

    def transport(program: int, ranks: Sequence[int], owners: Sequence[int]) -> Transport:
        if communicators is None:
            return SocketTransport(connections, program, ranks, owners)
        return mpi_data.MpiDataTransport(connections, program, ranks, owners, communicators)

    return Processes(rank, tuple(row.devices for row in rows), transport)


def _end(connections: Connections) -> None:
    """Tell the other processes that this one exits; if one of them crashed, detach from JAX's coordinator.

    It is an exit handler, which runs before JAX's. If a process crashed, JAX's handler would wait until the
    heartbeats of that process time out, and abort this process if the coordinator stops earlier.
    """
    with connections.lock:
        connections.leave()
        has_lost = connections.has_lost
    if has_lost:
        state = private.distributed_state()
        keep_for_ever((state.client, state.service))
        state.client = state.service = None


class ProcessRecord(NamedTuple):
    """What a process publishes about itself in JAX's key-value store, from which all others read it.

    Attributes:
        devices: the number of its devices.
        host: the name of its machine.
        address: the IP address and TCP port at which it listens.
        mpi_rank: its MPI rank; -1 if MPI did not start it.
    """

    devices: int
    host: str
    address: tuple[str, int]
    mpi_rank: int

    @staticmethod
    def parsed(text: str) -> ProcessRecord:
        """Parse a record from JSON text. Raises HloError (rule ``processes.connect``) if it is malformed."""
        with suppress(ValueError):
            match json.loads(text):
                case [int(devices), str(host), str(address), int(port), int(mpi_rank)] if (
                    0 < devices <= _MAX_DEVICES
                ):
                    return ProcessRecord(devices, host, (address, port), mpi_rank)
                case _:
                    pass
        raise HloError(f"a process describes itself by {text[:80]!r}", rule="processes.connect")
