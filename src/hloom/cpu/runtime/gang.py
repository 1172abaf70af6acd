"""Gangs: one thread runs all devices of a program, each on its own stack.

`routines/gang.py` switches between devices where they wait for each other. Collectives run in native code, so
that devices wait for devices only; Python functions run on the stack of the thread. Threads are faster for
devices that compute for long between collectives: a gang measures its runs, and after several long ones
`Gang.take` returns false. That does not apply to devices that share kernels among the threads of the pool.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

from hloom.codegen.structs import Record
from hloom.cpu.leaves import flat, joined
from hloom.cpu.runtime.context import Context
from hloom.cpu.runtime.device_structs import DEADLOCK, DIFFERENCE, DIFFERS, FINISHED, FREE, GANG, NO_MEMORY
from hloom.cpu.runtime.recycled_memory import recycled_memory
from hloom.cpu.runtime.rendezvous_plan import RendezvousPlan
from hloom.cpu.runtime.support import support
from hloom.devices.waiting import deadlock
from hloom.devices.world import World
from hloom.errors import EvaluationError, HloError
from hloom.ir.value import Array, Value
from hloom.runtime.cores import available_cores

if TYPE_CHECKING:
    from hloom.cpu.native import NativeExecutable
    from hloom.runtime.backend import Host

_STACK_BYTES: Final = 8 << 20
"""Default stack size of threads; pages exist only once touched."""
_POOLED_WORK: Final = 1 << 17
"""Elementary operations from which the pool runs devices without collectives."""
_NO_RESERVE: Final = 0x4000
"""Linux's MAP_NORESERVE."""
_ARENA_ALIGNMENT: Final = 128
_RUN: Final = ctypes.PYFUNCTYPE(
    ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64
)
_CONTEXT_FUNCTIONS: Final = ("getcontext", "makecontext", "swapcontext")
_gangs: Final[WeakSet[Gang]] = WeakSet()


class Gang:
    """Runs the programs of all devices in turns in one thread, one run at a time. `gang_of` creates gangs.

    Args:
        natives: the compiled program of each device, replica-major.
        shape: the numbers of replicas and partitions.
        stop: a 64-bit word; a run ends early when its value becomes nonzero; None for no such word.
        host: answers the host calls (into Python) other than collectives; None if there are no others.

    Attributes:
        address: the address of the struct `GANG`.
        count: the number of devices.
    """

    def __init__(
        self,
        natives: Sequence[NativeExecutable],
        shape: tuple[int, int],
        stop: ctypes.c_uint64 | None,
        host: Host | None = None,
    ) -> None:
        self.count = len(natives)
        self._natives = natives
        self._host = host
        self._world = World(*shape)
        self._record = GANG.allocate(self.count)
        self.address = self._record.address
        plan = RendezvousPlan(self._world, [native.host_calls for native in natives])
        self._participants = [plan.participants(n, self._fiber(n).address) for n in range(self.count)]
        has_collectives = any(self._participants)
        self._tables = [
            (ctypes.c_void_p * (len(native.host_calls) + 1))(
                *(
                    participants[n].address if n in participants else None
                    for n in range(len(native.host_calls))
                )
            )
            for native, participants in zip(natives, self._participants, strict=True)
        ]
        self._contexts = [
            Context(
                device.id,
                participants=ctypes.addressof(table) if has_collectives else 0,
                stop=stop,
                fiber=self._fiber(n).address if has_collectives else 0,
                host=host,
            )
            for n, (device, table) in enumerate(zip(self._world.devices, self._tables, strict=True))
        ]
        self._stacks = [_stack() for _ in natives] if has_collectives else []
        self._write(has_collectives)
        _gangs.add(self)

    @property
    def is_answered(self) -> bool:
        """Whether this gang of devices can run its programs: it answers all their host calls (into Python).

        The answer is a collective in native code, or comes from the `Host` that the gang was created with.
        """
        pairs = zip(self._natives, self._participants, strict=True)
        return all(
            n in participants or (self._host is not None and self._host.answers(call))
            for native, participants in pairs
            for n, call in enumerate(native.host_calls)
        )

    def _write(self, has_collectives: bool) -> None:
        """Fill the C struct `GANG`, with a fiber (state and stack) for each device.

        ``has_collectives`` is true if the devices have collectives.
        """
        gang = self._record
        arena = max(native.loaded.memory.temp for native in self._natives)
        gang["devices"], gang["memory"] = self.count, recycled_memory().address
        gang["has_collectives"] = has_collectives
        gang["arena_bytes"] = -(-arena // _ARENA_ALIGNMENT) * _ARENA_ALIGNMENT
        gang["parallel"] = self._uses_threads(has_collectives)
        if has_collectives:
            library = ctypes.CDLL(None)
            for name in _CONTEXT_FUNCTIONS:
                gang[name] = _address(getattr(library, name))
        for n, (native, context) in enumerate(zip(self._natives, self._contexts, strict=True)):
            fiber = self._fiber(n)
            fiber["gang"], fiber["context"] = self.address, context.address
            fiber["program"] = native.loaded.address
            if has_collectives:
                fiber["stack"], fiber["stack_bytes"] = _start_of(self._stacks[n]), _STACK_BYTES

    def _uses_threads(self, has_collectives: bool) -> bool:
        """Return whether the devices may run in several threads instead of one.

        Devices with collectives (``has_collectives``) then get threads after several long runs; devices
        without collectives run in the threads of the pool in every run. Devices that divide kernels among the
        threads of the pool use all cores already, except in serial parts: they may run in several threads
        only if they are at least as many as the cores, and have no collectives.
        """
        cores = available_cores()
        alone = not any(native.facts.shares for native in self._natives)
        if has_collectives:
            return cores > 1 and alone
        if self._host is not None:
            return False
        least = min(native.facts.work for native in self._natives)
        return cores > 1 and least >= _POOLED_WORK and (alone or self.count >= cores)

    def _fiber(self, number: int) -> Record:
        return self._record.nested("fibers", number)

    @property
    def work(self) -> int:
        return sum(native.facts.work for native in self._natives)

    @property
    def reuses(self) -> Sequence[tuple[int, int]]:
        """Pairs of indices (result leaf, argument leaf): the result may take the donated argument's memory.

        Only pairs for which that holds on every device.
        """
        first, *others = [native.facts.reuses for native in self._natives]
        return [pair for pair in first if all(pair in reuses for reuses in others)]

    @property
    def is_bounded(self) -> bool:
        return all(native.facts.is_bounded for native in self._natives)

    @property
    def resumptions(self) -> int:
        """The number of times that the thread of the last run switched to a device's fiber."""
        return self._record["resumptions"]

    def take(self) -> bool:
        """Lock this gang of devices for a run, without waiting; return whether that succeeded.

        It fails while another run has the lock, and after several long runs if `_uses_threads`: the caller
        then runs the devices in threads of their own.
        """
        return bool(_function("hloom_gang_take", ctypes.c_int32)(self.address))

    def leave(self) -> None:
        """Unlock this gang of devices, which `take` has locked, after a run."""
        _function("hloom_gang_leave", None)(self.address)

    def forget(self) -> None:
        """Unlock this gang of devices in a forked child, which does not have the thread that locked it."""
        self._record["lock"] = FREE

    def run(self, sources: Sequence[int], targets: Sequence[int]) -> None:
        """Run the programs of all devices; the caller has locked the gang by `take`.

        Args:
            sources, targets: the addresses of the arrays of the arguments, and of the results: those of the
                first device, then those of the second, and so on.

        Raises DeadlockError if all unfinished devices wait in collectives, errors of the programs, and
        exceptions of signal handlers.
        """
        inputs = (ctypes.c_void_p * (len(sources) + 1))(*sources)
        outputs = (ctypes.c_void_p * (len(targets) + 1))(*targets)
        counts = len(sources) // self.count, len(targets) // self.count
        status: int = _RUN(support().symbols["hloom_gang_execute"])(
            self.address, inputs, counts[0], outputs, counts[1]
        )
        if status:
            raise self.failure(status)

    def call(self, arguments: Sequence[Sequence[Value]]) -> list[Value]:
        """Run the program of each device on its own arguments; return the results, one per device.

        The caller has locked the gang by `take`. Raises the errors of `run`.
        """
        inputs: list[Array] = []
        results: list[list[Array]] = []
        for native, values in zip(self._natives, arguments, strict=True):
            shapes = [p.shape for p in native.module.entry.parameters]
            inputs += native.caller.inputs(flat(shapes, values))
            results.append(native.caller.outputs())
        targets = [result.ctypes.data for outputs in results for result in outputs]
        self.run([array.ctypes.data for array in inputs], targets)
        return [
            joined(native.module.entry.root.shape, iter(outputs))
            for native, outputs in zip(self._natives, results, strict=True)
        ]

    def failure(self, status: int) -> HloError:
        """Return the error to raise for a run that has ended with nonzero ``status``, and call `reset`."""
        devices = [device.id for device in self._world.devices]
        try:
            if status == DEADLOCK:
                waits = {
                    device: self._participants[n][self._fiber(n)["call"]].describe()
                    for n, device in enumerate(devices)
                    if self._fiber(n)["state"] != FINISHED
                }
                return deadlock(waits, [device for device in devices if device not in waits])
            if status == DIFFERENCE:
                n = next(n for n in range(self.count) if self._fiber(n)["state"] == DIFFERS)
                return self._participants[n][self._fiber(n)["call"]].mismatch()
            if status == NO_MEMORY:
                return EvaluationError("no memory for temporaries", rule="evaluate.memory")
            return EvaluationError("the program was ended by a signal", rule="devices.ended")
        finally:
            self.reset()

    def reset(self) -> None:
        """Clear the state that a failed run has left, such as devices that wait in a collective."""
        for clear in self._world.before_run:
            clear()


def gang_of(
    natives: Sequence[NativeExecutable],
    shape: tuple[int, int],
    stop: ctypes.c_uint64 | None = None,
    host: Host | None = None,
) -> Gang | None:
    """Return a gang, which runs the programs of all devices in turns in one thread; None if it cannot.

    It cannot if a host call (into Python) has no answer. Programs with host calls also need a C library that
    switches stacks (``swapcontext``), and address space for the stacks.

    Args:
        natives: the compiled program of each device, replica-major.
        shape: the numbers of replicas and partitions.
        stop: a 64-bit word; a run ends early when its value becomes nonzero; None for no such word.
        host: answers the host calls other than collectives in native code; None if nothing does.
    """
    if any(native.calls_host for native in natives) and not _switches_stacks():
        return None
    try:
        gang = Gang(natives, shape, stop, host)
    except OSError:
        return None
    return gang if gang.is_answered else None


def _switches_stacks() -> bool:
    library = ctypes.CDLL(None)
    return all(hasattr(library, name) for name in _CONTEXT_FUNCTIONS)


def _stack() -> mmap.mmap:
    """Allocate a device's stack with a guard page below it. Raises OSError if memory is short."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE | mmap.MAP_STACK
    memory = mmap.mmap(-1, _STACK_BYTES + mmap.PAGESIZE, flags)
    guard = _address_of(memory)
    if ctypes.CDLL(None).mprotect(ctypes.c_void_p(guard), ctypes.c_size_t(mmap.PAGESIZE), 0):
        raise OSError("no guard page for the stack of a device")
    return memory


def _start_of(stack: mmap.mmap) -> int:
    return _address_of(stack) + mmap.PAGESIZE


def _address_of(memory: mmap.mmap) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


def _address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def _function(name: str, result: type[ctypes.c_int32] | None) -> Any:
    return ctypes.PYFUNCTYPE(result, ctypes.c_void_p)(support().symbols[name])


def _free_all() -> None:
    for gang in list(_gangs):
        gang.forget()


os.register_at_fork(after_in_child=_free_all)
