"""Emit one element, or one vector of elements, of any value at a symbolic index.

A fused computation is a tree of operations that map indices and combine elements. `Elements` visits it from
the root: each operation's rule requests its operands' elements at mapped indices, down to loads from buffers.
With ``lanes`` set, the variable marked as lane enumerates the lanes of vectors; values that do not depend on
it are scalars until they are combined with a vector.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TypeAlias

from hloom.codegen.bits import reinterpreted
from hloom.codegen.indexing import EmittedIndexing, Key
from hloom.codegen.llvm import I32, I64, Function, Type, Value
from hloom.codegen.llvm.memory import gather, masked_load, masked_store, prefetch, scatter
from hloom.codegen.llvm.values import select_lanes, stage_of
from hloom.codegen.registry import enters
from hloom.codegen.types import Element, from_storage, storage_bytes, storage_type, to_storage
from hloom.errors import HloError
from hloom.ir.affine import Index, Indices, Variable, linearize
from hloom.ir.indexing import Read, Steps
from hloom.ir.operation import REGISTRY
from hloom.operations.control_flow import Call, Fusion
from hloom.operations.conversion import BitcastConvert
from hloom.operations.structure import Constant, GetTupleElement, Tuple
from hloom.records import dataclass
from hloom.shape.element_type import ElementType
from hloom.shape.shape import Shape

if TYPE_CHECKING:
    from hloom.codegen.tables import RegisterTable
    from hloom.ir.computation import HloComputation
    from hloom.ir.instruction import HloInstruction

NEAR: Final = 16
"""Maximum distance in elements of lanes that are selected from whole vectors; farther ones are gathered."""
LINE: Final = 64
"""Bytes that a prefetch fetches."""
STEPS_AHEAD: Final = 6
"""Steps of a loop between the prefetch of what it reads and its use; less where it writes as well."""
FAR: Final = 1 << 17
"""Bytes from which an array is not in the first-level cache, nor soon read from the second one."""
UNKNOWN_EXTENT: Final = 1 << 40
"""Extent of a view whose end is unknown: only the requested elements are read."""


@dataclass(frozen=True, slots=True)
class View:
    """An array in memory: dense and row-major, or with explicit strides.

    Attributes:
        pointer: address of the first element.
        element_type, dimensions: of the array.
        strides: distance in elements between neighbors along each dimension; None: dense.
        streams: vectors are whole lines, and stored past the caches.
    """

    pointer: Value
    element_type: ElementType
    dimensions: tuple[int, ...]
    strides: tuple[int, ...] | None = None
    streams: bool = False

    @classmethod
    def of(cls, pointer: Value, shape: Shape) -> View:
        """Return the dense array of a shape at an address."""
        return cls(pointer, shape.element_type, shape.dimensions)

    def linear(self, indices: Indices) -> Index:
        """Return the distance of an element from the first one, in elements."""
        if self.strides is None:
            return linearize(indices, self.dimensions)
        total = Index(0)
        for index, stride in zip(indices, self.strides, strict=True):
            total = total + index * stride
        return total

    @property
    def count(self) -> int:
        total = 1
        for size in self.dimensions:
            total *= size
        return total

    def begins_with(self, lanes: int) -> bool:
        """Return whether the array has at least as many contiguous elements as ``lanes``."""
        return self.is_bounded and lanes <= self.count

    @property
    def is_bounded(self) -> bool:
        """Return whether the array is dense, and where it ends is known."""
        return self.strides is None and self.count < UNKNOWN_EXTENT


class Elements(EmittedIndexing):
    """Emits elements into a function.

    Attributes:
        views: instructions whose values are in memory.
        accesses: linear index of every load, for the planning of loops.
        prefetches: whether accesses of later steps are prefetched; see `prefetching`.
        looks_up: whether elements are looked up in tables in registers; see `hloom.codegen.tables`.
    """

    def __init__(self, function: Function, lanes: int, views: dict[HloInstruction, View]) -> None:
        super().__init__(function, lanes)
        self.views = views
        self.accesses: list[Index] = []
        self.prefetches = self.looks_up = False
        self._steps: Variable | None = None
        self._ahead = STEPS_AHEAD
        self._standing: dict[HloInstruction, HloInstruction] = {}

    # -- the walk

    def element(self, instruction: HloInstruction, indices: Indices) -> Element:
        """Emit the element of an instruction's value at an index.

        Steps yield the operand elements that they need, so that the depth of a program is not limited by
        Python's stack.
        """
        mask = self.mask
        unfinished: list[tuple[Steps[Value, Element], Key]] = []
        value = self._begin(instruction, indices, unfinished)
        while unfinished:
            steps, key = unfinished[-1]
            self.mask = key[2]
            try:
                read = next(steps) if value is None else steps.send(value)
            except StopIteration as end:
                unfinished.pop()
                element: Element = end.value
                value = self.scopes[-1].elements[key] = element
            else:
                self.mask = self.both(self.mask, read.condition)
                value = self._begin(read.instruction, read.indices, unfinished)
        self.mask = mask
        assert value is not None
        return value

    def _begin(
        self,
        instruction: HloInstruction,
        indices: Indices,
        unfinished: list[tuple[Steps[Value, Element], Key]],
    ) -> Element | None:
        """Return an element that is known in this scope or needs no operands.

        Otherwise begins its steps, appends them to ``unfinished``, and returns None.
        """
        instruction = self._standing.get(instruction, instruction)
        key = (instruction, indices, self.mask)
        everywhere = (instruction, indices, None)
        for scope in self.scopes:
            if key in scope.elements:
                return scope.elements[key]
            if everywhere in scope.elements:
                return scope.elements[everywhere]
        view = self.views.get(instruction)
        if view is not None:
            element = self.load(view, indices, of=instruction)
        else:
            element = instruction.operation.element(self, instruction, indices)
        if isinstance(element, (Value, tuple)):
            self.scopes[-1].elements[key] = element
            return element
        unfinished.append((element, key))
        return None

    def read(self, read: Read[Value]) -> Element:
        """Emit the operand element that a declaration reads.

        Its value is arbitrary where the condition is false.
        """
        with self.masked(read.condition):
            return self.element(read.instruction, read.indices)

    def undeclared(self, i: HloInstruction, indices: Indices) -> Steps[Value, Element] | Element:
        """Apply the element rule of an operation that declares no steps."""
        rule = RULES.get(i.opcode)
        if rule is None:
            raise HloError(f"{i.opcode} has no element rule", rule="cpu.element-rule", instruction=i.name)
        return rule(self, i, indices)

    def is_dense(self, i: HloInstruction) -> bool | None:
        """Return whether the view of an array has no strides; None if there is none."""
        view = self.views.get(i)
        return view.strides is None if view is not None else None

    def know(self, instruction: HloInstruction, indices: Indices, value: Element) -> None:
        """Use a value computed elsewhere as the element of an instruction at an index, in this scope.

        Elements that are read under a condition, such as those of a concatenation, find it too.
        """
        self.scopes[-1].elements[instruction, indices, None] = value

    def stand_for(self, instruction: HloInstruction, other: HloInstruction) -> None:
        """Alias an instruction to another one: from now on their elements are the same."""
        self._standing[instruction] = other

    def leaves(self, instruction: HloInstruction, indices: Indices) -> list[Element]:
        """Emit the elements of all leaves of a tuple (a variadic reduce, a fused tuple) at one index."""
        if not instruction.shape.is_tuple:
            return [self.element(instruction, indices)]
        for scope in self.scopes:
            if (instruction, indices) in scope.leaves:
                return scope.leaves[instruction, indices]
        if isinstance(instruction.operation, Tuple):
            elements = [self.element(o, indices) for o in instruction.operands]
        else:
            elements = LEAF_RULES[instruction.opcode](self, instruction, indices)
        self.scopes[-1].leaves[instruction, indices] = elements
        return elements

    def elementwise(self, instruction: HloInstruction, operands: Sequence[Element]) -> Element:
        """Emit an elementwise operation; scalars are repeated if another operand is a vector."""
        from hloom.codegen.elementwise import lower_elementwise
        from hloom.codegen.elementwise.arithmetic import underflows

        return lower_elementwise(
            instruction.operation,
            [o.shape.element_type for o in instruction.operands],
            instruction.shape.element_type,
            self.together(operands),
            underflows(instruction),
        )

    def apply(self, computation: HloComputation, arguments: Sequence[Element]) -> list[Element]:
        """Emit a computation of scalars; return the elements of its result (leaves of a tuple)."""
        values: dict[HloInstruction, Element | list[Element]] = dict(
            zip(computation.parameters, arguments, strict=True)
        )
        for instruction in computation.post_order():
            if instruction not in values:
                values[instruction] = self._applied(instruction, values)
        root = values[computation.root]
        return root if isinstance(root, list) else [root]

    def _applied(
        self, instruction: HloInstruction, values: dict[HloInstruction, Element | list[Element]]
    ) -> Element | list[Element]:
        operands = [values[o] for o in instruction.operands]
        flat = [o for o in operands if not isinstance(o, list)]
        match instruction.operation:
            case Tuple():
                return [leaf for o in operands for leaf in (o if isinstance(o, list) else [o])]
            case GetTupleElement(index=index):
                (leaves_,) = operands
                assert isinstance(leaves_, list)
                return leaves_[index]
            case Call() | Fusion():
                leaves = self.apply(instruction.called_computations[0], flat)
                return leaves if instruction.shape.is_tuple else leaves[0]
            case Constant():
                return self.element(instruction, ())
            case BitcastConvert():
                before = instruction.operands[0].shape.element_type
                return reinterpreted(flat[0], before, instruction.shape.element_type)
            case operation if operation.scalar_identity:
                return flat[0]
            case operation if operation.elementwise:
                return self.elementwise(instruction, flat)
            case _:
                raise HloError(
                    f"{instruction.opcode} inside a computation of scalars",
                    rule="cpu.scalar-computation",
                    instruction=instruction.name,
                )

    # -- memory

    @contextmanager
    def prefetching(self, steps: Variable, ahead: int = STEPS_AHEAD) -> Generator[None]:
        """Prefetch what later steps of a loop access, where steps skip memory, as no processor does."""
        outer, self._steps, self._ahead = (self._steps, self._ahead), steps, ahead
        yield
        self._steps, self._ahead = outer

    def _prefetch(self, view: View, linear: Index, pointer: Value, *, writes: bool = False) -> None:
        """Prefetch the lanes of a later step; the addresses may be outside of the array."""
        step = sum(c for v, c in linear.terms if v is self._steps)
        size = storage_bytes(view.element_type)
        if abs(step) <= self.lanes or view.count * size < FAR:
            return
        self.prefetches = True
        first, last = step * self._ahead * size, self.lanes * size - 1
        for byte in (*range(0, last, LINE), last):
            prefetch(self.function.offset(pointer, first + byte), writes=writes, first_level=True)

    def load(self, view: View, indices: Indices, *, of: HloInstruction | None = None) -> Element:
        """Load an element of an array; lanes whose mask is off have arbitrary values.

        ``of``: the instruction whose value the array is. Its elements are constant, and may be cached in
        registers.
        """
        linear = self.undivided(view.linear(indices))
        self.accesses.append(linear)
        element_type = view.element_type
        stored = storage_type(element_type)
        if view.count == 0:
            zero = self.function.constant(stored, 0)
            return (zero, zero) if element_type.is_complex else from_storage(zero, element_type)
        scalar, coefficient, vector = self.parts(linear)
        if element_type.is_complex:
            return self._load_pair(view, linear, of=of)
        if not coefficient and vector is None:
            safe = self._clamped(linear, scalar, view.count)
            value = self.function.load(stored, self.function.offset(view.pointer, safe, stored))
        elif coefficient == 1 and vector is None:
            pointer = self.function.offset(view.pointer, scalar, stored)
            self._prefetch(view, linear, pointer)
            wide = stored.vector(self.lanes)
            if self.mask is None:
                value = self.function.load(wide, pointer)
            elif not self.mask.type.lanes and view.begins_with(self.lanes):
                # a masked load of lanes that are all off is slow where there is no memory
                value = self.function.load(wide, self.mask.select(pointer, view.pointer))
            else:
                value = masked_load(wide, pointer, self.lane_mask())
        elif vector is None and ((is_near := self._is_near(view, coefficient)) or coefficient == -1):
            residue = linear.constant % max(coefficient, 1)
            block = linear - residue
            bounded = view.count < UNKNOWN_EXTENT and self.mask is None
            if coefficient > 1 and bounded and _stays_inside(block, view.count - coefficient):
                value = self._column(view.pointer, block, coefficient, residue, 0, stored)
            else:
                if self.mask is not None and is_near:
                    start = self.function.constant(I64, max(0, -coefficient) * (self.lanes - 1))
                    scalar = self.mask.select(scalar, start)
                first = self.function.offset(view.pointer, scalar, stored)
                value = self._load_near(first, coefficient, stored, masked=not is_near)
        else:
            value = self._gather(view, linear, of=of)
        return from_storage(value, element_type)

    def _is_near(self, view: View, coefficient: int) -> bool:
        """Return whether lanes some elements apart are selected from whole vectors, not gathered.

        If the mask is on or off for all lanes, vectors of the first elements of the array stand for none.
        """
        reach = (self.lanes - 1) * abs(coefficient) + 1
        is_uniform = self.mask is not None and not self.mask.type.lanes and view.begins_with(reach)
        return abs(coefficient) <= NEAR and (self.mask is None or is_uniform)

    def _column(self, base: Value, block: Index, step: int, residue: int, ahead: int, stored: Type) -> Value:
        """Return every ``step``-th element from ``residue`` on, from whole rows that are read only once."""
        key = (base, block, step, residue, ahead)
        for scope in self.scopes:
            if key in scope.columns:
                return scope.columns[key]
        f, lanes = self.function, self.lanes
        if step == 1:
            column = f.load(stored.vector(lanes), f.offset(base, self.parts(block)[0] + ahead, stored))
        else:
            ways = stage_of(step, stored)
            narrow = step // ways
            parts = [
                self._column(base, block, narrow, residue % narrow, ahead + k * narrow * lanes, stored)
                for k in range(ways)
            ]
            places = [divmod(residue // narrow + ways * lane, lanes) for lane in range(lanes)]
            column = select_lanes(parts, places)
        self.scopes[-1].columns[key] = column
        return column

    def _load_near(self, first: Value, step: int, stored: Type, *, masked: bool) -> Value:
        """Select lanes a few elements apart, or reversed, from whole vectors; nothing beyond them is read.

        ``masked``: only lanes whose mask is on are read; they are reversed.
        """
        f, lanes = self.function, self.lanes
        wide = stored.vector(lanes)
        places = [step * lane for lane in range(lanes)]
        low = min(places)
        reach = max(places) - low + 1
        starts = [min(k * lanes, reach - lanes) for k in range(abs(step))]
        if masked:
            mask = self.lane_mask().shuffle(range(lanes - 1, -1, -1))
            loaded = [masked_load(wide, f.offset(first, low, stored), mask)]
        else:
            loaded = [f.load(wide, f.offset(first, low + start, stored)) for start in starts]
        sources = [min((offset - low) // lanes, len(starts) - 1) for offset in places]
        return select_lanes(loaded, [(k, offset - low - starts[k]) for k, offset in zip(sources, places)])

    def _load_pair(self, view: View, linear: Index, *, of: HloInstruction | None) -> Element:
        """Load the parts of a complex element, which are side by side."""
        f, part = self.function, storage_type(view.element_type)
        scalar, coefficient, vector = self.parts(linear)
        if not coefficient and vector is None:
            safe = self._clamped(linear, scalar, view.count)
            pointer = f.offset(view.pointer, safe * 2, part)
            return f.load(part, pointer), f.load(part, f.offset(pointer, 1, part))
        if coefficient == 1 and vector is None and self._is_near(view, coefficient):
            if self.mask is not None:
                scalar = self.mask.select(scalar, f.constant(I64, 0))
            pointer = f.offset(view.pointer, scalar * 2, part)
            return f.load(part.vector(2 * self.lanes), pointer).deinterleave()
        return (
            self._gather(view, linear, of=of),
            self._gather(view, linear, part=1, of=of),
        )

    def _clamped(self, linear: Index, value: Value, count: int) -> Value:
        """Clamp a scalar index so that it is in bounds even if the mask is off."""
        if self.mask is None or (linear.minimum() >= 0 and linear.maximum() < count):
            return value
        low = self.function.intrinsic("smax", value, self.function.constant(I64, 0))
        return self.function.intrinsic("smin", low, self.function.constant(I64, count - 1))

    def _gather(self, view: View, linear: Index, *, part: int = 0, of: HloInstruction | None) -> Value:
        """Load one part of an element in each lane, from separate addresses or from a table in registers."""
        stored, parts = _stored_parts(view.element_type)
        table = self.table(of, linear) if of is not None else None
        if table is not None:
            self.looks_up = True
            return table.look_up(self.index_value((linear - _start(linear)) * parts + part))
        f = self.function
        index = self.index_value(linear * parts + part)
        if view.count * parts < 2**31:
            index = index.cast("trunc", I32)
        pointers = f.offset(view.pointer, index, stored)
        mask = self.lane_mask() if self.mask is not None else None
        return gather(stored.vector(self.lanes), pointers, mask)

    def table(self, of: HloInstruction, linear: Index) -> RegisterTable | None:
        """Return a table in registers of all elements that the lanes of an index may read; None if too many.

        A table is loaded once in a scope. Variables of the linear index need not have values yet.
        """
        from hloom.codegen.tables import fits_in_registers, load_table  # programs without gathers need none

        view, start = self.views[of], _start(linear)
        offset = linear - start
        count = offset.maximum() + 1
        stored, parts = _stored_parts(view.element_type)
        if linear.lane_coefficient or offset.minimum() < 0 or not view.is_bounded:
            return None
        if not fits_in_registers(self.function.target, count * parts, stored):
            return None
        if not _stays_inside(start, view.count - count):
            return None
        for scope in self.scopes:
            if (of, start, count) in scope.tables:
                return scope.tables[of, start, count]
        pointer = self.function.offset(view.pointer, self.index_value(start * parts), stored)
        table = self.scopes[-1].tables[of, start, count] = load_table(pointer, count * parts, stored)
        return table

    def lane_mask(self) -> Value:
        """Return the mask as a vector."""
        assert self.mask is not None
        return self.mask if self.mask.type.lanes else self.mask.splat(self.lanes)

    def store(self, view: View, indices: Indices, value: Element) -> None:
        """Store an element (or a vector along the lane variable) where the mask is on."""
        linear = self.undivided(view.linear(indices))
        self.accesses.append(linear)
        scalar, coefficient, vector = self.parts(linear)
        element_type = view.element_type
        f = self.function
        if not coefficient and vector is None:
            self._store_scalar(view, scalar, value)
            return
        if coefficient != 1 or vector is not None:
            self._scatter(view, linear, value)
            return
        stored = storage_type(element_type)
        if isinstance(value, tuple):
            real, imaginary = (self.wide(part) for part in value)
            both = real.interleave(imaginary)
            pointer = f.offset(view.pointer, scalar * 2, stored)
            if self.mask is None:
                f.store(both, pointer)
            else:
                mask = self.lane_mask()
                masked_store(both, pointer, mask.shuffle([lane // 2 for lane in range(2 * self.lanes)]))
            return
        data = to_storage(self.wide(value), element_type)
        pointer = f.offset(view.pointer, scalar, stored)
        self._prefetch(view, linear, pointer, writes=True)
        if self.mask is not None:
            masked_store(data, pointer, self.lane_mask())
        elif view.streams:
            f.stream(data, pointer)
        else:
            f.store(data, pointer)

    def _scatter(self, view: View, linear: Index, value: Element) -> None:
        """Store lanes that are not adjacent in memory."""
        f = self.function
        stored = storage_type(view.element_type)
        parts = value if isinstance(value, tuple) else (to_storage(self.wide(value), view.element_type),)
        mask = self.lane_mask() if self.mask is not None else None
        for number, part in enumerate(parts):
            index = self.index_value(linear * len(parts) + number)
            scatter(self.wide(part), f.offset(view.pointer, index, stored), mask)

    def _store_scalar(self, view: View, index: Value, value: Element) -> None:
        f = self.function
        stored = storage_type(view.element_type)
        parts = value if isinstance(value, tuple) else (to_storage(value, view.element_type),)
        pointer = f.offset(view.pointer, index * len(parts) if len(parts) > 1 else index, stored)
        for number, part in enumerate(parts):
            # if the index is equal in all lanes, lane 0 has the element
            f.store(part.extract(0) if part.type.lanes else part, f.offset(pointer, number, stored))


def _stays_inside(index: Index, last: int) -> bool:
    """Return whether an index never leaves [0, last], however far merged loops run."""
    ends = [c * (v.trips - 1) for v, c in index.terms]
    low = index.constant + sum(min(0, end) for end in ends)
    return low >= 0 and index.constant + sum(max(0, end) for end in ends) <= last


def _stored_parts(element_type: ElementType) -> tuple[Type, int]:
    """Return the type in memory of the parts of an element, and their number."""
    return storage_type(element_type), 2 if element_type.is_complex else 1


def _start(linear: Index) -> Index:
    """Return the terms of an index that are the same in all lanes."""
    scalars = [(v, c) for v, c in linear.terms if isinstance(v.value, Value) and not v.value.type.lanes]
    return Index(linear.constant, scalars)


LeafRule: TypeAlias = "Callable[[Elements, HloInstruction, Indices], list[Element]]"
LEAF_RULES: Final[dict[str, LeafRule]] = {}
"""The elements of all leaves of a tuple-shaped result at one index, by opcode."""
ElementRule: TypeAlias = "Callable[[Elements, HloInstruction, Indices], Element | Steps[Value, Element]]"
RULES: Final[dict[str, ElementRule]] = {}
"""The element at an index of operations that declare no steps, by opcode."""


def element_rule(*opcodes: str) -> Callable[[ElementRule], ElementRule]:
    """Register the element rule of some opcodes, which do not declare their elements."""
    for opcode in opcodes:
        if REGISTRY[opcode].declares_element():
            raise HloError(f"{opcode} declares its elements", rule="codegen.registered-twice")
    return enters(RULES, "an element rule", *opcodes)


def leaf_rule(*opcodes: str) -> Callable[[LeafRule], LeafRule]:
    """Register the rule of some opcodes for the elements of all leaves at an index."""
    return enters(LEAF_RULES, "a leaf rule", *opcodes)
