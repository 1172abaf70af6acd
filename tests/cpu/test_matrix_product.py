"""Dots: every arrangement of the operands, every size of the pieces into which the work is cut."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from hloom.cpu.kernels.dot.gemm_plan import TilePlan
from hloom.cpu.kernels.dot.matrix_product import plan_of
from hloom.evaluate.evaluator import Evaluator
from hloom.shape.element_type import ElementType
from tests import agreement
from tests.evaluation import parse
from tests.native_runs import Native, agree, arguments, compiled, draw
from tests.processors import PROCESSORS, runs_here

PLAIN = "mk,kn->mn"
ARRANGED = (PLAIN, "mk,nk->mn", "km,kn->mn", "km,nk->mn")
BATCHED = ("bmk,bkn->bmn", "bmk,bnk->bmn", "bkm,bkn->bmn", "mbk,kbn->bmn", "mkb,knb->bmn")


def dot_text(einsum: str, sizes: dict[str, int], types: str = "f32,f32,f32", rest: str = "") -> str:
    """Return a program with one dot, named ``d``; ``rest`` are later instructions, else it is the root."""
    (lhs, rhs), out = einsum.split("->")[0].split(","), einsum.split("->")[1]
    of_lhs, of_rhs, of_out = types.split(",")

    def shape(kind: str, dimensions: Iterable[str]) -> str:
        return f"{kind}[{','.join(str(sizes[d]) for d in dimensions)}]"

    def places(name: str, operand: str, dimensions: list[str]) -> str:
        return f"{name}={{{','.join(str(operand.index(d)) for d in dimensions)}}}"

    summed, batch = [d for d in lhs if d in rhs and d not in out], [d for d in lhs if d in rhs and d in out]
    attributes = ", ".join((
        places("lhs_contracting_dims", lhs, summed), places("rhs_contracting_dims", rhs, summed),
        places("lhs_batch_dims", lhs, batch), places("rhs_batch_dims", rhs, batch),
    ))  # fmt: skip
    root = "" if rest else "ROOT "
    return f"""
HloModule product

ENTRY main {{
  p = {shape(of_lhs, lhs)} parameter(0)
  q = {shape(of_rhs, rhs)} parameter(1)
  {root}d = {shape(of_out, out)} dot(p, q), {attributes}
  {rest}
}}"""


def factors(einsum: str, sizes: dict[str, int], types: str, seed: int = 0) -> list[Any]:
    """Return operands of small integers, whose products and sums are exact in every type of sums."""
    rng = np.random.default_rng(seed)
    made: list[Any] = []
    for operand, kind in zip(einsum.split("->")[0].split(","), types.split(","), strict=False):
        dimensions = [sizes[d] for d in operand]
        element_type = ElementType.parse(kind)
        if not element_type.is_floating and not element_type.is_complex:
            made.append(draw(rng, f"{kind}[{','.join(map(str, dimensions))}]"))
            continue
        values: Any = rng.integers(-3, 4, dimensions)
        if element_type.is_complex:
            values = values + 1j * rng.integers(-3, 4, dimensions)
        made.append(values.astype(element_type.numpy_dtype))
    return made


def exact(einsum: str, types: str = "f32,f32,f32", rest: str = "", **sizes: int) -> Any:
    """Compile and run a dot of small integers; it must give the evaluator's numbers.

    Zeros of either sign are equal.
    """
    return agree(dot_text(einsum, sizes, types, rest), *factors(einsum, sizes, types), signs=False)


@pytest.mark.parametrize("einsum", ARRANGED)
@pytest.mark.parametrize("sizes", [
    (4, 4, 4), (8, 32, 16), (9, 33, 17), (40, 70, 31), (65, 64, 129), (1, 7, 50), (50, 7, 1), (2, 300, 100),
    (100, 300, 3), (17, 1, 33), (64, 3, 70),
])  # fmt: skip
def test_arrangements_and_sizes(einsum: str, sizes: tuple[int, int, int]) -> None:
    m, k, n = sizes
    exact(einsum, m=m, k=k, n=n)


@pytest.mark.parametrize("einsum", ARRANGED)
def test_sums_in_several_blocks(einsum: str) -> None:
    exact(einsum, m=83, k=1027, n=75)


@pytest.mark.parametrize("einsum", ARRANGED)
def test_columns_in_several_groups(einsum: str) -> None:
    exact(einsum, m=20, k=1500, n=1040)


SLABS = {"m": 83, "k": 6500, "n": 130}
"""Sizes of a product whose factors are packed in several slabs along k."""


@pytest.mark.parametrize("types", ["f32,f32,f32", "f64,f64,f64", "bf16,bf16,bf16", "s16,s16,s32"])
@pytest.mark.parametrize("rest", ["", "ROOT r = (OUT, OUT) tuple(s, d)"])
@pytest.mark.parametrize("einsum", ["km,kn->mn", "km,nk->mn"])
def test_slabs(einsum: str, rest: str, types: str) -> None:
    """The result holds the sums between slabs; if the sums end in more, the workspace does."""
    out = f"{types.split(',')[-1]}[{SLABS['m']},{SLABS['n']}]"
    more = f"s = {out} add(d, d)\n  {rest}".replace("OUT", out) if rest else ""
    plan = plan_of(parse(dot_text(einsum, SLABS, types)).entry.root, PROCESSORS["x86-64-v3"])
    assert isinstance(plan, TilePlan)
    assert plan.slabs > 1
    exact(einsum, types, more, **SLABS)


@pytest.mark.parametrize(
    ("name", "kind", "m", "k", "n"),
    [
        ("x86-64-v3", "f32", 110, 670, 2300),
        ("x86-64-v3", "f64", 51, 807, 1607),
        ("x86-64-v4", "f32", 110, 670, 2380),
        ("x86-64-v4", "f64", 51, 807, 1607),
    ],
)
def test_slabs_of_groups_of_unequal_columns(name: str, kind: str, m: int, k: int, n: int) -> None:
    """The last group has fewer columns, so that some of its tasks have none and must add nothing."""
    if not runs_here(name):
        pytest.skip(f"this machine is no {name}")
    sizes, types = {"m": m, "k": k, "n": n}, f"{kind},{kind},{kind}"
    module, operands = parse(dot_text("km,kn->mn", sizes, types)), factors("km,kn->mn", sizes, types)
    plan = plan_of(module.entry.root, PROCESSORS[name])
    assert isinstance(plan, TilePlan)
    assert plan.slabs > 1
    assert n % plan.panel
    assert n % plan.group_columns <= plan.group_columns - plan.width
    agreement.equal(Native(module, PROCESSORS[name])(*operands), Evaluator().run(module.entry, operands))


@pytest.mark.parametrize("einsum", ARRANGED)
def test_rows_a_page_apart(einsum: str) -> None:
    exact(einsum, m=1024, k=64, n=64)
    exact(einsum, m=64, k=1024, n=64)
    exact(einsum, m=24, k=64, n=1024)


@pytest.mark.parametrize("einsum", BATCHED)
@pytest.mark.parametrize(
    "sizes", [(2, 9, 20, 33), (5, 4, 4, 4), (7, 3, 3, 3), (6, 40, 17, 50), (4, 1, 40, 9), (3, 20, 300, 2)]
)
def test_batches(einsum: str, sizes: tuple[int, int, int, int]) -> None:
    b, m, k, n = sizes
    exact(einsum, b=b, m=m, k=k, n=n)


@pytest.mark.parametrize("einsum", [
    "k,k->", "mk,k->m", "k,kn->n", "km,k->m", "k,nk->n", "bk,bk->b", "bmk,bk->bm", "bk,bkn->bn",
    "bck,bck->bc", "cbk,bck->cb", "kb,kb->b",
])  # fmt: skip
@pytest.mark.parametrize("size", [1, 3, 16, 37, 300])
def test_vectors(einsum: str, size: int) -> None:
    exact(einsum, b=5, c=3, m=21, n=29, k=size)


@pytest.mark.parametrize("einsum", ["k,k->", "mk,k->m", "mk,nk->mn", "bk,bk->b"])
def test_long_sums_in_parts(einsum: str) -> None:
    exact(einsum, m=3, n=2, b=2, k=70_001)


def test_long_sums_in_parts_of_several_columns_in_batches() -> None:
    exact("bmk,bnk->bmn", m=2, n=3, b=3, k=70_001)


@pytest.mark.parametrize("types", [
    "f64,f64,f64", "c64,c64,c64", "c128,c128,c128", "bf16,bf16,bf16", "bf16,bf16,f32", "f16,f16,f16",
    "f16,f16,f32", "f32,bf16,f32", "f8e4m3fn,f8e5m2,f32", "s8,s8,s32", "u8,u8,s32", "u8,s8,s32", "s8,u8,s32",
    "u8,u8,u32", "s8,s8,s8", "s16,s16,s32", "s32,s32,s32", "s64,s64,s64", "u64,u64,u64", "s4,s4,s32",
    "s8,s8,f32", "pred,pred,pred",
])  # fmt: skip
@pytest.mark.parametrize("einsum", ARRANGED)
def test_types(einsum: str, types: str) -> None:
    """Few rows and one column have two arrangements each, in which both factors have both orders."""
    exact(einsum, types, m=19, k=41, n=35)
    if einsum in ARRANGED[::3]:
        exact(einsum, types, m=3, k=100, n=40)
    else:
        exact(einsum, types, m=40, k=100, n=1)


@pytest.mark.parametrize(
    "types", ["c64,c64,c64", "bf16,bf16,bf16", "s8,s8,s32", "f64,f64,f64", "pred,pred,pred"]
)
@pytest.mark.parametrize("einsum", ARRANGED)
def test_types_in_several_blocks(einsum: str, types: str) -> None:
    exact(einsum, types, m=70, k=1100, n=90)


@pytest.mark.parametrize("types", [
    "f32,f32,f32", "f64,f64,f64", "bf16,bf16,bf16", "bf16,bf16,f32", "f16,f16,f16", "f32,bf16,f32",
    "s8,s8,s32", "s8,s8,f32", "s32,s32,s32", "c64,c64,c64",
])  # fmt: skip
@pytest.mark.parametrize("einsum", ARRANGED)
def test_few_rows_of_a_large_matrix(einsum: str, types: str) -> None:
    exact(einsum, types, m=37, k=301, n=1061)


@pytest.mark.parametrize(
    "sizes",
    [
        (128, 513, 576),
        (9, 640, 517),
        (127, 130, 2111),
        (16, 2000, 512),
        (70, 1030, 259),
        (300, 1029, 261),
        (511, 140, 2050),
    ],
)
@pytest.mark.parametrize("einsum", ARRANGED)
def test_blocks_of_few_rows(einsum: str, sizes: tuple[int, int, int]) -> None:
    m, k, n = sizes
    exact(einsum, m=m, k=k, n=n)


@pytest.mark.parametrize("m", range(1, 26))
def test_each_number_of_rows_in_three_blocks(m: int) -> None:
    """The last rows of tiles that do not divide them, between the first block of k and the last one."""
    exact(PLAIN, m=m, k=3000, n=262)


@pytest.mark.parametrize("name", PROCESSORS)
@pytest.mark.parametrize("m", [7, 8, 9, 10, 13])
def test_few_rows_in_three_blocks_on_lesser_processors(name: str, m: int) -> None:
    if not runs_here(name):
        pytest.skip(f"this machine is no {name}")
    sizes, types = {"m": m, "k": 3000, "n": 262}, "f32,f32,f32"
    module, operands = parse(dot_text(PLAIN, sizes, types)), factors(PLAIN, sizes, types)
    agreement.equal(Native(module, PROCESSORS[name])(*operands), Evaluator().run(module.entry, operands))


def test_many_contracted_and_kept_dimensions() -> None:
    exact("abkl,klcd->abcd", a=3, b=4, k=5, l=6, c=7, d=2)
    exact("akbl,klc->abc", a=3, b=4, k=5, l=6, c=7)
    exact("xamky,xkny->xyamn".replace("y", ""), x=3, a=2, m=5, k=6, n=20)


@pytest.mark.parametrize("sizes", [(20, 30, 40), (30, 900, 50), (40, 30, 1), (1, 30, 40), (70, 40, 33)])
def test_ends_in_elementwise_operations(sizes: tuple[int, int, int]) -> None:
    m, k, n = sizes
    rest = f"""
      s = f32[{m},{n}] multiply(d, d)
      t = f32[{m},{n}] add(s, d)
      ROOT r = (f32[{m},{n}], s32[{m},{n}]) tuple(t, u)
      """.replace("ROOT", f"u = s32[{m},{n}] convert(s)\n  ROOT")
    exact(PLAIN, rest=rest, m=m, k=k, n=n)


def test_numbers_that_are_not_integers() -> None:
    rng = np.random.default_rng(1)
    text = dot_text(PLAIN, {"m": 50, "k": 1000, "n": 60})
    agree(
        text,
        rng.normal(size=(50, 1000)).astype(np.float32),
        rng.normal(size=(1000, 60)).astype(np.float32),
        rounded=True,
    )


def test_infinities_and_nans_stay_in_their_row_and_column() -> None:
    p, q = np.ones((19, 33), np.float32), np.ones((33, 21), np.float32)
    p[3, 32], q[32, 20] = np.inf, np.nan
    agree(dot_text(PLAIN, {"m": 19, "k": 33, "n": 21}), p, q)
    agree(dot_text("mk,nk->mn", {"m": 19, "k": 33, "n": 21}), p, q.T.copy())


def test_subnormal_products_are_kept() -> None:
    p, q = np.full((80, 40), 2.0**-70, np.float32), np.full((40, 96), 2.0**-72, np.float32)
    for types in ("f32,f32,f32", "bf16,bf16,f32"):
        kind = ElementType.parse(types.split(",")[0]).numpy_dtype
        text = dot_text(PLAIN, {"m": 80, "k": 40, "n": 96}, types)
        assert np.all(agree(text, p.astype(kind), q.astype(kind)) == np.float32(40 * 2.0**-142))


@pytest.mark.parametrize("smallest", [2.0**-40, 2.0**-60, 2.0**-126, 2.0**-130])
@pytest.mark.parametrize("einsum", ARRANGED)
def test_small_bf16_numbers_among_others(einsum: str, smallest: float) -> None:
    sizes = {"m": 70, "k": 130, "n": 75}
    p, q = factors(einsum, sizes, "bf16,bf16,f32")
    where = np.random.default_rng(2)
    for operand in (p, q):
        operand[where.random(operand.shape) < 0.3] = smallest
        operand[3] = operand[:, 5] = smallest  # so some sums have small terms only
    got = agree(dot_text(einsum, sizes, "bf16,bf16,f32"), p, q, rounded=True)
    assert got.any()


def test_differences_of_bf16_products_may_be_subnormal() -> None:
    sizes = {"m": 64, "k": 64, "n": 64}
    p, q = np.zeros((64, 64), np.float32), np.zeros((64, 64), np.float32)
    p[:, 0], p[:, 1], q[0], q[1] = 2.0**-63 * 1.0078125, 2.0**-63, 2.0**-62, -(2.0**-62) * 1.0
    kind = ElementType.parse("bf16").numpy_dtype
    got = agree(dot_text(PLAIN, sizes, "bf16,bf16,f32"), p.astype(kind), q.astype(kind))
    assert np.all(got == np.float32(2.0**-132))


def test_scratch_memory_is_a_part_of_the_second_operand_at_most() -> None:
    program = compiled(dot_text(PLAIN, {"m": 1024, "k": 1024, "n": 1024}))
    operand = program.parameters[1].element_count * 4
    assert 0 < program.program.temp_bytes <= operand // 2


@pytest.mark.parametrize("name", PROCESSORS)
@pytest.mark.parametrize("types", [
    "f32,f32,f32", "f64,f64,f64", "c64,c64,c64", "bf16,bf16,bf16", "f16,f16,f32", "s8,s8,s32", "u8,s8,s32",
    "s16,s16,s32", "s32,s32,s32",
])  # fmt: skip
def test_lesser_processors(name: str, types: str) -> None:
    if not runs_here(name):
        pytest.skip(f"this machine is no {name}")
    few, many = {"m": 70, "k": 130, "n": 75}, {"m": 37, "k": 300, "n": 1061}
    for einsum, sizes in [*((arranged, few) for arranged in ARRANGED), (PLAIN, many)]:
        module = parse(dot_text(einsum, sizes, types))
        given = factors(einsum, sizes, types)
        agreement.equal(Native(module, PROCESSORS[name])(*given), Evaluator().run(module.entry, given))


@pytest.mark.parametrize("k", [1, 2, 3, 7])
@pytest.mark.parametrize("types", ["f32", "f16", "bf16", "f64"])
def test_a_vector_of_sums_that_ends_in_more_stays_in_its_place(types: str, k: int) -> None:
    """With one column the remaining lanes of a vector of columns are not stored."""
    wide = "f64" if types == "f64" else "f32"
    text = f"""HloModule ends
ENTRY entry {{
  x = {types}[131,{k}] parameter(0)
  v = {types}[{k}] parameter(1)
  b = {wide}[131] parameter(2)
  lo = {wide}[] parameter(3)
  hi = {wide}[] parameter(4)
  d = {wide}[131] dot(x, v), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  s = {wide}[131] add(d, b)
  ROOT r = {wide}[131] clamp(lo, s, hi)
}}
"""
    agree(text, *arguments(np.random.default_rng(k), text), rounded=True)
