"""Executables: programs ready to run on their devices.

::

    exe = hloom.compile(module)
    result = exe(x, y)
    print(exe.memory, exe.cost, exe.profile(x, y))
    exe = hloom.compile(module, num_replicas=2)
    results = exe.run([[x0, y0], [x1, y1]])
    exe = hloom.compile(module, backend="evaluator")
    exe.trace(x, y).first_nan
    with exe.prepare(weights=w) as step:
        y, cache = step.donate(x, cache)
"""

from __future__ import annotations

import ctypes
import math
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from hloom.devices.transport import Transport, require_same_program
from hloom.devices.world import VirtualDevice
from hloom.display import Displayed
from hloom.errors import EvaluationError, HloError, plural
from hloom.hooks import Hook
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.ir.operation import Value
from hloom.runtime.arguments import (
    Outgoing,
    bound_arguments,
    bytes_of,
    donated_arguments,
    kept_arguments,
)
from hloom.runtime.backend import (
    Backend,
    CompileOptions,
    DeviceProgram,
    GangProgram,
    Host,
    Program,
    SplitProgram,
    backend_named,
    register_backend,
)
from hloom.runtime.checks import check_device_groups, check_sizes
from hloom.runtime.cores import available_cores
from hloom.runtime.device import Device
from hloom.runtime.evaluator_backend import EvaluatorBackend
from hloom.runtime.instance import Instance
from hloom.stablehlo import Exported, Lowered, module_of
from hloom.text.fingerprint import fingerprint

if TYPE_CHECKING:
    from hloom.analysis.cost import Cost
    from hloom.buffers.copies import ArrayCopy
    from hloom.debug.tracing import Trace
    from hloom.phases import CompileProfile
    from hloom.runtime.measurements import Profile, ProgramMemory, Recording

_TRACE: Final[Hook[[HloModule, Sequence[object]], Trace]] = Hook("trace")
_CPU_BACKEND: Final[Hook[[], Backend]] = Hook("cpu_backend")
_LONG_RUN: Final = 1e-3
"""Minimum CPU seconds of a run on one device for which a thread per device is started."""

T = TypeVar("T")

register_backend(_CPU_BACKEND())
register_backend(EvaluatorBackend())


def compile(
    module: HloModule | Sequence[HloModule] | Lowered | Exported,
    backend: str = "cpu",
    *,
    num_replicas: int | None = None,
    num_partitions: int | None = None,
    processes: Transport | None = None,
    use_spmd_partitioning: bool = False,
    reproducible: bool = False,
) -> Executable:
    """Compile a program for its devices.

    Args:
        module: the program that all devices run; or a program for each device, replica-major; or a function
            of JAX, lowered (``jax.jit(f).lower(x)``) or exported (``jax.export``).
        backend: the name of a backend: ``cpu``, native code for this machine; ``evaluator``, the reference
            evaluator; or one that was registered by `hloom.runtime.backend.register_backend`.
        num_replicas, num_partitions: numbers of devices; by default those stated in the module, else 1 and 1;
            for a list of modules as many replicas as modules.
        processes: processes among which the devices are divided, such as `hloom.runtime.mpi.world()`; all
            compile the same program. By default this process has all devices.
        use_spmd_partitioning: the program has shardings and computes whole arrays; each partition runs on its
            tiles of the arguments (`hloom.sharding.partitioned_program` says which).
        reproducible: results have the same bits on every x86-64 processor with FMA and every aarch64
            processor, whatever the length of their vectors; docs/semantics.md names exceptions.
            ``HLOOM_REPRODUCIBLE=1`` in the environment sets it for all programs.

    Raises HloError for a program that breaks a rule, for an unknown backend, or a wrong number of modules.
    """
    compiler = backend_named(backend)
    if isinstance(module, Lowered | Exported):
        module = module_of(module)
    modules = list(module) if isinstance(module, Sequence) else [module]
    if not modules or not all(isinstance(cast("object", m), HloModule) for m in modules):
        message = "compile takes an HloModule, a list of them, or a lowered or exported function of JAX"
        raise HloError(message, rule="compile.modules")
    config = modules[0].config
    one = isinstance(module, HloModule)
    partitions = num_partitions if num_partitions is not None else config.num_partitions if one else 1
    replicas = num_replicas
    if replicas is None:
        replicas = config.replica_count if one else max(1, len(modules) // max(1, partitions))
    if replicas < 1 or partitions < 1:
        message = f"{plural(replicas, 'replica')} and {plural(partitions, 'partition')}: both are at least 1"
        raise HloError(message, rule="compile.device-count")
    if use_spmd_partitioning:
        from hloom.sharding.partitioning.partitioner import partitioned_program

        modules = [partitioned_program(each, partitions).module for each in modules]
    if one:
        modules *= replicas * partitions
    elif len(modules) != replicas * partitions:
        message = (
            f"{plural(replicas, 'replica')} x {plural(partitions, 'partition')}: as "
            f"many modules are wanted, got {len(modules)}"
        )
        raise HloError(message, rule="compile.module-count")
    check_device_groups(modules, replicas, partitions)
    if processes is not None and processes.size > 1:
        modules = _own_modules(modules, backend, partitions, processes)
    distinct = dict.fromkeys(modules)
    for each in distinct:
        check_sizes(each)
    options = CompileOptions(replicas, partitions, reproducible)
    programs = {each: compiler.compile(each, options) for each in distinct}
    return Executable(compiler, modules, [programs[each] for each in modules], options, processes)


def _own_modules(
    modules: Sequence[HloModule], backend: str, partitions: int, processes: Transport
) -> list[HloModule]:
    """Return the modules of this process's devices; raises HloError if processes disagree or have none."""
    count = len(modules)
    if count < processes.size:
        message = (
            f"{plural(count, 'device')} cannot be divided among "
            f"{plural(processes.size, 'process', 'processes')}: each needs one"
        )
        raise HloError(message, rule="processes.device-count")
    if not processes.is_uniform:
        prints = {module: fingerprint(module) for module in dict.fromkeys(modules)}
        described = [backend, str(count), str(partitions), *(prints[module] for module in modules)]
        require_same_program(processes, "|".join(described))
    owners = processes.owners(count)
    return [m for m, owner in zip(modules, owners, strict=True) if owner == processes.rank]


class _Running(threading.local):
    """The executables that run in a thread, the innermost last."""

    def __init__(self) -> None:
        self.executables: list[Executable] = []


_running: Final = _Running()


class Executable(Displayed):
    """A program on its devices, returned by `compile`.

    A program of unbounded sizes (``f32[?]``) is compiled at the first run with arguments of given sizes;
    `memory`, `cost` and the texts are those for the sizes of the last run.

    Several threads may run an executable at the same time, and a custom call may run the executable that
    calls it: such runs use separate devices. Programs that transfer values to or from the host, or have a
    state of random numbers, or run in several processes, have one set of devices: other threads wait for it,
    and a nested run is refused by the rule ``run.reentrant``.

    Attributes:
        devices: those of this process, replica-major.
        num_replicas, num_partitions: numbers of devices.
    """

    def __init__(
        self,
        backend: Backend,
        modules: Sequence[HloModule],
        programs: Sequence[Program],
        options: CompileOptions,
        processes: Transport | None = None,
    ) -> None:
        self.num_replicas = options.num_replicas
        self.num_partitions = options.num_partitions
        self._backend = backend
        self._options = options
        self._modules = list(modules)
        self._programs = list(programs)
        self._make_instance = lambda: Instance(backend, self._programs, options, processes)
        self._instance = self._make_instance()
        self._spare: list[Instance] = []
        self._world = self._instance.world
        self.devices = [Device(device) for device in self._world.devices]
        self._one_by_one = all(program.is_isolated for program in programs)
        self._call = self._call_checked
        if len(programs) == 1 and self._world.peers is None:
            self._call = programs[0].direct_call(self._call_checked)

    def __repr__(self) -> str:
        names = ", ".join(dict.fromkeys(m.name for m in self._modules))
        return f"<Executable {names} on {self.num_replicas} x {plural(self.num_partitions, 'device')}>"

    @property
    def host_timeout(self) -> float:
        """Seconds for which a device waits for the host if no device can continue; see `Waiting`."""
        return self._world.waiting.host_timeout

    @host_timeout.setter
    def host_timeout(self, seconds: float) -> None:
        self._world.waiting.host_timeout = seconds

    @property
    def process_timeout(self) -> float:
        """Seconds without a sign of other processes, 60 at first, after which a run that waits for them ends.

        A process that computes gives signs. Infinite if this process has all devices.
        """
        return self._world.peers.timeout if self._world.peers is not None else math.inf

    @process_timeout.setter
    def process_timeout(self, seconds: float) -> None:
        if self._world.peers is not None:
            self._world.peers.timeout = seconds

    def __call__(self, *arguments: Any) -> Any:
        """Run on the only device: arrays (or numbers, lists, literals, nested tuples) in, the result out.

        Raises EvaluationError for arguments that do not fit, by rules ``run.argument`` and
        ``run.argument-count``, or for a program that cannot be evaluated.
        """
        return self._call(*arguments)

    def _call_checked(self, *arguments: Any) -> Any:
        self._require_one_device()
        return self.run([arguments])[0]

    def _require_one_device(self) -> None:
        if len(self.devices) != 1:
            message = (
                f"the program runs on {plural(len(self.devices), 'device')}; "
                "call run with the arguments of each"
            )
            raise EvaluationError(message, rule="run.one-device")

    def donate(self, *arguments: Any) -> Any:
        """Run as a call does, and let results take the memory of arguments that the program donates to them.

        Its ``input_output_alias`` names these. A result that the program can write there is the caller's own
        array, with new elements; the elements of other donated arrays are undefined afterwards. Raises
        EvaluationError as a call does, and by ``run.donation`` if a donated argument is not a writable,
        contiguous NumPy array, or shares memory with another; HloError by ``compile.not-offered``.
        """
        return self._donate(*arguments)

    @cached_property
    def _donate(self) -> Callable[..., Any]:
        if len(self._programs) != 1 or self._world.peers is not None:
            return self._donate_checked
        return self._programs[0].direct_call(self._donate_checked, donates=True)

    def _donate_checked(self, *arguments: Any) -> Any:
        self._require_one_device()
        values = donated_arguments(self._modules[0], arguments, self._bound([arguments])[0])
        return self._run_together(lambda program, bound: program.donate(bound), [values])[0]

    def run(self, arguments: Sequence[Sequence[Any]]) -> list[Any]:
        """Run on all devices.

        Args:
            arguments: for each device, replica-major, the list of its arguments; tokens are None.

        Returns:
            The result of each device: a numpy array or nested tuple; tokens are None.

        Raises EvaluationError, or DeadlockError if the devices wait for each other forever.
        """
        if len(arguments) != len(self.devices):
            message = (
                f"the arguments of {plural(len(self.devices), 'device')} are "
                f"wanted, got those of {len(arguments)}"
            )
            raise EvaluationError(message, rule="run.device-count")
        try:
            values = self._bound(arguments)
        except EvaluationError as error:
            self._world.abandon(error)
            raise
        if self._one_by_one:
            return self._run_one_by_one(values)
        gang = self._gang
        if gang is not None and gang.take():
            try:
                results = gang.call(values)
            finally:
                gang.leave()
        else:
            results = self._run_together(lambda program, bound: program.run(bound), values)
        outgoing = Outgoing()
        try:
            return [outgoing(result) for result in results]
        except MemoryError:
            sizes = [module.entry.root.shape.byte_size for module in self._modules]
            message = f"not enough memory for results of {plural(sum(sizes), 'byte')}"
            raise EvaluationError(message, rule="evaluate.memory") from None

    def _run_together(
        self, run: Callable[[DeviceProgram, Sequence[Value]], T], values: Sequence[Sequence[Value]]
    ) -> list[T]:
        """Return the results of ``run`` on all devices of an instance, at the same time."""
        with self._lent_instance() as instance:
            numbers = {device.id: number for number, device in enumerate(instance.world.devices)}

            def work(device: VirtualDevice) -> T:
                number = numbers[device.id]
                _running.executables.append(self)
                try:
                    return run(instance.programs[number], values[number])
                finally:
                    _running.executables.pop()

            return instance.world.run(work)

    def abandon(self, error: BaseException) -> None:
        """Fail this run in the other processes: this one cannot start it."""
        if not self._one_by_one:
            self._world.abandon(error)

    @contextmanager
    def _lent_instance(self) -> Generator[Instance]:
        """Yield an instance that is not running; raises EvaluationError by the rule ``run.reentrant``."""
        nested = self in _running.executables
        if self._keeps_state and nested:
            message = (
                "a custom call runs the executable that it is part of, which has one set of devices: the "
                "program transfers values to or from the host, keeps the state of random numbers, or runs in "
                "several processes; compile the program once more for the inner run"
            )
            raise EvaluationError(message, rule="run.reentrant")
        if self._instance.lock.acquire(blocking=self._keeps_state):
            try:
                yield self._instance
            finally:
                self._instance.lock.release()
            return
        instance = self._spare.pop() if self._spare else self._make_instance()
        instance.world.waiting.host_timeout = self.host_timeout
        yield instance
        self._spare.append(instance)  # not after an error, which may leave threads running

    @cached_property
    def _keeps_state(self) -> bool:
        """Return whether a run affects later ones: queues, the random state of devices, other processes."""
        return self._world.peers is not None or any(
            i.operation.side_effect for module in set(self._modules) for i in module.instructions()
        )

    @cached_property
    def _gang(self) -> GangProgram | None:
        return self.gang()

    def gang(self, stop: ctypes.c_uint64 | None = None, host: Host | None = None) -> GangProgram | None:
        """Return the gang of the devices, run by one thread; None if that is not possible.

        A nonzero ``stop`` ends a run; ``host`` answers host calls.
        """
        if len(self._programs) < 2 or self._world.peers is not None:
            return None
        return self._backend.gang(self._programs, (self.num_replicas, self.num_partitions), stop, host)

    def _run_one_by_one(self, values: Sequence[Sequence[Value]]) -> list[Value]:
        """Return the results of devices that need neither each other nor the host.

        Programs that use all cores run one after the other; others that take long run at the same time from
        the next run on.
        """
        start = time.thread_time()
        pairs = zip(self._instance.programs, values, strict=True)
        results = [program.run(bound) for program, bound in pairs]
        seconds = (time.thread_time() - start) / len(results)
        if len(results) > 1 and seconds >= _LONG_RUN and not any(p.uses_all_cores for p in self._programs):
            self._one_by_one = available_cores() < 2
        return results

    def _bound(self, arguments: Sequence[Sequence[Any]]) -> list[list[Value]]:
        """Return the values of the arguments of each device; raises EvaluationError that names the device."""
        values: list[list[Value]] = []
        for device, module, device_arguments in zip(
            self._world.devices, self._modules, arguments, strict=True
        ):
            try:
                values.append(bound_arguments(module.entry, device_arguments))
            except EvaluationError as error:
                if len(self.devices) > 1:
                    error.message = f"replica {device.id[0]}, partition {device.id[1]}: {error.message}"
                raise
        return values

    def prepare(self, arguments: Mapping[int | str, Any] | None = None, **named: Any) -> PreparedExecutable:
        """Bind arguments that do not change, such as weights; return what runs on the other arguments.

        What depends on them alone is computed here, once, where it takes no more memory than they do, such as
        transposes. Products find them packed as their kernels read them if they would pack them at every run:
        factors of the type of the sums (f32 in f32 products), for more than a few rows. Other
        arrays are kept as they are, without a copy: do not change them. Results have the same bits.

        Args:
            arguments: values by the number or the name of a parameter.
            named: values by the name of a parameter; without the number behind the name's last dot, which
                functions of JAX have (``w.1``).

        Raises HloError by rules ``prepare.argument`` for an unknown parameter, one that has two values, or
        none at all, ``prepare.dynamic`` for a program of dynamic sizes, ``compile.not-offered`` for another
        backend than ``cpu``; EvaluationError by ``run.argument`` for a value that does not fit, by
        ``run.one-device`` for several devices.
        """
        self._require_one_device()
        kept = kept_arguments(self._modules[0].entry, [*(arguments or {}).items(), *named.items()])
        division = self._backend.divide(self._modules[0], kept.keys(), self._options)

        def ready(module: HloModule) -> Executable:
            program = self._backend.compile(module, self._options)
            return Executable(self._backend, [module], [program], self._options)

        return PreparedExecutable(division, kept, ready)

    # -- inspection; each raises HloError by ``compile.not-offered`` on a backend that does not offer it

    @property
    def memory(self) -> ProgramMemory:
        """Bytes of arguments, results and temporaries on the first device."""
        return self._programs[0].memory

    @property
    def cost(self) -> Cost:
        """Operations and bytes moved by a run on the first device."""
        return self._programs[0].cost

    @property
    def copies(self) -> tuple[ArrayCopy, ...]:
        """The arrays of more than 256 bytes that loops, branches and updates copy, each with its reason."""
        return self._programs[0].copies

    @property
    def modules(self) -> tuple[HloModule, ...]:
        """The compiled programs, one for each device."""
        return tuple(self._modules)

    @property
    def host_calls(self) -> list[HloInstruction]:
        """The instructions of native programs that may call the host."""
        return [call for program in dict.fromkeys(self._programs) for call in program.host_calls]

    @property
    def compile_profile(self) -> CompileProfile:
        """Where the time of compiling the first device's program went: passes, planning, LLVM; print it.

        A program from the cache was only looked up and loaded.
        """
        return self._programs[0].compile_profile

    def to_hlo(self) -> str:
        """Return the program after all passes, as HLO text."""
        return self._programs[0].to_hlo()

    def to_llvm(self) -> str:
        """Return the program as LLVM IR."""
        return self._programs[0].to_llvm()

    def to_asm(self) -> str:
        """Return the program as assembly."""
        return self._programs[0].to_asm()

    def profile(self, *arguments: Any) -> Profile:
        """Run, and return the time of every instruction of the optimized program.

        Args:
            arguments: those of the only device, as for a call: ``profile(x, y)``; of several devices one list
                with those of each, as for `run`: ``profile([[x0, y0], [x1, y1]])``.

        The program runs twice, the first time to warm up. Collectives also have the time of waiting for other
        devices. Of several devices (those of this process) the lines are means; the
        attribute ``devices`` of the result has the profile of each. Raises EvaluationError for arguments that
        do not fit.
        """
        from hloom.runtime.measurements import of_devices

        values = self._bound(self._arguments_of_devices(arguments))
        profiles = self._run_together(lambda program, bound: program.profile(bound), values)
        return profiles[0] if len(profiles) == 1 else of_devices(profiles)

    def record(self, arguments: Sequence[Sequence[Any]]) -> list[tuple[Value, Recording]]:
        """Run like `run`; return the result of each device and the times of its instructions."""
        return self._run_together(lambda program, bound: program.record(bound), self._bound(arguments))

    def _arguments_of_devices(self, arguments: Sequence[Any]) -> Sequence[Sequence[object]]:
        """Return the arguments of each device; raises EvaluationError by the rule ``run.device-count``."""
        count = len(self.devices)
        if count == 1:
            return [arguments]
        lists = cast("Sequence[object]", arguments[0]) if len(arguments) == 1 else ()
        if not isinstance(lists, list | tuple) or len(lists) != count:
            message = (
                f"the program runs on {plural(count, 'device')}: give one list "
                "with the arguments of each, as to run"
            )
            raise EvaluationError(message, rule="run.device-count")
        return cast("Sequence[Sequence[object]]", lists)

    def trace(self, *arguments: Any) -> Trace:
        """Run the given program on the evaluator, whatever the backend; return every value it computes.

        Raises EvaluationError for arguments that do not fit, or for a program of several devices.
        """
        self._require_one_device()
        return _TRACE(self._modules[0], arguments)


class PreparedExecutable:
    """A program with some of its arguments bound and prepared; call it with the others, in their order.

    It owns the prepared arguments until `release`, or the end of a ``with`` block.

    Attributes:
        executable: runs on the other arguments, those kept as they are, and the prepared ones; inspect it.
    """

    def __init__(
        self, division: SplitProgram, kept: Mapping[int, Any], ready: Callable[[HloModule], Executable]
    ) -> None:
        self.executable = ready(division.remaining)
        self._arity = sum(number not in kept for number in division.others)
        bound = [kept[number] for number in division.others[self._arity :]]
        if division.sources:
            bound += ready(division.preparing)(*(kept[number] for number in division.sources))
        self._bound: list[Any] | None = bound

    def __call__(self, *arguments: Any) -> Any:
        """Run with the arguments that are not bound.

        Raises EvaluationError as `Executable` does, and by the rule ``prepare.released`` after `release`.
        """
        return self.executable(*self._all(arguments))

    def donate(self, *arguments: Any) -> Any:
        """Run with the arguments that are not bound, of which some are donated; see `Executable.donate`."""
        return self.executable.donate(*self._all(arguments))

    def profile(self, *arguments: Any) -> Profile:
        """Run with the arguments that are not bound, and return the time of every instruction."""
        return self.executable.profile(*self._all(arguments))

    def _all(self, arguments: Sequence[Any]) -> Sequence[Any]:
        if self._bound is None:
            raise EvaluationError("the prepared arguments have been released", rule="prepare.released")
        if len(arguments) != self._arity:
            message = (
                f"the program takes {plural(self._arity, 'argument')} besides "
                f"those prepared, got {len(arguments)}"
            )
            raise EvaluationError(message, rule="run.argument-count")
        return *arguments, *self._bound

    @property
    def bound_bytes(self) -> int:
        """The bytes of the bound arguments, those prepared and those kept as they are."""
        return sum(map(bytes_of, self._bound or ()))

    def release(self) -> None:
        """Let go of the bound arguments."""
        self._bound = None

    def __enter__(self) -> PreparedExecutable:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
