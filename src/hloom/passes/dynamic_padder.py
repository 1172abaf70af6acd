"""dynamic-padder: programs with dynamic sizes become programs of static shapes that carry the sizes along.

Every array of dynamic size becomes one of its bound, beside the actual sizes. What lies beyond them is
ignored: where an operation would let it in, it is replaced first by what changes nothing. Operations
without a rule here are evaluated on arrays of their actual sizes, by the host.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final, TypeAlias

from hloom.errors import HloError
from hloom.ir.cloning import clone_module
from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.ir.operation import REGISTRY
from hloom.passes.dead_code import has_side_effect
from hloom.passes.dynamic_form import is_dynamic, static_form
from hloom.passes.facts import CONTROL_FLOW
from hloom.passes.instructions import attributes
from hloom.passes.writing import Writer
from hloom.shape.element_type import PRED, S32
from hloom.shape.shape import Shape

HOST_TARGET: Final = "hloom_dynamic"
"""The custom call whose computation the host evaluates on arrays of actual sizes."""


@dataclass(slots=True)
class Sized:
    """An array (or a token) with the actual sizes of its dynamic dimensions, s32 scalars."""

    array: HloInstruction
    sizes: dict[int, HloInstruction] = field(default_factory=dict[int, HloInstruction])


Carried: TypeAlias = "Sized | list[Carried]"
Rule: TypeAlias = "Callable[[DynamicWriter, HloInstruction, list[Sized]], Carried | None]"
RULES: Final[dict[str, Rule]] = {}
"""opcode -> what an instruction becomes; None where it is left to the host."""


@dataclass(frozen=True, slots=True)
class DynamicPadder:
    """``f32[<=8] add(x, y)`` → ``f32[8] add(x, y)`` beside the size of x."""

    name: ClassVar[str] = "dynamic-padder"

    def run(self, module: HloModule) -> bool:
        """Rewrite the entry and what it runs; their parameters and results take the static form."""
        if not is_dynamic(module):
            return False
        unbounded = next((i for i in module.instructions() if i.shape.is_unbounded), None)
        if unbounded is not None:
            message = f"nothing bounds the sizes of {unbounded.shape}"
            raise HloError(message, rule="dynamic-padder.unbounded", instruction=unbounded.name)
        _Module(module).run()
        return True


def static_module(module: HloModule) -> HloModule:
    """A copy of a program in static form."""
    copy = clone_module(module)
    DynamicPadder().run(copy)
    return copy


class _Module:
    """The computations that have been rewritten."""

    def __init__(self, module: HloModule) -> None:
        self.module = module
        self.rewritten: dict[HloComputation, HloComputation] = {}

    def run(self) -> None:
        """Rewrite from the entry on."""
        old = self.module.entry
        new = self.computation(old)
        for computation in list(self.rewritten):
            self.module.remove(computation)
        self.module.remove(new)
        self.module.add(new, entry=True)
        self.module.config.entry_layout = None

    def computation(self, old: HloComputation) -> HloComputation:
        """The static form of a computation of control flow."""
        if old not in self.rewritten:
            new = HloComputation(self.module.unique_name(old.name))
            self.rewritten[old] = self.module.add(new)
            DynamicWriter(self, old, new).run()
        return self.rewritten[old]


class DynamicWriter(Writer):
    """Writes the static form of one computation."""

    def __init__(self, owner: _Module, old: HloComputation, new: HloComputation) -> None:
        self.owner, self.old = owner, old
        self.computation, self.module = new, owner.module
        self.replaced = old.root
        self.values: dict[HloInstruction, Carried] = {}

    def run(self) -> None:
        """Write every instruction, and the root."""
        made: dict[HloInstruction, HloInstruction] = {}
        for i in self.old.post_order():
            self.replaced = i
            count = len(self.computation)
            self.values[i] = self.instruction(i)
            written = list(self.computation)[count:]
            if written:
                made[i] = written[-1]
                for predecessor in i.control_predecessors:
                    if predecessor in made:
                        made[predecessor].add_control_dependency_to(written[-1])
        self.computation.root = self.packed(self.values[self.old.root])

    # -- the two forms of a value

    def packed(self, value: Carried) -> HloInstruction:
        """One instruction of the static form."""
        if isinstance(value, list):
            return self.op("tuple", *map(self.packed, value))
        if not value.sizes:
            return value.array
        return self.op("tuple", value.array, *(value.sizes[d] for d in sorted(value.sizes)))

    def unpacked(self, i: HloInstruction, shape: Shape) -> Carried:
        """The parts of an instruction of the static form of a shape."""
        if shape.is_tuple:
            parts = enumerate(shape.tuple_shapes)
            return [self.unpacked(self.op("get-tuple-element", i, index=n), s) for n, s in parts]
        if not shape.is_array or not shape.is_dynamic:
            return Sized(i)
        dynamic = [d for d, flag in enumerate(shape.dynamic_dimensions) if flag]
        array = self.op("get-tuple-element", i, index=0)
        sizes = {d: self.op("get-tuple-element", i, index=n + 1) for n, d in enumerate(dynamic)}
        return Sized(array, sizes)

    # -- instructions

    def instruction(self, i: HloInstruction) -> Carried:
        """The static form of an instruction."""
        operands = [self.values[o] for o in i.operands]
        if i.opcode == "tuple":
            return operands
        if i.opcode == "get-tuple-element":
            (whole,) = operands
            assert isinstance(whole, list)
            return whole[attributes(i).index]
        if i.opcode in ("opt-barrier", "add-dependency", "domain"):
            whole = self.copy(i, [self.packed(o) for o in operands], static_form(i.shape))
            return self.unpacked(whole, i.shape)
        if i.opcode == "parameter":
            return self.unpacked(self.copy(i, [], static_form(i.shape)), i.shape)
        if i.opcode in CONTROL_FLOW and i.opcode != "async-start":
            called = [self.owner.computation(c) for c in i.called_computations]
            made = self.copy(i, [self.packed(o) for o in operands], static_form(i.shape), called)
            return self.unpacked(made, i.shape)
        if not i.shape.is_dynamic and not any(o.shape.is_dynamic for o in i.operands):
            return self.unpacked(self.copy(i, [self.packed(o) for o in operands], i.shape), i.shape)
        rule = _elementwise if i.operation.elementwise else RULES.get(i.opcode)
        flat = [o for o in operands if isinstance(o, Sized)]
        found = rule(self, i, flat) if rule is not None and len(flat) == len(operands) else None
        return found if found is not None else self.by_host(i, operands)

    def copy(
        self, i: HloInstruction, operands: Sequence[HloInstruction], shape: Shape,
        called: Sequence[HloComputation] | None = None,
    ) -> HloInstruction:  # fmt: skip
        """The same operation on other operands."""
        name = self.module.unique_name(i.name)
        made = i.clone(name, operands=operands, shape=shape, called_computations=called)
        return self.computation.add(made)

    def on_bounds(self, i: HloInstruction, operands: Sequence[HloInstruction]) -> HloInstruction:
        """The operation on whole arrays."""
        return self.copy(i, operands, i.shape.to_static().without_layout())

    def by_host(self, i: HloInstruction, operands: Sequence[Carried]) -> Carried:
        """A call of the host, which evaluates the instruction on arrays of their actual sizes."""
        body = HloComputation(self.module.unique_name(f"{i.name}_computation"))
        parameters = [
            body.add(
                HloInstruction(
                    self.module.unique_name("p"),
                    REGISTRY["parameter"](parameter_number=n),  # type: ignore[call-arg]
                    o.shape,
                )
            )
            for n, o in enumerate(i.operands)
        ]
        body.add(i.clone(operands=parameters), root=True)
        self.module.add(body)
        call = self.op(
            "custom-call", *map(self.packed, operands), shape=static_form(i.shape), computations=[body],
            custom_call_target=HOST_TARGET, custom_call_has_side_effect=has_side_effect(i),
        )  # fmt: skip
        return self.unpacked(call, i.shape)

    # -- sizes

    def number(self, value: int) -> HloInstruction:
        """A size that is known."""
        return self.scalar(value, S32)

    def size(self, value: Sized, dimension: int) -> HloInstruction:
        """The actual size of a dimension."""
        known = value.sizes.get(dimension)
        return known if known is not None else self.number(value.array.shape.dimensions[dimension])

    def limited(self, size: HloInstruction, low: int, high: int) -> HloInstruction:
        """A size held between two numbers."""
        return self.op("clamp", self.number(low), size, self.number(high))

    def result(self, i: HloInstruction, array: HloInstruction, sizes: dict[int, HloInstruction]) -> Sized:
        """An array with the sizes of those dimensions that the instruction says are dynamic."""
        flags = i.shape.dynamic_dimensions
        return Sized(
            array,
            {d: sizes.get(d) or self.number(i.shape.dimensions[d]) for d, flag in enumerate(flags) if flag},
        )

    def inside(self, value: Sized, dimensions: Sequence[int]) -> HloInstruction | None:
        """Where the index is below the actual sizes of dimensions; None if there is nothing beyond."""
        shape = Shape(S32, value.array.shape.dimensions)
        mask: HloInstruction | None = None
        for d in dimensions:
            if d in value.sizes:
                place = self.op("iota", shape=shape, iota_dimension=d)
                here = self.compare(place, "LT", self.broadcast(value.sizes[d], shape.dimensions))
                mask = here if mask is None else self.op("and", mask, here)
        return mask

    def masked(self, value: Sized, fill: HloInstruction, dimensions: Sequence[int]) -> HloInstruction:
        """The array with a scalar in the place of what lies beyond the sizes of dimensions."""
        mask = self.inside(value, dimensions)
        if mask is None:
            return value.array
        return self.op("select", mask, value.array, self.broadcast(fill, value.array.shape.dimensions))

    def zero(self, value: Sized) -> HloInstruction:
        """A zero of the array's type."""
        return self.scalar(0, value.array.shape.element_type)

    def agreed(self, pairs: Sequence[tuple[Sized, int]]) -> HloInstruction | None:
        """The size that dimensions share, if it is one value; None where that has to be found out."""
        found = list(dict.fromkeys(v.sizes.get(d) for v, d in pairs))
        return found[0] if len(found) == 1 else None


def padding(*opcodes: str) -> Callable[[Rule], Rule]:
    """Register the rule of some opcodes."""

    def register(function: Rule) -> Rule:
        for opcode in opcodes:
            RULES[opcode] = function
        return function

    return register


# -- rules


def _elementwise(w: DynamicWriter, i: HloInstruction, operands: list[Sized]) -> Sized | None:
    """Everything in its place; operands of different sizes are refused by the host."""
    full = [o for o in operands if o.array.shape.rank == i.shape.rank]
    sizes: dict[int, HloInstruction] = {}
    for d in range(i.shape.rank):
        given = {o.sizes.get(d) for o in full}
        if len(given) != 1:
            return None
        (size,) = given
        if size is not None:
            sizes[d] = size
    return w.result(i, w.on_bounds(i, [o.array for o in operands]), sizes)


RULES["bitcast-convert"] = lambda w, i, o: (
    _elementwise(w, i, o) if i.shape.element_type.bits == i.operands[0].shape.element_type.bits else None
)


@padding("broadcast")
def _broadcast(w: DynamicWriter, i: HloInstruction, operands: list[Sized]) -> Sized:
    (x,) = operands
    places = attributes(i).dimensions
    sizes = {places[d]: size for d, size in x.sizes.items()}
    return w.result(i, w.on_bounds(i, [x.array]), sizes)


@padding("transpose")
def _transpose(w: DynamicWriter, i: HloInstruction, operands: list[Sized]) -> Sized:
    (x,) = operands
    order = attributes(i).dimensions
    sizes = {to: x.sizes[d] for to, d in enumerate(order) if d in x.sizes}
    return w.result(i, w.on_bounds(i, [x.array]), sizes)


@padding("reshape")
def _reshape(w: DynamicWriter, i: HloInstruction, operands: list[Sized]) -> Sized | None:
    """Where dynamic dimensions stay what they are, with as much before and behind them."""
    (x,) = operands
    before, after = x.array.shape.dimensions, i.shape.dimensions
    sizes: dict[int, HloInstruction] = {}
    for d, size in x.sizes.items():
        place = next((e for e in range(len(after)) if _same_place(before, d, after, e)), None)
        if place is None or not i.shape.dynamic_dimensions[place]:
            return None
        sizes[place] = size
    if len(sizes) != sum(i.shape.dynamic_dimensions):
        return None
    return w.result(i, w.on_bounds(i, [x.array]), sizes)


def _same_place(before: Sequence[int], d: int, after: Sequence[int], e: int) -> bool:
    return math.prod(before[:d]) == math.prod(after[:e]) and before[d] == after[e]


@padding("iota")
def _iota(w: DynamicWriter, i: HloInstruction, operands: list[Sized]) -> Sized | None:
    """A dynamic dimension, whose actual size nothing tells, has its bound."""
    return w.result(i, w.on_bounds(i, []), {})


@padding("slice")
def _slice(w: DynamicWriter, i: HloInstruction, operands: list[Sized]) -> Sized | None:
    """What is cut out of actual sizes: (min(limit, size) - start + stride - 1) / stride, at least 0."""
    (x,) = operands
    sizes: dict[int, HloInstruction] = {}
    for d, size in x.sizes.items():
        cut = attributes(i).slice[d]
        if not i.shape.dynamic_dimensions[d]:
            return None
        end = w.op("minimum", size, w.number(cut.limit))
        count = w.op("subtract", end, w.number(cut.start - cut.stride + 1))
        count = w.op("maximum", count, w.number(0))
        sizes[d] = w.op("divide", count, w.number(cut.stride))
    return w.result(i, w.on_bounds(i, [x.array]), sizes)


@padding("pad")
def _pad(w: DynamicWriter, i: HloInstruction, operands: list[Sized]) -> Sized | None:
    x, value = operands
    sizes: dict[int, HloInstruction] = {}
    for d, size in x.sizes.items():
        pad = attributes(i).padding[d]
        gaps = w.op("maximum", w.op("subtract", size, w.number(1)), w.number(0))
        grown = w.op("add", size, w.op("multiply", gaps, w.number(pad.interior)))
        if pad.low + pad.high < 0:
            return None
        sizes[d] = w.op("add", grown, w.number(pad.low + pad.high))
    filled = w.masked(x, value.array, sorted(x.sizes))
    return w.result(i, w.on_bounds(i, [filled, value.array]), sizes)


@padding("concatenate")
def _concatenate(w: DynamicWriter, i: HloInstruction, operands: list[Sized]) -> Sized | None:
    """One operand after the other, each from where the one before really ends."""
    (dimension,) = attributes(i).dimensions
    sizes: dict[int, HloInstruction] = {}
    for d in range(i.shape.rank):
        given = {o.sizes.get(d) for o in operands}
        if d != dimension and len(given) != 1:
            return None
        if d != dimension and None not in given:
            sizes[d] = next(size for size in given if size is not None)
    total = w.full(0, i.shape.to_static().without_layout())
    start = zero = w.number(0)
    for o in operands:
        starts = [start if d == dimension else zero for d in range(i.shape.rank)]
        total = w.op("dynamic-update-slice", total, o.array, *starts)
        start = w.op("add", start, w.size(o, dimension))
    sizes[dimension] = start
    return w.result(i, total, sizes)


@padding("get-dimension-size")
def _get_dimension_size(w: DynamicWriter, i: HloInstruction, operands: list[Sized]) -> Sized:
    return Sized(w.size(operands[0], attributes(i).dimensions[0]))


@padding("set-dimension-size")
def _set_dimension_size(w: DynamicWriter, i: HloInstruction, operands: list[Sized]) -> Sized:
    """What was not there before is zero; of a static result so is what lies beyond the size."""
    x, size = operands
    d: int = attributes(i).dimensions[0]
    wanted = w.limited(size.array, 0, i.shape.dimensions[d])
    array = w.masked(x, w.zero(x), [d])
    sizes = dict(x.sizes)
    sizes.pop(d, None)
    if i.shape.dynamic_dimensions[d]:
        sizes[d] = wanted
    else:
        cut = Sized(array, {d: wanted})
        array = w.masked(cut, w.zero(x), [d])
    return w.result(i, array, sizes)


@padding("reduce")
def _reduce(w: DynamicWriter, i: HloInstruction, operands: list[Sized]) -> Carried | None:
    """What lies beyond is replaced by the initial values where they are neutral."""
    half = len(operands) // 2
    reduced = attributes(i).dimensions
    inputs, initial = operands[:half], operands[half:]
    if any(set(o.sizes) != set(inputs[0].sizes) for o in inputs):
        return None
    if any(w.agreed([(o, d) for o in inputs]) is None for d in inputs[0].sizes):
        return None
    if set(inputs[0].sizes) & set(reduced) and not (half == 1 and _is_neutral(i)):
        return None
    arrays = [w.masked(o, v.array, reduced) for o, v in zip(inputs, initial, strict=True)]
    made = w.on_bounds(i, [*arrays, *(v.array for v in initial)])
    kept = [d for d in range(inputs[0].array.shape.rank) if d not in reduced]
    sizes = {kept.index(d): size for d, size in inputs[0].sizes.items() if d in kept}
    if not i.shape.is_tuple:
        return w.result(i, made, sizes)
    return [
        Sized(w.op("get-tuple-element", made, index=n), sizes if s.is_dynamic else {})
        for n, s in enumerate(i.shape.tuple_shapes)
    ]


_NEUTRAL: Final = {"add": (0.0,), "multiply": (1.0,), "or": (0.0,), "and": (1.0, -1.0)}


def _is_neutral(i: HloInstruction) -> bool:
    """Whether the initial value of a reduction is a constant that changes nothing."""
    start, combiner = i.operands[1], i.called_computations[0].root
    if start.opcode != "constant" or not all(o.opcode == "parameter" for o in combiner.operands):
        return False
    value = attributes(start).literal.numpy().reshape(())[()]
    kind = start.shape.element_type
    if combiner.opcode in ("maximum", "minimum") and not kind.is_complex and kind is not PRED:
        low, high = kind.limits
        bound = low if combiner.opcode == "maximum" else high
        infinite = float("-inf") if combiner.opcode == "maximum" else float("inf")
        return bool(value == bound) if not kind.is_floating else bool(float(value) == infinite)
    return any(complex(value) == neutral for neutral in _NEUTRAL.get(combiner.opcode, ()))


@padding("dot")
def _dot(w: DynamicWriter, i: HloInstruction, operands: list[Sized]) -> Sized | None:
    """Terms beyond the size of either operand count as zero."""
    lhs, rhs = operands
    o = attributes(i)
    if any(d in lhs.sizes or e in rhs.sizes for d, e in zip(o.lhs_batch_dims, o.rhs_batch_dims, strict=True)):
        return None
    for d, e in zip(o.lhs_contracting_dims, o.rhs_contracting_dims, strict=True):
        if d in lhs.sizes or e in rhs.sizes:
            shared = w.op("minimum", w.size(lhs, d), w.size(rhs, e))
            lhs, rhs = Sized(lhs.array, {**lhs.sizes, d: shared}), Sized(rhs.array, {**rhs.sizes, e: shared})
    a = w.masked(lhs, w.zero(lhs), o.lhs_contracting_dims)
    b = w.masked(rhs, w.zero(rhs), o.rhs_contracting_dims)
    left = [d for d in range(a.shape.rank) if d not in (*o.lhs_batch_dims, *o.lhs_contracting_dims)]
    right = [d for d in range(b.shape.rank) if d not in (*o.rhs_batch_dims, *o.rhs_contracting_dims)]
    ahead = len(o.lhs_batch_dims)
    sizes = {ahead + n: lhs.sizes[d] for n, d in enumerate(left) if d in lhs.sizes}
    sizes |= {ahead + len(left) + n: rhs.sizes[d] for n, d in enumerate(right) if d in rhs.sizes}
    return w.result(i, w.on_bounds(i, [a, b]), sizes)
