"""Proofs of rules for all sizes; wrong rules are refuted by sizes and inputs."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from hloom.errors import HloError
from hloom.ir.instruction import HloInstruction
from hloom.ir.window import PaddingDimension, SliceDimension
from hloom.operations.arithmetic import Add, Multiply, Power, Subtract
from hloom.operations.movement import Pad, Reverse, Slice, Transpose
from hloom.operations.reduction import Reduce
from hloom.operations.transcendental import SquareRoot
from hloom.operations.unary import Negate
from hloom.passes.rewriting import RuleFamily
from hloom.passes.rules.reduction import again, arrays_of
from hloom.passes.writing import Writer
from hloom.proofs.symbolic import questions
from hloom.proofs.symbolic.rewrites import prove_rewrite
from hloom.proofs.symbolic.rules import RuleBook, Sketch, overall, prove_instance, prove_rule
from hloom.proofs.symbolic.sizes import Trail
from hloom.proofs.verdict import Relation
from hloom.shape.element_type import F32, S32
from hloom.tools.commands.prove import prove
from tests.passes import test_contraction_rules
from tests.rule_checks import Example

pytest.importorskip("z3", reason="z3 is not installed")

from hloom.proofs.symbolic.xla import conversion, elementwise, movement, slicing, sums

BOOKS = {
    book.name: book
    for book in (module.RULES for module in (conversion, elementwise, movement, slicing, sums))
}
SAMPLE = {
    "conversion": ("convert_f16_to_f32_and_back", "complex_of_parts", "power_minus_one", "window_of_one"),
    "elementwise": ("add_zero", "common_factor", "clamp_twice", "remainder_of_sum", "or_true_first"),
    "movement": ("transpose_twice", "reverse_twice", "concatenate_to_the_left", "concatenate_scalar_before"),
    "slicing": ("slice_twice", "slice_of_second_operand", "dynamic_slice_twice", "add_of_update"),
    "sums": ("reduce_of_transpose", "reduce_twice", "dot_swapped", "dot_regrouped", "multiple_of_reduce"),
}


@pytest.mark.parametrize(("book", "name"), [(b, n) for b, names in SAMPLE.items() for n in names])
def test_rules_of_xla_hold_for_all_sizes(book: str, name: str) -> None:
    assert overall(prove_rule(BOOKS[book].rules[name])).relation.is_proof


RIGHT = RuleBook("right")


@RIGHT.state()
def dynamic_slice_at_a_clamped_start(w: Sketch) -> Iterator[HloInstruction]:
    """DynamicSlice(A, clamp(0, i, 3)) ⇒ DynamicSlice(Slice(A), i), which clamps the start."""
    n, (i,) = w.sizes("n"), w.indices("i", 1)
    w.require(n >= 4)
    a = w.array("A", n)
    yield w.dynamic_slice(a, [w.clamp(w.scalar(0, S32), i, w.scalar(3, S32))], [1])
    yield w.dynamic_slice(w.slice(a, [0], [4]), [i], [1])


def test_a_clamped_start_is_its_bound_where_it_is_above() -> None:
    rule = RIGHT.rules["dynamic_slice_at_a_clamped_start"]
    assert overall(prove_rule(rule)).relation is Relation.IDENTICAL


def test_instances_have_the_highest_rank_of_their_parameters() -> None:
    rule = BOOKS["movement"].rules["concatenate_scalar_before"]
    assert prove_instance(rule, F32, {"N": 2, "M": 0}).rank == 3


# -- wrong rules are refuted

WRONG = RuleFamily("wrong")
PROGRAMS = {
    "slice_loses_the_inner_stride": "a = f32[7] slice(x), slice={[1:20:3]}; "
    "r = f32[3] slice(a), slice={[1:6:2]}",
    "slice_starts_one_later": "a = f32[7] slice(x), slice={[1:20:3]}; r = f32[3] slice(a), slice={[1:6:2]}",
    "pads_may_be_negative": "p = f32[24] pad(x, v), padding=1_3; r = f32[27] pad(p, v), padding=2_1",
    "mirrored_slice_ignores_the_stride": "t = f32[20] reverse(x), dimensions={0}; "
    "r = f32[4] slice(t), slice={[1:8:2]}",
    "reduce_keeps_the_dimension_numbers": "t = f32[4,20] transpose(y), dimensions={1,0}; "
    "r = f32[20] reduce(t, v), dimensions={0}, to_apply=sum",
    "transposes_in_the_wrong_order": "a = f32[4,6,20] transpose(z), dimensions={1,2,0}; "
    "r = f32[20,4,6] transpose(a), dimensions={2,0,1}",
    "power_of_negative_infinity": "h = f32[] constant(1.5); c = f32[20] broadcast(h), dimensions={}; "
    "r = f32[20] power(x, c)",
    "difference_is_swapped": "a = s32[20] add(i, j); r = s32[20] subtract(a, i)",
}


@WRONG.rewrites(Slice, of=Slice)
def slice_loses_the_inner_stride(i: HloInstruction, outer: Slice, inner: Slice) -> HloInstruction:
    ranges = [
        SliceDimension(a.start + b.start, a.start + b.start + (size - 1) * b.stride + 1, b.stride)
        for a, b, size in zip(inner.slice, outer.slice, i.shape.dimensions, strict=True)
    ]
    return Writer(i).op(Slice(slice=tuple(ranges)), i.operands[0].operands[0])


@WRONG.rewrites(Slice, of=Slice)
def slice_starts_one_later(i: HloInstruction, outer: Slice, inner: Slice) -> HloInstruction | None:
    if 0 in i.shape.dimensions:
        return None
    (source,) = i.operands[0].operands
    ranges: list[SliceDimension] = []
    for a, b, size in zip(inner.slice, outer.slice, i.shape.dimensions, strict=True):
        start, stride = a.start + b.start * a.stride + 1, a.stride * b.stride
        ranges.append(SliceDimension(start, start + (size - 1) * stride + 1, stride))
    if any(r.limit > size for r, size in zip(ranges, source.shape.dimensions, strict=True)):
        return None
    return Writer(i).op(Slice(slice=tuple(ranges)), source)


@WRONG.rewrites(Pad, of=Pad)
def pads_may_be_negative(i: HloInstruction, outer: Pad, inner: Pad) -> HloInstruction | None:
    if any(p.interior for p in (*outer.padding, *inner.padding)):
        return None
    both = zip(inner.padding, outer.padding, strict=True)
    paddings = tuple(PaddingDimension(a.low + b.low, a.high + b.high) for a, b in both)
    return Writer(i).op(Pad(padding=paddings), *i.operands[0].operands)


@WRONG.rewrites(Slice, of=Reverse)
def mirrored_slice_ignores_the_stride(
    i: HloInstruction, cut: Slice, reverse: Reverse
) -> HloInstruction | None:
    if 0 in i.shape.dimensions:
        return None
    (x,) = i.operands[0].operands
    (r,), (size,) = cut.slice, x.shape.dimensions
    w = Writer(i)
    return w.op(reverse, w.op(Slice(slice=(SliceDimension(size - r.limit, size - r.start, r.stride),)), x))


@WRONG.rewrites(Reduce, of=Transpose)
def reduce_keeps_the_dimension_numbers(
    i: HloInstruction, reduce: Reduce, transpose: Transpose
) -> HloInstruction | None:
    x = arrays_of(i)[0].operands[0]
    if x.shape.dimensions[0] != x.shape.dimensions[1]:
        return None
    return again(i, [x], reduce.dimensions)


@WRONG.rewrites(Transpose, of=Transpose)
def transposes_in_the_wrong_order(i: HloInstruction, outer: Transpose, inner: Transpose) -> HloInstruction:
    order = tuple(outer.dimensions[d] for d in inner.dimensions[::-1])
    return Writer(i).op(Transpose(dimensions=order), i.operands[0].operands[0])


@WRONG.rewrites(Power)
def power_of_negative_infinity(i: HloInstruction, power: Power) -> HloInstruction:
    w, x = Writer(i), i.operands[0]
    return w.op(Multiply(), x, w.op(SquareRoot(), x))


@WRONG.rewrites(Subtract, of=Add)
def difference_is_swapped(i: HloInstruction, subtract: Subtract, add: Add) -> HloInstruction:
    return i.operands[1]


@pytest.mark.parametrize("name", PROGRAMS)
def test_wrong_rules_are_refuted(name: str) -> None:
    parameters = "x: f32[20], v: f32[], y: f32[20,4], z: f32[20,4,6], i: s32[20], j: s32[20]"
    verdict = prove_rewrite(WRONG.rules[name], next(iter(Example(parameters, PROGRAMS[name]).programs())))
    assert verdict.relation is Relation.REFUTED
    assert verdict.sizes
    assert verdict.counterexample is not None and verdict.counterexample.comparisons


BAD = RuleBook("wrong")


@BAD.state(axes="N")
def wrong_padding_value(w: Sketch) -> Iterator[HloInstruction]:
    """Concat(Broadcast(v), B) ⇒ Pad(B, u, low)."""
    n, (low, size) = w.sizes("n", "N"), w.sizes("low size")
    b, v, u, none = w.array("B", size, *n), w.array("v"), w.array("u"), [0] * len(n)
    yield w.concatenate(w.broadcast(v, (low, *n)), b, dimension=0)
    yield w.pad(b, u, (low, *none), (0, *none))


@BAD.state(axes="N", most=1)
def dropped_precondition(w: Sketch) -> Iterator[HloInstruction]:
    """Slice(Concat(A, B)) ⇒ Slice(A), wherever it ends."""
    n, (a, b, limit) = w.sizes("n", "N"), w.sizes("a b limit")
    x, y, none = w.array("A", a, *n), w.array("B", b, *n), [0] * len(n)
    yield w.slice(w.concatenate(x, y, dimension=0), (0, *none), (limit, *n))
    yield w.slice(x, (0, *none), (limit, *n))


@BAD.state(axes="N", most=1)
def clamped_offsets_added(w: Sketch) -> Iterator[HloInstruction]:
    """DynamicSlice(DynamicSlice(A, i), j) ⇒ DynamicSlice(A, i + j), also out of bounds."""
    (n, outer, inner), (i, j) = w.sizes("n outer inner"), w.indices("i", 2)
    a = w.array("A", n)
    yield w.dynamic_slice(w.dynamic_slice(a, [i], [outer]), [j], [inner])
    yield w.dynamic_slice(a, [w.op(Add(), i, j)], [inner])


@BAD.state()
def start_of_a_neighbour(w: Sketch) -> Iterator[HloInstruction]:
    """DynamicSlice(A, 1) ⇒ DynamicSlice(A, 2), of one element."""
    a = w.array("A", w.sizes("n"))
    yield w.dynamic_slice(a, [w.scalar(1, S32)], [1])
    yield w.dynamic_slice(a, [w.scalar(2, S32)], [1])


@BAD.state()
def one_sum_too_few(w: Sketch) -> Iterator[HloInstruction]:
    """Reduce(Reduce(X)) ⇒ Reduce(Slice(X))."""
    n, m = w.sizes("n m")
    w.require(m >= 2)
    x = w.array("X", n, m)
    yield w.reduce(w.reduce(x, (0,)), (0,))
    yield w.reduce(w.slice(x, (0, 0), (n, m - 1)), (0, 1))


@BAD.state()
def first_element_everywhere(w: Sketch) -> Iterator[HloInstruction]:
    """Reshape(Negate(Reshape(A))) ⇒ Broadcast(Negate(Slice(A))), by way of a dimension of size 1."""
    n, m = w.sizes("n m")
    w.require(n * m >= 1)
    a = w.array("A", n * m)
    yield w.reshape(w.op(Negate(), w.reshape(a, (n * m, 1))), (n, m))
    yield w.broadcast(w.op(Negate(), w.reshape(w.slice(a, (0,), (1,)), ())), (n, m))


@BAD.state()
def broadcast_without_dimensions(w: Sketch) -> Iterator[HloInstruction]:
    """Broadcast(A) ⇒ Broadcast(A), which is no program without its dimensions."""
    n = w.sizes("n")
    a = w.array("A", n)
    yield w.op_broadcast(a, (3, n), (1,))
    yield w.op_broadcast(a, (3, n), ())


@pytest.mark.parametrize("name", BAD.rules)
def test_wrong_statements_are_refuted(name: str) -> None:
    verdict = overall(prove_rule(BAD.rules[name]))
    assert verdict.relation is Relation.REFUTED
    assert verdict.sizes


MISTAKEN = RuleBook("mistaken")
"""Statements with a mistake in the last dimensions, which holds of programs of fewer."""


@MISTAKEN.state(axes="N")
def paddings_swapped(w: Sketch) -> Iterator[HloInstruction]:
    """Slice(Pad(A, v)) ⇒ Slice(Pad(A, v)), behind the high padding of the last dimension, not the low one."""
    n, low, high = w.sizes("n low high", "N")
    padded = w.pad(w.array("A", *n), w.array("v"), low, high)
    first = [*low[:-1], *high[-1:]]
    yield w.slice(padded, low, [f + size for f, size in zip(low, n, strict=True)])
    yield w.slice(padded, first, [f + size for f, size in zip(first, n, strict=True)])


@MISTAKEN.state(axes="N")
def holes_behind(w: Sketch) -> Iterator[HloInstruction]:
    """Pad(A, v, low_high_interior) ⇒ Pad(A, v, low_high_0), along a dimension of size 2, not 1."""
    n, low, high, holes = w.sizes("n low high holes", "N")
    w.require(size == 2 for size in n[-1:])
    a, v = w.array("A", *n), w.array("v")
    yield w.pad(a, v, low, high, holes)
    behind = [h + holes[-1] for h in high[-1:]]
    yield w.pad(a, v, low, [*high[:-1], *behind], [*holes[:-1], *(0 for _ in behind)])


@MISTAKEN.state(axes="N")
def stride_lost(w: Sketch) -> Iterator[HloInstruction]:
    """Slice(Slice(A)) ⇒ Slice(A), its start without the stride of the last dimension."""
    n, start, limit, stride, first = w.sizes("n start limit stride first", "N")
    a, last = w.array("A", *n), [f + 1 for f in first]
    yield w.slice(w.slice(a, start, limit, stride), first, last)
    factors = [*stride[:-1], *(1 for _ in stride[-1:])]
    starts = [s + f * p for s, f, p in zip(start, first, factors, strict=True)]
    yield w.slice(a, starts, [s + 1 for s in starts])


@MISTAKEN.state(axes="N")
def padding_one_longer(w: Sketch) -> Iterator[HloInstruction]:
    """Slice(Pad(A, v)) ⇒ Broadcast(v), within the padding of the last dimension or one behind it."""
    n, low, start = w.sizes("n low start", "N")
    w.require(start[-1] <= low[-1])
    a, v = w.array("A", *n), w.array("v")
    part = w.slice(w.pad(a, v, low, low), start, [s + 1 for s in start])
    yield part
    yield w.broadcast(v, part.shape.dimensions)


@MISTAKEN.state(axes="N")
def starts_exchanged(w: Sketch) -> Iterator[HloInstruction]:
    """DynamicSlice(A, i) ⇒ DynamicSlice(A, i), where two starts are exchanged."""
    n, size = w.sizes("n size", "N")
    a, at = w.array("A", *n), w.indices("i", len(n))
    yield w.dynamic_slice(a, at, size)
    yield w.dynamic_slice(a, [*at[:-2], *at[:-3:-1]], size)


@MISTAKEN.state(axes="N")
def reshape_as_transpose(w: Sketch) -> Iterator[HloInstruction]:
    """Transpose(A) ⇒ Reshape(A), of two equal sizes."""
    n = w.sizes("n", "N")
    w.require(n[-1] == n[-2])
    a, rank = w.array("A", *n), len(n)
    yield w.transpose(a, (*range(rank - 2), rank - 1, rank - 2))
    yield w.reshape(w.reshape(a, (1, *n)), n)


@pytest.mark.parametrize("name", MISTAKEN.rules)
@pytest.mark.parametrize("rank", [2, 3])
def test_mistakes_in_one_of_several_dimensions_are_refuted(name: str, rank: int) -> None:
    verdict = prove_instance(MISTAKEN.rules[name], F32, {"N": rank}).verdict
    assert verdict.relation is Relation.REFUTED
    assert verdict.sizes


def test_a_rule_that_no_sizes_fulfil_is_refused() -> None:
    vacuous = RuleBook("vacuous")

    @vacuous.state()
    def nothing(w: Sketch) -> Iterator[HloInstruction]:
        n = w.sizes("n")
        w.require(n < 0)
        yield w.array("A", n)

    with pytest.raises(HloError, match="no sizes") as caught:
        prove_rule(next(iter(vacuous)))
    assert caught.value.rule == "prove.vacuous"


def test_code_that_takes_the_number_of_a_size_is_not_proved() -> None:
    text = next(iter(test_contraction_rules.EXAMPLES["sum_of_broadcast"][0].programs()))
    rule = test_contraction_rules.RULES["sum_of_broadcast"]
    assert prove_rewrite(rule, text).relation is Relation.OPEN


# -- sizes


@pytest.mark.parametrize(
    ("compute", "text"),
    [
        (lambda n, m: n * m + 2 * n - n, "m*n + n"),
        (lambda n, m: (n + m) * (n - m), "-m*m + n*n"),
        (lambda n, m: -n + 3, "3 - n"),
    ],
)
def test_sizes_remember_how_they_were_computed(compute: Callable[[int, int], int], text: str) -> None:
    trail = Trail({"n": 3, "m": 5})
    size = compute(trail.symbol("n"), trail.symbol("m"))
    assert (str(size.polynomial), int.__int__(size)) == (text, compute(3, 5))  # type: ignore[attr-defined]


def test_comparisons_are_noted() -> None:
    trail = Trail({"n": 3, "m": 5})
    n, m = trail.symbol("n"), trail.symbol("m")
    assert (n < m, n == 3, max(n, m) is m, n // 2) == (True, True, True, 1)
    assert [str(c) for c in trail.comparisons][:2] == ["-m + n < 0", "-3 + n == 0"]


# -- the command


def test_command(tmp_path: Path) -> None:
    file = tmp_path / "rules.py"
    file.write_text(
        "from hloom.proofs.symbolic.rules import RuleBook\n"
        "RULES = RuleBook('mine')\n"
        "@RULES.state()\n"
        "def reverse_back(w):\n"
        '    """Reverse(Reverse(A)) ⇒ A."""\n'
        "    a = w.array('A', w.sizes('n'))\n"
        "    yield w.reverse(w.reverse(a, (0,)), (0,))\n"
        "    yield a\n"
    )
    run = CliRunner().invoke(prove, ["--symbolic", str(file)])
    assert run.exit_code == 0
    assert run.stdout == "reverse_back: identical\n"
    run = CliRunner().invoke(prove, ["--symbolic", "--json", str(file)])
    assert json.loads(run.stdout)["rules"][0]["relation"] == "identical"
    file.write_text("x = 1\n")
    run = CliRunner().invoke(prove, ["--symbolic", str(file)])
    assert isinstance(run.exception, HloError) and run.exception.rule == "prove.rule-file"


def test_a_missing_solver_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "z3", None)
    questions.solver_library.cache_clear()
    with pytest.raises(HloError, match=r"pip install 'hloom\[prove\]'") as caught:
        questions.solver_library()
    assert caught.value.rule == "prove.solver"
    questions.solver_library.cache_clear()


def test_rules_are_frozen() -> None:
    rule = next(iter(BAD))
    with pytest.raises(dataclasses.FrozenInstanceError):
        rule.name = ""  # type: ignore[misc]
