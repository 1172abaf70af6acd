"""fusion: kernels are groups of operations, and no two of them need each other."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest

import hloom
from hloom.ir.instruction import HloInstruction, replace_uses
from hloom.passes.fusion import fusion
from hloom.passes.fusion.fusion import InstructionFusion
from hloom.passes.fusion.spans import Spans
from hloom.passes.simplify.algebraic_simplifier import AlgebraicSimplifier
from hloom.passes.simplify.dead_code import DeadCodeElimination
from tests.arrays import s32
from tests.evaluation import parse
from tests.pass_checks import after
from tests.reducers import binary, with_reducers

SHARED_CONSTANT = """
HloModule shared_constant

ENTRY main {
  one = s32[] constant(1)
  spread = s32[] broadcast(one), dimensions={}
  two = s32[] add(spread, spread)
  a = s32[] abs(spread)
  b = u8[] convert(a)
  c = s32[] minimum(a, two)
  low = s32[] constant(-8)
  high = s32[] constant(8)
  d = s32[] clamp(low, c, high)
  ROOT r = (u8[], s32[], s32[]) tuple(b, c, d)
}
"""
SHARED_SOURCE = """
HloModule shared_source

ENTRY main {
  x = s32[3] parameter(0)
  p = s32[3] abs(x)
  backwards = s32[3] reverse(p), dimensions={0}
  squares = s32[3] multiply(backwards, backwards)
  a = s32[3] negate(backwards)
  b = u8[3] convert(a)
  c = s32[3] subtract(squares, a)
  limits = s32[3] constant({-8, -8, 0})
  d = s32[3] maximum(limits, c)
  ROOT r = (s32[3], s32[3], u8[3]) tuple(c, d, b)
}
"""


def test_what_two_kernels_copy_makes_neither_need_the_other() -> None:
    """Both have copies of an operation, and what it reads (a constant, absolute values) is made in one."""
    for text, arguments in ((SHARED_CONSTANT, []), (SHARED_SOURCE, [s32([1, -2, 3])])):
        module = parse(text)
        wanted = hloom.compile(module, backend="evaluator")(*arguments)
        assert InstructionFusion().run(module)
        module.verify()
        found = hloom.compile(module, backend="evaluator")(*arguments)
        assert [f.tolist() for f in found] == [w.tolist() for w in wanted]


def fused(text: str, products: bool = False) -> tuple[list[HloInstruction], list[HloInstruction]]:
    """The instructions of the entry, and those of all fusions, of a program after the pass."""
    module = after(text, InstructionFusion(products=lambda dot: products))
    inside = [
        i
        for fusion in module.entry.instructions
        if fusion.opcode == "fusion"
        for i in fusion.called_computations[0].instructions
    ]
    return list(module.entry.instructions), inside


CROSS_ENTROPY = with_reducers("""
HloModule cross_entropy

ENTRY main {
  x = f32[32,100] parameter(0)
  label = s32[32,1] parameter(1)
  least = f32[] constant(-inf)
  zero = f32[] constant(0)
  top = f32[32] reduce(x, least), dimensions={1}, to_apply=maximum
  tops = f32[32,100] broadcast(top), dimensions={0}
  shifted = f32[32,100] subtract(x, tops)
  e = f32[32,100] exponential(shifted)
  sum = f32[32] reduce(e, zero), dimensions={1}, to_apply=add
  l = f32[32] log(sum)
  ls = f32[32,100] broadcast(l), dimensions={0}
  all = f32[32,100] subtract(shifted, ls)
  ROOT chosen = f32[32,1] gather(all, label), offset_dims={1}, collapsed_slice_dims={},
    operand_batching_dims={0}, start_indices_batching_dims={0}, start_index_map={1}, index_vector_dim=1,
    slice_sizes={1,1}
}
""")


def stored_scalars(root: str) -> int:
    """Return the number of arrays computed from no array, beside a chain of operations with one scalar."""
    chain = "\n".join(
        f"  y{n} = f32[100,100] {'multiply' if n % 2 else 'subtract'}(y{n - 1}, s)" for n in range(1, 41)
    )
    module = after(
        f"""HloModule scalars
ENTRY main {{
  y0 = f32[100,100] parameter(0)
  three = f32[] constant(3)
  s = f32[100,100] broadcast(three), dimensions={{}}
{chain}
  {root}
}}""",
        InstructionFusion(most_evaluated=16),
    )
    arrays = [i for i in module.entry.instructions if i.shape.is_array and i.shape.rank]
    return sum(i.opcode != "parameter" and not any(o.shape.rank for o in i.operands) for i in arrays)


def test_kernels_have_scalars_in_registers_however_long_they_are() -> None:
    assert stored_scalars("ROOT r = f32[100,100] negate(y40)") == 0


def test_a_scalar_is_an_array_only_for_kernels_that_read_one() -> None:
    sort = (
        "ROOT r = (f32[100,100], f32[100,100]) sort(y40, s), dimensions={1}, to_apply={ "
        "a = f32[] parameter(0)\n b = f32[] parameter(1)\n c = f32[] parameter(2)\n d = f32[] parameter(3)"
        "\n ROOT l = pred[] compare(a, b), direction=LT }"
    )
    assert stored_scalars(sort) == 1


def test_differences_of_all_pairs_are_computed_by_every_reader() -> None:
    entry, _ = fused(
        with_reducers("""HloModule pairs
ENTRY main {
  x = f32[64] parameter(0)
  rows = f32[64,64] broadcast(x), dimensions={0}
  columns = f32[64,64] broadcast(x), dimensions={1}
  d = f32[64,64] subtract(rows, columns)
  zero = f32[] constant(0)
  least = f32[] constant(-inf)
  top = f32[64] reduce(d, least), dimensions={0}, to_apply=maximum
  size = f32[64,64] abs(d)
  sum = f32[64] reduce(size, zero), dimensions={1}, to_apply=add
  ROOT r = (f32[64], f32[64]) tuple(top, sum)
}
""")
    )
    assert all(i.shape.element_count <= 64 for i in entry if i.shape.is_array)


@pytest.mark.parametrize("appended, fusions", [(1, 1), (9, 2)])
def test_few_elements_are_appended_in_the_loop_that_reads_them(appended: int, fusions: int) -> None:
    """An array extended by many elements of another one is stored before it is read."""
    entry, _ = fused(f"""HloModule differences
ENTRY main {{
  x = f32[40,40] parameter(0)
  y = f32[40,{appended}] parameter(1)
  long = f32[40,{40 + appended}] concatenate(x, y), dimensions={{1}}
  after = f32[40,{39 + appended}] slice(long), slice={{[0:40],[1:{40 + appended}]}}
  before = f32[40,{39 + appended}] slice(long), slice={{[0:40],[0:{39 + appended}]}}
  ROOT r = f32[40,{39 + appended}] subtract(after, before)
}}
""")
    assert sum(i.opcode == "fusion" for i in entry) + sum(i.opcode == "concatenate" for i in entry) == fusions


@pytest.mark.parametrize("kind, kernels", [("u8", 2), ("s16", 2), ("s32", 1)])
def test_narrow_rows_of_bytes_are_padded_in_memory(kind: str, kernels: int) -> None:
    """Processors gather words, but neither bytes nor halves of words."""
    entry, _ = fused(
        with_reducers(f"""HloModule blocks
ENTRY main {{
  x = {kind}[40,60] parameter(0)
  zero = {kind}[] constant(0)
  whole = {kind}[40,64] pad(x, zero), padding=0_0x0_4
  blocks = {kind}[40,8,8] reshape(whole)
  ROOT sums = {kind}[40,8] reduce(blocks, zero), dimensions={{2}}, to_apply=add_{kind}
}}
""")
    )
    assert sum(i.opcode in ("fusion", "pad", "reduce") for i in entry) == kernels


def test_what_reads_little_of_an_array_makes_what_it_reads() -> None:
    """Neither the shifted logits nor their logarithms are ever stored."""
    entry, _ = fused(CROSS_ENTROPY)
    assert all(i.shape.element_count <= 32 for i in entry if i.opcode == "fusion" and i.shape.is_array)


def test_a_reduction_is_made_once_although_what_copies_it_is_in_two_kernels() -> None:
    entry, inside = fused(CROSS_ENTROPY)
    assert [i.opcode for i in (*entry, *inside)].count("reduce") == 2


def test_index_components_are_read_from_where_they_are_joined() -> None:
    entry, inside = fused("""
HloModule indices

ENTRY main {
  x = f32[9,7] parameter(0)
  i = s32[50] parameter(1)
  j = s32[50] parameter(2)
  one = s32[] constant(1)
  ones = s32[50] broadcast(one), dimensions={}
  below = s32[50] add(i, ones)
  rows = s32[50,1] reshape(below)
  columns = s32[50,1] reshape(j)
  both = s32[50,2] concatenate(rows, columns), dimensions={1}
  ROOT r = f32[50] gather(x, both), offset_dims={}, collapsed_slice_dims={0,1}, start_index_map={0,1},
    index_vector_dim=1, slice_sizes={1,1}
}
""")
    assert "concatenate" in {i.opcode for i in inside}
    assert [i.opcode for i in entry if i.opcode not in ("parameter", "fusion")] == []


PRODUCT = """
HloModule product

ENTRY main {{
  a = f32[64,32] parameter(0)
  b = f32[32,64] parameter(1)
  p = f32[64,64] parameter(2)
  q = f32[64,64] parameter(3)
  v = f32[64] parameter(4)
  bias = f32[64,64] broadcast(v), dimensions={{1}}
  d = f32[64,64] dot(a, b), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  {end}
}}
"""


@pytest.mark.parametrize(
    "end, together",
    [
        ("ROOT r = f32[64,64] add(d, bias)", True),
        ("s = f32[64,64] add(d, bias)  ROOT r = f32[64,64] add(s, p)", True),
        ("s = f32[64,64] add(d, q)  ROOT r = f32[64,64] add(s, p)", False),
        ("s = f32[64,64] add(d, bias)  ROOT r = f32[64,64] tanh(s)", False),
    ],
    ids=["a bias", "a bias and an array", "two arrays", "a long chain"],
)
def test_a_product_ends_in_short_work_on_few_arrays(end: str, together: bool) -> None:
    _, inside = fused(PRODUCT.format(end=end), products=True)
    assert ("dot" in {i.opcode for i in inside}) == together


def test_a_long_sum_does_not_hold_all_its_terms_at_once() -> None:
    """Each kernel reads a dozen arrays at most, so that terms are summed up before others are made."""
    count = 60
    lines = [f"p{n} = f32[64] parameter({n})" for n in range(count)]
    lines += [f"t{n} = f32[64] sort(p{n}), dimensions={{0}}, to_apply=less" for n in range(count)]
    lines += [f"a{n} = f32[64] add({f'a{n - 1}' if n > 1 else 't0'}, t{n})" for n in range(1, count)]
    body = "\n  ".join(lines)
    module = parse(f"""
HloModule long
less {{ a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = pred[] compare(a, b), direction=LT }}
ENTRY main {{
  {body}
  ROOT r = f32[64] negate(a{count - 1})
}}
""")
    InstructionFusion().run(module)
    fusions = [i for i in module.entry.instructions if i.opcode == "fusion"]
    # the sum so far comes on top
    assert fusions and all(len(f.operands) <= InstructionFusion().most_inputs + 1 for f in fusions)


def random_graph(seed: int, count: int, *, ordered: bool) -> str:
    """Elementwise operations, reductions of rows and sorts, which no kernel takes in, over a few others."""
    draw = random.Random(seed)
    lines = ["a = f32[16,8] parameter(0)", "b = f32[16,8] parameter(1)", "z = f32[] constant(0)"]
    names = ["a", "b"]
    for n in range(count):
        x, y = (draw.choice(names[-draw.choice([3, 12, 60]) :]) for _ in range(2))
        kind = draw.random()
        if kind < 0.45:
            made = f"power({x}, {y})"
        elif kind < 0.6:
            made = f"sort({x}), dimensions={{0}}, to_apply=less"
        elif kind < 0.7:
            made = f"reverse({x}), dimensions={{0}}"
        elif kind < 0.85:
            lines.append(f"sum{n} = f32[16] reduce({x}, z), dimensions={{1}}, to_apply=add")
            made = f"broadcast(sum{n}), dimensions={{0}}"
        else:
            made = f"exponential({x})"
        if ordered and draw.random() < 0.1:
            made += f", control-predecessors={{{draw.choice(names)}}}"
        lines.append(f"v{n} = f32[16,8] {made}")
        names.append(f"v{n}")
    kept = names[-count // 5 :]
    lines.append(f"ROOT t = ({', '.join(['f32[16,8]'] * len(kept))}) tuple({', '.join(kept)})")
    return (
        "HloModule m\nless {\n p = f32[] parameter(0)\n q = f32[] parameter(1)\n"
        " ROOT l = pred[] compare(p, q), direction=LT\n}\n"
        f"{binary('add', name='add')}ENTRY e {{\n" + "\n".join(lines) + "\n}"
    )


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("seed", range(36))
def test_kernels_of_random_graphs_do_not_need_each_other(seed: int, ordered: bool) -> None:
    """Groups with several outputs and rows that were joined are where a path can lead back."""
    module = parse(random_graph(seed, 160, ordered=ordered))
    DeadCodeElimination().run(module)
    before = {(p.name, i.name) for i in module.entry.instructions for p in i.control_predecessors}
    InstructionFusion().run(module)
    module.verify()
    after = {(p.name, i.name) for i in module.entry.instructions for p in i.control_predecessors}
    assert after == before


def test_spans_that_overlap_are_one() -> None:
    spans = Spans()
    for low, high in ((2, 5), (8, 9), (20, 30), (4, 8)):
        spans.add(low, high)
    assert [spans.limit(n) for n in (0, 1, 2, 5, 9, 10, 19, 20, 25, 30, 31)] == [
        0, 1, 9, 9, 9, 10, 19, 30, 30, 30, 31
    ]  # fmt: skip


def test_uses_are_replaced_in_one_walk(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tuple of all results is a user of every fusion: its operands are not walked once for each."""
    lines = [
        f" part{n} = f32[8] slice(p), slice={{[{n}:{n + 8}]}}\n a{n} = f32[8] abs(part{n})" for n in range(40)
    ]
    results = ", ".join(f"a{n}" for n in range(40))
    root = f" ROOT t = ({', '.join(['f32[8]'] * 40)}) tuple({results})"
    module = parse("\n".join(["ENTRY e {", " p = f32[64] parameter(0)", *lines, root, "}"]))
    walks: list[int] = []

    def counted(replacements: Mapping[HloInstruction, HloInstruction]) -> None:
        walks.append(len(replacements))
        replace_uses(replacements)

    monkeypatch.setattr(fusion, "replace_uses", counted)
    assert InstructionFusion().run(module)
    module.verify()
    assert len(walks) == 1 and walks[0] > 1


STENCIL_IN_PLACE = """
HloModule stencil_in_place

ENTRY main {
  x = f32[64] parameter(0)
  one = s32[] constant(1)
  left = f32[62] slice(x), slice={[0:62]}
  right = f32[62] slice(x), slice={[2:64]}
  sum = f32[62] add(left, right)
  ROOT r = f32[64] dynamic-update-slice(x, sum, one)
}
"""


def test_a_value_that_reads_the_updated_array_twice_is_one_array() -> None:
    """The update in place may not read the old array elsewhere: each slice would be an array of its own."""
    outside, inside = fused(STENCIL_IN_PLACE)
    assert [i.opcode for i in inside if i.opcode in ("slice", "add")] == ["slice", "slice", "add"]
    value, update = (i for i in outside if i.opcode == "fusion")
    assert [o.opcode for o in update.operands] == ["parameter", "fusion"] and value in update.operands
    _, inside = fused(STENCIL_IN_PLACE.replace("add(left, right)", "add(left, left)"))
    assert "slice" not in [i.opcode for i in inside]


SYSTEM = """
HloModule system

ENTRY main {
  y = f32[100,2] parameter(0)
  p = f32[100,1] slice(y), slice={[0:100], [0:1]}
  q = f32[100,1] slice(y), slice={[0:100], [1:2]}
  minus = f32[100,1] negate(p)
  slopes = f32[100,2] concatenate(q, minus), dimensions={1}
  h = f32[] constant(0.5)
  hs = f32[100,2] broadcast(h), dimensions={}
  step = f32[100,2] multiply(slopes, hs)
  middle = f32[100,2] add(y, step)
  p1 = f32[100,1] slice(middle), slice={[0:100], [0:1]}
  q1 = f32[100,1] slice(middle), slice={[0:100], [1:2]}
  minus1 = f32[100,1] negate(p1)
  slopes1 = f32[100,2] concatenate(q1, minus1), dimensions={1}
  sum = f32[100,2] add(slopes, slopes1)
  change = f32[100,2] multiply(sum, hs)
  ROOT r = f32[100,2] add(y, change)
}
"""


def test_stages_of_a_system_of_equations_are_not_arrays() -> None:
    """The components of a stage are computed apart: only the sum of the slopes is joined."""
    module = parse(SYSTEM)
    AlgebraicSimplifier().run(module)
    DeadCodeElimination().run(module)
    module.verify()
    joins = [i for i in module.entry.instructions if i.opcode == "concatenate"]
    assert len(joins) == 1
