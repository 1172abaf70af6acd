"""concatenate, alone and with what its operands are made of."""

from __future__ import annotations

import numpy as np
import pytest

from tests.native_runs import agree, arguments, compiled, draw


def concatenate(kind: str, sizes: list[tuple[int, ...]], dimension: int, around: bool) -> str:
    lines: list[str] = []
    for n, size in enumerate(sizes):
        shape = f"{kind}[{','.join(map(str, size))}]"
        lines.append(f"p{n} = {shape} parameter({n})")
        lines.append(
            f"x{n} = {shape} add(p{n}, p{n})" if around and n % 2 == 0 else f"x{n} = {shape} copy(p{n})"
        )
    total = list(sizes[0])
    total[dimension] = sum(size[dimension] for size in sizes)
    shape = f"{kind}[{','.join(map(str, total))}]"
    names = ", ".join(f"x{n}" for n in range(len(sizes)))
    root = f"c = {shape} concatenate({names}), dimensions={{{dimension}}}"
    return "\n".join([*lines, root, f"ROOT r = {shape} add(c, c)" if around else f"ROOT r = {shape} copy(c)"])


@pytest.mark.parametrize("kind", ["f32", "s8", "f64", "c64", "pred", "bf16"])
@pytest.mark.parametrize("around", [True, False])
@pytest.mark.parametrize(
    ("sizes", "dimension"),
    [
        ([(3,), (0,), (5,)], 0),
        ([(4, 6), (2, 6)], 0),
        ([(4, 6), (4, 1), (4, 33)], 1),
        ([(2, 3, 5), (2, 1, 5), (2, 7, 5)], 1),
        ([(2, 3, 1), (2, 3, 1), (2, 3, 40)], 2),
        ([(70, 64), (70, 64)], 1),
        ([(1, 1), (1, 1)], 0),
        ([(0, 3), (0, 3)], 1),
        ([(5, 9)], 0),
    ],
)
def test_operands_in_a_row(kind: str, around: bool, sizes: list[tuple[int, ...]], dimension: int) -> None:
    text = concatenate(kind, sizes, dimension, around)
    agree(text, *arguments(np.random.default_rng(0), text))


@pytest.mark.parametrize("kind", ["f32", "s8", "c64"])
@pytest.mark.parametrize("around", [True, False])
@pytest.mark.parametrize(
    ("sizes", "dimension"),
    [
        ([(701, 333), (701, 100), (701, 1)], 1),
        ([(701, 17 + n) for n in range(19)], 1),
        ([(3, 20, 5000), (3, 7, 5000)], 1),
        ([(40, 30, 101), (40, 30, 160)], 2),
        ([(2, 90, 30, 30), (2, 60, 30, 30)], 1),
    ],
)
def test_operands_stored_together(
    kind: str, around: bool, sizes: list[tuple[int, ...]], dimension: int
) -> None:
    text = concatenate(kind, sizes, dimension, around)
    agree(text, *arguments(np.random.default_rng(0), text))


def test_parts_of_long_rows_that_are_moved() -> None:
    """A transposed operand has a kernel of its own; its neighbors are stored together."""
    text = """
    x = f32[300,400] parameter(0)
    y = f32[400] parameter(1)
    t = f32[400,300] transpose(x), dimensions={1,0}
    s = f32[400,60] slice(t), slice={[0:400], [1:121:2]}
    b = f32[400,50] broadcast(y), dimensions={0}
    i = f32[400,33] iota(), iota_dimension=1
    z = f32[400,17] slice(t), slice={[0:400], [283:300]}
    n = f32[400,17] negate(z)
    ROOT c = f32[400,460] concatenate(s, b, t, i, n), dimensions={1}"""
    agree(text, *arguments(np.random.default_rng(0), text))


def test_parts_that_are_moved() -> None:
    text = """
    x = f32[6,8] parameter(0)
    t = f32[8,6] transpose(x), dimensions={1,0}
    s = f32[3,6] slice(t), slice={[1:7:2], [0:6]}
    v = f32[8,6] reverse(t), dimensions={1}
    i = f32[2,6] iota(), iota_dimension=1
    ROOT c = f32[21,6] concatenate(t, s, v, i), dimensions={0}"""
    agree(text, *arguments(np.random.default_rng(0), text))


STACK = """HloModule stack
ENTRY main {{
  x = {kind}[{n},{a},{b}] parameter(0)
  y = {kind}[{n},{b},{a}] parameter(1)
  t = {kind}[{n},{b},{a}] transpose(x), dimensions={{0,2,1}}
  z = {kind}[{n},{b},{a}] reverse(y), dimensions={{1}}
  ROOT c = {kind}[{result}] concatenate(y, t, z), dimensions={{{dimension}}}
}}"""


@pytest.mark.parametrize("kind", ["f32", "f64", "s8"])
@pytest.mark.parametrize("n, a, b", [(1, 40, 24), (5, 9, 9), (7, 16, 33), (3, 64, 17), (130, 3, 20)])
@pytest.mark.parametrize("dimension", [0, 1, 2])
def test_parts_are_transposed_wherever_they_are_stored(
    kind: str, n: int, a: int, b: int, dimension: int
) -> None:
    result = [n, b, a]
    result[dimension] *= 3
    text = STACK.format(kind=kind, n=n, a=a, b=b, dimension=dimension, result=",".join(map(str, result)))
    agree(text, *arguments(np.random.default_rng(0), text))


def test_a_transposed_part_is_moved_in_tiles() -> None:
    for dimension, result in ((0, "15,64,48"), (1, "5,192,48")):
        text = STACK.format(kind="f32", n=5, a=48, b=64, dimension=dimension, result=result)
        forms = [call.kernel.form for call in compiled(text).program.calls if call.kernel]
        assert [form for form in forms if form.startswith("tiles of 16")], forms


@pytest.mark.parametrize("kind", ["f32", "s32", "f64", "s64"])
@pytest.mark.parametrize("rows", [1, 5, 16, 37, 200])
@pytest.mark.parametrize(
    "widths", [(1,) * 17, (1,) * 20 + (3,), (2, 1) * 16, (1,) * 64, (3,) * 21, (1,) * 130]
)
def test_many_columns_become_rows(kind: str, rows: int, widths: tuple[int, ...]) -> None:
    lines = [f"x{n} = {kind}[{rows},{width}] parameter({n})" for n, width in enumerate(widths)]
    lines += [f"y{n} = {kind}[{rows},{width}] add(x{n}, x{n})" for n, width in enumerate(widths)]
    names = ", ".join(f"y{n}" if n % 3 else f"x{n}" for n in range(len(widths)))
    lines.append(f"ROOT c = {kind}[{rows},{sum(widths)}] concatenate({names}), dimensions={{1}}")
    text = "\n".join(lines)
    agree(text, *arguments(np.random.default_rng(0), text))


def test_many_columns_are_transposed_in_registers() -> None:
    columns = ", ".join(f"x{n}" for n in range(20))
    lines = [f"x{n} = f32[1000,1] parameter({n})" for n in range(20)]
    text = "\n".join([*lines, f"ROOT c = f32[1000,20] concatenate({columns}), dimensions={{1}}"])
    (form,) = [call.kernel.form for call in compiled(text).program.calls if call.kernel]
    assert form.endswith("rows at a time")


@pytest.mark.parametrize("kind", ["f32", "u8", "f64", "c64"])
@pytest.mark.parametrize(("height", "width"), [(3, 1), (2, 7), (5, 16), (9, 35)])
@pytest.mark.parametrize("columns", [1, 2, 3, 5])
def test_the_edges_of_an_image(kind: str, height: int, width: int, columns: int) -> None:
    """Rows before, of and after the image are read where the outer loop says so, several channels apart."""
    tall, end = height + 6, height - 1
    text = f"""HloModule m
ENTRY main {{
  x = {kind}[{height},{width},{columns}] parameter(0)
  top = {kind}[1,{width},{columns}] slice(x), slice={{[0:1], [0:{width}], [0:{columns}]}}
  row = {kind}[{width},{columns}] reshape(top)
  above = {kind}[3,{width},{columns}] broadcast(row), dimensions={{1,2}}
  reversed = {kind}[{height},{width},{columns}] reverse(x), dimensions={{1}}
  low = {kind}[1,{width},{columns}] slice(reversed), slice={{[{end}:{height}], [0:{width}], [0:{columns}]}}
  last = {kind}[{width},{columns}] reshape(low)
  below = {kind}[3,{width},{columns}] broadcast(last), dimensions={{1,2}}
  rows = {kind}[{tall},{width},{columns}] concatenate(above, x, below), dimensions={{0}}
  first = {kind}[{tall},1,{columns}] slice(rows), slice={{[0:{tall}], [0:1], [0:{columns}]}}
  column = {kind}[{tall},{columns}] reshape(first)
  left = {kind}[{tall},4,{columns}] broadcast(column), dimensions={{0,2}}
  ROOT r = {kind}[{tall},{width + 4},{columns}] concatenate(left, rows), dimensions={{1}}
}}"""
    agree(text, draw(np.random.default_rng(0), f"{kind}[{height},{width},{columns}]"))
