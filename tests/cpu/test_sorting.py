"""Sorts of the cpu backend: the evaluator's order, to the last equal element."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from hloom.codegen import target
from hloom.cpu.kernels.sorting import quick_sort, radix_row, row_sort
from hloom.cpu.kernels.sorting.sort_order import sort_keys
from tests.evaluation import parse
from tests.native_runs import agree, compiled, draw, special_values
from tests.processors import PROCESSORS, runs_here


def canonical(name: str, kind: str) -> tuple[str, list[str]]:
    """Return the operand of JAX's comparison of floats: zeros without sign, and one NaN."""
    if kind[0] not in "fb":
        return name, []
    return f"{name}_key", [
        f"{name}_nan = {kind}[] constant(nan)",
        f"{name}_zero = {kind}[] constant(0)",
        f"{name}_ne = pred[] compare({name}, {name}), direction=NE",
        f"{name}_eq = pred[] compare({name}, {name}_zero), direction=EQ",
        f"{name}_select = {kind}[] select({name}_eq, {name}_zero, {name})",
        f"{name}_key = {kind}[] select({name}_ne, {name}_nan, {name}_select)",
    ]


def comparator(kinds: list[str], keys: int, descending: bool) -> str:
    """Return JAX's comparator for operands of these types, the first ``keys`` of which are keys."""
    lines = [
        f"{side}{k} = {kind}[] parameter({2 * k + n})"
        for k, kind in enumerate(kinds)
        for n, side in enumerate("ab")
    ]
    direction = "GT" if descending else "LT"
    rest = ""
    for k in reversed(range(keys)):
        (a, first), (b, second) = canonical(f"a{k}", kinds[k]), canonical(f"b{k}", kinds[k])
        lines += [*first, *second]
        total = ", type=TOTALORDER" if kinds[k][0] in "fb" else ""
        lines.append(f"lt{k} = pred[] compare({a}, {b}), direction={direction}{total}")
        if rest:
            lines.append(f"eq{k} = pred[] compare({a}, {b}), direction=EQ{total}")
            lines.append(f"and{k} = pred[] and(eq{k}, {rest})")
            lines.append(f"or{k} = pred[] or(lt{k}, and{k})")
        rest = f"or{k}" if rest else f"lt{k}"
    lines[-1] = "ROOT " + lines[-1]
    return "cmp {\n" + "\n".join(lines) + "\n}\n"


def sort_program(
    kinds: list[str], sizes: tuple[int, ...], dimension: int, *, keys: int = 1, descending: bool = False,
    iota: bool = False, compare: str = "",
) -> str:  # fmt: skip
    """Return a program that sorts its parameters, followed perhaps by an iota."""
    dims = ",".join(map(str, sizes))
    lines = [f"p{k} = {kind}[{dims}] parameter({k})" for k, kind in enumerate(kinds)]
    if iota:
        lines[-1] = f"p{len(kinds) - 1} = {kinds[-1]}[{dims}] iota(), iota_dimension={dimension}"
    shapes = [f"{kind}[{dims}]" for kind in kinds]
    shape = shapes[0] if len(shapes) == 1 else f"({', '.join(shapes)})"
    names = ", ".join(f"p{k}" for k in range(len(kinds)))
    lines.append(f"ROOT r = {shape} sort({names}), dimensions={{{dimension}}}, is_stable=true, to_apply=cmp")
    made = compare or comparator(kinds, keys, descending)
    return f"HloModule m\n{made}ENTRY e {{\n" + "\n".join(lines) + "\n}"


@pytest.mark.parametrize("direction", ["LT", "GT"])
def test_the_operands_of_a_comparison_may_be_swapped(direction: str) -> None:
    text = f"""cmp {{ a = s32[] parameter(0)
      b = s32[] parameter(1)
      ROOT r = pred[] compare(b, a), direction={direction} }}
    ENTRY e {{ ROOT z = s32[] constant(0) }}"""
    (key,) = sort_keys(parse(text).computations[0]) or []
    assert key.descending == (direction == "LT")


def plain_values(rng: np.random.Generator, kind: str, sizes: tuple[int, ...]) -> Any:
    return draw(rng, f"{kind}[{','.join(map(str, sizes))}]")


def check(kinds: list[str], sizes: tuple[int, ...], dimension: int, **options: Any) -> None:
    text = sort_program(kinds, sizes, dimension, **options)
    drawn = kinds[: len(kinds) - bool(options.get("iota"))]
    for seed, values in enumerate((special_values, plain_values)):
        rng = np.random.default_rng(seed)
        agree(text, *(values(rng, kind, sizes) for kind in drawn))


KINDS = ("f32", "f64", "f16", "bf16", "f8e4m3fn", "f8e5m2", "s8", "u16", "s32", "u64", "pred", "s4", "u4")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [1, 2, 9, 64, 100])
def test_rows(kind: str, n: int) -> None:
    check([kind], (3, n), 1)


@pytest.mark.parametrize("kind", ["f32", "bf16", "s32", "s64", "u8", "f64"])
@pytest.mark.parametrize("n", [130, 5000])
def test_long_rows(kind: str, n: int) -> None:
    check([kind], (2, n), 1)
    check([kind], (n,), 0, descending=True)


@pytest.fixture(params=["compressed vectors", "tables of indices", "digits"])
def method(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Sort long rows as the best processors do, those with AVX2 only, and those without."""
    compiled.cache_clear()
    if request.param == "digits":
        monkeypatch.setattr(row_sort, "sorts_quickly", lambda target: False)
    elif not runs_here("x86-64-v4" if request.param == "compressed vectors" else "x86-64-v3"):
        pytest.skip("this processor has no such instructions")
    elif request.param == "tables of indices":
        monkeypatch.setattr(target, "host", lambda: PROCESSORS["x86-64-v3"])
    yield
    compiled.cache_clear()


@pytest.fixture(params=[0, quick_sort.PATIENCE], ids=["middles", "samples"])
def pivots(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Partition by samples, and by the middles of ranges only."""
    compiled.cache_clear()
    monkeypatch.setattr(quick_sort, "PATIENCE", request.param)
    yield
    compiled.cache_clear()


@pytest.mark.parametrize("kind", ["f32", "bf16", "s32", "u8", "f64"])
@pytest.mark.usefixtures("method")
def test_one_row_for_all_threads(kind: str) -> None:
    n = radix_row.LEAST + 77
    check([kind], (n,), 0)
    check([kind, "s32"], (1, n), 1, descending=True)


@pytest.mark.parametrize("kind", ["u32", "s64"])
@pytest.mark.parametrize("n", [129, 256, 257, 3000, row_sort.SHARED + 1])
@pytest.mark.usefixtures("pivots", "method")
def test_integers_in_any_distribution(kind: str, n: int) -> None:
    numbers = np.dtype({"u32": np.uint32, "s64": np.int64}[kind])
    least, greatest = np.iinfo(numbers).min, np.iinfo(numbers).max
    random = np.random.default_rng(n)
    drawn = random.integers(least, greatest, n, numbers, endpoint=True)
    some = np.where(random.integers(0, 100, n) == 0, drawn, numbers.type(greatest))
    text = sort_program([kind], (n,), 0)
    for x in (
        np.sort(drawn), np.sort(drawn)[::-1].copy(), np.full(n, 7, numbers), np.full(n, greatest, numbers),
        some, np.where(some == greatest, numbers.type(least), some), random.integers(0, 3, n, numbers),
        np.arange(n, dtype=numbers) % 50, np.roll(np.sort(drawn), n // 3),
    ):  # fmt: skip
        agree(text, x)


@pytest.mark.parametrize("kind", ["f32", "f64", "s16", "pred"])
@pytest.mark.parametrize("n", [1, 3, 16, 200, 5000])
def test_elements_move_along(kind: str, n: int) -> None:
    check([kind, "s32"], (2, n), 1, iota=True)
    check([kind, "bf16", "c64"], (n, 2), 0, descending=True)


@pytest.mark.parametrize("n", [2, 12, 300, 5000])
def test_several_keys(n: int) -> None:
    check(["f32", "f64"], (n,), 0, keys=2)
    check(["s8", "s32", "u8"], (n,), 0, keys=3)
    check(["s64", "f32", "s64"], (2, n), 1, keys=3)
    check(["f32", "f32", "s32"], (n,), 0, keys=2, iota=True)


@pytest.mark.parametrize(
    ("sizes", "dimension"),
    [((0, 3), 0), ((0, 3), 1), ((3, 0), 0), ((2, 3, 4), 1), ((2, 40, 3), 1), ((1, 7, 1), 1), ((3, 1, 5), 2)],
)
def test_any_dimension(sizes: tuple[int, ...], dimension: int) -> None:
    check(["f32"], sizes, dimension)
    check(["s32", "f64"], sizes, dimension)


PARITY = """
cmp {
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  one = s32[] constant(1)
  x = s32[] and(a, one)
  y = s32[] and(b, one)
  ROOT r = pred[] compare(x, y), direction=LT
}
"""


@pytest.mark.parametrize("n", [5, 40, 5000])
def test_key_that_is_an_expression(n: int) -> None:
    check(["s32"], (n,), 0, compare=PARITY)


BY_DISTANCE = """
cmp {
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  d = s32[] subtract(a, b)
  zero = s32[] constant(0)
  ROOT r = pred[] compare(d, zero), direction=LT
}
"""


@pytest.mark.parametrize("n", [1, 2, 3, 17, 1000])
def test_comparator_that_is_not_of_keys(n: int) -> None:
    assert sort_keys(parse(BY_DISTANCE + "ENTRY e { ROOT z = s32[] constant(0) }").computations[0]) is None
    check(["s32", "u8"], (2, n), 1, compare=BY_DISTANCE.replace("b = s32[] parameter(1)",
          "b = s32[] parameter(1)\n  p = u8[] parameter(2)\n  q = u8[] parameter(3)"))  # fmt: skip


def test_only_the_order_is_wanted() -> None:
    text = (
        comparator(["f32", "s32"], 1, False)
        + """
    ENTRY e {
      x = f32[40,50] parameter(0)
      i = s32[50] iota(), iota_dimension=0
      b = s32[40,50] broadcast(i), dimensions={1}
      s = (f32[40,50], s32[40,50]) sort(x, b), dimensions={1}, to_apply=cmp
      ROOT r = s32[40,50] get-tuple-element(s), index=1
    }"""
    )
    agree("HloModule m\n" + text, special_values(np.random.default_rng(0), "f32", (40, 50)))


@pytest.mark.parametrize("n", [100, 10_000, 100_000])
def test_a_sort_of_positions_and_a_sort_of_what_it_moved(n: int) -> None:
    """Shuffles sort by random numbers twice; the kernel that computes positions serves the first only."""
    text = f"""HloModule m
    {comparator(["u32", "s32"], 1, False)}
    ENTRY e {{
      k = u32[{n}] parameter(0)
      l = u32[{n}] parameter(1)
      x = s32[{n}] iota(), iota_dimension=0
      first = (u32[{n}], s32[{n}]) sort(k, x), dimensions={{0}}, is_stable=true, to_apply=cmp
      y = s32[{n}] get-tuple-element(first), index=1
      second = (u32[{n}], s32[{n}]) sort(l, y), dimensions={{0}}, is_stable=true, to_apply=cmp
      ROOT z = s32[{n}] get-tuple-element(second), index=1
    }}"""
    random = np.random.default_rng(0)
    agree(text, *(random.integers(0, 1 << 32, n, dtype=np.uint32) for _ in range(2)))


PARTIAL = """cmp { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = pred[] compare(a, b), direction=LT }
"""
CLIPPED = """cmp { a = s32[] parameter(0)
  b = s32[] parameter(1)
  least = s32[] constant(-7)
  below.a = pred[] compare(a, least), direction=LT
  below.b = pred[] compare(b, least), direction=LT
  key.a = s32[] select(below.a, least, a)
  key.b = s32[] select(below.b, least, b)
  ROOT r = pred[] compare(key.a, key.b), direction=GT }
"""


@pytest.mark.usefixtures("method")
@pytest.mark.parametrize("compare", ["", PARTIAL, comparator(["f32"], 1, descending=True)])
@pytest.mark.parametrize("sizes", [(3, 100), (3, 5000), (1, radix_row.LEAST + 77)])
def test_elements_that_share_a_key_keep_their_order(sizes: tuple[int, ...], compare: str) -> None:
    """Zeros of both signs, and NaNs with payloads where they are ordered, among a few other numbers."""
    bits = [0, 1 << 31, 0x7F800000, 0xBF800000, 0x3F800000, 1]
    if compare is not PARTIAL:
        bits += [0x7FC00001, 0xFFC00002]
    x = np.random.default_rng(1).choice(np.array(bits, np.uint32), sizes).view(np.float32)
    agree(sort_program(["f32"], sizes, 1, compare=compare), x)


@pytest.mark.parametrize("sizes", [(3, 100), (1, radix_row.LEAST)])
def test_a_constant_may_be_the_key_of_many_elements(sizes: tuple[int, ...]) -> None:
    x = np.random.default_rng(2).integers(-50, 50, sizes, np.int32)
    agree(sort_program(["s32"], sizes, 1, compare=CLIPPED), x)
