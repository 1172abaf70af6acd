"""Coverage of generated programs: operations, element types, attributes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import field, fields
from typing import Any

from hloom.error_bounds.bounded import parts_of
from hloom.errors import plural
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.ir.operation import REGISTRY
from hloom.records import dataclass
from hloom.shape.shape import Shape


@dataclass
class Coverage:
    """The numbers of instructions of generated programs, by feature.

    Attributes:
        types: the number for each pair of an opcode and the element type of its result, ``add f32``.
        attributes: the number for each opcode with an attribute or a property of its shape: ``slice stride
            2``.
    """

    types: Counter[str] = field(default_factory=Counter[str])
    attributes: Counter[str] = field(default_factory=Counter[str])

    def add(self, module: HloModule) -> bool:
        """Count the features of a program; return whether any of them is new."""
        before = len(self.types) + len(self.attributes)
        for instruction in module.instructions():
            leaves = [leaf for _, leaf in instruction.shape.leaves()]
            self.types.update({f"{instruction.opcode} {leaf.element_type.name}" for leaf in leaves})
            self.attributes.update({f"{instruction.opcode} {text}" for text in features(instruction)})
        return len(self.types) + len(self.attributes) > before

    @property
    def undrawn(self) -> list[str]:
        """The opcodes that no program contains."""
        drawn = {text.split(" ")[0] for text in self.types}
        return sorted(set(REGISTRY) - drawn)

    def summary(self) -> str:
        """Return the totals in one line of text."""
        drawn = len(REGISTRY) - len(self.undrawn)
        return (
            f"{drawn} of {plural(len(REGISTRY), 'operation')}, "
            f"{plural(len(self.types), 'pair')} of operation and type, "
            f"{len(self.attributes)} of operation and attribute"
        )

    def table(self) -> Iterator[tuple[str, str, str]]:
        """Yield each opcode that occurs, its element types, and its attributes, with their counts."""
        rows: dict[str, tuple[list[str], list[str]]] = defaultdict(lambda: ([], []))
        for column, counter in enumerate((self.types, self.attributes)):
            for text, count in sorted(counter.items()):
                opcode, _, feature = text.partition(" ")
                rows[opcode][column].append(f"{feature}: {count}" if feature else str(count))
        for opcode, (types, attributes) in sorted(rows.items()):
            yield opcode, ", ".join(types), ", ".join(attributes)


def features(instruction: HloInstruction) -> Iterator[str]:
    """Yield the attributes of an instruction, numbers by their class, and properties of its shape."""
    operation: Any = instruction.operation
    for each in fields(operation):
        value = getattr(operation, each.name)
        yield from (f"{each.name} {text}" for text in set(_classes(value)))
    if instruction.sharding is not None:
        yield "sharding"
    if instruction.shape.is_array:
        yield from _properties(instruction.shape)


def _properties(shape: Shape) -> Iterator[str]:
    yield f"rank {shape.rank}"
    if 0 in shape.dimensions:
        yield "empty"
    if shape.is_dynamic:
        yield "dynamic"
    if shape.layout is not None and tuple(shape.layout.minor_to_major) != tuple(range(shape.rank))[::-1]:
        yield "layout"


def _classes(value: Any) -> Iterator[str]:
    """Yield the classes of the numbers in an attribute."""
    match value:
        case bool() | str():
            yield str(value)
        case int() | float():
            yield str(int(value)) if value in (-1, 0, 1, 2) else "negative" if value < 0 else "many"
        case tuple():
            parts = parts_of(value)
            yield "none" if not parts else "some"
            for part in parts:
                yield from (f"of {text}" for text in _classes(part) if text != "some")
        case _ if hasattr(value, "value"):
            yield str(value.value)
        case _:
            yield "given" if value is not None else "none"
