"""Rules for broadcast, transpose, reverse, iota, concatenate and pad."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from hloom.ir.instruction import HloInstruction
from hloom.ir.operation import Operation
from hloom.operations.arithmetic import Add, Multiply
from hloom.proofs.symbolic.rules import RuleBook, Sketch
from hloom.shape.element_type import F32, S32

RULES: Final = RuleBook("movement")
Programs = Iterator[HloInstruction]


# -- broadcast


def _of_broadcasts(operation: Operation, name: str) -> None:
    def statement(w: Sketch) -> Programs:
        n, m = w.sizes("n", "N"), w.sizes("m", "M")
        a, b = w.array("A", *n), w.array("B", *n)
        sizes, into = (*n, *m), range(len(n))
        yield w.op(operation, w.broadcast(a, sizes, into), w.broadcast(b, sizes, into))
        yield w.broadcast(w.op(operation, a, b), sizes, into)

    statement.__name__ = f"{name.lower()}_of_broadcasts"
    statement.__doc__ = f"{name}(Broadcast(A), Broadcast(B)) ⇒ Broadcast({name}(A, B))."
    RULES.state(F32, S32, axes="NM")(statement)


_of_broadcasts(Add(), "Add")
_of_broadcasts(Multiply(), "Mul")


@RULES.state(axes="NM")
def transpose_of_scalar(w: Sketch) -> Programs:
    """Transpose(Broadcast(scalar)) ⇒ Broadcast(scalar)."""
    n, m, v = w.sizes("n", "N"), w.sizes("m", "M"), w.array("v")
    order = (*range(len(n), len(n) + len(m)), *range(len(n)))
    yield w.transpose(w.broadcast(v, (*n, *m)), order)
    yield w.broadcast(v, (*m, *n))


@RULES.state(axes="NM")
def reverse_of_scalar(w: Sketch) -> Programs:
    """Reverse(Broadcast(scalar)) ⇒ Broadcast(scalar)."""
    n, m, v = w.sizes("n", "N"), w.sizes("m", "M"), w.array("v")
    yield w.reverse(w.broadcast(v, (*n, *m)), range(len(n)))
    yield w.broadcast(v, (*n, *m))


@RULES.state(axes="N")
def slice_of_scalar(w: Sketch) -> Programs:
    """Slice(Broadcast(scalar)) ⇒ Broadcast(scalar)."""
    n, start, limit, stride = w.sizes("n start limit stride", "N")
    v = w.array("v")
    part = w.slice(w.broadcast(v, n), start, limit, stride)
    yield part
    yield w.broadcast(v, part.shape.dimensions)


@RULES.state(axes="N")
def dynamic_slice_of_scalar(w: Sketch) -> Programs:
    """DynamicSlice(Broadcast(scalar)) ⇒ Broadcast(scalar)."""
    n, size = w.sizes("n size", "N")
    v, at = w.array("v"), w.indices("i", len(n))
    yield w.dynamic_slice(w.broadcast(v, n), at, size)
    yield w.broadcast(v, size)


@RULES.state(S32, axes="NML")
def broadcast_of_iota(w: Sketch) -> Programs:
    """Broadcast(Iota) ⇒ Iota."""
    n, m, k, size = w.sizes("n", "N"), w.sizes("m", "M"), w.sizes("k", "L"), w.sizes("size")
    sizes = (*n, size, *m, *k)
    w.require(len(sizes) <= 4)
    yield w.broadcast(w.iota(len(n), *n, size, *m), sizes, range(len(n) + 1 + len(m)))
    yield w.iota(len(n), *sizes)


@RULES.state(axes="NML")
def broadcast_twice(w: Sketch) -> Programs:
    """Broadcast(Broadcast(A)) ⇒ Broadcast(A)."""
    n, m, k = w.sizes("n", "N"), w.sizes("m", "M"), w.sizes("k", "L")
    a, count = w.array("A", *n), len(n) + len(m)
    inner = w.op_broadcast(a, (*n, *m), range(len(n)))
    yield w.op_broadcast(inner, (*k, *n, *m), range(len(k), len(k) + count))
    yield w.op_broadcast(a, (*k, *n, *m), range(len(k), len(k) + len(n)))


# -- transpose


@RULES.state(axes="NML")
def transpose_twice(w: Sketch) -> Programs:
    """Transpose(Transpose(A)) ⇒ Transpose(A)."""
    n, m, k = w.sizes("n", "N"), w.sizes("m", "M"), w.sizes("k", "L")
    a = w.array("A", *n, *m, *k)
    rank, first, second = a.shape.rank, len(n), len(n) + len(m)
    inner = (*range(second, rank), *range(first), *range(first, second))
    outer = (*range(len(k), len(k) + first), *range(len(k) + first, rank), *range(len(k)))
    swap = (*outer[first:], *outer[:first])
    yield w.transpose(w.transpose(a, inner), swap)
    yield w.transpose(a, [inner[d] for d in swap])


@RULES.state(axes="N")
def transpose_of_nothing(w: Sketch) -> Programs:
    """Transpose(A) ⇒ A, in the same order of dimensions."""
    n = w.sizes("n", "N")
    a = w.array("A", *n)
    yield w.transpose(a, range(len(n)))
    yield a


# -- reverse


@RULES.state(axes="NM")
def reverse_of_size_one(w: Sketch) -> Programs:
    """Reverse(A) ⇒ A, along dimensions of size 1."""
    n, m = w.sizes("n", "N"), w.sizes("m", "M")
    w.require(size == 1 for size in n)
    a = w.array("A", *n, *m)
    yield w.reverse(a, range(len(n)))
    yield a


@RULES.state(axes="NM")
def reverse_back(w: Sketch) -> Programs:
    """Reverse(Reverse(A)) ⇒ A, along the same dimensions."""
    n, m = w.sizes("n", "N"), w.sizes("m", "M")
    a = w.array("A", *n, *m)
    yield w.reverse(w.reverse(a, range(len(n))), range(len(n)))
    yield a


@RULES.state(axes="NML")
def reverse_twice(w: Sketch) -> Programs:
    """Reverse(Reverse(A)) ⇒ Reverse(A), along the dimensions that one of them reverses."""
    n, m, k = w.sizes("n", "N"), w.sizes("m", "M"), w.sizes("k", "L")
    a, first, second = w.array("A", *n, *m, *k), len(n), len(n) + len(m)
    rank = a.shape.rank
    yield w.reverse(w.reverse(a, range(second)), range(first, rank))
    yield w.reverse(a, (*range(first), *range(second, rank)))


@RULES.state(F32, S32, axes="NM")
def reverse_of_sum(w: Sketch) -> Programs:
    """Reverse(Add(A, c)) ⇒ Add(Reverse(A), c)."""
    n, m = w.sizes("n", "N"), w.sizes("m", "M")
    a, c = w.array("A", *n, *m), w.broadcast(w.array("c"), (*n, *m))
    yield w.reverse(w.op(Add(), a, c), range(len(n)))
    yield w.op(Add(), w.reverse(a, range(len(n))), c)


# -- iota


@RULES.state(S32, axes="NM")
def iota_of_one(w: Sketch) -> Programs:
    """Iota ⇒ 0, along a dimension of size 1."""
    n, m = w.sizes("n", "N"), w.sizes("m", "M")
    w.require(len(n) + len(m) < 4)
    yield w.iota(len(n), *n, 1, *m)
    yield w.constant(0, *n, 1, *m)


# -- concatenate


@RULES.state(axes="NM")
def concatenate_list_of_two(w: Sketch) -> Programs:
    """ConcatList(A, B) ⇒ Concat(A, B), here an update of A with padding."""
    n, m, (a, b) = w.sizes("n", "N"), w.sizes("m", "M"), w.sizes("a b")
    x, y, at = w.array("A", *n, a, *m), w.array("B", *n, b, *m), len(n)
    none = [0] * x.shape.rank
    yield w.concatenate(x, y, dimension=at)
    first = w.concatenate(x, w.slice(y, none, _at(at, 0, list(y.shape.dimensions))), dimension=at)
    yield w.concatenate(first, y, dimension=at)


def _at(position: int, value: int, values: list[int]) -> list[int]:
    return [*values[:position], value, *values[position + 1 :]]


def _concatenations(name: str, purpose: str, *, before: str, after: str) -> None:
    def statement(w: Sketch) -> Programs:
        n, m, sizes = w.sizes("n", "N"), w.sizes("m", "M"), w.sizes("a b c")
        x, y, z = (w.array(p, *n, s, *m) for p, s in zip("ABC", sizes, strict=True))
        at = len(n)
        ways = {
            "right": lambda: w.concatenate(x, w.concatenate(y, z, dimension=at), dimension=at),
            "left": lambda: w.concatenate(w.concatenate(x, y, dimension=at), z, dimension=at),
            "list": lambda: w.concatenate(x, y, z, dimension=at),
        }
        yield ways[before]()
        yield ways[after]()

    statement.__name__, statement.__doc__ = name, purpose
    RULES.state(axes="NM")(statement)


_concatenations(
    "concatenate_to_the_left",
    "Concat(A, Concat(B, C)) ⇒ Concat(Concat(A, B), C).",
    before="right",
    after="left",
)
_concatenations(
    "concatenate_list_of_three",
    "ConcatList(A, B, C) ⇒ Concat(A, Concat(B, C)).",
    before="list",
    after="right",
)
_concatenations(
    "concatenate_flattened",
    "Concat(A, Concat(B, C)) ⇒ ConcatList(A, B, C).",
    before="right",
    after="list",
)


@RULES.state(axes="NM")
def concatenate_of_neighbours(w: Sketch) -> Programs:
    """Concat(Slice(A), Slice(A)) ⇒ Slice(A), where the second begins where the first ends."""
    n, start, limit, stride = w.sizes("n start limit stride", "N")
    m, low, high, step = w.sizes("m low high step", "M")
    size, a, b, c = w.sizes("size a b c")
    x, at = w.array("A", *n, size, *m), len(n)

    def part(first: int, last: int) -> HloInstruction:
        return w.slice(x, (*start, first, *low), (*limit, last, *high), (*stride, 1, *step))

    yield w.concatenate(part(a, b), part(b, c), dimension=at)
    yield part(a, c)


@RULES.state(axes="NM")
def concatenate_scalar_before(w: Sketch) -> Programs:
    """Concat(Broadcast(scalar), B) ⇒ Pad(B, scalar, low)."""
    n, m, (low, size) = w.sizes("n", "N"), w.sizes("m", "M"), w.sizes("low size")
    b, v, at = w.array("B", *n, size, *m), w.array("v"), len(n)
    none = [0] * b.shape.rank
    yield w.concatenate(w.broadcast(v, (*n, low, *m)), b, dimension=at)
    yield w.pad(b, v, _at(at, low, none), none)


@RULES.state(axes="NM")
def concatenate_scalar_behind(w: Sketch) -> Programs:
    """Concat(A, Broadcast(scalar)) ⇒ Pad(A, scalar, high)."""
    n, m, (high, size) = w.sizes("n", "N"), w.sizes("m", "M"), w.sizes("high size")
    a, v, at = w.array("A", *n, size, *m), w.array("v"), len(n)
    none = [0] * a.shape.rank
    yield w.concatenate(a, w.broadcast(v, (*n, high, *m)), dimension=at)
    yield w.pad(a, v, none, _at(at, high, none))


# -- pad


@RULES.state(axes="N")
def pad_of_nothing(w: Sketch) -> Programs:
    """Pad(A, v, 0_0_0) ⇒ A."""
    n = w.sizes("n", "N")
    a, v, none = w.array("A", *n), w.array("v"), [0] * len(n)
    yield w.pad(a, v, none, none)
    yield a


@RULES.state(axes="NM", most=1)
def pad_between_one(w: Sketch) -> Programs:
    """Pad(A, v, low_high_interior) ⇒ Pad(A, v, low_high_0), along dimensions of size 1."""
    n, holes = w.sizes("n holes", "N")
    m, other = w.sizes("m other", "M")
    low, high = w.integers("low high", "N")
    before, behind = w.integers("left right", "M")
    w.require(size <= 1 for size in n)
    a, v = w.array("A", *n, *m), w.array("v")
    yield w.pad(a, v, (*low, *before), (*high, *behind), (*holes, *other))
    yield w.pad(a, v, (*low, *before), (*high, *behind), (*(0 for _ in n), *other))


@RULES.state(axes="NML", most=1)
def pad_of_broadcast(w: Sketch) -> Programs:
    """Pad(Broadcast(A), v) ⇒ Broadcast(Pad(Broadcast(A), v)), without the dimensions that are not padded."""
    n, holes = w.sizes("n holes", "N")
    low, high = w.integers("low high", "N")
    m, gaps = w.sizes("m gaps", "M")
    before, behind = w.integers("left right", "M")
    k = w.sizes("k", "L")
    a, v = w.array("A", *n), w.array("v")
    none = [0] * len(k)
    spread = w.op_broadcast(a, (*n, *m, *k), range(len(n)))
    yield w.pad(spread, v, (*low, *before, *none), (*high, *behind, *none), (*holes, *gaps, *none))
    inner = w.pad(
        w.op_broadcast(a, (*n, *m), range(len(n))), v, (*low, *before), (*high, *behind), (*holes, *gaps)
    )
    sizes = inner.shape.dimensions
    yield w.op_broadcast(inner, (*sizes, *k), range(len(sizes)))


@RULES.state(axes="NMKL", most=1)
def pad_that_cuts(w: Sketch) -> Programs:
    """Pad(A, v) ⇒ Slice(Pad(A, v)), the negative padding as a slice.

    The four classes have padding of no sign, a negative high one, a negative low one, and two negative ones.
    """
    n, low0, high0 = w.sizes("n low0 high0", "N")
    m, low1, cut1 = w.sizes("m low1 cut1", "M")
    k, cut2, high2 = w.sizes("k cut2 high2", "K")
    j, front, back = w.sizes("j front back", "L")
    a, v = w.array("A", *n, *m, *k, *j), w.array("v")
    nones = [0] * len(n), [0] * len(m), [0] * len(k), [0] * len(j)
    lows = (*low0, *low1, *(-x for x in cut2), *(-x for x in front))
    highs = (*high0, *(-x for x in cut1), *high2, *(-x for x in back))
    yield w.pad(a, v, lows, highs)
    padded = w.pad(a, v, (*low0, *low1, *nones[2], *nones[3]), (*high0, *nones[1], *high2, *nones[3]))
    sizes = padded.shape.dimensions
    starts = (*nones[0], *nones[1], *cut2, *front)
    ends = (*nones[0], *cut1, *nones[2], *back)
    yield w.slice(padded, starts, [size - end for size, end in zip(sizes, ends, strict=True)])
