"""Small programs that users of XLA:CPU report as slow, each with its equivalent in NumPy or SciPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from benchmarks.scan import scan_in_numpy, scan_inputs, scan_text

Array = np.ndarray[Any, Any]
ADD = "add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT s = f32[] add(a, b) }\n"
MAX = "max { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT s = f32[] maximum(a, b) }\n"
LESS = (
    "less { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = pred[] compare(a, b), direction=LT }\n"
)
LESS_PAIR = """less {
  a = f32[] parameter(0)  b = f32[] parameter(1)  i = s32[] parameter(2)  j = s32[] parameter(3)
  ROOT c = pred[] compare(a, b), direction=LT
}
"""
LARGER = """larger {
  v = f32[] parameter(0)  i = s32[] parameter(1)  w = f32[] parameter(2)  j = s32[] parameter(3)
  greater = pred[] compare(v, w), direction=GT
  unordered = pred[] compare(v, v), direction=NE
  first = pred[] or(greater, unordered)
  value = f32[] select(first, v, w)
  equal = pred[] compare(v, w), direction=EQ
  earlier = pred[] compare(i, j), direction=LT
  tie = pred[] and(equal, earlier)
  keep = pred[] or(first, tie)
  place = s32[] select(keep, i, j)
  ROOT best = (f32[], s32[]) tuple(value, place)
}
"""


@dataclass(frozen=True)
class Complaint:
    """A program with its equivalent in a library.

    Attributes:
        name: a short name.
        text: the program as HLO text.
        inputs: its arguments.
        library: the equivalent in NumPy or SciPy; None if there is none.
        source: the issue of jax (J) or of XLA (X) that reports it.
    """

    name: str
    text: str
    inputs: Sequence[Array]
    library: Callable[..., Any] | None = None
    source: str = ""


def program(body: str, computations: str = "") -> str:
    """Return a module whose entry has these instructions."""
    return f"HloModule complaint\n\n{computations}\nENTRY main {{\n{body}\n}}\n"


def drawn(*sizes: int, seed: int = 0) -> Array:
    """Return normally distributed numbers."""
    return np.random.default_rng(seed).normal(size=sizes).astype(np.float32)


# -- loops


def scalar_loop(iterations: int = 10_000) -> Complaint:
    """Run a loop over scalars: a congruential generator, and a sum of its numbers."""
    computations = f"""
more {{ s = (s32[], u32[], f32[]) parameter(0)  i = s32[] get-tuple-element(s), index=0
       n = s32[] constant({iterations})  ROOT c = pred[] compare(i, n), direction=LT }}
step {{
  s = (s32[], u32[], f32[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  state = u32[] get-tuple-element(s), index=1
  sum = f32[] get-tuple-element(s), index=2
  one = s32[] constant(1)
  j = s32[] add(i, one)
  factor = u32[] constant(1664525)
  offset = u32[] constant(1013904223)
  product = u32[] multiply(state, factor)
  next = u32[] add(product, offset)
  nine = u32[] constant(9)
  high = u32[] shift-right-logical(next, nine)
  value = f32[] convert(high)
  scale = f32[] constant(1.1920929e-07)
  unit = f32[] multiply(value, scale)
  half = f32[] constant(0.5)
  centred = f32[] subtract(unit, half)
  total = f32[] add(sum, centred)
  ROOT r = (s32[], u32[], f32[]) tuple(j, next, total)
}}"""
    body = """
  seed = u32[] parameter(0)
  zero = s32[] constant(0)
  nothing = f32[] constant(0)
  start = (s32[], u32[], f32[]) tuple(zero, seed, nothing)
  ROOT end = (s32[], u32[], f32[]) while(start), condition=more, body=step"""
    return Complaint("loop of scalars", program(body, computations), [np.uint32(7)], source="J26145")


def scan() -> Complaint:
    """Run a thousand steps of ``tanh(A x)``."""
    return Complaint("scan of small steps", scan_text(), scan_inputs(), scan_in_numpy, "J36799, J40150")


# -- order


def argsort(rows: int = 256, size: int = 1024) -> Complaint:
    """Sort every row, returning the order."""
    body = f"""
  x = f32[{rows},{size}] parameter(0)
  i = s32[{rows},{size}] iota(), iota_dimension=1
  sorted = (f32[{rows},{size}], s32[{rows},{size}]) sort(x, i), dimensions={{1}}, is_stable=true,
    to_apply=less
  ROOT order = s32[{rows},{size}] get-tuple-element(sorted), index=1"""
    return Complaint(
        "argsort of rows",
        program(body, LESS_PAIR),
        [drawn(rows, size)],
        lambda x: np.argsort(x, axis=1, kind="stable"),
    )


def median(rows: int = 512, size: int = 1001) -> Complaint:
    """Return the median of every row, by sorting it."""
    middle = size // 2
    body = f"""
  x = f32[{rows},{size}] parameter(0)
  sorted = f32[{rows},{size}] sort(x), dimensions={{1}}, to_apply=less
  cut = f32[{rows},1] slice(sorted), slice={{[0:{rows}], [{middle}:{middle + 1}]}}
  ROOT r = f32[{rows}] reshape(cut)"""
    return Complaint(
        "median of rows", program(body, LESS), [drawn(rows, size)], lambda x: np.median(x, axis=1)
    )


def cumsum(rows: int = 256, size: int = 4096) -> Complaint:
    """Return the cumulative sums of every row: a window as wide as the row."""
    body = f"""
  x = f32[{rows},{size}] parameter(0)
  zero = f32[] constant(0)
  ROOT r = f32[{rows},{size}] reduce-window(x, zero), window={{size=1x{size} pad=0_0x{size - 1}_0}},
    to_apply=add"""
    return Complaint(
        "cumsum of rows", program(body, ADD), [drawn(rows, size)], lambda x: np.cumsum(x, axis=1)
    )


def cummax(rows: int = 4096, size: int = 256) -> Complaint:
    """Return the cumulative maxima of every column."""
    body = f"""
  x = f32[{rows},{size}] parameter(0)
  least = f32[] constant(-inf)
  ROOT r = f32[{rows},{size}] reduce-window(x, least), window={{size={rows}x1 pad={rows - 1}_0x0_0}},
    to_apply=max"""
    return Complaint(
        "cummax of columns",
        program(body, MAX),
        [drawn(rows, size)],
        lambda x: np.maximum.accumulate(x, axis=0),
    )


def argmax(rows: int = 2048, size: int = 2048) -> Complaint:
    """Return the index of every row's largest element, as JAX writes it."""
    body = f"""
  x = f32[{rows},{size}] parameter(0)
  i = s32[{rows},{size}] iota(), iota_dimension=1
  least = f32[] constant(-inf)
  zero = s32[] constant(0)
  both = (f32[{rows}], s32[{rows}]) reduce(x, i, least, zero), dimensions={{1}}, to_apply=larger
  ROOT r = s32[{rows}] get-tuple-element(both), index=1"""
    return Complaint(
        "argmax of rows", program(body, LARGER), [drawn(rows, size)], lambda x: np.argmax(x, axis=1)
    )


# -- scatter


def scatter_add(rows: int = 20_000, size: int = 64, table: int = 5_000) -> Complaint:
    """Add rows into a table, as the gradient of an embedding does."""
    body = f"""
  t = f32[{table},{size}] parameter(0)
  i = s32[{rows},1] parameter(1)
  u = f32[{rows},{size}] parameter(2)
  ROOT r = f32[{table},{size}] scatter(t, i, u), update_window_dims={{1}}, inserted_window_dims={{0}},
    scatter_dims_to_operand_dims={{0}}, index_vector_dim=1, to_apply=add"""
    places = np.random.default_rng(1).integers(0, table, (rows, 1)).astype(np.int32)

    def library(t: Array, i: Array, u: Array) -> Array:
        made = t.copy()
        np.add.at(made, i[:, 0], u)
        return made

    inputs = [drawn(table, size), places, drawn(rows, size, seed=2)]
    return Complaint("scatter-add of rows", program(body, ADD), inputs, library)


def histogram(size: int = 1 << 20, bins: int = 256) -> Complaint:
    """Add single numbers into a few bins."""
    body = f"""
  i = s32[{size},1] parameter(0)
  u = f32[{size}] parameter(1)
  zero = f32[] constant(0)
  t = f32[{bins}] broadcast(zero), dimensions={{}}
  ROOT r = f32[{bins}] scatter(t, i, u), update_window_dims={{}}, inserted_window_dims={{0}},
    scatter_dims_to_operand_dims={{0}}, index_vector_dim=1, to_apply=add"""
    places = np.random.default_rng(1).integers(0, bins, (size, 1)).astype(np.int32)
    ones = np.ones(size, np.float32)
    return Complaint(
        "histogram",
        program(body, ADD),
        [places, ones],
        lambda i, u: np.bincount(i[:, 0], u, bins).astype(np.float32),
    )


# -- convolution


def depthwise(batch: int = 8, size: int = 56, channels: int = 64) -> Complaint:
    """Convolve every channel separately with 3 x 3 windows."""
    body = f"""
  x = f32[{batch},{size},{size},{channels}] parameter(0)
  w = f32[3,3,1,{channels}] parameter(1)
  ROOT r = f32[{batch},{size - 2},{size - 2},{channels}] convolution(x, w), window={{size=3x3}},
    dim_labels=b01f_01io->b01f, feature_group_count={channels}"""

    def library(x: Array, w: Array) -> Array:
        windows = sliding_window_view(x, (3, 3), (1, 2))
        return np.einsum("bhwcij,ijc->bhwc", windows, w[:, :, 0], optimize=True)

    inputs = [drawn(batch, size, size, channels), drawn(3, 3, 1, channels, seed=1)]
    return Complaint("depthwise convolution", program(body), inputs, library)


def grouped(batch: int = 4, size: int = 28, channels: int = 128, groups: int = 32) -> Complaint:
    """Convolve groups of four channels with 3 x 3 windows."""
    each = channels // groups
    body = f"""
  x = f32[{batch},{size},{size},{channels}] parameter(0)
  w = f32[3,3,{each},{channels}] parameter(1)
  ROOT r = f32[{batch},{size - 2},{size - 2},{channels}] convolution(x, w), window={{size=3x3}},
    dim_labels=b01f_01io->b01f, feature_group_count={groups}"""

    def library(x: Array, w: Array) -> Array:
        windows = sliding_window_view(x, (3, 3), (1, 2))
        split = windows.reshape(batch, size - 2, size - 2, groups, each, 3, 3)
        kernel = w.reshape(3, 3, each, groups, each)
        made = np.einsum("bhwgcij,ijcgo->bhwgo", split, kernel, optimize=True)
        return made.reshape(batch, size - 2, size - 2, channels)

    inputs = [drawn(batch, size, size, channels), drawn(3, 3, each, channels, seed=1)]
    return Complaint("grouped convolution", program(body), inputs, library)


def transposed(batch: int = 4, size: int = 32, channels: int = 64) -> Complaint:
    """Convolve transposed with 4 x 4 windows and stride 2, which doubles the size of an image."""
    body = f"""
  x = f32[{batch},{size},{size},{channels}] parameter(0)
  w = f32[4,4,{channels},{channels}] parameter(1)
  ROOT r = f32[{batch},{2 * size},{2 * size},{channels}] convolution(x, w),
    window={{size=4x4 pad=2_2x2_2 lhs_dilate=2x2}}, dim_labels=b01f_01io->b01f"""

    def library(x: Array, w: Array) -> Array:
        wide = np.zeros((batch, 2 * size + 3, 2 * size + 3, channels), np.float32)
        wide[:, 2 : 2 * size + 2 : 2, 2 : 2 * size + 2 : 2] = x
        return np.tensordot(sliding_window_view(wide, (4, 4), (1, 2)), w, ((4, 5, 3), (0, 1, 2)))

    inputs = [drawn(batch, size, size, channels), drawn(4, 4, channels, channels, seed=1)]
    return Complaint("transposed convolution", program(body), inputs, library)


def one_dimensional(batch: int = 8, size: int = 4096, channels: int = 32, features: int = 64) -> Complaint:
    """Convolve a sequence with a window of nine."""
    body = f"""
  x = f32[{batch},{size},{channels}] parameter(0)
  w = f32[9,{channels},{features}] parameter(1)
  ROOT r = f32[{batch},{size - 8},{features}] convolution(x, w), window={{size=9}}, dim_labels=b0f_0io->b0f"""
    inputs = [drawn(batch, size, channels), drawn(9, channels, features, seed=1)]
    return Complaint(
        "1-D convolution",
        program(body),
        inputs,
        lambda x, w: np.tensordot(sliding_window_view(x, 9, 1), w, ((3, 2), (0, 1))),
    )


def three_dimensional(depth: int = 16, size: int = 32, channels: int = 16, features: int = 32) -> Complaint:
    """Convolve a volume with 3 x 3 x 3 windows."""
    body = f"""
  x = f32[2,{depth},{size},{size},{channels}] parameter(0)
  w = f32[3,3,3,{channels},{features}] parameter(1)
  ROOT r = f32[2,{depth - 2},{size - 2},{size - 2},{features}] convolution(x, w), window={{size=3x3x3}},
    dim_labels=b012f_012io->b012f"""

    def library(x: Array, w: Array) -> Array:
        windows = sliding_window_view(x, (3, 3, 3), (1, 2, 3))
        return np.tensordot(windows, w, ((5, 6, 7, 4), (0, 1, 2, 3)))

    inputs = [drawn(2, depth, size, size, channels), drawn(3, 3, 3, channels, features, seed=1)]
    return Complaint("3-D convolution", program(body), inputs, library)


# -- batches of small matrices


def positive_definite(count: int, size: int) -> Array:
    """Return matrices that have a Cholesky factor."""
    x = drawn(count, size, size)
    return x @ x.transpose(0, 2, 1) + size * np.eye(size, dtype=np.float32)


def cholesky(count: int = 10_000, size: int = 3) -> Complaint:
    """Factor tiny matrices; the unspecified upper triangle is zeroed."""
    body = f"""
  a = f32[{count},{size},{size}] parameter(0)
  c = f32[{count},{size},{size}] cholesky(a), lower=true
  i = s32[{count},{size},{size}] iota(), iota_dimension=1
  j = s32[{count},{size},{size}] iota(), iota_dimension=2
  inside = pred[{count},{size},{size}] compare(i, j), direction=GE
  zero = f32[] constant(0)
  zeros = f32[{count},{size},{size}] broadcast(zero), dimensions={{}}
  ROOT r = f32[{count},{size},{size}] select(inside, c, zeros)"""
    inputs = [positive_definite(count, size)]
    return Complaint("Cholesky of 10,000 3 x 3", program(body), inputs, np.linalg.cholesky)


def solve(count: int = 10_000, size: int = 4) -> Complaint:
    """Solve triangular systems of four equations."""
    body = f"""
  a = f32[{count},{size},{size}] parameter(0)
  b = f32[{count},{size},2] parameter(1)
  ROOT x = f32[{count},{size},2] triangular-solve(a, b), left_side=true, lower=true,
    transpose_a=NO_TRANSPOSE"""
    a = np.tril(positive_definite(count, size))
    return Complaint("10,000 triangular 4 x 4", program(body), [a, drawn(count, size, 2)], np.linalg.solve)


def tiny_products(count: int = 100_000, size: int = 4) -> Complaint:
    """Multiply tiny matrices."""
    body = f"""
  a = f32[{count},{size},{size}] parameter(0)
  b = f32[{count},{size},{size}] parameter(1)
  ROOT c = f32[{count},{size},{size}] dot(a, b), lhs_batch_dims={{0}}, rhs_batch_dims={{0}},
    lhs_contracting_dims={{2}}, rhs_contracting_dims={{1}}"""
    inputs = [drawn(count, size, size), drawn(count, size, size, seed=1)]
    return Complaint("100,000 products 4 x 4", program(body), inputs, np.matmul)


# -- reductions


def leading_sum(rows: int = 4096, size: int = 1000) -> Complaint:
    """Sum columns."""
    body = f"""
  x = f32[{rows},{size}] parameter(0)
  zero = f32[] constant(0)
  ROOT r = f32[{size}] reduce(x, zero), dimensions={{0}}, to_apply=add"""
    return Complaint("sum of columns", program(body, ADD), [drawn(rows, size)], lambda x: np.sum(x, axis=0))


def mixed_sum() -> Complaint:
    """Sum over the first and the third of four dimensions."""
    body = """
  x = f32[64,32,64,30] parameter(0)
  zero = f32[] constant(0)
  ROOT r = f32[32,30] reduce(x, zero), dimensions={0,2}, to_apply=add"""
    return Complaint(
        "sum over axes 0 and 2", program(body, ADD), [drawn(64, 32, 64, 30)], lambda x: np.sum(x, axis=(0, 2))
    )


def pairs(size: int = 4096) -> Complaint:
    """Compute ``sum_j exp(-(x_i - y_j)^2) w_j`` without storing the matrix of all pairs."""
    shape = f"f32[{size},{size}]"
    body = f"""
  x = f32[{size}] parameter(0)
  y = f32[{size}] parameter(1)
  w = f32[{size}] parameter(2)
  xx = {shape} broadcast(x), dimensions={{0}}
  yy = {shape} broadcast(y), dimensions={{1}}
  ww = {shape} broadcast(w), dimensions={{1}}
  d = {shape} subtract(xx, yy)
  square = {shape} multiply(d, d)
  minus = {shape} negate(square)
  e = {shape} exponential(minus)
  product = {shape} multiply(e, ww)
  zero = f32[] constant(0)
  ROOT r = f32[{size}] reduce(product, zero), dimensions={{1}}, to_apply=add"""
    inputs = [drawn(size), drawn(size, seed=1), drawn(size, seed=2)]
    return Complaint(
        "sum of f(x_i, y_j)",
        program(body, ADD),
        inputs,
        lambda x, y, w: np.exp(-((x[:, None] - y) ** 2)) @ w,
        "J49131",
    )


# -- compile time and memory


def folded_sort(size: int = 20_000) -> Complaint:
    """Compile a program with a constant that takes long to fold."""
    numbers = ",".join(str(i * 7919 % 10007) for i in range(size))
    body = f"""
  x = f32[{size}] parameter(0)
  c = f32[{size}] constant({{{numbers}}})
  sorted = f32[{size}] sort(c), dimensions={{0}}, to_apply=less
  ROOT r = f32[{size}] add(x, sorted)"""
    c = np.arange(size) * 7919 % 10007
    return Complaint(
        "folding of a sort",
        program(body, LESS),
        [drawn(size)],
        lambda x: x + np.sort(c).astype(np.float32),
        "X1652, X5162",
    )


def folded_convolution(size: int = 96, window: int = 24) -> Complaint:
    """Compile a large constant made of small ones, and a convolution of it."""
    row = ",".join(f"{0.01 * i:.2f}" for i in range(size))
    taps = ",".join(f"{1 / (i + 1):.4f}" for i in range(window))
    left = size - window + 1
    body = f"""
  x = f32[{left},{left}] parameter(0)
  c = f32[{size}] constant({{{row}}})
  k = f32[{window}] constant({{{taps}}})
  image = f32[{size},{size}] dot(c, c), lhs_contracting_dims={{}}, rhs_contracting_dims={{}}
  kernel = f32[{window},{window}] dot(k, k), lhs_contracting_dims={{}}, rhs_contracting_dims={{}}
  a = f32[1,{size},{size},1] reshape(image)
  b = f32[{window},{window},1,1] reshape(kernel)
  f = f32[1,{left},{left},1] convolution(a, b), window={{size={window}x{window}}}, dim_labels=b01f_01io->b01f
  g = f32[{left},{left}] reshape(f)
  ROOT r = f32[{left},{left}] add(x, g)"""
    return Complaint("folding of a convolution", program(body), [drawn(left, left)], source="X1652, X5162")


def many_temporaries(count: int = 100, size: int = 256) -> Complaint:
    """Sum a hundred products, which fit into memory only one after the other."""
    shape = f"f32[{size},{size}]"
    lines = [f"  x = {shape} parameter(0)", f"  y = {shape} parameter(1)"]
    for n in range(count):
        lines += [
            f"  factor{n} = f32[] constant({0.01 * (n + 1):.2f})",
            f"  wide{n} = {shape} broadcast(factor{n}), dimensions={{}}",
            f"  angle{n} = {shape} multiply(x, wide{n})",
            f"  sin{n} = {shape} sine(angle{n})",
            f"  product{n} = {shape} dot(sin{n}, y), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}",
        ]
    lines.append(f"  sum1 = {shape} add(product0, product1)")
    lines += [f"  sum{n} = {shape} add(sum{n - 1}, product{n})" for n in range(2, count)]
    lines.append(f"  ROOT r = {shape} negate(sum{count - 1})")

    def library(x: Array, y: Array) -> Array:
        return -sum(np.sin(x * np.float32(0.01 * (n + 1))) @ y for n in range(count))

    inputs = [drawn(size, size), drawn(size, size, seed=1)]
    return Complaint("a hundred temporaries", program("\n".join(lines)), inputs, library, "J35719")


COMPLAINTS: tuple[Callable[[], Complaint], ...] = (
    scan, scalar_loop, argsort, median, cumsum, cummax, argmax, scatter_add, histogram, depthwise, grouped,
    transposed, one_dimensional, three_dimensional, cholesky, solve, tiny_products, leading_sum, mixed_sum,
    pairs, folded_sort, folded_convolution, many_temporaries,
)  # fmt: skip
