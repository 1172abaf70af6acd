"""Reduce and map."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from hloom.errors import HloError, ShapeError
from hloom.ir.operation import ProgramShape
from hloom.operations.reduction import Map
from hloom.shape.shape import Shape
from tests import oracle
from tests.arrays import c64, f32
from tests.evaluation import evaluate, parse
from tests.one_operation import array, same
from tests.reducers import ARGMAX, LATER, apply, binary, comparison, program, refusal

ADD = binary("add")
REDUCE = "reduce(@), dimensions={0}, to_apply=f"
PAGE = np.broadcast_to(f32([[1, 2, 3], [4, 5, 6]]), (4, 2, 3))


def reduced(values: object, dimensions: str, computation: str = ADD, init: object = f32(0)) -> np.ndarray:
    return apply(computation, f"reduce(@), dimensions={{{dimensions}}}, to_apply=f", values, init)


# The page's examples.


def test_the_pages_matrix() -> None:
    assert reduced(PAGE[0], "0").tolist() == [5, 7, 9]
    assert reduced(PAGE[0], "1").tolist() == [6, 15]


def test_the_pages_array_of_three_dimensions() -> None:
    assert reduced(PAGE, "0").tolist() == [[4, 8, 12], [16, 20, 24]]
    assert reduced(PAGE, "2").tolist() == [[6, 15]] * 4
    assert reduced(PAGE, "0,1").tolist() == [20, 28, 36]
    assert reduced(PAGE, "1,0").tolist() == [20, 28, 36]
    assert reduced(PAGE, "0,1,2") == 84


def test_the_pages_largest_value_and_its_index() -> None:
    values = f32([3, 9, 2, 9, 1])
    value, index = apply(ARGMAX, REDUCE, values, np.arange(5, dtype=np.int32), f32(-np.inf), np.int32(-1))
    assert (value, index) == (9, 3)


@pytest.mark.parametrize("count", [0, 1, 2, 31, 32, 33, 100, 257])
def test_the_pages_recursion(count: int) -> None:
    """f_i = f(f_(i-1), V_i), whatever the order in which it is computed."""
    rng = np.random.default_rng(count)
    values, keys = rng.integers(0, 9, (2, count))
    best, where = -1.0, -1
    for value, key in zip(values, keys):
        best, where = (value, key) if value >= best else (best, where)
    operands = (values.astype(f32), keys.astype(np.int32), f32(-1), np.int32(-1))
    assert apply(ARGMAX, REDUCE, *operands) == (best, where)


# Sizes and order.


def test_nothing_reduced_still_combines_the_initial_value() -> None:
    assert reduced(f32([1, 2]), "", init=f32(10)).tolist() == [11, 12]


def test_a_scalar() -> None:
    assert reduced(f32(1), "", init=f32(10)) == 11


def test_an_empty_dimension_gives_the_initial_value() -> None:
    same(reduced(np.ones((0, 2), f32), "0", init=f32(7)), [7, 7])
    assert reduced(np.ones((2, 0), f32), "0", init=f32(7)).shape == (0,)


@pytest.mark.parametrize("count", [5, 100])
def test_values_are_combined_in_their_order(count: int) -> None:
    values = np.arange(2 * count, dtype=f32).reshape(count, 2)
    same(reduced(values, "0", LATER), values[-1])


def test_the_initial_value_stands_on_the_left() -> None:
    first = "f {\n ROOT x = f32[] parameter(0)\n y = f32[] parameter(1)\n}\n"
    assert reduced(f32([1, 2, 3]), "0", first, f32(7)) == 7


# Values.


@pytest.mark.parametrize("count", [3, 300])
@pytest.mark.parametrize("opcode", ["maximum", "minimum"])
def test_extremes_pass_nan_on_and_order_zeros(opcode: str, count: int) -> None:
    values = np.zeros((count, 3), f32)
    values[:, 1:] *= -1
    values[count // 2, 1] = 0
    values[1, 0] = np.nan
    zeros = [0.0, -0.0] if opcode == "maximum" else [-0.0, -0.0]
    init = f32(-np.inf if opcode == "maximum" else np.inf)
    same(reduced(values, "0", binary(opcode), init), [np.nan, *zeros])


@pytest.mark.parametrize(
    ("opcode", "wanted"), [("add", 44), ("multiply", 0), ("xor", 44), ("and", 0), ("or", 127)]
)
def test_integers_wrap(opcode: str, wanted: int) -> None:
    values = np.arange(1, 201, dtype=np.int64)
    if opcode == "add":
        wanted = int(values.sum()) % 256
    if opcode == "xor":
        wanted = int(np.bitwise_xor.reduce(values))
    if opcode == "or":
        wanted = int(np.bitwise_or.reduce(values))
    init = {"multiply": 1, "and": 255}.get(opcode, 0)
    assert reduced(values.astype(np.uint8), "0", binary(opcode, "u8"), np.uint8(init)) == wanted


@pytest.mark.parametrize("opcode", ["and", "or", "xor", "maximum", "minimum", "add", "multiply"])
def test_preds(opcode: str) -> None:
    values = np.array([[True, True, False], [True, False, False]])
    functions = {
        "add": "logical_or",
        "multiply": "logical_and",
        "maximum": "logical_or",
        "minimum": "logical_and",
    }
    function = getattr(np, functions.get(opcode, f"logical_{opcode}"))
    neutral = np.bool_(function is np.logical_and)
    assert reduced(values, "0", binary(opcode, "pred"), neutral).tolist() == function.reduce(values).tolist()


def test_few_values_are_added_one_by_one() -> None:
    assert reduced(f32([1e8, 1, -1e8]), "0") == 0


def test_many_values_are_added_in_double_precision() -> None:
    assert reduced(f32([1e8, *[0.25] * 100, -1e8]), "0") == 25
    assert reduced(array("bf16", np.ones(1000)), "0", binary("add", "bf16"), array("bf16", 0)) == 1000


def test_complex_sums_and_products() -> None:
    values = c64([1 + 1j, 1 - 1j, 2j])
    assert reduced(values, "0", binary("add", "c64"), np.complex64(0)) == 2 + 2j
    assert reduced(values, "0", binary("multiply", "c64"), np.complex64(1)) == 4j


def test_a_computation_of_another_float_type_converts() -> None:
    result = reduced(array("bf16", [256, 1]), "0", ADD)
    assert (result, result.dtype) == (257, f32)


def test_values_may_have_another_float_type_than_accumulators() -> None:
    computation = (
        "f {\n x = f32[] parameter(0)\n y = bf16[] parameter(1)\n z = f32[] convert(y)\n"
        " ROOT r = f32[] add(x, z)\n}\n"
    )
    assert reduced(array("bf16", np.ones(300)), "0", computation) == 300


def test_a_computation_with_a_loop_in_it() -> None:
    text = """
    body { x = f32[] parameter(0)
      two = f32[] constant(2)
      ROOT r = f32[] multiply(x, two) }
    condition { x = f32[] parameter(0)
      limit = f32[] constant(100)
      ROOT r = pred[] compare(x, limit), direction=LT }
    f { x = f32[] parameter(0)
      y = f32[] parameter(1)
      sum = f32[] add(x, y)
      ROOT r = f32[] while(sum), condition=condition, body=body }
    """
    # The sum is doubled until it reaches 100: 1+1=2 -> 128, 128+2; 1+100, 101+100.
    assert reduced(f32([[1, 100], [2, 100]]), "0", text, f32(1)).tolist() == [130, 201]


def test_dynamic_dimensions_pass_through() -> None:
    module = parse(program(ADD, REDUCE, "f32[<=4,<=5]", "f32[]"))
    assert str(module.entry.root.shape) == "f32[<=5]{0}"


def test_values_beyond_a_dynamic_size_are_ignored() -> None:
    text = program(ADD, "reduce(d, p1), dimensions={0}, to_apply=f", "f32[4]", "f32[]").replace(
        "  ROOT root",
        "  n = s32[] constant(2)\n  d = f32[<=4] set-dimension-size(p0, n), dimensions={0}\n  ROOT root",
    )
    assert evaluate(text, f32([1, 2, 4, 8]), f32(0)) == 3


def test_actual_sizes_that_do_not_fit_together_are_refused() -> None:
    text = program(
        ARGMAX, "reduce(d, p1, p2, p3), dimensions={0}, to_apply=f", "f32[4]", "s32[4]", "f32[]", "s32[]"
    )
    text = text.replace(
        "  ROOT root",
        "  n = s32[] constant(2)\n  d = f32[<=4] set-dimension-size(p0, n), dimensions={0}\n  ROOT root",
    )
    with pytest.raises(HloError) as caught:
        evaluate(text, np.ones(4, f32), np.zeros(4, np.int32), f32(0), np.int32(0))
    assert caught.value.rule == "evaluate.actual-sizes"


# Rules.


@pytest.mark.parametrize(
    ("computation", "operation", "shapes", "rule"),
    [
        (ADD, REDUCE, ["f32[4]", "f32[4]", "f32[]"], "reduce.operand-count"),
        (ADD, REDUCE, ["f32[]", "f32[]"], "reduce.dimension-range"),
        (ADD, REDUCE.replace("0", "-1"), ["f32[4]", "f32[]"], "reduce.dimension-range"),
        (ADD, REDUCE.replace("0", "0,0"), ["f32[4]", "f32[]"], "reduce.dimensions-distinct"),
        (ADD, REDUCE, ["f32[4]", "f32[4]", "f32[]", "f32[]"], "reduce.computation-parameters"),
        (ARGMAX, REDUCE, ["f32[4]", "s32[5]", "f32[]", "s32[]"], "reduce.same-dimensions"),
        (ARGMAX, REDUCE, ["f32[4]", "f32[]"], "reduce.computation-parameters"),
        (binary("add", "f32").replace("f32[]", "f32[2]"), REDUCE, ["f32[4]", "f32[2]"],
         "reduce.computation-result"),
        ("f {\n x = f32[2] parameter(0)\n y = f32[] parameter(1)\n ROOT z = f32[] add(y, y)\n}\n", REDUCE,
         ["f32[4]", "f32[]"], "reduce.computation-scalars"),
        (ADD, REDUCE, ["f32[4]", "f32[1]"], "reduce.init-value"),
        (ADD, REDUCE, ["f32[4]", "s32[]"], "reduce.init-value"),
        (ADD, REDUCE, ["s32[4]", "f32[]"], "reduce.computation-types"),
    ],
)  # fmt: skip
def test_reduce_refuses(computation: str, operation: str, shapes: list[str], rule: str) -> None:
    assert refusal(computation, operation, *shapes).rule == rule


# Map.

MAP = "map(@), dimensions={0,1}, to_apply=f"


def test_map_applies_to_corresponding_elements() -> None:
    lhs, rhs = f32([[1, 2], [3, 4]]), f32([[5, 6], [7, 8]])
    same(apply(binary("subtract"), MAP, lhs, rhs), lhs - rhs)


def test_map_returns_another_type() -> None:
    less = comparison("LT", name="f")
    assert apply(less, MAP, f32([[1, 2]]), f32([[2, 1]])).tolist() == [[True, False]]


def test_map_of_a_scalar_and_of_nothing() -> None:
    negate = "f {\n x = f32[] parameter(0)\n ROOT r = f32[] negate(x)\n}\n"
    assert apply(negate, "map(@), dimensions={}, to_apply=f", f32(1)) == -1
    assert apply(negate, MAP, np.ones((2, 0), f32)).shape == (2, 0)


def test_map_of_a_constant_computation_fills() -> None:
    constant = "f {\n x = f32[] parameter(0)\n ROOT r = s32[] constant(7)\n}\n"
    assert apply(constant, "map(@), dimensions={0}, to_apply=f", f32([1, 2, 3])).tolist() == [7, 7, 7]


@pytest.mark.parametrize(
    ("computation", "operation", "shapes", "rule"),
    [
        (ADD, "map(), dimensions={}, to_apply=f", [], "map.operands"),
        (ADD, MAP, ["f32[2,2]", "f32[2,3]"], "map.same-dimensions"),
        (ADD, MAP, ["f32[2,2]"], "map.computation-parameters"),
        (ADD.replace("f32[]", "f32[2]"), MAP, ["f32[2,2]", "f32[2,2]"], "map.computation-scalars"),
        (ADD, MAP, ["f32[2,2]", "s32[2,2]"], "map.computation-types"),
    ],
)  # fmt: skip
def test_map_refuses(computation: str, operation: str, shapes: list[str], rule: str) -> None:
    assert refusal(computation, operation, *shapes).rule == rule


@pytest.mark.parametrize("dimensions", [(1, 0), (0,), (0, 1, 2)])
def test_map_applies_to_all_dimensions_in_order(dimensions: tuple[int, ...]) -> None:
    scalar, matrix = Shape.parse("f32[]"), Shape.parse("f32[2,2]")
    with pytest.raises(ShapeError) as caught:
        Map(dimensions=dimensions).infer(matrix, computations=(ProgramShape((scalar,), scalar),))
    assert caught.value.rule == "map.dimensions"


# A second opinion.


@pytest.mark.parametrize("dimensions", ["0", "1", "2", "0,2", "2,1", "0,1,2"])
def test_xla_agrees(dimensions: str) -> None:
    values = np.random.default_rng(0).integers(-99, 99, (5, 40, 3)).astype(f32)
    operation = f"reduce(@), dimensions={{{dimensions}}}, to_apply=f"
    (wanted,) = oracle.run(program(ADD, operation, "f32[5,40,3]", "f32[]"), values, f32(0))
    same(apply(ADD, operation, values, f32(0)), wanted)


def test_types_of_results() -> None:
    assert reduced(array("s4", [7, 7]), "0", binary("add", "s4"), array("s4", 0)).dtype == ml_dtypes.int4
