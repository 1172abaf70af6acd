"""Programs of unbounded sizes (``f32[?]``), compiled for the sizes of arguments."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar, cast

import numpy as np

from hloom.cpu.native import NativeExecutable, compile_or_load
from hloom.errors import EvaluationError
from hloom.ir.module import HloModule
from hloom.ir.operation import Array, Value
from hloom.shape.shape import Shape

KEPT: Final = 32
"""Number of compiled programs that are kept, the most recently used ones."""

Key = TypeVar("Key", bound=Hashable)
Made = TypeVar("Made")


class Recent(Generic[Key, Made]):
    """A cache that holds at most `KEPT` values by key: a new one displaces the least recently used one."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Key, Made] = OrderedDict()

    def get(self, key: Key, make: Callable[[], Made]) -> Made:
        """Return the cached value of ``key``; without one, cache and return that of ``make()``.

        A new value displaces the least recently used one if the cache is full.
        """
        if key not in self._kept:
            self._kept[key] = make()
            if len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return self._kept[key]


class RefinedPrograms:
    """Compiles a program with unbounded dimensions for combinations of argument sizes; caches the results.

    All devices that run the program share one object, which is thread-safe.

    Attributes:
        module: the program with unbounded dimensions.
        reproducible: whether results have the same bits on all processors; see `hloom.compile`.
        latest: the compiled program that was used last; None before the first.
    """

    def __init__(self, module: HloModule, *, reproducible: bool = False) -> None:
        module.verify()
        self.module, self.reproducible = module, reproducible
        self.latest: NativeExecutable | None = None
        self._programs: Recent[tuple[Shape, ...], NativeExecutable] = Recent()
        self._compiling = threading.Lock()

    def compiled_for(self, shapes: tuple[Shape, ...]) -> NativeExecutable:
        """Return the program compiled for parameters of the given shapes, from the cache if it is there.

        Raises HloError if a size of the program remains unbounded for these shapes.
        """
        from hloom.passes.expand.refine_shapes import refined_module

        with self._compiling:
            self.latest = self._programs.get(
                shapes,
                lambda: compile_or_load(refined_module(self.module, shapes), reproducible=self.reproducible),
            )
            return self.latest


def sized(shape: Shape, value: Value) -> Shape:
    """Return a parameter's shape with unbounded dimensions replaced by the sizes of its argument, ``value``.

    Raises EvaluationError (rule ``run.argument``) if the ranks of shape and argument differ.
    """
    if shape.is_tuple:
        parts = zip(shape.tuple_shapes, cast("tuple[Value, ...]", value), strict=True)
        return Shape.tuple_([sized(part, element) for part, element in parts])
    if not shape.is_array or not shape.is_unbounded:
        return shape
    dimensions = np.shape(cast("Array", value))
    if len(dimensions) != shape.rank:
        raise EvaluationError(f"sizes {list(dimensions)} do not fit {shape}", rule="run.argument")
    open_ = [size == Shape.UNBOUNDED for size in shape.dimensions]
    sizes = [n if o else size for n, o, size in zip(dimensions, open_, shape.dimensions, strict=True)]
    flags = [flag and not o for flag, o in zip(shape.dynamic_dimensions, open_, strict=True)]
    return shape.with_dimensions(sizes, flags)
