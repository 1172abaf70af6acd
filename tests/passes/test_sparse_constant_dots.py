"""sparse-constant-dots: the same products, without the zeros of constant matrices."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import pytest

import hloom
from hloom.analysis.values import number
from hloom.evaluate.evaluator import Evaluator
from hloom.ir.cloning import clone_module
from hloom.ir.module import HloModule
from hloom.passes.expand.sparse_constant_dots import SparseConstantDots
from hloom.shape.literal import Literal
from hloom.shape.shape import Shape
from tests import agreement
from tests.evaluation import parse
from tests.native_runs import agree, draw
from tests.pass_checks import opcodes

Sizes: TypeAlias = tuple[tuple[int, ...], tuple[int, ...]]
"""The dimensions before and after the contracted one."""

RNG = np.random.default_rng(0)
EAGER = SparseConstantDots(sparsity=1, sparsity_of_few=1, least=1)


def band(size: int) -> Any:
    """Return the matrix of second differences."""
    return np.eye(size, k=-1) - 2 * np.eye(size) + np.eye(size, k=1)


def upsampling(size: int, times: int) -> Any:
    """Return the matrix that interpolates between two elements; its diagonals differ by column."""
    at = (np.arange(size * times) + 0.5) / times - 0.5
    return np.maximum(0, times - np.round(times * np.abs(at - np.arange(size)[:, None])))


def scattered(rows: int, columns: int, terms: int) -> Any:
    """Return a matrix whose columns have elements in random rows, and some have none."""
    keys = RNG.random((rows, columns)).argsort(axis=0)
    return np.where((keys < terms) & (np.arange(columns) % 5 > 0), RNG.integers(1, 9, (rows, columns)), 0)


MATRICES = {
    "differences": band(64),
    "one diagonal": 3 * np.eye(64, k=5),
    "a diagonal outside of most columns": np.eye(64, k=-60),
    "every third element": np.eye(63)[:, ::3],
    "twice as many": upsampling(32, 2),
    "three times as many": upsampling(32, 3),
    "three for two": np.kron(np.eye(20), [[1, 2, 0], [0, 3, 4]]),
    "a permutation": np.eye(64)[RNG.permutation(64)],
    "scattered": scattered(64, 50, 3),
    "many terms": scattered(64, 50, 9),
    "blocks": np.kron(np.eye(8), RNG.integers(1, 9, (8, 5))),
    "nothing": np.zeros((64, 40)),
    "one column": np.eye(64)[:, 7:8] * 4,
    "one row": np.ones((1, 64)),
}
SIZES: dict[str, Sizes] = {
    "a vector": ((), ()),
    "rows": ((9,), ()),
    "a column": ((), (9,)),
    "colors": ((2, 7), (3,)),
}


def program(matrix: Any, before: tuple[int, ...], after: tuple[int, ...], kind: str, *, left: bool) -> str:
    """Return a dot of an array, whose dimension between others is contracted, and a constant matrix."""
    sizes = ",".join(map(str, (*before, len(matrix), *after)))
    operands, axes = ("c, x", (0, len(before))) if left else ("x, c", (len(before), 0))
    return f"""
        x = {kind}[{sizes}] parameter(0)
        c = {constant(matrix, kind)}
        ROOT r = dot({operands}), lhs_contracting_dims={{{axes[0]}}}, rhs_contracting_dims={{{axes[1]}}}"""


def constant(matrix: Any, kind: str) -> str:
    """Return the text of a constant."""
    shape = Shape.parse(f"{kind}[{','.join(map(str, matrix.shape))}]")
    literal = Literal(matrix.astype(shape.element_type.numpy_dtype), shape)
    return f"{shape} constant({literal.to_text(shape_prefix=False)})"


def rewritten(module: HloModule, rewrite: SparseConstantDots = EAGER) -> HloModule:
    """Return the module after the pass, which must change it."""
    changed = clone_module(module)
    assert rewrite.run(changed)
    changed.verify()
    return changed


def results(values: list[Any], *modules: HloModule) -> list[Any]:
    return [Evaluator().run(module.entry, values) for module in modules]


@pytest.mark.parametrize("left", [False, True], ids=["on the right", "on the left"])
@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("matrix", MATRICES.values(), ids=MATRICES)
def test_products_of_integers_stay(matrix: Any, sizes: Sizes, left: bool) -> None:
    module = parse(program(matrix, *sizes, "s32", left=left))
    changed = rewritten(module)
    assert not opcodes(changed)["dot"] and not opcodes(changed)["conditional"]
    wanted, got = results([draw(RNG, module.entry.parameters[0].shape)], module, changed)
    agreement.same(got, wanted)


@pytest.mark.parametrize("size", range(1, 8))
@pytest.mark.parametrize("count", range(1, 8))
def test_small_matrices_of_one_diagonal(size: int, count: int) -> None:
    for k in range(-size, count):
        text = program(np.eye(size, count, k=k, dtype=int), (2,), (), "s32", left=False)
        module = parse(text)
        wanted, got = results([draw(RNG, f"s32[2,{size}]")], module, rewritten(module))
        agreement.same(got, wanted)


@pytest.mark.parametrize("kind", ["f32", "f64", "bf16", "f16"])
@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize(
    "matrix", ["differences", "twice as many", "a permutation", "scattered", "many terms"]
)
def test_floats_are_within_the_rounding_errors_of_sums(matrix: str, sizes: Sizes, kind: str) -> None:
    text = program(MATRICES[matrix], *sizes, kind, left=False)
    module = parse(text)
    changed = rewritten(module)
    assert opcodes(changed)["conditional"] == opcodes(changed)["dot"] == 1
    x = draw(RNG, module.entry.parameters[0].shape)
    agreement.computed(results([x], changed)[0], module, [x])
    agree(text, x, rounded=True)


@pytest.mark.parametrize("kind", ["f32", "f64", "bf16", "f16"])
def test_special_values_in_every_row(kind: str) -> None:
    """One of them makes all results NaN whose columns have a zero there."""
    text = program(band(64), (64,), (3,), kind, left=False)
    shape = Shape.parse(f"{kind}[64,64,3]")
    numbers = RNG.integers(-8, 8, shape.dimensions).astype(shape.element_type.numpy_dtype)
    largest = np.finfo(np.float16).max if kind == "f16" else 1.7e38
    for value in (np.inf, -np.inf, np.nan, largest, -0.0):
        x = numbers.copy()
        x[np.arange(64), np.arange(64), 1] = value
        assert np.isnan(agree(text, x)[:, 1].astype(float)).any() == (not np.isfinite(value))


def test_short_sums_of_negative_zeros_are_zero() -> None:
    for matrix in (band(64), scattered(64, 64, 3), scattered(64, 64, 9)):
        text = program(matrix, (9,), (), "f32", left=False)
        assert not np.signbit(agree(text, np.full((9, 64), -0.0, np.float32))).any()


def test_sums_that_overflow_are_those_of_the_dot() -> None:
    """The largest numbers of which no sum overflows are those of the bound; 4 times them overflow."""
    text = program(band(64), (9,), (), "f32", left=False)
    (comparison,) = [i for i in rewritten(parse(text)).instructions() if i.opcode == "compare"]
    largest = number(comparison.operands[1])
    assert largest is not None
    signs = np.where(np.arange(64) % 2, 1, -1).astype(np.float32) * np.ones((9, 1), np.float32)
    assert np.isfinite(agree(text, signs * np.float32(largest), rounded=True)).all()
    assert np.isinf(agree(text, signs * np.float32(4 * largest), rounded=True)).any()


CHAIN = f"""
    x = f32[64,9,64] parameter(0)
    c = {constant(band(64), "f32")}
    y = f32[9,64,64] dot(x, c), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}
    t = f32[64,9,64] transpose(y), dimensions={{2,0,1}}
    ROOT z = f32[64,64,9] dot(c, t), lhs_contracting_dims={{0}}, rhs_contracting_dims={{2}}"""


def test_a_chain_of_dots_has_one_condition() -> None:
    changed = rewritten(parse(CHAIN))
    assert opcodes(changed)["conditional"] == 1
    agree(CHAIN, draw(RNG, "f32[64,9,64]"), rounded=True)


def test_the_first_result_of_a_chain_may_overflow() -> None:
    """An infinite element of it times a zero of the next matrix is NaN."""
    x = np.zeros((64, 9, 64), np.float32)
    x[30, 4, 30], x[31, 4, 30] = -1.6e38, 1.6e38
    assert np.isnan(agree(CHAIN, x)).any()


def test_dots_of_a_result_that_others_use_are_chains_of_their_own() -> None:
    text = CHAIN.replace("ROOT z", "z") + "\n ROOT r = (f32[64,64,9], f32[9,64,64]) tuple(z, y)"
    changed = rewritten(parse(text))
    assert opcodes(changed)["conditional"] == 2
    agree(text, draw(RNG, "f32[64,9,64]"), rounded=True)


def test_a_dot_that_only_terms_of_zero_read_is_no_chain() -> None:
    text = """
        x = s32[64,16] parameter(0)
        zero = s32[] constant(0)
        c = s32[16,64] broadcast(zero), dimensions={}
        first = s32[64,64] dot(x, c), lhs_contracting_dims={1}, rhs_contracting_dims={0}
        size = s32[64,64] abs(first)
        d = s32[64,16] broadcast(zero), dimensions={}
        ROOT r = s32[64,16] dot(size, d), lhs_contracting_dims={1}, rhs_contracting_dims={0}"""
    assert not opcodes(rewritten(parse(text)))["dot"]
    agree(text, draw(RNG, "s32[64,16]"))


@pytest.mark.parametrize("operands", ["x, c", "c, x"])
def test_constants_may_have_several_dimensions_of_columns(operands: str) -> None:
    text = f"""
        x = s32[5,64,9] parameter(0)
        e = {constant(scattered(64, 60, 3), "s32")}
        d = s32[64,4,15] reshape(e)
        c = s32[4,64,15] transpose(d), dimensions={{1,0,2}}
        ROOT r = dot({operands}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}"""
    assert not opcodes(rewritten(parse(text)))["dot"]
    agree(text, draw(RNG, "s32[5,64,9]"))


def test_products_of_narrow_floats_are_added_up_in_their_results_type() -> None:
    text = program(band(64), (64,), (), "bf16", left=False).replace("r = dot", "r = f32[64,64] dot")
    assert rewritten(parse(text)).entry.root.shape == Shape.parse("f32[64,64]")
    agree(text, draw(RNG, "bf16[64,64]"), rounded=True)


@pytest.mark.parametrize(
    "matrix, kind",
    [
        (np.ones((64, 64)), "f32"),
        (scattered(64, 64, 20), "f32"),
        (np.where(band(64) == -2, np.inf, band(64)), "f32"),
        (np.where(band(64) == -2, np.nan, band(64)), "f32"),
        (np.eye(4), "f32"),
        (band(64), "c64"),
        (band(64) != 0, "pred"),
    ],
)
def test_others_stay_dots(matrix: Any, kind: str) -> None:
    assert not SparseConstantDots().run(parse(program(matrix, (16,), (), kind, left=False)))


def test_vectors_need_longer_columns() -> None:
    """Their elements are gathered one by one."""
    for sizes, changes in (((), False), ((16,), True)):
        text = program(scattered(128, 128, 8), sizes, (), "f32", left=False)
        assert SparseConstantDots().run(parse(text)) == changes


def test_factors_that_are_no_constants_stay() -> None:
    text = "x = f32[64,64] parameter(0)\n y = f32[64,64] parameter(1)\n ROOT r = dot(x, y)"
    text += ", lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    assert not SparseConstantDots().run(parse(text))


@pytest.mark.parametrize("method", ["nearest", "linear", "cubic", "lanczos3", "lanczos5"])
@pytest.mark.parametrize(
    "before, after",
    [
        ((64, 64, 16), (128, 128, 16)),
        ((64, 64, 3), (128, 96, 3)),
        ((96, 96), (36, 32)),
        ((2, 60, 50, 1), (2, 45, 70, 1)),
        ((3, 40, 1), (3, 1, 1)),
        ((1, 9), (64, 9)),
        ((300,), (700,)),
    ],
)
def test_resized_images(before: Any, after: Any, method: str) -> None:
    jax = pytest.importorskip("jax")
    x = RNG.normal(size=before).astype(np.float32)
    module = hloom.from_jax(jax.jit(lambda x: jax.image.resize(x, after, method)), x)
    run = hloom.compile(module)
    agreement.computed(np.asarray(run(x)), module, [x])
    special = x.copy()
    special.flat[[0, x.size // 2, -1]] = np.inf, np.nan, -np.inf
    agreement.computed(np.asarray(run(special)), module, [special])
