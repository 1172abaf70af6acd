"""One device's program, whatever runs it: the reference evaluator, or native code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from hloom.cpu.runtime.context import Context
from hloom.errors import EvaluationError, HloError
from hloom.evaluate.devices import VirtualDevice
from hloom.evaluate.evaluator import Evaluator
from hloom.ir.module import HloModule
from hloom.ir.operation import Value
from hloom.passes.expand.dynamic_form import actual, enclosed
from hloom.shape.shape import Shape

if TYPE_CHECKING:
    from hloom.cpu.native import NativeExecutable
    from hloom.cpu.runtime.profile import Profile
    from hloom.cpu.runtime.rendezvous import Seat


class DeviceProgram(Protocol):
    """A program on its device."""

    def run(self, arguments: Sequence[Value]) -> Value:
        """The result for arguments that fit the parameters, inside a run of the device's world."""
        ...


class EvaluatedProgram:
    """A program that the reference evaluator walks."""

    def __init__(self, module: HloModule, device: VirtualDevice) -> None:
        self._module = module
        self._evaluator = Evaluator(device)

    def run(self, arguments: Sequence[Value]) -> Value:
        """See `DeviceProgram`."""
        try:
            return self._evaluator.run(self._module.entry, arguments)
        except HloError as error:
            self._module.locate(error)
            raise


class CompiledProgram:
    """A program in native code."""

    def __init__(
        self, native: NativeExecutable, device: VirtualDevice, seats: Mapping[int, Seat] | None = None
    ) -> None:
        self._native = native
        self._parameters = [p.shape for p in native.module.entry.parameters]
        self._result = native.module.entry.root.shape
        self._given = native.given.entry if native.given is not native.module else None
        self._host = native.host(device, seats) if native.calls_host else None
        self._context = Context(device.id, seats=self._host.table if self._host is not None else 0)

    def run(self, arguments: Sequence[Value]) -> Value:
        """See `DeviceProgram`."""
        leaves = self._native.run(self._leaves(arguments), self._host, self._context)
        result = joined(self._result, iter(leaves))
        if self._given is not None:
            result = actual(result, self._given.root.shape)
        if self._native.dump is not None and self._native.dump.snapshots:
            self._native.dump.executed(arguments, result)
        return result

    def profile(self, arguments: Sequence[Value]) -> Profile:
        """What every instruction takes in a run for these arguments, inside a run of the device's world."""
        return self._native.profile(self._leaves(arguments), self._host)

    def _leaves(self, arguments: Sequence[Value]) -> list[np.ndarray[Any, Any] | None]:
        """The arrays that native code takes."""
        values = arguments
        if self._given is not None:
            given = zip(arguments, self._given.parameters, strict=True)
            values = [enclosed(value, parameter.shape) for value, parameter in given]
        return flat(self._parameters, values)


def flat(shapes: Sequence[Shape], values: Sequence[Any]) -> list[np.ndarray[Any, Any] | None]:
    """The leaves of values, in order; None for tokens."""
    found: list[np.ndarray[Any, Any] | None] = []
    for shape, value in zip(shapes, values, strict=True):
        if shape.is_tuple:
            found += flat(shape.tuple_shapes, value)
        elif shape.is_array:
            array = np.asarray(value)
            if array.shape != shape.dimensions:
                message = f"compiled code takes the whole {shape.to_string(layout=False)}, got {array.shape}"
                raise EvaluationError(message, rule="run.argument")
            found.append(array)
        else:
            found.append(None)
    return found


def joined(shape: Shape, leaves: Iterator[Any]) -> Any:
    """The value of a shape from its leaves: an array, or nested tuples of them; None for tokens."""
    if shape.is_tuple:
        return tuple([joined(part, leaves) for part in shape.tuple_shapes])
    leaf = next(leaves)
    return leaf if shape.is_array else None
