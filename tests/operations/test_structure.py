"""The frame of a program: parameters, constants, tuples, tokens, dimension sizes, iota."""

from __future__ import annotations

from typing import Any, cast

import ml_dtypes
import numpy as np
import pytest

from hloom.errors import EvaluationError, HloError, ShapeError
from hloom.operations.structure import Parameter, parameter_number
from hloom.shape.shape import Shape
from tests import agreement
from tests.evaluation import evaluate, parse, refused

TEN = "v = f32[10] constant({1, 2, 3, 4, 5, 6, 7, 8, 9, 10})\n"


# Parameter and constant.


def test_a_parameter_is_its_argument() -> None:
    assert evaluate(
        "b = s32[] parameter(1)\na = s32[] parameter(0)\nROOT r = (s32[], s32[]) tuple(a, b)", 1, 2
    ) == (
        1,
        2,
    )


def test_parameter_replication_is_kept() -> None:
    text = "p = (f32[2], s32[]) parameter(0), parameter_replication={true,false}"
    module = parse(text)
    assert cast("Any", module.entry.root.operation).parameter_replication == (True, False)
    assert "parameter(0), parameter_replication={true,false}" in module.to_text()


def test_constants_of_every_kind() -> None:
    scalar, matrix, pair = evaluate(
        """a = s8[] constant(-128)
        b = f32[2,2] constant({{1, 2.5}, {nan, -inf}})
        c = (pred[], u4[2]) constant((true, {3, 15}))
        ROOT r = (s8[], f32[2,2], (pred[], u4[2])) tuple(a, b, c)"""
    )
    assert scalar.dtype == np.int8
    assert scalar == -128
    agreement.equal(matrix, np.array([[1, 2.5], [np.nan, -np.inf]], np.float32))
    assert pair[0] == np.True_
    agreement.equal(pair[1], np.array([3, 15], ml_dtypes.uint4))


def test_an_empty_constant() -> None:
    assert evaluate("ROOT c = f32[2,0] constant({{}, {}})").shape == (2, 0)


def test_an_elided_constant_is_read_and_printed_but_not_evaluated() -> None:
    text = "ROOT c = f32[100] constant({...})"
    assert "constant({...})" in parse(text).to_text()
    with pytest.raises(EvaluationError) as caught:
        evaluate(text)
    assert caught.value.rule == "literal.elided"
    assert caught.value.instruction == "c"


def test_a_constant_may_follow_others_in_one_line() -> None:
    text = "HloModule t ENTRY e { a = s32[] constant(1) ROOT b = s32[2] constant({2, 3}) }"
    agreement.equal(evaluate(text), [2, 3])


# Tuples.


def test_the_pages_get_tuple_element() -> None:
    text = """v = f32[10] iota(), iota_dimension=0
    s = s32[] constant(5)
    t = (f32[10], s32[]) tuple(v, s)
    ROOT element_1 = s32[] get-tuple-element(t), index=1"""
    assert evaluate(text) == 5


def test_the_empty_tuple() -> None:
    assert evaluate("ROOT t = () tuple()") == ()


# Order.


def test_tokens_order_and_have_no_value() -> None:
    text = """a = f32[2] constant({1, 2})
    t = token[] after-all()
    u = token[] after-all(t, t)
    d = f32[2] add-dependency(a, u)
    ROOT r = (f32[2], token[]) tuple(d, u)"""
    array, token = evaluate(text)
    agreement.equal(array, [1, 2])
    assert token is None


def test_a_barrier_passes_tuples_on() -> None:
    text = """a = s32[] constant(1)
    t = (s32[], s32[]) tuple(a, a)
    ROOT b = (s32[], s32[]) opt-barrier(t)"""
    assert evaluate(text) == (1, 1)


def test_a_domain_passes_its_operand_on() -> None:
    shardings = 'domain={kind="sharding", entry={maximal device=0}, exit={{replicated}, {maximal device=1}}}'
    text = f"a = s32[] constant(7)\nROOT d = s32[] domain(a), {shardings}"
    assert evaluate(text) == 7
    assert shardings in parse(text).to_text()


# Dimension sizes.


def test_dimension_size() -> None:
    size = evaluate(
        "a = f32[3,4] parameter(0)\nROOT s = s32[] get-dimension-size(a), dimensions={1}", np.ones((3, 4))
    )
    assert size.dtype == np.int32
    assert size == 4


@pytest.mark.parametrize(("size", "total", "product"), [(5, 15, 120), (6, 21, 720)])
def test_the_pages_sums_and_products_ignore_what_lies_beyond(size: int, total: float, product: float) -> None:
    padded = evaluate(
        f"{TEN}s = s32[] constant({size})\nROOT p = f32[<=10] set-dimension-size(v, s), dimensions={{0}}"
    )
    assert padded.sum() == total
    assert padded.prod() == product


@pytest.mark.parametrize(("size", "kept"), [(-3, 0), (0, 0), (10, 10), (2147483647, 10)])
def test_the_size_is_held_to_the_bound(size: int, kept: int) -> None:
    text = f"{TEN}s = s32[] constant({size})\nROOT p = f32[<=10] set-dimension-size(v, s), dimensions={{0}}"
    agreement.equal(evaluate(text), np.arange(1, kept + 1))


def test_the_actual_size_is_what_was_set() -> None:
    text = f"""{TEN}s = s32[] constant(3)
    p = f32[<=10] set-dimension-size(v, s), dimensions={{0}}
    ROOT n = s32[] get-dimension-size(p), dimensions={{0}}"""
    assert evaluate(text) == 3


def test_growing_back_gives_zeros() -> None:
    text = f"""{TEN}two = s32[] constant(2)
    four = s32[] constant(4)
    p = f32[<=10] set-dimension-size(v, two), dimensions={{0}}
    ROOT q = f32[<=10] set-dimension-size(p, four), dimensions={{0}}"""
    agreement.equal(evaluate(text), [1, 2, 0, 0])


def test_a_static_result_is_filled_with_zeros() -> None:
    text = f"{TEN}s = s32[] constant(3)\nROOT p = f32[10] set-dimension-size(v, s), dimensions={{0}}"
    agreement.equal(evaluate(text), [1, 2, 3, 0, 0, 0, 0, 0, 0, 0])


# Iota.


def test_the_pages_iotas() -> None:
    rows = evaluate("ROOT i = s32[4,8] iota(), iota_dimension=0")
    columns = evaluate("ROOT i = s32[4,8] iota(), iota_dimension=1")
    agreement.equal(rows, np.repeat(np.arange(4)[:, None], 8, 1))
    agreement.equal(columns, np.tile(np.arange(8), (4, 1)))


def test_an_empty_iota_needs_no_memory() -> None:
    assert evaluate("ROOT i = f32[1000000000000,0] iota(), iota_dimension=0").shape == (10**12, 0)


def test_iota_of_other_types_is_the_converted_integer_iota() -> None:
    bf16, c64, s4, u8 = evaluate(
        """a = bf16[300] iota(), iota_dimension=0
        b = c64[3] iota(), iota_dimension=0
        c = s4[10] iota(), iota_dimension=0
        d = u8[258] iota(), iota_dimension=0
        ROOT r = (bf16[300], c64[3], s4[10], u8[258]) tuple(a, b, c, d)"""
    )
    agreement.equal(bf16, np.arange(300).astype(ml_dtypes.bfloat16))
    agreement.equal(c64, [0, 1, 2])
    agreement.equal(s4.astype(int), [0, 1, 2, 3, 4, 5, 6, 7, -8, -7])
    assert u8[-2:].tolist() == [0, 1]


def test_an_empty_iota() -> None:
    assert evaluate("ROOT i = s32[0,3] iota(), iota_dimension=0").shape == (0, 3)


# What is refused.

TUPLE = "a = f32[2] parameter(0)\nt = (f32[2], f32[2]) tuple(a, a)\n"
SIZE = TUPLE + "s = s32[] constant(1)\nb = f32[2] set-dimension-size"


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        ("parameter.replication-leaves", "a = (f32[], f32[]) parameter(0), parameter_replication={true}"),
        ("text.shape-stated", "a = constant(1)"),
        ("get-tuple-element.operand-tuple", TUPLE + "b = f32[] get-tuple-element(a), index=0"),
        ("get-tuple-element.index", TUPLE + "b = f32[2] get-tuple-element(t), index=2"),
        ("get-tuple-element.index", TUPLE + "b = f32[2] get-tuple-element(t), index=-1"),
        ("add-dependency.token", TUPLE + "b = f32[2] add-dependency(a, a)"),
        ("domain.kind", TUPLE + 'b = f32[2] domain(a), domain={kind="x", entry={manual}, exit={manual}}'),
        ("get-dimension-size.operand-array", TUPLE + "b = s32[] get-dimension-size(t), dimensions={0}"),
        ("get-dimension-size.one-dimension", TUPLE + "b = s32[] get-dimension-size(a), dimensions={}"),
        ("get-dimension-size.dimension-range", TUPLE + "b = s32[] get-dimension-size(a), dimensions={1}"),
        ("set-dimension-size.operand-array", SIZE + "(t, s), dimensions={0}"),
        ("set-dimension-size.one-dimension", SIZE + "(a, s), dimensions={}"),
        ("set-dimension-size.dimension-range", SIZE + "(a, s), dimensions={1}"),
        ("set-dimension-size.size-scalar", SIZE + "(a, a), dimensions={0}"),
        ("iota.element-type", "a = pred[2] iota(), iota_dimension=0"),
        ("iota.dimension-range", "a = s32[2] iota(), iota_dimension=1"),
        ("iota.dimension-range", "a = s32[] iota(), iota_dimension=0"),
        ("instruction.shape-matches", TUPLE + "b = (f32[2]) tuple(a, a)"),
    ],
)  # fmt: skip
def test_refused(rule: str, text: str) -> None:
    assert refused(text).rule == rule


def test_parameter_numbers_count_from_0() -> None:
    with pytest.raises(ShapeError) as caught:
        Parameter(parameter_number=-1).check(Shape.parse("f32[]"))
    assert caught.value.rule == "parameter.number"


def test_a_literal_of_another_shape_is_refused() -> None:
    module = parse("a = f32[2] constant({1, 2})")
    root = module.entry.root
    other = parse("a = f32[3] constant({1, 2, 3})").entry.root
    root.operation = other.operation
    with pytest.raises(HloError) as caught:
        module.verify()
    assert caught.value.rule == "constant.shape"


def test_the_number_of_what_is_no_parameter() -> None:
    """Only parameters have one."""
    root = parse("x = f32[] constant(1)\nROOT y = f32[] negate(x)").entry.root
    with pytest.raises(HloError) as caught:
        parameter_number(root)
    assert caught.value.rule == "parameter.opcode"
