"""Orders in which a reducing computation may combine values without changing the result.

The reference is the sequential order: f(... f(f(init, x0), x1) ..., xn). Sums, products, whose rounding may
differ, and other plain operations may be reordered freely. Any other computation may be regrouped only if it
is proven associative.

The proof covers computations that only compare and select. Such a computation commutes with every
order-preserving map of its numbers that fixes the constants, zeros and NaN it can distinguish. A law of three
elements therefore holds for all numbers if it holds for all relative orders of three: a table of the
computation on a few representatives decides it.
"""

from __future__ import annotations

import enum
import itertools
import math
from collections.abc import Callable, Container, Iterable, Sequence
from typing import Any, Final, TypeAlias, cast

import numpy as np

from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction
from hloom.ir.operation import Array, Operation, Value
from hloom.records import dataclass
from hloom.shape.element_type import BF16, F16, F32, F64, ElementType

Apply = Callable[..., Value]
"""A computation of scalars, on whole arrays."""
Instructions: TypeAlias = Sequence[HloInstruction]


class Grouping(enum.IntEnum):
    """The orders in which a combiner's values may be combined; each kind also allows the preceding ones."""

    SEQUENTIAL = 0
    """Sequential order only."""
    ASSOCIATIVE_WITHOUT_NAN = 1
    """Regrouping in order, as long as no value (the accumulator aside) is NaN."""
    ASSOCIATIVE = 2
    """Regrouping in order, for all values."""
    FREE = 3
    """Any order."""


_PLAIN: Final = frozenset(("add", "multiply", "maximum", "minimum", "and", "or", "xor"))
_HANDS_ON: Final = frozenset(("parameter", "constant", "tuple", "get-tuple-element", "copy"))
_CHOOSES: Final = frozenset(("compare", "select", "clamp", "maximum", "minimum"))
_OF_PREDICATES: Final = frozenset(("and", "or", "xor", "not"))
_FLOATS: Final = frozenset((F16, BF16, F32, F64))
MOST_REPRESENTATIVES: Final = 200
"""Maximum number of rows of a table; combiners that need more are treated as sequential."""


def grouping(computation: HloComputation, apply: Apply) -> Grouping:
    """Return how the values of a combiner (accumulators..., values...) → accumulators may be grouped.

    Args:
        computation: the combiner.
        apply: evaluates it on arrays.
    """
    count = len(computation.parameters) // 2
    roots = _results(computation.root, count)
    if roots is None:
        return Grouping.SEQUENTIAL
    slots = _independent(computation, roots)
    common = Grouping.FREE
    ungrouped: list[int] = []
    for group in slots:
        if len(group) == 1 and _is_plain(roots[group[0]], computation, group[0]):
            continue
        ungrouped.extend(group)
        common = Grouping.SEQUENTIAL
    return common if common is Grouping.FREE else _by_table(computation, roots, ungrouped, apply)


def _results(root: HloInstruction, count: int) -> list[HloInstruction] | None:
    if root.shape.is_tuple:
        return list(root.operands) if root.opcode == "tuple" else None
    return [root] if count == 1 else None


def _without_conversions(i: HloInstruction) -> HloInstruction:
    """Return the value before conversions between float types."""
    while (
        i.opcode == "convert"
        and i.shape.element_type.is_floating
        and i.operands[0].shape.element_type.is_floating
    ):
        i = i.operands[0]
    return i


def _is_plain(root: HloInstruction, computation: HloComputation, slot: int) -> bool:
    """Return true for a single operation on both parameters whose order is free, rounding aside."""
    root = _without_conversions(root)
    if root.opcode not in _PLAIN or len(root.operands) != 2:
        return False
    kind = root.shape.element_type
    if kind.is_complex and root.opcode not in ("add", "multiply"):
        return False
    parameters = computation.parameters
    pair = {parameters[slot], parameters[slot + len(parameters) // 2]}
    return {_without_conversions(o) for o in root.operands} == pair


def _reached(root: HloInstruction) -> dict[HloInstruction, None]:
    """Return an instruction and its transitive operands."""
    visited = {root: None}
    waiting = [root]
    while waiting:
        fresh = [o for o in waiting.pop().operands if o not in visited]
        visited.update(dict.fromkeys(fresh))
        waiting.extend(fresh)
    return visited


class _Classes:
    """A disjoint-set forest."""

    def __init__(self) -> None:
        self._above: dict[HloInstruction, HloInstruction] = {}

    def find(self, x: HloInstruction) -> HloInstruction:
        """Return the representative of an element's set."""
        while self._above.get(x, x) is not x:
            x = self._above[x]
        return x

    def join(self, elements: Iterable[HloInstruction]) -> None:
        """Merge the sets of some elements."""
        first, *others = map(self.find, elements)
        for other in others:
            self._above[self.find(other)] = self.find(first)


def _independent(computation: HloComputation, roots: Sequence[HloInstruction]) -> list[list[int]]:
    """Partition the slots into groups without data flow between them."""
    classes = _Classes()
    parameters, count = computation.parameters, len(roots)
    for slot in range(count):
        classes.join([parameters[slot], parameters[slot + count]])
    for slot, root in enumerate(roots):
        read = [i for i in _reached(root) if i.opcode == "parameter"]
        classes.join([parameters[slot], *read])
    groups: dict[object, list[int]] = {}
    for slot in range(count):
        groups.setdefault(id(classes.find(parameters[slot])), []).append(slot)
    return list(groups.values())


# -- the table


@dataclass(slots=True)
class _Sort:
    """Values that are compared with each other.

    Attributes:
        kind: their type.
        slots: number of accumulator slots of this sort.
        constants: the numbers that they are compared with or replaced by.
    """

    kind: ElementType
    slots: int
    constants: list[Array]


@dataclass(frozen=True, slots=True)
class _Table:
    """A combiner on representatives.

    Attributes:
        elements: by slot, its value in each of the rows.
        results: the row of the result, by the rows of accumulators and values.
    """

    elements: list[Array]
    results: Array


def _by_table(
    computation: HloComputation, roots: Sequence[HloInstruction], slots: Sequence[int], apply: Apply
) -> Grouping:
    """Decide by table whether some slots of a combiner that only compares and selects are associative."""
    table = _table(computation, roots, slots, apply)
    if table is None:
        return Grouping.SEQUENTIAL
    everything = np.ones(len(table.results), np.bool_)
    if _is_associative(table.results, everything):
        return Grouping.ASSOCIATIVE
    plain = everything.copy()
    for values in table.elements:
        plain &= values == values
    if _is_associative(table.results, plain):
        return Grouping.ASSOCIATIVE_WITHOUT_NAN
    return Grouping.SEQUENTIAL


def _table(
    computation: HloComputation, roots: Sequence[HloInstruction], slots: Sequence[int], apply: Apply
) -> _Table | None:
    """Return the table of some slots; None if the computation does more than compare and select."""
    count, parameters = len(roots), computation.parameters
    instructions = list(dict.fromkeys(i for slot in slots for i in _reached(roots[slot])))
    slot_parameters = [parameters[s] for s in slots] + [parameters[s + count] for s in slots]
    if not all(map(_only_chooses, instructions)):
        return None
    for n, slot in enumerate(slots):
        kinds = {
            i.shape.element_type for i in (slot_parameters[n], slot_parameters[n + len(slots)], roots[slot])
        }
        if len(kinds) != 1:
            return None
    sorts = _sorts(instructions, roots, slots, slot_parameters)
    domains: list[Array] = []
    for sort in sorts:
        values = _representatives(sort)
        if values is None:
            return None
        domains.append(values)
    rows = math.prod(map(len, domains))
    if rows > MOST_REPRESENTATIVES:
        return None
    columns = [c.reshape(-1) for c in np.meshgrid(*(np.arange(len(d)) for d in domains), indexing="ij")]
    elements = [d[c] for d, c in zip(domains, columns, strict=True)]
    arguments: list[Array] = [np.zeros((1, 1), p.shape.element_type.numpy_dtype) for p in parameters]
    for n, slot in enumerate(slots):
        arguments[slot], arguments[slot + count] = elements[n][:, np.newaxis], elements[n][np.newaxis]
    with np.errstate(all="ignore"):
        outputs: object = apply(*arguments)
    results = cast(tuple[Array, ...], outputs if isinstance(outputs, tuple) else (outputs,))
    table = np.zeros((rows, rows), np.int64)
    for n, slot in enumerate(slots):
        positions = _places(domains[n], np.broadcast_to(results[slot], (rows, rows)))
        if positions is None:
            return None
        table = table * len(domains[n]) + positions
    return _Table(elements, table)


def is_choice(computation: HloComputation, apply: Apply, live: Container[int]) -> bool:
    """Return true if a combiner is associative, and its result always one of its two arguments.

    Then the arguments are ordered by classes, and the result of a sequence is either the first or the last
    element of its highest class (Länger, "The free algebra in the variety generated by quasi-trivial
    semigroups", 1980). So the sequence may be divided in any way, if the choices from parts are combined in
    the order of their positions in the sequence.

    Args:
        computation, apply: as for `grouping`.
        live: the slots whose results are used; in others, signs of zero and payloads of NaN do not count.
    """
    count = len(computation.parameters) // 2
    roots = _results(computation.root, count)
    table = _table(computation, roots, range(count), apply) if roots is not None else None
    if table is None or not _is_associative(table.results, np.ones(len(table.results), np.bool_)):
        return False
    columns = [_bits(values if n in live else _unsigned(values)) for n, values in enumerate(table.elements)]
    _, example, classes = np.unique(np.stack(columns), axis=1, return_index=True, return_inverse=True)
    classes = classes.reshape(-1)
    result_classes, representative = classes[table.results], example[classes]
    is_congruence = np.array_equal(result_classes, result_classes[np.ix_(representative, representative)])
    return is_congruence and bool(
        ((result_classes == classes[:, np.newaxis]) | (result_classes == classes)).all()
    )


def _unsigned(values: Array) -> Array:
    """Return floats with -0 as 0, and every NaN as one; integers and predicates as they are."""
    if not ElementType.from_dtype(values.dtype).is_floating:
        return values
    unsigned: Array = values + values.dtype.type(0)
    unsigned[values != values] = math.nan
    return unsigned


def _only_chooses(i: HloInstruction) -> bool:
    """Return true if an instruction forwards, compares or selects scalars."""
    if i.called_computations or not (i.shape.is_array and i.shape.is_scalar):
        return False
    kind = i.shape.element_type
    if i.opcode in _OF_PREDICATES:
        return kind.is_predicate
    if i.opcode not in _HANDS_ON and i.opcode not in _CHOOSES:
        return False
    kinds = {o.shape.element_type for o in i.operands if not o.shape.element_type.is_predicate}
    is_countable = all(k in _FLOATS or k.is_integer for k in kinds)
    return is_countable and len(kinds) <= 1 and (kind in _FLOATS or kind.is_integer or kind.is_predicate)


def _sorts(
    instructions: Instructions, roots: Instructions, slots: Sequence[int], parameters: Instructions
) -> list[_Sort]:
    """Return the sort of every slot; values that are compared or selected between share a sort."""
    classes = _Classes()
    for i in instructions:
        if i.opcode == "compare":
            classes.join(i.operands)
        elif i.opcode == "select":
            classes.join([i, *i.operands[1:]])
        elif i.operands:
            classes.join([i, *i.operands])
    for n, slot in enumerate(slots):
        classes.join([parameters[n], parameters[n + len(slots)], roots[slot]])
    members: dict[int, _Sort] = {}
    sorts: list[_Sort] = []
    for n, slot in enumerate(slots):
        key = id(classes.find(parameters[n]))
        sort = members.setdefault(key, _Sort(roots[slot].shape.element_type, 0, []))
        sort.slots += 1
        sorts.append(sort)
    for i in instructions:
        if i.opcode == "constant" and id(classes.find(i)) in members:
            literal: Any = i.operation
            members[id(classes.find(i))].constants.append(literal.literal.numpy().reshape(1))
    return sorts


def _representatives(sort: _Sort) -> Array | None:
    """Return numbers in which three elements take every relative order; None if the type has too few.

    Between two adjacent distinguishable numbers there are three representatives per slot.
    """
    kind = sort.kind
    dtype = kind.numpy_dtype
    if kind.is_predicate:
        return np.array([False, True])
    count = 3 * sort.slots
    if kind.is_integer:
        lowest, highest = (int(x) for x in kind.limits)
        marks = sorted({int(c[0]) for c in sort.constants})
        edges = [lowest - 1, *marks, highest + 1]
        values = set(marks)
        for low, high in itertools.pairwise(edges):
            values.update(range(low + 1, min(high, low + 1 + count)))
        return np.array(sorted(values), dtype)
    numbers = {float(c[0]) for c in sort.constants if c[0] == c[0]}
    marks = sorted({0.0, *(n for n in numbers if n)})
    finite: list[float] = [n for n in marks if n]
    for low, high in itertools.pairwise([-math.inf, *(m for m in marks if math.isfinite(m)), math.inf]):
        between = _between(low, high, count, dtype)
        if between is None:
            return None
        finite += between
    quiet = np.array([math.nan, -math.nan], dtype).view(f"i{dtype.itemsize}")
    nan = (quiet[:, np.newaxis] + np.arange(count, dtype=quiet.dtype)).reshape(-1).view(dtype)
    return np.concatenate([np.array([-0.0, 0.0, *sorted(finite)], dtype), nan])


def _between(low: float, high: float, count: int, dtype: np.dtype) -> list[float] | None:
    """Return ``count`` numbers of a type strictly between two others; None if they do not fit."""
    scale = 1 + max(abs(x) for x in (low, high) if math.isfinite(x))
    if math.isinf(low):
        samples = [high - scale * (n + 1) for n in range(count)]
    elif math.isinf(high):
        samples = [low + scale * (n + 1) for n in range(count)]
    else:
        samples = [low + (high - low) * (n + 1) / (count + 1) for n in range(count)]
    with np.errstate(all="ignore"):
        rounded = [float(x) for x in np.array(samples).astype(dtype)]
    inside = {x for x in rounded if low < x < high and math.isfinite(x)}
    return sorted(inside) if len(inside) == count else None


def _bits(array: Array) -> Array:
    """Return the bits of numbers as integers; values of types below a byte are returned as they are."""
    if array.dtype.kind == "b":
        return array.astype(np.int64)
    if array.dtype.kind in "iu":
        return array.astype(np.int64) if array.dtype != np.uint64 else array.view(np.int64)
    return np.ascontiguousarray(array).view(f"i{array.dtype.itemsize}").astype(np.int64)


def _places(domain: Array, values: Array) -> Array | None:
    """Return the positions of values among the representatives, by bits; None if one is missing."""
    domain_bits, value_bits = _bits(domain), _bits(np.ascontiguousarray(values))
    order = np.argsort(domain_bits)
    positions = order[np.searchsorted(domain_bits, value_bits, sorter=order).clip(max=len(domain_bits) - 1)]
    return positions if np.array_equal(domain_bits[positions], value_bits) else None


def _is_associative(table: Array, among: Array) -> bool:
    """Return true if f(f(a, x), y) is f(a, f(x, y)) for all a, and all x and y among some elements."""
    some = np.flatnonzero(among)
    inner = table[np.ix_(some, some)]
    if not among[inner].all():
        return False
    return all(np.array_equal(table[row[some]][:, some], row[inner]) for row in table)


def commutative_combiner(call: HloInstruction) -> Operation | None:
    """Return the operation of a reducer that is one commutative operation with a neutral element."""
    root = call.called_computations[0].root
    operands = {getattr(o.operation, "parameter_number", None) for o in root.operands}
    if operands != {0, 1} or not root.operation.commutative or not root.shape.is_array:
        return None
    neutral = root.operation.neutral_element(root.shape.element_type)
    return root.operation if neutral is not None else None
