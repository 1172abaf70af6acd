"""Programs with symbols for sizes, made from programs of concrete sizes."""

from __future__ import annotations

import dataclasses
from typing import Any, Final

from hloom.errors import ShapeError
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.ir.operation import Operation
from hloom.ir.window import PaddingDimension, SliceDimension, WindowDimension
from hloom.operations.dynamic_slicing import DynamicSlice
from hloom.operations.gather_scatter import Gather
from hloom.operations.structure import Constant, Parameter
from hloom.proofs.symbolic.sizes import Trail
from hloom.shape.shape import Shape

RANGES: Final = (SliceDimension, PaddingDimension, WindowDimension)
"""Attribute values whose fields are sizes."""


class Generalization:
    """A program with a symbol for each of its sizes, of shapes as of attributes.

    A shape that follows from operands has no symbols of its own. Which symbols are equal is found out by the
    shape rules.

    Attributes:
        text: the program of concrete sizes.
        values: its sizes by symbol.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.values: dict[str, int] = {}
        self._trail: Trail | None = None
        self._instruction = ""
        self._build()

    def build(self, trail: Trail) -> HloModule:
        """Return the program with the sizes of a run for the symbols."""
        self._trail = trail
        module = self._build()
        self._trail = None
        return module

    def _build(self) -> HloModule:
        module = HloModule.from_text(self.text)
        module.config.entry_layout = None
        for i in module.entry.post_order():
            self._instruction = i.name
            i.operation = self._operation(i)
            kind = i.shape.element_type
            if isinstance(i.operation, Parameter) or not i.operation.infers:
                i.shape = self._shape(i.shape, "")
            elif not isinstance(i.operation, Constant) and self._trail is not None:
                i.shape = i.infer_shape()
                if i.shape.is_array:
                    i.shape = i.shape.with_element_type(kind)
        return module

    def _symbol(self, name: str, value: int) -> int:
        name = f"{self._instruction}.{name}"
        if self._trail is not None:
            return self._trail.symbol(name)
        self.values[name] = value
        return value

    def _shape(self, shape: Shape, path: str) -> Shape:
        """Return a shape with a symbol for each dimension."""
        if shape.is_tuple:
            return Shape.tuple_(self._shape(s, f"{path}{n}.") for n, s in enumerate(shape.tuple_shapes))
        sizes = [self._symbol(f"{path}{d}", size) for d, size in enumerate(shape.dimensions)]
        if any(size < 0 for size in sizes):
            raise ShapeError("a size is negative", rule="shape.dimension-non-negative")
        return Shape(shape.element_type, sizes) if sizes else shape

    def _operation(self, i: HloInstruction) -> Operation:
        """Return an operation with a symbol for each size in its attributes."""
        operation = i.operation
        changes: dict[str, Any] = {}
        for attribute in operation.attributes:
            value = getattr(operation, attribute.field)
            if isinstance(value, tuple) and value and isinstance(value[0], RANGES):
                changes[attribute.field] = tuple(
                    self._range(entry, f"{attribute.field}{d}")
                    for d, entry in enumerate(value)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
                )
        match operation:
            case DynamicSlice(dynamic_slice_sizes=sizes):
                changes["dynamic_slice_sizes"] = self._sizes(sizes)
            case Gather(slice_sizes=sizes):
                changes["slice_sizes"] = self._sizes(sizes)
            case _:
                pass
        return operation.replace(**changes) if changes else operation

    def _sizes(self, sizes: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(self._symbol(f"size{d}", size) for d, size in enumerate(sizes))

    def _range(self, entry: Any, name: str) -> Any:
        fields = {
            f.name: self._symbol(f"{name}.{f.name}", getattr(entry, f.name))
            for f in dataclasses.fields(entry)
            if not isinstance(getattr(entry, f.name), bool)
        }
        return dataclasses.replace(entry, **fields)
