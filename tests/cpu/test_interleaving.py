"""Results with narrow rows: rows in lanes, columns woven together."""

from __future__ import annotations

import numpy as np
import pytest

from hloom.codegen.llvm import print_module
from tests.native_runs import agree, arguments, compiled

KINDS = ["f32", "f64", "bf16", "f16", "u8", "pred", "c64", "c128", "s4", "u64"]


def stacked(kind: str, rows: int, columns: int) -> str:
    """Columns side by side, every second one doubled on its way."""
    lines: list[str] = []
    for n in range(columns):
        lines.append(f"p{n} = {kind}[{rows}] parameter({n})")
        lines.append(
            f"x{n} = {kind}[{rows}] add(p{n}, p{n})" if n % 2 else f"x{n} = {kind}[{rows}] copy(p{n})"
        )
        lines.append(f"y{n} = {kind}[{rows},1] reshape(x{n})")
    names = ", ".join(f"y{n}" for n in range(columns))
    return "\n".join([*lines, f"ROOT r = {kind}[{rows},{columns}] concatenate({names}), dimensions={{1}}"])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("columns", [2, 3, 4, 7])
@pytest.mark.parametrize("rows", [5, 32, 131])
def test_columns_side_by_side(kind: str, columns: int, rows: int) -> None:
    text = stacked(kind, rows, columns)
    agree(text, *arguments(np.random.default_rng(0), text))


def test_many_columns_of_bytes_are_interleaved_in_stages() -> None:
    """Each of 15 vectors is chosen from 5, then from 3; LLVM takes seconds for chains of 14 shuffles."""
    code = print_module(compiled(stacked("s8", 4096, 15)).program.module)
    assert code.count("shufflevector") == 15 * (4 + 2)


BLOCKS = [(64, 3, 4), (37, 4, 3), (3, 40, 5, 3), (20, 2, 2), (9, 7, 2), (100, 3, 3)]
OF_EVERY_WIDTH = ["c128", "c64", "f64", "f32", "bf16", "u8"]
TRANSPOSED = [
    *((kind, sizes) for kind in OF_EVERY_WIDTH for sizes in BLOCKS),
    *((kind, sizes) for kind in KINDS if kind not in OF_EVERY_WIDTH for sizes in BLOCKS[:1] + BLOCKS[3:4]),
]
"""Elements are only moved: a type of each width has all sizes."""


@pytest.mark.parametrize(("kind", "sizes"), TRANSPOSED)
def test_transposed_blocks(kind: str, sizes: tuple[int, ...]) -> None:
    rank = len(sizes)
    order = [*range(rank - 2), rank - 1, rank - 2]
    before, after = (",".join(map(str, s)) for s in (sizes, [sizes[d] for d in order]))
    text = f"""
    x = {kind}[{before}] parameter(0)
    ROOT r = {kind}[{after}] transpose(x), dimensions={{{",".join(map(str, order))}}}"""
    agree(text, *arguments(np.random.default_rng(0), text))


def test_one_column_of_many() -> None:
    text = """
    x = f32[500,9] parameter(0)
    a = f32[500,1] slice(x), slice={[0:500], [2:3]}
    b = f32[500,1] slice(x), slice={[0:500], [8:9]}
    c = f32[500,1] multiply(a, b)
    ROOT r = f32[500] reshape(c)"""
    agree(text, *arguments(np.random.default_rng(0), text))


@pytest.mark.parametrize("count", [100, 101])
@pytest.mark.parametrize("step", [2, 3, 4, 5, 6, 7, 8, 11, 12, 13])
@pytest.mark.parametrize("start", [0, 1])
def test_every_so_many(step: int, start: int, count: int) -> None:
    size = start + (count - 1) * step + 1
    text = f"""
    x = f32[{size}] parameter(0)
    a = f32[{count}] slice(x), slice={{[{start}:{size}:{step}]}}
    ROOT r = f32[{count}] negate(a)"""
    agree(text, *arguments(np.random.default_rng(0), text))


def test_reversed_and_padded_rows_with_two_results() -> None:
    text = """
    x = f32[70,3] parameter(0)
    y = f32[70] parameter(1)
    v = f32[70,3] reverse(x), dimensions={1}
    w = f32[70,1] reshape(y)
    z = f32[] constant(7)
    q = f32[70,3] pad(w, z), padding=0_0x1_1
    s = f32[70,3] add(v, q)
    t = f32[70,3] broadcast(y), dimensions={0}
    u = f32[70,3] subtract(t, v)
    k = s32[70,3] iota(), iota_dimension=1
    ROOT r = (f32[70,3], f32[70,3], s32[70,3]) tuple(s, u, k)"""
    agree(text, *arguments(np.random.default_rng(0), text))


@pytest.mark.parametrize(
    "text",
    [
        "x = s16[5,6,2]{1,2,0} parameter(0)\nz = s16[] parameter(1)\n"
        "ROOT r = s16[13,2,2] pad(x, z), padding=3_1_1x-1_-3x0_0",
        "x = s16[7,4,2,2]{1,3,2,0} parameter(0)\nz = s16[] parameter(1)\n"
        "ROOT r = s16[8,3,2,2]{1,3,0,2} pad(x, z), padding=-2_-3_1x-3_-1_1x0_0x0_0",
        "x = f32[9,2,3] parameter(0)\nz = f32[] parameter(1)\n"
        "ROOT r = f32[17,2,3] pad(x, z), padding=0_0_1x0_0x0_0",
        "x = u64[6,1,2,4] parameter(0)\nz = u64[] parameter(1)\n"
        "ROOT r = u64[8,3,2,3] pad(x, z), padding=2_0_0x-1_3_1x-2_1_1x0_-1_0",
    ],
    ids=["cropped", "permuted", "spread", "one period"],
)  # fmt: skip
def test_columns_of_merged_dimensions_lie_within_each(text: str) -> None:
    """A column of two dimensions has an index in each, which conditions of the padding look at."""
    agree(text, *arguments(np.random.default_rng(0), text))


@pytest.mark.parametrize("rows", [5, 64, 131])
def test_bits_of_bytes(rows: int) -> None:
    text = f"""
    x = u8[{rows}] parameter(0)
    one = u8[] constant(1)
    ones = u8[8] broadcast(one), dimensions={{}}
    places = u8[8] iota(), iota_dimension=0
    bits = u8[8] shift-left(ones, places)
    columns = u8[{rows},8] broadcast(bits), dimensions={{1}}
    bytes = u8[{rows},8] broadcast(x), dimensions={{0}}
    chosen = u8[{rows},8] and(bytes, columns)
    zero = u8[] constant(0)
    nothing = u8[{rows},8] broadcast(zero), dimensions={{}}
    ROOT r = pred[{rows},8] compare(chosen, nothing), direction=NE"""
    agree(text, *arguments(np.random.default_rng(0), text))


def test_gathers_side_by_side_are_computed_once() -> None:
    """Lanes are rows: each of three columns is emitted by itself, and no element chooses among them."""
    lines = ["i = s32[90,1] parameter(0)", *(f"x{n} = f32[400] parameter({n + 1})" for n in range(3))]
    for n in range(3):
        lines.append(
            f"g{n} = f32[90] gather(x{n}, i), offset_dims={{}}, collapsed_slice_dims={{0}}, "
            "start_index_map={0}, index_vector_dim=1, slice_sizes={1}"
        )
        lines.append(f"y{n} = f32[90] add(g{n}, g{n})")
        lines.append(f"z{n} = f32[90,1] reshape(y{n})")
    text = "\n".join([*lines, "ROOT r = f32[90,3] concatenate(z0, z1, z2), dimensions={1}"])
    rng = np.random.default_rng(0)
    agree(
        text, rng.integers(-2, 405, (90, 1)).astype(np.int32), *rng.normal(size=(3, 400)).astype(np.float32)
    )
    assert "masked.gather" in print_module(compiled(text).program.module)


def test_images_of_a_few_channels_are_interpolated_in_one_kernel() -> None:
    """Transposes from and to three channels are index arithmetic of a loop, beside a gather."""
    text = """
    x = f32[50,64,3] parameter(0)
    i = s32[40,64,2] parameter(1)
    w = f32[40,64] parameter(2)
    t = f32[3,50,64] transpose(x), dimensions={2,0,1}
    g = f32[3,40,64] gather(t, i), offset_dims={0}, collapsed_slice_dims={1,2}, start_index_map={1,2},
      index_vector_dim=2, slice_sizes={3,1,1}
    ws = f32[3,40,64] broadcast(w), dimensions={1,2}
    y = f32[3,40,64] multiply(g, ws)
    ROOT r = f32[40,64,3] transpose(y), dimensions={1,2,0}
    """
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(50, 64, 3)).astype(np.float32), rng.normal(size=(40, 64)).astype(np.float32)
    agree(text, x, rng.integers(-3, 70, (40, 64, 2)).astype(np.int32), w)
    entry = compiled(text).optimized.entry
    assert [i.opcode for i in entry.post_order() if i.opcode not in ("parameter", "constant")] == ["fusion"]


@pytest.mark.parametrize("kind", ["f32", "bf16", "s8", "c64", "pred", "f64"])
@pytest.mark.parametrize(("n", "period"), [(1, 2), (40, 2), (37, 3), (33, 4), (20, 16), (9, 17)])
def test_padding_between_elements(kind: str, n: int, period: int) -> None:
    """`lax.associative_scan` joins its halves so: each array is spread, and the sum of them taken."""
    operator = "or" if kind == "pred" else "add"
    names = [f"x{k}" for k in range(min(period, 4))]
    lines = [f"{x} = {kind}[3,{n}] parameter({k})" for k, x in enumerate(names)]
    for k, x in enumerate(names):
        padding = f"0_0x{k}_{period - 1 - k}_{period - 1}"
        lines.append(f"p{k} = {kind}[3,{n * period}] pad({x}, z), padding={padding}")
        if k:
            sum_of = f"p{k}, {f'sum{k - 1}' if k > 1 else 'p0'}"
            lines.append(f"sum{k} = {kind}[3,{n * period}] {operator}({sum_of})")
    zero = "false" if kind == "pred" else "0" if kind[0] == "s" else "(0, 0)" if kind == "c64" else "0"
    lines[-1] = f"ROOT {lines[-1]}"
    text = "\n".join([f"z = {kind}[] constant({zero})", *lines])
    agree(text, *arguments(np.random.default_rng(0), text))


@pytest.mark.parametrize("padding", ["1_0_1", "-1_1_1", "-3_3_1", "2_3_2", "0_0_2", "-2_-1_1"])
def test_padding_that_begins_anywhere(padding: str) -> None:
    low, high, interior = map(int, padding.split("_"))
    size = 24 + 23 * interior + low + high
    text = f"""
      x = f32[24] parameter(0)
      y = f32[{size}] parameter(1)
      z = f32[] constant(3)
      p = f32[{size}] pad(x, z), padding={padding}
      s = f32[{size - 1}] slice(p), slice={{[0:{size - 1}]}}
      t = f32[{size - 1}] slice(y), slice={{[1:{size}]}}
      u = f32[{size - 1}] multiply(s, t)
      o = f32[1] slice(y), slice={{[0:1]}}
      v = f32[{size}] concatenate(o, u), dimensions={{0}}
      ROOT r = (f32[{size}], f32[{size}]) tuple(p, v)"""
    agree(text, *arguments(np.random.default_rng(0), text))


@pytest.mark.parametrize("kind", ["f32", "u8", "c64"])
@pytest.mark.parametrize("width", [2, 3, 5, 7, 11, 13, 15])
def test_rows_of_a_few_elements_are_read_in_vectors_of_powers_of_two(kind: str, width: int) -> None:
    text = f"""
    x = {kind}[40,{width}] parameter(0)
    i = s32[50,1] parameter(1)
    g = {kind}[50,{width}] gather(x, i), offset_dims={{1}}, collapsed_slice_dims={{0}}, start_index_map={{0}},
      index_vector_dim=1, slice_sizes={{1,{width}}}
    ROOT r = {kind}[50,{width}] add(g, g)"""
    x, _ = arguments(np.random.default_rng(0), text)
    agree(text, x, np.random.default_rng(1).integers(-3, 45, (50, 1)).astype(np.int32))


class ScanText:
    """The text of a scan of dimension 1 by halves, as in `lax.associative_scan`: pads join them again."""

    def __init__(self, kind: str, before: int, after: int) -> None:
        self.lines: list[str] = []
        self.kind, self.before, self.after = kind, before, after

    def emit(self, size: int, call: str) -> str:
        """Append an instruction of ``size`` elements along the scanned dimension; return its name."""
        name = f"v{len(self.lines)}"
        self.lines.append(f"{name} = {self.kind}[{self.before},{size},{self.after}] {call}")
        return name

    def slice(self, x: str, first: int, limit: int, step: int = 1) -> str:
        bounds = f"[0:{self.before}], [{first}:{limit}:{step}], [0:{self.after}]"
        return self.emit(-(-(limit - first) // step), f"slice({x}), slice={{{bounds}}}")

    def scan(self, x: str, size: int) -> str:
        """Append the sums of the first elements of ``x``: one, two and so on; return their name."""
        if size < 2:
            return x
        half, rest = size // 2, (size - 1) // 2
        first, second = self.slice(x, 0, 2 * half, 2), self.slice(x, 1, size, 2)
        odd = self.scan(self.emit(half, f"add({first}, {second})"), half)
        even = self.slice(x, 0, 1)
        if rest:
            left, right = self.slice(odd, 0, rest), self.slice(x, 2, size, 2)
            sums = self.emit(rest, f"add({left}, {right})")
            even = self.emit(rest + 1, f"concatenate({even}, {sums}), dimensions={{1}}")
        spread = self.emit(size, f"pad({even}, z), padding=0_0x0_{1 - size % 2}_1x0_0")
        between = self.emit(size, f"pad({odd}, z), padding=0_0x1_{size % 2}_1x0_0")
        return self.emit(size, f"add({spread}, {between})")


@pytest.mark.parametrize("kind", ["s32", "u8", "f64"])
@pytest.mark.parametrize(("before", "after"), [(1, 1), (3, 1), (1, 3), (2, 40)])
@pytest.mark.parametrize("size", [2, 3, 64, 67, 255, 257, 1002, 1003])
def test_scans_by_halves(kind: str, before: int, after: int, size: int) -> None:
    """Halves of odd lengths leave an incomplete row at the end, at any level."""
    text = ScanText(kind, before, after)
    text.lines += [f"x = {kind}[{before},{size},{after}] parameter(0)", f"z = {kind}[] constant(0)"]
    result = text.scan("x", size)
    text.lines.append(f"ROOT r = {kind}[{before},{size},{after}] negate({result})")
    numbers = np.random.default_rng(size).integers(0, 100, (before, size, after))
    x = numbers.astype({"s32": np.int32, "u8": np.uint8, "f64": np.float64}[kind])
    agree("\n".join(text.lines), x)
    assert np.array_equal(np.asarray(compiled("\n".join(text.lines))(x)), -np.cumsum(x, 1, dtype=x.dtype))
