"""The evaluator: plans, maps of scalar computations, and errors."""

from __future__ import annotations

import warnings
from sys import getrecursionlimit
from typing import Any

import numpy as np
import pytest

import hloom
from hloom.errors import EvaluationError, HloError
from hloom.evaluate.evaluator import Evaluator
from tests.arrays import f32
from tests.devices import program
from tests.evaluation import evaluate, parse

NESTED = """
yes { x = f32[] parameter(0)
  ROOT r = f32[] negate(x) }
no { ROOT x = f32[] parameter(0) }
half { x = f32[] parameter(0)
  two = f32[] constant(2)
  ROOT r = f32[] divide(x, two) }
more { x = f32[] parameter(0)
  one = f32[] constant(1)
  ROOT r = pred[] compare(x, one), direction=GT }
elementwise { x = f32[] parameter(0)
  y = f32[] parameter(1)
  s = f32[] add(x, y)
  ROOT r = f32[] call(s), to_apply=half }
with_conditional { x = f32[] parameter(0)
  y = f32[] parameter(1)
  c = pred[] compare(x, y), direction=LT
  ROOT r = f32[] conditional(c, x, y), true_computation=yes, false_computation=no }
with_while { x = f32[] parameter(0)
  ROOT r = f32[] while(x), condition=more, body=half }
two_results { x = f32[] parameter(0)
  y = f32[] parameter(1)
  c = pred[] compare(x, y), direction=LT
  r = f32[] conditional(c, x, y), true_computation=yes, false_computation=no
  i = s32[] convert(x)
  ROOT t = (f32[], s32[]) tuple(r, i) }
constant { x = f32[] parameter(0)
  ROOT c = f32[] constant(7) }
bits { x = f32[] parameter(0)
  one = s32[] constant(1)
  ones = s32[] broadcast(one), dimensions={}
  b = s32[] bitcast-convert(x)
  n = s32[] add(b, ones)
  ROOT r = f32[] bitcast-convert(n) }
"""


def mapped(name: str, *arrays: Any) -> Any:
    module = parse(program("ROOT c = f32[] constant(0)", NESTED))
    computation = next(c for c in module.computations if c.name == name)
    evaluator = Evaluator()
    return evaluator.mappable(computation), evaluator.map(computation, [f32(a) for a in arrays])


def test_an_elementwise_computation_takes_whole_arrays() -> None:
    whole, value = mapped("elementwise", [[1, 2], [3, 4]], 5)
    assert whole
    assert value.tolist() == [[3, 3.5], [4, 4.5]]


def test_a_constant_is_spread_over_the_shape() -> None:
    whole, value = mapped("constant", [1, 2, 3])
    assert whole
    assert value.tolist() == [7, 7, 7]


def test_the_bits_of_an_array_are_read_at_once() -> None:
    whole, value = mapped("bits", [[1, 2], [3, 0]])
    assert whole
    assert value.tolist() == np.nextafter(f32([[1, 2], [3, 0]]), np.float32(9)).tolist()


@pytest.mark.parametrize(
    ("name", "arrays", "expected"),
    [
        ("with_conditional", ([1, 5, 3], [2, 2, 9]), [-1, 2, -3]),
        ("with_conditional", ([[1], [5]], [2, 3]), [[-1, -1], [2, 3]]),
        ("with_while", ([0.5, 8, 5],), [0.5, 1, 0.625]),
        ("with_conditional", (1, 2), -1),
        ("with_conditional", ([], []), []),
    ],
)
def test_what_is_not_elementwise_goes_element_by_element(name: str, arrays: Any, expected: Any) -> None:
    whole, value = mapped(name, *arrays)
    assert not whole
    assert value.tolist() == expected
    assert value.dtype == np.float32


def test_several_results_element_by_element() -> None:
    whole, (first, second) = mapped("two_results", [1, 5], [2, 2])
    assert not whole
    assert (first.tolist(), second.tolist(), second.dtype) == ([-1, 2], [1, 5], np.int32)


def test_narrow_types_element_by_element() -> None:
    text = program(
        """
    p = bf16[3] parameter(0)
    z = bf16[] constant(0)
    ROOT r = bf16[] reduce(p, z), dimensions={0}, to_apply=f""",
        """
    keep { ROOT x = bf16[] parameter(0) }
    f { x = bf16[] parameter(0)
      y = bf16[] parameter(1)
      c = pred[] compare(x, y), direction=GT
      ROOT r = bf16[] conditional(c, x, y), true_computation=keep, false_computation=keep }""",
    )
    import ml_dtypes

    assert evaluate(text, np.array([1, 3, 2], ml_dtypes.bfloat16)) == 3


def test_values_that_are_no_longer_needed_are_let_go() -> None:
    """A chain of a thousand additions needs memory for a few arrays only."""
    import tracemalloc

    lines = ["x0 = f32[250000] parameter(0)"]
    lines += [f"x{n + 1} = f32[250000] add(x{n}, x{n})" for n in range(200)]
    module = parse(program("\n".join([*lines[:-1], "ROOT " + lines[-1]])))
    argument = np.zeros(250000, np.float32)
    evaluator = Evaluator()
    tracemalloc.start()
    evaluator.run(module.entry, [argument])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 10 * argument.nbytes


def test_an_unused_constant_that_was_elided_stops_the_program() -> None:
    text = program("c = f32[20] constant({...})\n ROOT n = f32[20] negate(c)")
    with pytest.raises(EvaluationError) as caught:
        evaluate(text)
    assert (caught.value.rule, caught.value.instruction) == ("literal.elided", "c")


def test_numpy_does_not_warn() -> None:
    text = program("""
      p = f32[3] parameter(0)
      z = f32[3] subtract(p, p)
      a = f32[3] divide(p, z)
      b = f32[3] log(z)
      c = f32[3] multiply(p, p)
      d = s32[3] convert(a)
      ROOT t = (f32[3], f32[3], f32[3], s32[3]) tuple(a, b, c, d)""")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        evaluate(text, f32([1, 3e38, 0]))


def test_the_number_of_arguments() -> None:
    module = parse(program("ROOT p = f32[] parameter(0)"))
    with pytest.raises(EvaluationError) as caught:
        Evaluator().run(module.entry, [])
    assert caught.value.rule == "evaluate.argument-count"


def test_calls_that_are_nested_too_deeply() -> None:
    depth = 3000
    computations = "level.0 { ROOT x = f32[] parameter(0) }\n" + "".join(
        f"level.{n} {{ x = f32[] parameter(0)\n ROOT r = f32[] call(x), to_apply=level.{n - 1} }}\n"
        for n in range(1, depth)
    )
    module = parse(
        program(f"p = f32[] parameter(0)\n ROOT r = f32[] call(p), to_apply=level.{depth - 1}", computations)
    )
    with pytest.raises(HloError, match=rf"limit, {getrecursionlimit()}, .* compile for the cpu") as caught:
        Evaluator().run(module.entry, [f32(1)])
    assert caught.value.rule == "evaluate.call-depth"
    assert hloom.compile(module, backend="cpu")(f32(1)) == 1


def test_a_result_too_large_for_memory() -> None:
    huge = "f32[1000000,1000000,1000]"
    text = program(f"b = {huge} iota(), iota_dimension=0\n ROOT n = {huge} negate(b)")
    with pytest.raises(EvaluationError) as caught:
        evaluate(text)
    assert caught.value.rule == "evaluate.memory"
