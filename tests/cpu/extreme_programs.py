"""Programs at the limits: many dimensions, no elements, counters that overflow, deep nesting, long graphs.

Run as a module, in a process of its own: each program is compiled, run, and held against the evaluator; its
name is printed when all is well, and the process may die of none.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import hloom
from hloom import HloError, HloModule, Shape
from hloom.error_bounds.rules import ULPS
from tests import agreement
from tests.reducers import binary, comparison

COMBINERS = binary("add", name="add") + comparison("LT", name="less")


@dataclass(frozen=True)
class Program:
    """A program and the shapes of its arguments; ``rule`` is how it is refused while running, if it is."""

    name: str
    text: str
    shapes: tuple[str, ...]
    rule: str = ""


def program(
    name: str, lines: Sequence[str], shapes: Sequence[str], before: str = "", rule: str = ""
) -> Program:
    """A program of the instructions of its entry."""
    body = "\n  ".join(lines)
    return Program(name, f"HloModule m\n{COMBINERS}{before}ENTRY e {{\n  {body}\n}}\n", tuple(shapes), rule)


def listed(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers))


def of_rank(sizes: Sequence[int]) -> Program:
    """Every way to move, and sums, of an array of many dimensions."""
    rank, order = len(sizes), list(range(len(sizes)))
    random.Random(1).shuffle(order)
    turned = [sizes[d] for d in order]
    shape, half, every = f"f32[{listed(turned)}]", rank // 2, listed(range(rank))
    longer, doubled = [turned[0] + 1, *turned[1:]], [*turned[:-1], 2 * turned[-1]]
    ones = listed([1] * rank)
    starts = ", ".join(["seven"] * rank)
    window = "x".join(["2", *["1"] * (rank - 1)])
    pads = "x".join(["1_0", *["0_0"] * (rank - 1)])
    batch = listed(range(rank - 1))
    rest = listed(range(half, rank))
    lines = [
        f"x = f32[{listed(sizes)}] parameter(0)",
        f"y = {shape} transpose(x), dimensions={{{listed(order)}}}",
        f"z = {shape} reverse(y), dimensions={{{every}}}",
        "zero = f32[] constant(0)",
        "seven = s32[] constant(7)",
        f"sum = f32[{listed(turned[:half])}] reduce(z, zero), dimensions={{{rest}}}, to_apply=add",
        f"part = f32[{ones}] slice(z), slice={{{', '.join(['[0:1]'] * rank)}}}",
        f"padded = f32[{listed(longer)}] pad(z, zero), padding={pads}",
        f"joined = f32[{listed(doubled)}] concatenate(z, y), dimensions={{{rank - 1}}}",
        f"slid = {shape} reduce-window(z, zero), window={{size={window} pad={pads}}}, to_apply=add",
        f"sorted = {shape} sort(z), dimensions={{{rank - 1}}}, to_apply=less",
        f"product = f32[{listed(turned[:-1])}] dot(z, y), lhs_batch_dims={{{batch}}}, "
        f"rhs_batch_dims={{{batch}}}, lhs_contracting_dims={{{rank - 1}}}, "
        f"rhs_contracting_dims={{{rank - 1}}}",
        f"picked = f32[{ones}] dynamic-slice(z, {starts}), dynamic_slice_sizes={{{ones}}}",
        f"changed = {shape} dynamic-update-slice(z, picked, {starts})",
        f"flat = f32[{math.prod(sizes)}] reshape(z)",
        "ROOT r = tuple(sum, part, padded, joined, slid, sorted, product, picked, changed, flat)",
    ]
    return program(f"rank {rank} of {sizes[0]}", lines, [f"f32[{listed(sizes)}]"])


def of_nothing() -> Program:
    lines = [
        "x = f32[0,5] parameter(0)",
        "y = f32[5,0] transpose(x), dimensions={1,0}",
        "two = f32[] constant(2)",
        "low = s32[] constant(-5)",
        "inner = f32[0,0] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
        "outer = f32[5,5] dot(x, x), lhs_contracting_dims={0}, rhs_contracting_dims={0}",
        "rows = f32[0,5] sort(x), dimensions={1}, to_apply=less",
        "columns = f32[0,5] sort(x), dimensions={0}, to_apply=less",
        "sums = f32[5] reduce(x, two), dimensions={0}, to_apply=add",
        "none = f32[0] reduce(x, two), dimensions={1}, to_apply=add",
        "padded = f32[2,5] pad(x, two), padding=1_1x0_0",
        "joined = f32[0,10] concatenate(x, x), dimensions={1}",
        "slid = f32[2,5] reduce-window(x, two), window={size=1x1 pad=1_1x0_0}, to_apply=add",
        "places = s32[0,1] iota(), iota_dimension=0",
        "square = f32[5,5] iota(), iota_dimension=0",
        "gathered = f32[0,5] gather(square, places), offset_dims={1}, collapsed_slice_dims={0}, "
        "start_index_map={0}, index_vector_dim=1, slice_sizes={1,5}",
        "scattered = f32[5,5] scatter(square, places, gathered), update_window_dims={1}, "
        "inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add",
        "updated = f32[0,5] dynamic-update-slice(x, x, low, low)",
        "picked = f32[0,2] dynamic-slice(x, low, low), dynamic_slice_sizes={0,2}",
        "matrix = f32[0,0] reshape(x)",
        "factor = f32[0,0] cholesky(matrix), lower=true",
        "solved = f32[0,0] triangular-solve(factor, matrix), left_side=true, lower=true, "
        "unit_diagonal=false, transpose_a=NO_TRANSPOSE",
        "ROOT r = tuple(inner, outer, rows, columns, sums, none, padded, joined, slid, scattered, updated, "
        "picked, solved)",
    ]
    return program("nothing", lines, ["f32[0,5]"])


def counting(kind: str, start: int, limit: int, step: int, direction: str) -> Program:
    """A loop whose counter may overflow on the way."""
    state = f"({kind}[], f32[4], f32[])"
    before = f"""
more {{ p = {state} parameter(0)
  i = {kind}[] get-tuple-element(p), index=0
  n = {kind}[] constant({limit})
  ROOT r = pred[] compare(i, n), direction={direction} }}
step {{ p = {state} parameter(0)
  i = {kind}[] get-tuple-element(p), index=0
  x = f32[4] get-tuple-element(p), index=1
  count = f32[] get-tuple-element(p), index=2
  by = {kind}[] constant({step})
  j = {kind}[] add(i, by)
  number = f32[] convert(i)
  spread = f32[4] broadcast(number), dimensions={{}}
  y = f32[4] add(x, spread)
  one = f32[] constant(1)
  next = f32[] add(count, one)
  ROOT r = {state} tuple(j, y, next) }}
"""
    lines = [
        "x = f32[4] parameter(0)", f"s = {kind}[] constant({start})", "zero = f32[] constant(0)",
        f"t = {state} tuple(s, x, zero)", f"ROOT w = {state} while(t), condition=more, body=step",
    ]  # fmt: skip
    return program(f"{kind} from {start} by {step} while {direction} {limit}", lines, ["f32[4]"], before)


def nested_loops(depth: int) -> Program:
    """Loops inside loops that all share one condition."""
    state = "(s32[], f32[3])"
    parts = f"""  p = {state} parameter(0)
  i = s32[] get-tuple-element(p), index=0
"""
    before = f"""
once {{
{parts}  n = s32[] constant(1)
  ROOT r = pred[] compare(i, n), direction=LT }}
"""
    for level in range(depth):
        inner = "y = f32[3] add(x, x)"
        if level:
            inner = (
                f"zero = s32[] constant(0)\n  t = {state} tuple(zero, x)\n"
                f"  w = {state} while(t), condition=once, body=level{level - 1}\n"
                "  y = f32[3] get-tuple-element(w), index=1"
            )
        before += f"""level{level} {{
{parts}  x = f32[3] get-tuple-element(p), index=1
  {inner}
  one = s32[] constant(1)
  j = s32[] add(i, one)
  ROOT r = {state} tuple(j, y) }}
"""
    lines = [
        "x = f32[3] parameter(0)", "zero = s32[] constant(0)", f"t = {state} tuple(zero, x)",
        f"ROOT w = {state} while(t), condition=once, body=level{depth - 1}",
    ]  # fmt: skip
    return program(f"{depth} nested loops", lines, ["f32[3]"], before)


def nested_calls(depth: int) -> Program:
    before = "call0 { x = f32[3] parameter(0)\n  ROOT y = f32[3] add(x, x) }\n"
    for level in range(1, depth):
        before += f"call{level} {{ x = f32[3] parameter(0)\n  y = f32[3] call(x), to_apply=call{level - 1}\n"
        before += "  ROOT z = f32[3] negate(y) }\n"
    lines = ["x = f32[3] parameter(0)", f"ROOT r = f32[3] call(x), to_apply=call{depth - 1}"]
    return program(f"{depth} nested calls", lines, ["f32[3]"], before)


def nested_tuples(depth: int) -> Program:
    shape, lines = "f32[2]", ["x = f32[2] parameter(0)"]
    for level in range(depth):
        shape = f"({shape})"
        lines.append(f"t{level} = {shape} tuple({f't{level - 1}' if level else 'x'})")
    return program(f"{depth} nested tuples", [*lines, f"ROOT r = {shape} copy(t{depth - 1})"], ["f32[2]"])


def long_chain(count: int, shape: str, opcodes: Sequence[str]) -> Program:
    """Each operation takes the result before it and one a little earlier."""
    draw = random.Random(5)
    lines = [f"x = {shape} parameter(0)", f"v0 = {shape} negate(x)"]
    for n in range(1, count):
        lines.append(f"v{n} = {shape} {draw.choice(opcodes)}(v{n - 1}, v{max(0, n - draw.randint(1, 30))})")
    return program(
        f"{count} operations on {shape}", [*lines, f"ROOT r = {shape} negate(v{count - 1})"], [shape]
    )


def long_moves(count: int) -> Program:
    lines = ["x = f32[8,8] parameter(0)"]
    last = "x"
    for n in range(count):
        lines += [
            f"a{n} = f32[8,8] transpose({last}), dimensions={{1,0}}", f"b{n} = f32[64] reshape(a{n})",
            f"c_{n} = f32[64] reverse(b{n}), dimensions={{0}}", f"d{n} = f32[8,8] reshape(c_{n})",
        ]  # fmt: skip
        last = f"d{n}"
    return program(f"{4 * count} moves", [*lines, f"ROOT r = f32[8,8] negate({last})"], ["f32[8,8]"])


def many_operands(count: int) -> Program:
    lines = [f"p{n} = f32[4] parameter({n})" for n in range(count)]
    names = ", ".join(f"p{n}" for n in range(count))
    lines.append(f"ROOT r = f32[{4 * count}] concatenate({names}), dimensions={{0}}")
    return program(f"{count} operands", lines, ["f32[4]"] * count)


def far_indices(kind: str, index: int) -> Program:
    branches = "".join(
        f"branch{n} {{ x = f32[5,3] parameter(0)\n  k = f32[] constant({n})\n"
        "  b = f32[5,3] broadcast(k), dimensions={}\n  ROOT r = f32[5,3] add(x, b) }\n"
        for n in range(3)
    )
    lines = [
        "x = f32[5,3] parameter(0)", f"i = {kind}[] constant({index})",
        f"rows = {kind}[2,1] broadcast(i), dimensions={{}}",
        "picked = f32[2,2] dynamic-slice(x, i, i), dynamic_slice_sizes={2,2}",
        "updated = f32[5,3] dynamic-update-slice(x, picked, i, i)",
        "gathered = f32[2,3] gather(x, rows), offset_dims={1}, collapsed_slice_dims={0}, "
        "start_index_map={0}, index_vector_dim=1, slice_sizes={1,3}",
        "windows = f32[2,5,3] broadcast(gathered), dimensions={0,2}",
        "scattered = f32[5,3] scatter(x, rows, windows), update_window_dims={1,2}, inserted_window_dims={}, "
        "scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add",
        "number = s32[] convert(i)",
        "chosen = f32[5,3] conditional(number, x, x, x), branch_computations={branch0, branch1, branch2}",
        "ROOT r = tuple(picked, updated, gathered, scattered, chosen)",
    ]  # fmt: skip
    return program(f"{kind} index {index}", lines, ["f32[5,3]"], branches)


def programs() -> Iterator[Program]:
    """All of them."""
    yield from (of_rank([1] * 40), of_rank([2] * 14), of_rank([1, 2] * 10), of_nothing())
    for kind, start, limit, step, direction in (
        ("s8", 0, 100, 50, "LT"), ("u8", 250, 5, 1, "GT"), ("s32", 5, -7, -3, "GT"), ("s8", 1, 0, 3, "NE"),
        ("s32", 2**31 - 2, 2**31 - 1, 1, "LT"), ("u8", 253, 254, 1, "LE"), ("u16", 3, 0, 65535, "NE"),
        ("s64", 2**63 - 8, 2**63 - 1, 1, "LT"), ("s64", -(2**63), -(2**63) + 3, 1, "LT"),
        ("u32", 2**32 - 6, 2**32 - 1, 1, "LT"), ("s32", 0, 0, 1, "EQ"), ("s8", -120, 0, -9, "LT"),
    ):  # fmt: skip
        yield counting(kind, start, limit, step, direction)
    yield from (nested_loops(20), nested_calls(150), nested_tuples(150))
    yield long_chain(1500, "f32[100]", ("add", "subtract", "multiply", "maximum"))
    yield long_chain(1000, "f32[]", ("atan2", "subtract"))
    yield from (long_moves(300), many_operands(200))
    for kind, index in (
        ("s64", -(2**63)), ("s64", 2**63 - 1), ("u64", 2**64 - 2), ("u32", 2**32 - 1), ("s32", -1),
        ("u8", 255),
    ):  # fmt: skip
        yield far_indices(kind, index)
    many = "f32[1099511627776]"
    lines = ["x = f32[] parameter(0)", f"ROOT r = {many} broadcast(x), dimensions={{}}"]
    yield program("a result beyond memory", lines, ["f32[]"], rule="evaluate.memory")
    lines = [
        f"i = {many} iota(), iota_dimension=0", f"s = {many} sort(i), dimensions={{0}}, to_apply=less",
        "ROOT r = f32[1] slice(s), slice={[5:6]}",
    ]  # fmt: skip
    yield program("a temporary beyond memory", lines, [], rule="evaluate.memory")
    ones = listed([1] * 65)
    lines = ["x = f32[] parameter(0)", f"ROOT r = f32[{ones}] broadcast(x), dimensions={{}}"]
    yield program("more dimensions than numpy has", lines, ["f32[]"], rule="evaluate.memory")


def leaves(value: Any) -> list[np.ndarray[Any, Any]]:
    return [leaf for part in value for leaf in leaves(part)] if isinstance(value, tuple) else [value]


def check(item: Program) -> None:
    """Run a program on both backends; AssertionError if they do not do the same."""
    draw = np.random.default_rng(0)
    shapes = [Shape.parse(s) for s in item.shapes]
    arguments = [draw.integers(-4, 5, s.dimensions).astype(np.float32) for s in shapes]
    results: list[Any] = []
    for backend in ("cpu", "evaluator"):
        try:
            results.append(leaves(hloom.compile(HloModule.from_text(item.text), backend)(*arguments)))
        except HloError as error:
            assert error.rule == item.rule, f"{backend}: {error}"
            results.append([])
    # In a chain of functions each adds its error, and none of them enlarges those before it.
    units = ULPS * len(HloModule.from_text(item.text).entry) if "operations on" in item.name else 0.0
    for ours, theirs in zip(*results, strict=True):
        agreement.near(ours, theirs, units) if units else agreement.equal(ours, theirs)
    assert bool(item.rule) != bool(results[0])


if __name__ == "__main__":
    for each in programs():
        print(f"begin {each.name}", flush=True)
        check(each)
        print(f"end {each.name}", flush=True)
