"""Backends compile and run programs; `hloom.compile` finds them by name in a registry.

A backend is an object with a name, a target, a pipeline of passes, and a function that compiles a module::

    class Toy(Backend):
        name = "toy"

        @property
        def target(self) -> None:
            return None

        def pipeline(self) -> Pipeline:
            return Pipeline([CallInliner()], title="toy")

        def compile(self, module: HloModule, options: CompileOptions) -> Program:
            module.verify()
            optimized = clone_module(module)
            self.pipeline().run(optimized)
            return ToyProgram(optimized)

    class ToyProgram(Program):
        def load(self, device: VirtualDevice) -> DeviceProgram:
            return ToyDeviceProgram(self, device)

    class ToyDeviceProgram(DeviceProgram):
        def run(self, arguments: Sequence[Value]) -> Value: ...

    register_backend(Toy())
    hloom.compile(module, backend="toy")

`hloom.compile` calls ``compile`` once for each distinct module, then ``load`` once for each set of devices,
then `DeviceProgram.run` once per run and device: in a thread of the device's own if there are several. The
executable checks arguments: a backend sees values of exactly the parameters' shapes (numpy arrays, nested
tuples, None for a token; an array of dynamic shape has its actual size), must not write to them, and returns
a value of the result's shape. Operations that communicate use the `VirtualDevice`. Native code that runs for
long raises `hloom.devices.threads.Stopped` when the world's stop word is set.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Final, Protocol

from hloom.devices.world import VirtualDevice, World
from hloom.errors import HloError
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.ir.operation import Value
from hloom.records import dataclass

if TYPE_CHECKING:
    from hloom.analysis.cost import Cost
    from hloom.buffers.copies import ArrayCopy
    from hloom.codegen.target import Target
    from hloom.passes.pipeline import Pipeline
    from hloom.phases import CompileProfile
    from hloom.runtime.measurements import Profile, ProgramMemory, Recording


@dataclass(frozen=True, slots=True)
class CompileOptions:
    """Options of a compilation.

    Attributes:
        num_replicas, num_partitions: numbers of devices that will run the program.
        reproducible: results have the same bits on all processors; see `hloom.compile`.
    """

    num_replicas: int = 1
    num_partitions: int = 1
    reproducible: bool = False


@dataclass(frozen=True, slots=True)
class SplitProgram:
    """A program divided into what follows from kept arguments only, and the rest; see `Executable.prepare`.

    Attributes:
        preparing: computes a tuple of prepared values from kept arguments.
        sources: the numbers of these among the parameters of the whole program.
        remaining: computes the result from other arguments, kept ones that it reads as they are, and the
            prepared values, in this order.
        others: the numbers of the arguments before the prepared values.
    """

    preparing: HloModule
    sources: tuple[int, ...]
    remaining: HloModule
    others: tuple[int, ...]


class DeviceProgram(Protocol):
    """A program on one of its devices."""

    def run(self, arguments: Sequence[Value]) -> Value:
        """Return the result for arguments that fit the parameters, during a run of the device's world."""
        ...

    def donate(self, arguments: Sequence[Value]) -> Value:
        """Run, and let results take the memory of arguments that alias them; see `Executable.donate`.

        Such results are the arrays of the arguments. Raises HloError unless the backend can do that.
        """
        raise _not_offered("donation of arguments")

    def profile(self, arguments: Sequence[Value]) -> Profile:
        """Run, and return the time of every instruction; raises HloError unless the backend measures it."""
        raise _not_offered("profile")

    def record(self, arguments: Sequence[Value]) -> tuple[Value, Recording]:
        """Run, and return the result with the times of all instructions; raises HloError like `profile`."""
        raise _not_offered("record")


class Program(Protocol):
    """A compiled module. The defaults are those of a program that offers no inspection.

    Attributes:
        is_isolated: runs need neither the host nor other devices; devices may run one after the other.
        uses_all_cores: a run on one device uses all cores; running devices at the same time gains nothing.
        host_calls: instructions that may call the host, in a program of native code.
    """

    is_isolated: bool = False
    uses_all_cores: bool = False
    host_calls: Sequence[HloInstruction] = ()

    def load(self, device: VirtualDevice) -> DeviceProgram:
        """Return the program on a device, with separate state, such as that of random numbers."""
        ...

    def direct_call(self, checked: Callable[..., object], *, donates: bool = False) -> Callable[..., object]:
        """Return a function that runs the program on one device with the arguments of a caller.

        ``donates``: as `Executable.donate` does. ``checked`` does so with all checks and conversions. A
        backend may return a faster function that calls ``checked`` for arguments that do not fit exactly.
        """
        return checked

    @property
    def memory(self) -> ProgramMemory:
        """Bytes of arguments, results and temporaries; raises HloError if the backend does not offer them."""
        raise _not_offered("memory")

    @property
    def cost(self) -> Cost:
        """Operations and bytes moved by a run; raises HloError if the backend does not offer them."""
        raise _not_offered("cost")

    @property
    def copies(self) -> tuple[ArrayCopy, ...]:
        """The arrays that a run copies to preserve a value; raises HloError if the backend cannot tell."""
        raise _not_offered("copies")

    @property
    def compile_profile(self) -> CompileProfile:
        """Where the time of compiling went; raises HloError if the backend does not record it."""
        raise _not_offered("profile of its compilation")

    def to_hlo(self) -> str:
        """Return the program after all passes as HLO text; raises HloError unless the backend has passes."""
        raise _not_offered("optimized HLO")

    def to_llvm(self) -> str:
        """Return the program as LLVM IR; raises HloError unless the backend emits it."""
        raise _not_offered("LLVM IR")

    def to_asm(self) -> str:
        """Return the program as assembly; raises HloError unless the backend emits machine code."""
        raise _not_offered("assembly")


class Host(Protocol):
    """What answers the host calls of programs."""

    def __call__(self, number: int, pointers: int) -> None:
        """Answer a call: its number in the program, and the address of those of its operands and results."""
        ...

    def answers(self, call: HloInstruction) -> bool:
        """Return whether it can answer the call of an instruction."""
        ...


class GangProgram(Protocol):
    """A program on all of its devices, which one thread runs in turns."""

    def take(self) -> bool:
        """Take the devices for a run; return false if they run, or if threads would run them faster."""
        ...

    def leave(self) -> None:
        """Let others take the devices."""
        ...

    def call(self, arguments: Sequence[Sequence[Value]]) -> list[Value]:
        """Run devices that were taken on the arguments of each; return their results."""
        ...


class Backend(Protocol):
    """A way to compile and run programs; see the description of the module.

    Attributes:
        name: the name by which `hloom.compile` finds it.
    """

    name: str

    @property
    def target(self) -> Target | None:
        """The machine for which programs are compiled; None if no machine code is generated."""
        ...

    def pipeline(self) -> Pipeline:
        """Return the passes of the backend, in order."""
        ...

    def compile(self, module: HloModule, options: CompileOptions) -> Program:
        """Verify and compile a module without changing it; raises HloError if it cannot be compiled."""
        ...

    def load(self, programs: Sequence[Program], world: World) -> list[DeviceProgram]:
        """Return the programs on the devices of a world, replica-major.

        Override it if the programs of several devices share data, as for native collectives.
        """
        return [program.load(device) for program, device in zip(programs, world.devices, strict=True)]

    def divide(self, module: HloModule, kept: AbstractSet[int], options: CompileOptions) -> SplitProgram:
        """Divide a program by the parameters that keep their values; raises HloError if it cannot do that.

        ``kept``: their numbers.
        """
        raise _not_offered("preparation of arguments")

    def gang(
        self,
        programs: Sequence[Program],
        counts: tuple[int, int],
        stop: ctypes.c_uint64 | None = None,
        host: Host | None = None,
    ) -> GangProgram | None:
        """Return several devices as one thread runs them; None if the backend cannot do that.

        Args:
            programs: those of the devices, replica-major.
            counts: numbers of replicas and partitions.
            stop: a word that ends runs early when it is set.
            host: answers calls of the host; without it there are none.
        """
        return None


_REGISTRY: Final[dict[str, Backend]] = {}


def register_backend(backend: Backend) -> None:
    """Let `hloom.compile` find a backend; raises HloError by ``compile.backend-registered``."""
    if backend.name in _REGISTRY:
        message = f"there is a backend {backend.name!r} already; unregister it first, or take another name"
        raise HloError(message, rule="compile.backend-registered")
    _REGISTRY[backend.name] = backend


def unregister_backend(name: str) -> None:
    """Remove a backend; raises HloError by the rule ``compile.backend`` if there is none of the name."""
    backend_named(name)
    del _REGISTRY[name]


def backend_named(name: str) -> Backend:
    """Return a backend; raises HloError by the rule ``compile.backend`` if there is none of the name."""
    backend = _REGISTRY.get(name)
    if backend is None:
        message = f"there is no backend {name!r}; the backends are {', '.join(_REGISTRY)}"
        raise HloError(message, rule="compile.backend")
    return backend


def backend_names() -> tuple[str, ...]:
    """Return the names of all backends, in the order of registration."""
    return tuple(_REGISTRY)


def _not_offered(what: str) -> HloError:
    message = f"this backend offers no {what}; compile with backend='cpu'"
    return HloError(message, rule="compile.not-offered")
