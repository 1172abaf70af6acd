"""Dots in AMX tiles: arrangements, sizes around those of tiles and K-blocks, small numbers, epilogues."""

from __future__ import annotations

import numpy as np
import pytest

from hloom.codegen.target import Target, host, reproducible_target, without_tile_registers
from hloom.cpu.jit.compilation import optimize
from hloom.cpu.jit.llvm import generate_module
from hloom.cpu.kernels.dot.gemm_amx import AmxPlan, plan_amx
from hloom.cpu.kernels.dot.gemm_pairs import fits_amx
from hloom.cpu.kernels.dot.matrix_product import product_of
from hloom.cpu.program import emit_program
from hloom.shape.element_type import ElementType
from hloom.tools.commands.aot import compile_ahead
from tests.cpu.test_matrix_product import ARRANGED, BATCHED, PLAIN, dot_text, exact, factors
from tests.evaluation import parse
from tests.native_runs import agree

SAPPHIRE_RAPIDS = Target.named("x86_64-linux-gnu", "sapphirerapids")
TYPES = ("bf16,bf16,f32", "bf16,bf16,bf16", "s8,s8,s32", "u8,s8,s32", "s8,u8,s32", "u8,u8,u32")
TILERELEASE = b"\xc4\xe2\x78\x49\xc0"
"""The instruction by which a kernel with tile registers ends."""
needs_amx = pytest.mark.skipif(not host().has("amx-bf16"), reason="this machine has no AMX")


def plan(einsum: str, types: str, **sizes: int) -> AmxPlan:
    """Return the plan of a dot in AMX tiles."""
    gemm = product_of(parse(dot_text(einsum, sizes, types)).entry.root)
    assert gemm is not None and fits_amx(gemm, SAPPHIRE_RAPIDS)
    return plan_amx(gemm)


@needs_amx
@pytest.mark.parametrize("types", TYPES)
@pytest.mark.parametrize("einsum", ARRANGED)
@pytest.mark.parametrize(
    "sizes",
    [
        (64, 64, 128),
        (16, 256, 256),
        (300, 100, 130),
        (33, 2000, 17),
        (17, 640, 1000),
        (257, 96, 161),
        (7, 999, 48),
    ],
)
def test_arrangements_and_sizes(einsum: str, sizes: tuple[int, int, int], types: str) -> None:
    m, k, n = sizes
    plan(einsum, types, m=m, k=k, n=n)
    exact(einsum, types, m=m, k=k, n=n)


@needs_amx
@pytest.mark.parametrize("types", TYPES)
@pytest.mark.parametrize("einsum", ARRANGED)
def test_sums_in_several_blocks(einsum: str, types: str) -> None:
    assert plan(einsum, types, m=83, k=3075, n=75).blocks > 1
    exact(einsum, types, m=83, k=3075, n=75)


@needs_amx
@pytest.mark.parametrize("types", TYPES[::2])
@pytest.mark.parametrize("einsum", [*BATCHED, "mk,bkn->mbn", "bmk,kn->bmn"])
@pytest.mark.parametrize("sizes", [(2, 40, 170, 50), (5, 64, 64, 64), (3, 17, 300, 70)])
def test_batches(einsum: str, sizes: tuple[int, int, int, int], types: str) -> None:
    b, m, k, n = sizes
    exact(einsum, types, b=b, m=m, k=k, n=n)


@needs_amx
@pytest.mark.parametrize("k", [130, 2050])
def test_the_operations_after_a_dot_are_computed_tile_by_tile(k: int) -> None:
    sizes = {"m": 70, "k": k, "n": 75}
    rest = """x = f32[70,75] convert(d)
  t = f32[70,75] add(x, x)
  ROOT r = (f32[70,75], bf16[70,75]) tuple(t, d)"""
    agree(dot_text(PLAIN, sizes, "bf16,bf16,bf16", rest), *factors(PLAIN, sizes, "bf16,bf16"), signs=False)


@needs_amx
@pytest.mark.parametrize("operand", [0, 1])
@pytest.mark.parametrize("place", [0, 1999, -1])
@pytest.mark.parametrize("einsum", [*ARRANGED, "bmk,bkn->bmn"])
def test_one_small_number_is_enough(einsum: str, place: int, operand: int) -> None:
    """AMX takes subnormal numbers for zeros: products that may be subnormal are computed in f32."""
    sizes = {"b": 2, "m": 50, "k": 70, "n": 90}
    arrays = factors(einsum, sizes, "bf16,bf16,f32")
    arrays[operand][...] = 0
    arrays[operand].flat[place] = 2.0**-133
    arrays[1 - operand][...] = 2.0**20
    got = agree(dot_text(einsum, sizes, "bf16,bf16,f32"), *arrays)
    assert got.max() == 2.0**-113


@needs_amx
def test_infinities_and_nans_stay_in_their_row_and_column() -> None:
    sizes, kind = {"m": 50, "k": 70, "n": 90}, ElementType.parse("bf16").numpy_dtype
    p, q = np.ones((50, 70)), np.ones((70, 90))
    p[49, 69], q[69, 89] = np.inf, np.nan
    agree(dot_text(PLAIN, sizes, "bf16,bf16,f32"), p.astype(kind), q.astype(kind))


def test_integers_beyond_the_range_of_s32_wrap() -> None:
    sizes = {"m": 16, "k": 140_000, "n": 16}
    p, q = np.full((16, 140_000), 127, np.int8), np.full((140_000, 16), 127, np.int8)
    agree(dot_text(PLAIN, sizes, "s8,s8,s32"), p, q)


def test_reproducible_products_and_few_rows_have_no_tiles() -> None:
    large = product_of(parse(dot_text(PLAIN, {"m": 64, "k": 64, "n": 128}, "bf16,bf16,f32")).entry.root)
    few = product_of(parse(dot_text(PLAIN, {"m": 4, "k": 640, "n": 128}, "bf16,bf16,f32")).entry.root)
    assert large is not None and few is not None
    assert fits_amx(large, SAPPHIRE_RAPIDS)
    assert not fits_amx(few, SAPPHIRE_RAPIDS)
    assert not fits_amx(large, reproducible_target(SAPPHIRE_RAPIDS))
    assert not fits_amx(large, without_tile_registers(SAPPHIRE_RAPIDS))


def test_programs_for_c_have_no_tiles() -> None:
    """Their process has not asked the system for tile registers."""
    module = parse(dot_text(PLAIN, {"m": 64, "k": 64, "n": 128}, "bf16,bf16,f32"))
    program = emit_program(optimize(module), SAPPHIRE_RAPIDS)
    assert TILERELEASE in generate_module(program.module)
    assert TILERELEASE not in compile_ahead(module, SAPPHIRE_RAPIDS).code
