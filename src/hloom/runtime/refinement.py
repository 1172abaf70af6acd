"""Programs of unbounded sizes, compiled for the sizes of the arguments when these first come."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import numpy as np

from hloom.cpu.native import NativeExecutable
from hloom.errors import EvaluationError
from hloom.evaluate.devices import VirtualDevice
from hloom.ir.module import HloModule
from hloom.ir.operation import Value
from hloom.runtime.programs import CompiledProgram
from hloom.shape.shape import Shape

if TYPE_CHECKING:
    from hloom.cpu.runtime.profile import Profile

Made = TypeVar("Made")

KEPT: Final = 32
"""Programs that are kept, those used last."""


class Refinements:
    """The compiled forms of one program, shared by all devices that run it.

    Attributes:
        module: the program.
        latest: the form that was used last; None before the first.
    """

    def __init__(self, module: HloModule) -> None:
        module.verify()
        self.module = module
        self.latest: NativeExecutable | None = None
        self._forms: OrderedDict[tuple[Shape, ...], NativeExecutable] = OrderedDict()
        self._compiling = threading.Lock()

    def form(self, shapes: tuple[Shape, ...]) -> NativeExecutable:
        """The program for arguments of these shapes; raises HloError if they do not tell all sizes."""
        from hloom.passes.expand.refine_shapes import refined_module

        with self._compiling:
            make = lambda: NativeExecutable(refined_module(self.module, shapes))  # noqa: E731
            self.latest = _recent(self._forms, shapes, make)
            return self.latest


class RefinedProgram:
    """A program of unbounded sizes on its device."""

    def __init__(self, refinements: Refinements, device: VirtualDevice) -> None:
        self._refinements = refinements
        self._device = device
        self._programs: OrderedDict[NativeExecutable, CompiledProgram] = OrderedDict()

    def run(self, arguments: Sequence[Value]) -> Value:
        """See `DeviceProgram`."""
        return self._program(arguments).run(arguments)

    def profile(self, arguments: Sequence[Value]) -> Profile:
        """See `CompiledProgram`."""
        return self._program(arguments).profile(arguments)

    def _program(self, arguments: Sequence[Value]) -> CompiledProgram:
        parameters = self._refinements.module.entry.parameters
        shapes = tuple([sized(p.shape, v) for p, v in zip(parameters, arguments, strict=True)])
        native = self._refinements.form(shapes)
        return _recent(self._programs, native, lambda: CompiledProgram(native, self._device))


def sized(shape: Shape, value: Value) -> Shape:
    """A shape with the sizes of a value for those without bound."""
    if shape.is_tuple:
        parts = zip(shape.tuple_shapes, cast("tuple[Any, ...]", value), strict=True)
        return Shape.tuple_([sized(part, element) for part, element in parts])
    if not shape.is_array or not shape.is_unbounded:
        return shape
    found = np.shape(cast("Any", value))
    if len(found) != shape.rank:
        raise EvaluationError(f"an array of sizes {list(found)} is no {shape}", rule="run.argument")
    open_ = [size == Shape.UNBOUNDED for size in shape.dimensions]
    sizes = [n if o else size for n, o, size in zip(found, open_, shape.dimensions, strict=True)]
    flags = [flag and not o for flag, o in zip(shape.dynamic_dimensions, open_, strict=True)]
    return shape.with_dimensions(sizes, flags)


def _recent(kept: OrderedDict[Any, Made], key: object, make: Callable[[], Made]) -> Made:
    """What is kept under a key, made if need be; the one not used for longest goes."""
    if key not in kept:
        kept[key] = make()
        if len(kept) > KEPT:
            kept.popitem(last=False)
    kept.move_to_end(key)
    return kept[key]
