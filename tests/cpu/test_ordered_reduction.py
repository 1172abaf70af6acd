"""Reductions in the order of their elements: both backends give the sequential answer, bit by bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hloom
from hloom.evaluate.evaluator import Evaluator
from tests import agreement
from tests.evaluation import parse
from tests.reducers import ARGMAX, JAX_ARGMAX, LATER, binary, selecting

PARAMETERS = "f {\n a = f32[] parameter(0)\n b = f32[] parameter(1)\n"
ABSOLUTE = PARAMETERS + " s = f32[] subtract(a, b)\n ROOT r = f32[] abs(s)\n}\n"
WEIGHTED = PARAMETERS + " s = f32[] add(b, b)\n ROOT r = f32[] add(a, s)\n}\n"
COMBINERS = {
    "page": (ARGMAX, ("f32", "s32"), ("-inf", "-1")),
    "page of integers": (ARGMAX.replace("f32", "s32"), ("s32", "s32"), ("-9", "-1")),
    "keep the first": (ARGMAX.replace("GE", "GT"), ("f32", "s32"), ("-inf", "-1")),
    "jax": (JAX_ARGMAX, ("f32", "s32"), ("-inf", "0")),
    "jax argmin of u8": (
        JAX_ARGMAX.replace("f32", "u8").replace("GT", "LT"), ("u8", "s32"), ("255", "0")
    ),
    "select": (selecting("GT"), ("f32",), ("-inf",)),
    "the last": (LATER, ("f32",), ("0",)),
    "absolute difference": (ABSOLUTE, ("f32",), ("0",)),
    "difference": (binary("subtract"), ("f32",), ("3",)),
    "weighted": (WEIGHTED, ("f32",), ("1",)),
}  # fmt: skip
SHAPES = {
    "few": ((6,), (0,)), "a page": ((40,), (0,)), "a block and more": ((100,), (0,)), "long": ((1000,), (0,)),
    "one too many": ((129,), (0,)), "rows": ((3, 77), (1,)), "columns": ((300, 5), (0,)),
    "two dimensions": ((7, 20, 30), (1, 2)), "around one": ((20, 7, 33), (0, 2)),
}  # fmt: skip
DTYPES = {"f32": np.float32, "s32": np.int32, "u8": np.uint8}


def text_of(name: str, case: str) -> str:
    """A reduction of an array, and perhaps of numbers that count along its last reduced dimension."""
    f, kinds, inits = COMBINERS[name]
    sizes, reduced = SHAPES[case]
    kept = ",".join(str(n) for d, n in enumerate(sizes) if d not in reduced)
    whole = ",".join(map(str, sizes))
    lines = [f"x = {kinds[0]}[{whole}] parameter(0)"]
    if len(kinds) == 2:
        lines.append(f"i = {kinds[1]}[{whole}] iota(), iota_dimension={reduced[-1]}")
    lines += [f"init{n} = {k}[] constant({v})" for n, (k, v) in enumerate(zip(kinds, inits, strict=True))]
    results = [f"{k}[{kept}]" for k in kinds]
    shape = results[0] if len(results) == 1 else f"({', '.join(results)})"
    arrays = ["x", "i"][: len(kinds)] + [f"init{n}" for n in range(len(kinds))]
    dimensions = ",".join(map(str, reduced))
    lines.append(f"ROOT r = {shape} reduce({', '.join(arrays)}), dimensions={{{dimensions}}}, to_apply=f")
    return f"HloModule m\n{f}ENTRY e {{\n" + "\n".join(lines) + "\n}"


def in_order(text: str, name: str, case: str, x: np.ndarray) -> list[np.ndarray]:
    """The combiner applied to one element after the other."""
    _, kinds, inits = COMBINERS[name]
    sizes, reduced = SHAPES[case]
    f = next(c for c in parse(text).computations if c.name == "f")
    count = int(np.prod([sizes[d] for d in reduced]))
    along = [-1 if d == reduced[-1] else 1 for d in range(len(sizes))]
    numbers = np.arange(sizes[reduced[-1]], dtype=np.int32).reshape(along)
    arrays = [x, np.broadcast_to(numbers, sizes)][: len(kinds)]
    rows = [np.moveaxis(a, reduced, range(len(reduced))).reshape(count, -1) for a in arrays]
    state: list[Any] = [
        np.full(rows[0].shape[1], float(v), DTYPES[k]) for k, v in zip(kinds, inits, strict=True)
    ]
    evaluator = Evaluator()
    for n in range(count):
        made = evaluator.map(f, [*state, *(row[n] for row in rows)])
        state = list(made) if isinstance(made, tuple) else [made]
    return state


def draw(kind: str, sizes: tuple[int, ...], unordered: float) -> np.ndarray:
    """Small numbers with many ties, zeros of both signs, and some NaN."""
    rng = np.random.default_rng(len(sizes))
    x = rng.integers(0 if kind == "u8" else -2, 3, sizes).astype(DTYPES[kind])
    if kind != "f32":
        return x
    x = np.where(rng.random(sizes) < 0.3, np.copysign(0, rng.random(sizes) - 0.5), x)
    return np.where(rng.random(sizes) < unordered, np.nan, x).astype(np.float32)


@pytest.mark.parametrize("case", SHAPES)
@pytest.mark.parametrize("name", COMBINERS)
def test_the_answer_is_the_sequential_one(name: str, case: str) -> None:
    text = text_of(name, case)
    programs = [hloom.compile(parse(text), backend=backend) for backend in ("cpu", "evaluator")]
    for unordered in (0.0, 0.01, 0.3):
        x = draw(COMBINERS[name][1][0], SHAPES[case][0], unordered)
        wanted = in_order(text, name, case, x)
        for run in programs:
            found = run(x)
            found = list(found) if isinstance(found, (tuple, list)) else [found]
            assert [np.asarray(f).tobytes() for f in found] == [w.tobytes() for w in wanted]


@pytest.mark.parametrize("case", SHAPES)
@pytest.mark.parametrize("name", [name for name, (_, kinds, _) in COMBINERS.items() if len(kinds) == 2])
def test_one_result_alone_is_the_sequential_one(name: str, case: str) -> None:
    """Results that are not used may lose signs of zeros, which lets lanes choose by themselves."""
    whole = text_of(name, case)
    for number in (0, 1):
        lines = whole.replace("ROOT r =", "r =").removesuffix("}")
        _, kinds, _ = COMBINERS[name]
        sizes, reduced = SHAPES[case]
        kept = ",".join(str(n) for d, n in enumerate(sizes) if d not in reduced)
        text = f"{lines} ROOT g = {kinds[number]}[{kept}] get-tuple-element(r), index={number}\n}}"
        run = hloom.compile(parse(text), backend="cpu")
        for unordered in (0.0, 0.01, 0.3, 1.0):
            x = draw(kinds[0], sizes, unordered)
            assert np.asarray(run(x)).tobytes() == in_order(whole, name, case, x)[number].tobytes()


def test_an_argmax_has_accumulators_in_lanes_if_its_value_is_not_used() -> None:
    """Lanes choose by themselves and are combined by position: the loop takes no vector apart."""
    whole = text_of("jax", "long")
    text = whole.replace("ROOT r =", "r =").removesuffix("}")
    index = f"{text} ROOT g = s32[] get-tuple-element(r), index=1\n}}"
    shuffled = [
        hloom.compile(parse(t), backend="cpu").to_llvm().count("i32 0, i32 2, i32 4, i32 6, i32 8")
        for t in (whole, index)
    ]
    assert shuffled[0] > 0 == shuffled[1]


@pytest.mark.parametrize(
    "window", ["size=9 pad=8_0", "size=9 pad=0_8 rhs_reversal=1", "size=9 pad=0_8", "size=3"]
)
@pytest.mark.parametrize("name", ["select", "absolute difference", "jax"])
def test_windows_meet_their_elements_in_order(name: str, window: str) -> None:
    """Running reductions too: only the laws of a combiner turn them into scans."""
    f, kinds, inits = COMBINERS[name]
    count = 9 if "pad" in window else 7
    arrays = ["x", "i"][: len(kinds)]
    lines = ["x = f32[9] parameter(0)", "i = s32[9] iota(), iota_dimension=0"]
    lines += [f"init{n} = {k}[] constant({v})" for n, (k, v) in enumerate(zip(kinds, inits, strict=True))]
    results = [f"{k}[{count}]" for k in kinds]
    shape = results[0] if len(results) == 1 else f"({', '.join(results)})"
    operands = ", ".join([*arrays, *(f"init{n}" for n in range(len(kinds)))])
    lines.append(f"ROOT r = {shape} reduce-window({operands}), window={{{window}}}, to_apply=f")
    text = f"HloModule m\n{f}ENTRY e {{\n" + "\n".join(lines) + "\n}"
    for unordered in (0.0, 0.3):
        x = draw("f32", (9,), unordered)
        found, wanted = (hloom.compile(parse(text), backend=b)(x) for b in ("cpu", "evaluator"))
        for a, b in zip(np.atleast_2d(found), np.atleast_2d(wanted), strict=True):
            agreement.equal(a, b)


def test_a_transpose_stays_where_its_order_matters() -> None:
    """The last element in row-major order is that of the transposed array, not of its operand."""
    text = f"""HloModule m
{binary("subtract", "s32")}ENTRY e {{
  x = s32[2,3] parameter(0)
  t = s32[3,2] transpose(x), dimensions={{1,0}}
  z = s32[] constant(0)
  ROOT r = s32[] reduce(t, z), dimensions={{0,1}}, to_apply=f
}}"""
    last = text.replace("subtract(f.lhs, f.rhs)", "copy(f.rhs)")
    x = np.array([[1, 2, 3], [4, 5, 7]], np.int32)
    for program, wanted in ((text, -22), (last, 7)):
        for backend in ("cpu", "evaluator"):
            assert hloom.compile(parse(program), backend=backend)(x) == wanted


def test_a_reversed_window_is_no_reduction_of_everything() -> None:
    text = f"""HloModule m
{LATER}ENTRY e {{
  x = f32[5] parameter(0)
  z = f32[] constant(0)
  ROOT r = f32[1] reduce-window(x, z), window={{size=5 rhs_reversal=1}}, to_apply=f
}}"""
    x = np.arange(1, 6, dtype=np.float32)
    for backend in ("cpu", "evaluator"):
        assert hloom.compile(parse(text), backend=backend)(x).tolist() == [1]
