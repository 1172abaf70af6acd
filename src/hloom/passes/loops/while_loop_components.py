"""while-loop-components: replace a carried array that a loop concatenates from components by the components.

Time steppers of small systems of equations stack the derivatives of the components, and slice the state into
components in the next step. As separate values the components are elementwise, and the loop fits in a kernel.
Where a small state is also read as an array, such as to be stored, it is concatenated there; its components
stay in registers.
"""

from __future__ import annotations

from typing import Final

from hloom.analysis.instructions import operation_of
from hloom.analysis.loops import TupleLoop, element_number, picks
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.ir.window import SliceDimension
from hloom.operations.control_flow import While
from hloom.operations.movement import Broadcast, Concatenate, Slice, Transpose
from hloom.operations.structure import GetTupleElement
from hloom.passes.facts import FLAT
from hloom.passes.fuel import consume
from hloom.passes.loops.while_loops import loops_of, rebuild
from hloom.passes.pipeline import Pass
from hloom.passes.simplify.dead_code import remove_dead
from hloom.passes.writing import Writer
from hloom.shape.shape import Shape

_MOST_COMPONENTS: Final = 8


class WhileLoopComponents(Pass, name="while-loop-components", of=While, needs={FLAT}):
    """``while (...) { x = concatenate(f(x[0:1], x[1:2]), g(x[0:1], x[1:2])) }`` → a while that carries
    ``x[0:1]`` and ``x[1:2]``. Bitwise.
    """

    def run(self, module: HloModule) -> bool:
        """Rewrite the loops of every computation."""
        changed = False
        for loop in list(loops_of(module)):
            if not any(isinstance(i.operation, Concatenate) for i in loop.body.instructions):
                continue
            for number, shape in enumerate(loop.instruction.shape.tuple_shapes):
                for dimension, size in enumerate(shape.dimensions if shape.is_array else ()):
                    if 2 <= size <= _MOST_COMPONENTS:
                        changed |= _rewritten(loop, number, dimension)
        return changed


def _rewritten(loop: TupleLoop, number: int, dimension: int) -> bool:
    """Carry an element of the state as components if the body computes it component by component."""
    if loop.is_invariant(number):
        return False
    components = _Components(loop)
    apart = components.include(number, dimension) and components.joins and components.are_apart()
    if not apart or not consume(f"%{loop.instruction.name}"):
        return False
    components.carry()
    return True


class _Components:
    """Elements of a loop's state, and values of its body that are computed from them component by component.

    Attributes:
        elements: the tuple indices of the elements, with the dimension along which each is divided.
        members: the values, including the elements, with the dimension along which each is divided.
        joins: whether some member is a concatenation of components.
    """

    def __init__(self, loop: TupleLoop) -> None:
        self.loop = loop
        self.elements: dict[int, int] = {}
        self.members: dict[HloInstruction, int] = {}
        self.joins = False
        self._pending: list[tuple[HloInstruction, int]] = []
        self._components: dict[tuple[HloInstruction, int], HloInstruction] = {}

    def include(self, number: int, dimension: int) -> bool:
        """Add an element of the state and all values from which its next value is computed.

        Returns:
            Whether that is done by components.
        """
        if not self._add_element(number, dimension):
            return False
        while self._pending:
            if not self._add(*self._pending.pop()):
                return False
        return True

    def _add_element(self, number: int, dimension: int) -> bool:
        """Add an element of the state; return whether it may be divided along a dimension."""
        if number in self.elements:
            return self.elements[number] == dimension
        loop = self.loop
        if not loop.following[number].shape.is_static or any(p.users for p in picks(loop.tested, number)):
            return False
        self.elements[number] = dimension
        self.members |= dict.fromkeys(picks(loop.state, number), dimension)
        self._pending.append((loop.following[number], dimension))
        return True

    def _add(self, i: HloInstruction, dimension: int) -> bool:
        """Add a value; return whether it is computed by components if its operands are."""
        number = element_number(i, self.loop.state)
        if number is not None:
            return self._add_element(number, dimension)
        if i in self.members:
            return self.members[i] == dimension
        self.members[i] = dimension
        operation = i.operation
        if isinstance(operation, Concatenate):
            self.joins = True
            sizes = [o.shape.dimensions[dimension] for o in i.operands]
            return operation.dimensions == (dimension,) and set(sizes) == {1}
        if isinstance(operation, Broadcast):
            return dimension not in operation.dimensions
        if isinstance(operation, Transpose):
            self._pending.append((i.operands[0], operation.dimensions[dimension]))
            return True
        self._pending += [(o, dimension) for o in reversed(i.operands) if o.shape.rank]
        return operation.elementwise and bool(i.operands) and not i.has_control_dependencies

    def are_apart(self) -> bool:
        """Return whether next values are elements, and members read as arrays by others are small."""
        following = [n for n, value in enumerate(self.loop.following) if value in self.members]
        return all(n in self.elements for n in following) and all(
            member.shape.element_count <= _MOST_COMPONENTS or not self.readers(member)
            for member in self.members
        )

    def readers(self, member: HloInstruction) -> list[HloInstruction]:
        """Return the instructions other than members that read a member and not just a component of it."""
        if isinstance(member.operation, Broadcast):
            return []
        others = (u for u in member.users if u not in self.members and u is not self.loop.body.root)
        return [u for u in others if self.component_of(u) is None]

    def component_of(self, i: HloInstruction) -> tuple[int, int] | None:
        """Return the element and the component that an instruction slices; None for other instructions."""
        number = element_number(i.operands[0], self.loop.state) if isinstance(i.operation, Slice) else None
        if number is None or number not in self.elements:
            return None
        dimension, (source,) = self.elements[number], i.operands
        start = operation_of(i, Slice).slice[dimension].start
        return (number, start) if operation_of(i, Slice) == _slice(source.shape, dimension, start) else None

    def carry(self) -> None:
        """Rewrite the loop."""
        loop, count = self.loop, self.loop.count
        parts = [(n, k) for n, d in self.elements.items() for k in range(_shape(loop, n).dimensions[d])]
        w = Writer(loop.instruction)
        initial = [w.op(_slice(_shape(loop, n), self.elements[n], k), loop.initial(n)) for n, k in parts]
        inside = dict(zip(parts, rebuild(loop, range(count), initial), strict=True))
        for pick in [p for n in self.elements for p in picks(loop.state, n)]:
            number = operation_of(pick, GetTupleElement).index
            for user in list(pick.users):
                if (component := self.component_of(user)) is not None:
                    user.replace_all_uses_with(inside[component])
            for (n, k), part in inside.items():
                if n == number:
                    self._components[pick, k] = part
        for member, dimension in self.members.items():
            if readers := self.readers(member):
                components = [self.component(member, k) for k in range(member.shape.dimensions[dimension])]
                joined = Writer(member).op(Concatenate(dimensions=(dimension,)), *components)
                member.replace_uses_in(readers, joined)
        root = loop.body.root
        for position, (number, k) in enumerate(parts, count):
            root.replace_operand(position, self.component(loop.following[number], k))
        body, after = Writer(root), Writer(loop.instruction)
        for number, dimension in self.elements.items():
            root.replace_operand(number, body.op(GetTupleElement(index=number), loop.state))
            pieces = [
                after.op(GetTupleElement(index=position), loop.instruction)
                for position, (n, _) in enumerate(parts, count)
                if n == number
            ]
            joined = after.op(Concatenate(dimensions=(dimension,)), *pieces)
            for pick in picks(loop.instruction, number):
                pick.replace_all_uses_with(joined)
        remove_dead(loop.body)

    def component(self, i: HloInstruction, k: int) -> HloInstruction:
        """Return component ``k`` of a member."""
        if (i, k) not in self._components:
            operation, dimension = i.operation, self.members[i]
            w = Writer(i)
            if isinstance(operation, Concatenate):
                result = i.operands[k]
            else:
                members = i.operands if not isinstance(operation, Broadcast) else ()
                operands = [self.component(o, k) if o in members and o.shape.rank else o for o in i.operands]
                sizes = [1 if d == dimension else size for d, size in enumerate(i.shape.dimensions)]
                result = w.copy(i, operands, Shape(i.shape.element_type, tuple(sizes)))
            self._components[i, k] = result
        return self._components[i, k]


def _shape(loop: TupleLoop, number: int) -> Shape:
    return loop.instruction.shape.tuple_shapes[number]


def _slice(shape: Shape, dimension: int, start: int) -> Slice:
    """Return the slice of one component."""
    ranges = [(start, start + 1) if d == dimension else (0, size) for d, size in enumerate(shape.dimensions)]
    return Slice(slice=tuple(SliceDimension(*r) for r in ranges))
