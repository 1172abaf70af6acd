"""Rules for reduce, dot and convolution."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from hloom.ir.instruction import HloInstruction
from hloom.ir.window import ConvolutionDimensionNumbers, WindowDimension
from hloom.operations.arithmetic import Multiply
from hloom.operations.convolution import Convolution
from hloom.proofs.symbolic.rules import RuleBook, Sketch
from hloom.shape.element_type import F32, S32

RULES: Final = RuleBook("sums")
NUMBERS: Final = (F32, S32)
Programs = Iterator[HloInstruction]


# -- reduce


@RULES.state(*NUMBERS, axes="NM", most=2)
def product_of_reduces(w: Sketch) -> Programs:
    """Mul(Reduce(X), Reduce(Y)) ⇒ Reduce(Mul(Broadcast(X), Broadcast(Y)))."""
    n, m = w.sizes("n", "N"), w.sizes("m", "M")
    x, y = w.array("X", *n), w.array("Y", *m)
    yield w.op(Multiply(), w.reduce(x, range(len(n))), w.reduce(y, range(len(m))))
    sizes, rank = (*n, *m), len(n) + len(m)
    spread = w.op_broadcast(x, sizes, range(len(n))), w.op_broadcast(y, sizes, range(len(n), rank))
    yield w.reduce(w.op(Multiply(), *spread), range(rank))


@RULES.state(*NUMBERS, axes="NM", most=1)
def reduce_of_concatenated_reduces(w: Sketch) -> Programs:
    """Reduce(Concat(Reduce(X), Reduce(Y))) ⇒ Reduce(Concat(X, Y))."""
    n, m, (a, b) = w.sizes("n", "N"), w.sizes("m", "M"), w.sizes("a b")
    x, y, at = w.array("X", *n, a, *m), w.array("Y", *n, b, *m), len(n)
    single = [w.reshape(w.reduce(z, (at,)), (*n, 1, *m)) for z in (x, y)]
    yield w.reduce(w.concatenate(*single, dimension=at), (at,))
    yield w.reduce(w.concatenate(x, y, dimension=at), (at,))


@RULES.state(*NUMBERS, axes="NM", most=2)
def multiple_of_reduce(w: Sketch) -> Programs:
    """Mul(c, Reduce(X)) ⇒ Reduce(Mul(c, X))."""
    n, m, c = w.sizes("n", "N"), w.sizes("m", "M"), w.array("c")
    x, reduced = w.array("X", *n, *m), range(len(n))
    yield w.op(Multiply(), w.broadcast(c, m), w.reduce(x, reduced))
    yield w.reduce(w.op(Multiply(), w.broadcast(c, (*n, *m)), x), reduced)


@RULES.state(*NUMBERS, axes="NML", most=2)
def reduce_of_transpose(w: Sketch) -> Programs:
    """Reduce(Transpose(X)) ⇒ Transpose(Reduce(X))."""
    n, m, k = w.sizes("n", "N"), w.sizes("m", "M"), w.sizes("k", "L")
    x, rank = w.array("X", *n, *m, *k), len(n) + len(m) + len(k)
    first, second = len(n), len(n) + len(m)
    order = (*range(second, rank), *range(first), *range(first, second))
    yield w.reduce(w.transpose(x, order), range(len(k), len(k) + first))
    yield w.transpose(w.reduce(x, range(first)), (*range(len(m), len(m) + len(k)), *range(len(m))))


@RULES.state(*NUMBERS, axes="NML", most=2)
def reduce_twice(w: Sketch) -> Programs:
    """Reduce(Reduce(X)) ⇒ Reduce(X)."""
    n, m, k = w.sizes("n", "N"), w.sizes("m", "M"), w.sizes("k", "L")
    x = w.array("X", *n, *m, *k)
    yield w.reduce(w.reduce(x, range(len(n))), range(len(m)))
    yield w.reduce(x, range(len(n) + len(m)))


@RULES.state(*NUMBERS, axes="NM", most=1)
def reduce_of_dot(w: Sketch) -> Programs:
    """Reduce(Dot(X, Y)) ⇒ Dot(X, Y), a batch dimension contracted."""
    n, m, (b, c) = w.sizes("n", "N"), w.sizes("m", "M"), w.sizes("b c")
    x, y = w.array("X", b, c, *n), w.array("Y", b, c, *m)
    yield w.reduce(w.dot(x, y, ((1,), (1,)), ((0,), (0,))), (0,))
    yield w.dot(x, y, ((0, 1), (0, 1)))


@RULES.state(*NUMBERS, axes="NM")
def reduce_of_size_one(w: Sketch) -> Programs:
    """Reduce(X) ⇒ Reshape(X), along dimensions of size 1."""
    n, m = w.sizes("n", "N"), w.sizes("m", "M")
    w.require(size == 1 for size in n)
    x = w.array("X", *n, *m)
    yield w.reduce(x, range(len(n)))
    yield w.reshape(x, m)


@RULES.state(*NUMBERS, axes="NM")
def reduce_of_transposed_size_one(w: Sketch) -> Programs:
    """Reduce(Transpose(X)) ⇒ Reshape(X), along dimensions of size 1."""
    n, m = w.sizes("n", "N"), w.sizes("m", "M")
    w.require(size == 1 for size in n)
    x, rank = w.array("X", *n, *m), len(n) + len(m)
    moved = w.transpose(x, (*range(len(n), rank), *range(len(n))))
    yield w.reduce(moved, range(len(m), rank))
    yield w.reshape(x, m)


# -- dot


@RULES.state(*NUMBERS, axes="NM", most=1)
def dot_of_concatenates(w: Sketch) -> Programs:
    """Dot(Concat(X, Y), Concat(C, D)) ⇒ Reduce(Concat(Dot(X, C), Dot(Y, D)))."""
    n, m, (a, b) = w.sizes("n", "N"), w.sizes("m", "M"), w.sizes("a b")
    x, y, c, d = w.array("X", a, *n), w.array("Y", b, *n), w.array("C", a, *m), w.array("D", b, *m)
    inner = ((0,), (0,))
    yield w.dot(w.concatenate(x, y, dimension=0), w.concatenate(c, d, dimension=0), inner)
    single = [w.reshape(w.dot(p, q, inner), (1, *n, *m)) for p, q in ((x, c), (y, d))]
    yield w.reduce(w.concatenate(*single, dimension=0), (0,))


@RULES.state(*NUMBERS, axes="NM", most=1)
def dot_swapped(w: Sketch) -> Programs:
    """Dot(A, B) ⇒ Transpose(Dot(B, A))."""
    n, m, (b, c) = w.sizes("n", "N"), w.sizes("m", "M"), w.sizes("b c")
    x, y = w.array("A", b, c, *n), w.array("B", b, c, *m)
    inner, batch = ((1,), (1,)), ((0,), (0,))
    yield w.dot(x, y, inner, batch)
    order = (0, *range(1 + len(m), 1 + len(m) + len(n)), *range(1, 1 + len(m)))
    yield w.transpose(w.dot(y, x, inner, batch), order)


@RULES.state(*NUMBERS)
def dot_regrouped(w: Sketch) -> Programs:
    """Dot(A, Dot(B, C)) ⇒ Dot(Dot(A, B), C)."""
    n, m, k, j = w.sizes("n m k j")
    a, b, c = w.array("A", n, m), w.array("B", m, k), w.array("C", k, j)
    inner = ((1,), (0,))
    yield w.dot(a, w.dot(b, c, inner), inner)
    yield w.dot(w.dot(a, b, inner), c, inner)


@RULES.state(*NUMBERS, axes="BNM", most=2)
def dot_without_contraction(w: Sketch) -> Programs:
    """Dot(A, B) ⇒ Mul(Broadcast(A), Broadcast(B)), without contracting dimensions."""
    b, n, m = w.sizes("b", "B"), w.sizes("n", "N"), w.sizes("m", "M")
    x, y, batch = w.array("A", *b, *n), w.array("B", *b, *m), range(len(b))
    sizes, rank = (*b, *n, *m), len(b) + len(n) + len(m)
    yield w.dot(x, y, ((), ()), (batch, batch))
    second = (*batch, *range(len(b) + len(n), rank))
    spread = w.op_broadcast(x, sizes, range(len(b) + len(n))), w.op_broadcast(y, sizes, second)
    yield w.op(Multiply(), *spread)


@RULES.state(*NUMBERS, axes="NM", most=1)
def dot_of_nothing(w: Sketch) -> Programs:
    """Dot(A, B) ⇒ 0, where some dimension has no elements."""
    n, m, (b, c) = w.sizes("n", "N"), w.sizes("m", "M"), w.sizes("b c")
    w.require(any(size == 0 for size in (*n, *m, b, c)))
    x, y = w.array("A", b, c, *n), w.array("B", b, c, *m)
    yield w.dot(x, y, ((1,), (1,)), ((0,), (0,)))
    yield w.constant(0, b, *n, *m)


@RULES.state(*NUMBERS, axes="BNC", most=2)
def dot_as_reduce(w: Sketch) -> Programs:
    """Dot(A, B) ⇒ Reduce(Mul(A, Broadcast(B))), where B has only batch and contracting dimensions."""
    b, n, c = w.sizes("b", "B"), w.sizes("n", "N"), w.sizes("c", "C")
    x, y = w.array("A", *b, *n, *c), w.array("B", *b, *c)
    batch, rows = range(len(b)), len(b) + len(n)
    inner = range(rows, rows + len(c))
    yield w.dot(x, y, (inner, range(len(b), len(b) + len(c))), (batch, batch))
    spread = w.op_broadcast(y, (*b, *n, *c), (*batch, *inner))
    yield w.reduce(w.op(Multiply(), x, spread), inner)


# -- convolution


def _convolution(
    w: Sketch, x: HloInstruction, kernel: HloInstruction, window: Sequence[WindowDimension]
) -> HloInstruction:
    """Return a convolution of batch, features, space with input features, output features, space."""
    space = tuple(range(2, 2 + len(window)))
    labels = ConvolutionDimensionNumbers(0, 1, space, 0, 1, space, 0, 1, space)
    return w.op(Convolution(window=tuple(window), dim_labels=labels), x, kernel)


def _arrays(w: Sketch) -> tuple[HloInstruction, HloInstruction, list[int], list[int]]:
    """Return input and kernel, and the sizes of both in space."""
    batch, features, outputs = w.sizes("batch features outputs")
    n, k = w.sizes("n k", "N")
    x, kernel = w.array("X", batch, features, *n), w.array("K", features, outputs, *k)
    return x, kernel, n, k


@RULES.state(*NUMBERS, axes="N", most=2)
def convolution_of_pad(w: Sketch) -> Programs:
    """Conv(Pad(X, 0), K) ⇒ Conv(X, K), the padding in the window, without base dilation."""
    x, kernel, n, k = _arrays(w)
    low, high, holes, before, behind, stride, step = w.sizes("low high holes left right stride step", "N")
    w.require(size >= 1 for size in n)
    none = [0, 0]
    padded = w.pad(x, w.constant(0), (*none, *low), (*none, *high), (*none, *holes))
    dims = list(zip(k, stride, before, behind, step, low, high, holes, strict=True))
    yield _convolution(w, padded, kernel, [WindowDimension(s, p, a, b, d) for s, p, a, b, d, *_ in dims])
    window = [WindowDimension(s, p, a + x_, b + y_, d, h + 1) for s, p, a, b, d, x_, y_, h in dims]
    yield _convolution(w, x, kernel, window)


@RULES.state(*NUMBERS, axes="N", most=2)
def convolution_of_padded_kernel(w: Sketch) -> Programs:
    """Conv(X, Pad(K, 0)) ⇒ Conv(X, K), the interior padding as dilation of the window."""
    x, kernel, _, k = _arrays(w)
    before, behind, stride, holes = w.sizes("left right stride holes", "N")
    w.require(size >= 1 for size in k)
    none = [0] * kernel.shape.rank
    padded = w.pad(kernel, w.constant(0), none, none, (0, 0, *holes))
    sizes = padded.shape.dimensions[2:]
    first = [WindowDimension(*dims) for dims in zip(sizes, stride, before, behind, strict=True)]
    yield _convolution(w, x, padded, first)
    second = [
        WindowDimension(s, p, a, b, h + 1)
        for s, p, a, b, h in zip(k, stride, before, behind, holes, strict=True)
    ]
    yield _convolution(w, x, kernel, second)


@RULES.state(*NUMBERS)
def convolution_as_dot(w: Sketch) -> Programs:
    """Conv(A, B) ⇒ Dot(A, B), windows of one element and windows of a whole dimension."""
    batch, features, outputs, n, m = w.sizes("batch features outputs n m")
    x, kernel = w.array("A", batch, features, n, m), w.array("B", features, outputs, n, 1)
    w.require(n >= 1)
    yield _convolution(w, x, kernel, [WindowDimension(n), WindowDimension(1)])
    flat = w.reshape(kernel, (features, outputs, n))
    product = w.dot(x, flat, ((1, 2), (0, 2)))
    yield w.reshape(w.transpose(product, (0, 2, 1)), (batch, outputs, 1, m))
