"""Executables: programs ready to run on their devices.

::

    exe = hloom.compile(module)
    result = exe(x, y)
    print(exe.memory, exe.cost, exe.profile(x, y))
    exe = hloom.compile(module, num_replicas=2)
    results = exe.run([[x0, y0], [x1, y1]])
    exe = hloom.compile(module, backend="evaluator")
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

from hloom.buffers.buffers import leaves
from hloom.cpu.cores import available_cores
from hloom.cpu.native import NativeExecutable
from hloom.errors import EvaluationError, HloError
from hloom.evaluate.devices import VirtualDevice, World
from hloom.ir.module import HloModule
from hloom.passes.expand.refine_shapes import is_unbounded
from hloom.runtime.arguments import Outgoing, bound_arguments
from hloom.runtime.device import Device
from hloom.runtime.programs import CompiledProgram, EvaluatedProgram
from hloom.runtime.refinement import RefinedProgram, Refinements

if TYPE_CHECKING:
    from hloom.analysis.cost import Cost
    from hloom.cpu.native import Memory
    from hloom.cpu.runtime.profile import Profile
    from hloom.cpu.runtime.rendezvous import Seat

BACKENDS: Final = ("cpu", "evaluator")
"""What can run a program; the first is the default."""
_MOST_BYTES: Final = (1 << 63) - 1
_LONG_RUN: Final = 1e-3
"""Seconds on one device from which on threads for the devices are worth their start."""


def compile(
    module: HloModule | Sequence[HloModule],
    backend: str = "cpu",
    *,
    num_replicas: int | None = None,
    num_partitions: int | None = None,
) -> Executable:
    """Make a program ready to run.

    Args:
        module: the program that all devices run; or a program for each device, replica-major.
        backend: ``cpu``, native code for this machine; or ``evaluator``, the reference evaluator.
        num_replicas, num_partitions: the number of devices in both directions; by default what the module
            says, which is 1 and 1 if it says nothing, and as many replicas as there are modules in a list.

    Raises HloError for a program that breaks a rule, for an unknown backend, or a wrong number of modules.
    """
    if backend not in BACKENDS:
        message = f"there is no backend {backend!r}; the backends are {', '.join(BACKENDS)}"
        raise HloError(message, rule="compile.backend")
    modules = list(cast("Any", module)) if isinstance(module, Sequence) else [module]
    if not modules or not all(isinstance(cast("Any", m), HloModule) for m in modules):
        raise HloError("compile takes an HloModule or a list of them", rule="compile.modules")
    config = modules[0].config
    one = isinstance(module, HloModule)
    partitions = num_partitions if num_partitions is not None else config.num_partitions if one else 1
    replicas = num_replicas
    if replicas is None:
        replicas = config.replica_count if one else max(1, len(modules) // max(1, partitions))
    if replicas < 1 or partitions < 1:
        message = f"{replicas} replicas and {partitions} partitions: both are at least 1"
        raise HloError(message, rule="compile.device-count")
    if one:
        modules *= replicas * partitions
    elif len(modules) != replicas * partitions:
        message = f"{replicas} replicas x {partitions} partitions need as many modules, got {len(modules)}"
        raise HloError(message, rule="compile.module-count")
    distinct = dict.fromkeys(modules)
    for each in distinct:
        _check_sizes(each)
    if backend == "cpu":
        made = {
            each: Refinements(each) if is_unbounded(each) else NativeExecutable(each) for each in distinct
        }
        return Executable(modules, replicas, partitions, [made[each] for each in modules])
    for each in distinct:
        each.verify()
    return Executable(modules, replicas, partitions)


class Executable:
    """A program on its devices; made by `compile`.

    A program of unbounded sizes (``f32[?]``) is compiled when arguments tell them, once for all arguments of
    the same sizes; what it looks like compiled is told for the sizes of the last run.

    Attributes:
        devices: replica-major.
        num_replicas, num_partitions: how many there are.
    """

    def __init__(
        self,
        modules: Sequence[HloModule],
        num_replicas: int,
        num_partitions: int,
        compiled: Sequence[NativeExecutable | Refinements] = (),
    ) -> None:
        self.num_replicas = num_replicas
        self.num_partitions = num_partitions
        self._modules = list(modules)
        self._compiled = list(compiled)
        self._world = World(num_replicas, num_partitions)
        self._running = threading.Lock()
        self.devices = [Device(device) for device in self._world.devices]
        devices = self._world.devices
        self._programs: Sequence[EvaluatedProgram | CompiledProgram | RefinedProgram] = (
            _compiled_programs(compiled, self._world)
            if compiled
            else [EvaluatedProgram(m, d) for m, d in zip(modules, devices, strict=True)]
        )
        self._one_by_one = bool(compiled) and all(
            isinstance(c, NativeExecutable) and not c.calls_host for c in compiled
        )
        self._call = self._call_checked
        if len(compiled) == 1 and isinstance(only := compiled[0], NativeExecutable):
            self._call = only.builtin(self._call_checked)

    def __repr__(self) -> str:
        names = ", ".join(dict.fromkeys(m.name for m in self._modules))
        return f"<Executable {names} on {self.num_replicas} x {self.num_partitions} devices>"

    @property
    def host_timeout(self) -> float:
        """Seconds for which a device waits for the host when nothing else can happen; see `World`."""
        return self._world.host_timeout

    @host_timeout.setter
    def host_timeout(self, seconds: float) -> None:
        self._world.host_timeout = seconds

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
            message = f"the program runs on {len(self.devices)} devices; call run with the arguments of each"
            raise EvaluationError(message, rule="run.one-device")

    def run(self, arguments: Sequence[Sequence[Any]]) -> list[Any]:
        """Run on all devices.

        Args:
            arguments: for each device, replica-major, the list of its arguments; tokens are None.

        Returns:
            The result of each device: a numpy array or nested tuple; tokens are None.

        Raises EvaluationError, or DeadlockError if the devices would wait for each other for ever.
        """
        if len(arguments) != len(self.devices):
            message = (
                f"the arguments of {len(self.devices)} devices are wanted, got those of {len(arguments)}"
            )
            raise EvaluationError(message, rule="run.device-count")
        runs = {
            device.id: (program, self._bound(device, module, given))
            for program, device, module, given in zip(
                self._programs, self._world.devices, self._modules, arguments, strict=True
            )
        }

        def work(device: VirtualDevice) -> Any:
            program, values = runs[device.id]
            return program.run(values)

        if self._one_by_one:
            return self._run_one_by_one(work)
        with self._running:
            results = self._world.run(work)
        outgoing = Outgoing()
        try:
            return [outgoing(result) for result in results]
        except MemoryError:
            raise EvaluationError("not enough memory for the result", rule="evaluate.memory") from None

    def _run_one_by_one(self, work: Callable[[VirtualDevice], Any]) -> list[Any]:
        """The results of devices that need neither each other nor the host.

        Programs that share their work among threads have all cores anyway; others that take long run side by
        side from the next time on.
        """
        start = time.perf_counter()
        results = [work(device) for device in self._world.devices]
        seconds = (time.perf_counter() - start) / len(results)
        shares = any(isinstance(c, NativeExecutable) and c.shares for c in self._compiled)
        if len(results) > 1 and not shares and seconds >= _LONG_RUN:
            self._one_by_one = available_cores() < 2
        return results

    def _bound(self, device: VirtualDevice, module: HloModule, given: Sequence[Any]) -> list[Any]:
        try:
            return bound_arguments(module.entry, given)
        except EvaluationError as error:
            if len(self.devices) > 1:
                error.message = f"replica {device.id[0]}, partition {device.id[1]}: {error.message}"
            raise

    # -- what was compiled

    @property
    def memory(self) -> Memory:
        """Bytes of arguments, results and temporaries on one device. Raises HloError on the evaluator."""
        return self._native.memory

    @property
    def cost(self) -> Cost:
        """Operations and bytes moved of one run on one device. Raises HloError on the evaluator."""
        return self._native.cost

    def to_hlo(self) -> str:
        """The program after all passes, as HLO text. Raises HloError on the evaluator."""
        return self._native.optimized.to_text()

    def to_llvm(self) -> str:
        """The program in LLVM's language. Raises HloError on the evaluator."""
        return self._native.program.text

    def to_asm(self) -> str:
        """The program in this machine's assembly language. Raises HloError on the evaluator."""
        return self._native.assembly()

    def profile(self, *arguments: Any) -> Profile:
        """Run on the only device, and tell what every instruction of the optimized program took.

        The program runs twice, the first time to warm up.

        Raises EvaluationError for arguments that do not fit, HloError on the evaluator.
        """
        self._require_one_device()
        program = self._programs[0]
        if isinstance(program, EvaluatedProgram):
            raise _nothing_compiled()
        (device,) = self._world.devices
        values = self._bound(device, self._modules[0], arguments)
        with self._running:
            return self._world.run(lambda _: program.profile(values))[0]

    @property
    def _native(self) -> NativeExecutable:
        """The program of the first device."""
        if not self._compiled:
            raise _nothing_compiled()
        first = self._compiled[0]
        native = first.latest if isinstance(first, Refinements) else first
        if native is None:
            message = "a program of unbounded sizes is compiled when arguments tell them; run it first"
            raise HloError(message, rule="compile.unbounded")
        return native


def _check_sizes(module: HloModule) -> None:
    """Refuse arrays beyond the address space; as for numpy, sizes of 0 count as 1."""
    for instruction in module.instructions():
        for _, shape in leaves(instruction.shape):
            if not shape.is_array:
                continue
            count = math.prod(max(size, 1) for size in shape.dimensions)
            if count * shape.element_type.bytes > _MOST_BYTES:
                message = f"{shape.to_string(layout=False)} is larger than the address space"
                error = HloError(message, rule="compile.array-size", instruction=instruction.name)
                raise module.locate(error)


def _nothing_compiled() -> HloError:
    message = "the evaluator compiles nothing; compile with backend='cpu'"
    return HloError(message, rule="compile.evaluator")


def _compiled_programs(
    compiled: Sequence[NativeExecutable | Refinements], world: World
) -> list[CompiledProgram | RefinedProgram]:
    """The programs of all devices; where all are known, their collectives meet in native code."""
    natives = [c for c in compiled if isinstance(c, NativeExecutable)]
    seats: dict[int, Mapping[int, Seat]] = {}
    if len(natives) == len(compiled) and any(native.calls_host for native in natives):
        from hloom.cpu.runtime.rendezvous import SeatingPlan

        plan = SeatingPlan(world, [native.host_calls for native in natives])
        seats = {n: plan.seats(n) for n in range(len(natives))}
    return [
        RefinedProgram(c, d) if isinstance(c, Refinements) else CompiledProgram(c, d, seats.get(n))
        for n, (c, d) in enumerate(zip(compiled, world.devices, strict=True))
    ]
