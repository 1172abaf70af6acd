"""custom-call: what its declaration checks, and calling registered functions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import hloom
from hloom.errors import EvaluationError
from hloom.runtime.custom_call import unregister_custom_call
from tests.devices import program
from tests.evaluation import evaluate, parse, refused


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    yield
    unregister_custom_call("test.target")


def calling(shape: str, attributes: str = "") -> str:
    return program(
        f"p = f32[2] parameter(0)\n ROOT r = {shape} custom-call(p), "
        f'custom_call_target="test.target"{attributes}'
    )


def failure(text: str, *arguments: Any) -> EvaluationError:
    with pytest.raises(EvaluationError) as caught:
        evaluate(text, *arguments)
    return caught.value


ONES = np.ones(2, np.float32)


def test_a_python_function() -> None:
    hloom.register_custom_call("test.target", lambda x: x * 2)
    assert evaluate(calling("f32[2]"), ONES).tolist() == [2, 2]


def test_a_later_registration_takes_the_place_of_the_first() -> None:
    hloom.register_custom_call("test.target", lambda x: x * 2)
    hloom.register_custom_call("test.target", lambda x: x * 3)
    assert evaluate(calling("f32[2]"), ONES).tolist() == [3, 3]


def test_tuples_in_and_out_and_tokens() -> None:
    hloom.register_custom_call("test.target", lambda pair, token: (pair[1], (pair[0], token)))
    text = program("""
      p = (f32[2], s32[]) parameter(0)
      t = token[] after-all()
      ROOT r = (s32[], (f32[2], token[])) custom-call(p, t), custom_call_target="test.target"
    """)
    value = evaluate(text, (ONES, np.int32(5)))
    assert (value[0], value[1][0].tolist(), value[1][1]) == (5, [1, 1], None)


def test_the_backend_config_and_the_instruction_are_given_to_whom_they_concern() -> None:
    seen: list[Any] = []

    def target(x: Any, *, backend_config: str, instruction: Any) -> Any:
        seen.append((backend_config, instruction.name))
        return x

    hloom.register_custom_call("test.target", target)
    evaluate(calling("f32[2]", ', backend_config="fast"'), ONES)
    assert seen[0][1] == "r"
    assert "fast" in seen[0][0]


def test_python_numbers_and_lists_are_converted() -> None:
    hloom.register_custom_call("test.target", lambda x: [1, 2])
    value = evaluate(calling("f32[2]"), ONES)
    assert value.dtype == np.float32
    assert value.tolist() == [1, 2]


def test_an_unknown_target() -> None:
    error = failure(calling("f32[2]"), ONES)
    assert (error.rule, error.instruction) == ("custom-call.target-registered", "r")
    assert "'test.target' is not registered" in str(error)


@pytest.mark.parametrize(
    ("shape", "result"),
    [
        ("f32[2]", np.ones(3, np.float32)),
        ("f32[2]", np.ones(2, np.float64)),
        ("f32[2]", np.float32(1)),
        ("f32[<=2]", np.ones(3, np.float32)),
        ("(f32[2], f32[2])", np.ones(2, np.float32)),
        ("(f32[2], f32[2])", (np.ones(2, np.float32),)),
        ("f32[2]", [1, 2, 3]),
        ("f32[2]", "text"),
        ("f32[]", None),
        ("f32[]", "3"),
        ("s32[]", 2.5),
        ("s8[]", 300),
        ("f32[]", 1j),
    ],
)
def test_a_result_that_does_not_fit(shape: str, result: Any) -> None:
    hloom.register_custom_call("test.target", lambda x: result)
    assert failure(calling(shape), ONES).rule == "custom-call.result"


class OfAnotherLibrary:
    """An array of a library whose type NumPy does not have: it refuses, or converts to objects or records."""

    dtype = "float8 of another library"

    def __init__(self, converted: Any) -> None:
        self.converted = converted

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        if isinstance(self.converted, Exception):
            raise self.converted
        return self.converted


@pytest.mark.parametrize("backend", ["evaluator", "cpu"])
@pytest.mark.parametrize(
    ("converted", "message"),
    [
        (TypeError("no ScalarType Float8"), "a OfAnotherLibrary, not f32[2]{0}: no ScalarType Float8"),
        (np.array([1.0, 2.0], object), "object[2], not f32[2]{0}"),
        (np.array(["1", "2"]), "<U1[2], not f32[2]{0}"),
        (np.zeros(2, [("x", np.float32)]), "[('x', '<f4')][2], not f32[2]{0}"),
        (np.array(["2024", "2025"], "M8[Y]"), "datetime64[Y][2], not f32[2]{0}"),
    ],
    ids=["refuses", "objects", "text", "records", "dates"],
)
def test_arrays_of_types_that_numpy_or_hlo_do_not_have(converted: Any, message: str, backend: str) -> None:
    hloom.register_custom_call("test.target", lambda x: OfAnotherLibrary(converted))
    with pytest.raises(EvaluationError) as caught:
        hloom.compile(parse(calling("f32[2]")), backend=backend)(ONES)
    assert (caught.value.rule, caught.value.instruction) == ("custom-call.result", "r")
    assert caught.value.message == f"custom call target 'test.target' gave {message}"


def test_a_dynamic_result_may_be_smaller() -> None:
    hloom.register_custom_call("test.target", lambda x: x[:1])
    assert evaluate(calling("f32[<=2]"), ONES).tolist() == [1]


def test_a_function_that_fails() -> None:
    hloom.register_custom_call("test.target", lambda x: 1 // 0)
    error = failure(calling("f32[2]"), ONES)
    assert error.rule == "custom-call.failed"
    assert "ZeroDivisionError" in str(error)


def test_annotations_are_the_operand() -> None:
    text = program('p = f32[2] parameter(0)\n ROOT r = f32[2] custom-call(p), custom_call_target="Sharding"')
    assert evaluate(text, ONES).tolist() == [1, 1]


@pytest.mark.parametrize(
    ("attributes", "rule"),
    [
        (", operand_layout_constraints={}", "custom-call.layout-constraints"),
        (", operand_layout_constraints={f32[3]{0}}", "custom-call.layout-constraints"),
        (", output_to_operand_aliasing={{}: (1, {})}", "custom-call.aliasing"),
        (", output_to_operand_aliasing={{}: (0, {}), {}: (0, {})}", "custom-call.aliasing"),
    ],
)
def test_what_is_refused(attributes: str, rule: str) -> None:
    assert refused(calling("f32[2]", attributes)).rule == rule


def test_an_alias_of_another_shape() -> None:
    assert (
        refused(calling("f32[3]", ", output_to_operand_aliasing={{}: (0, {})}")).rule
        == "custom-call.aliasing"
    )


EVERYTHING = (
    "window={size=2 stride=2}, dim_labels=b0f_0io->b0f, feature_group_count=3, batch_group_count=2, "
    'operand_precision={high,default}, padding_type=PADDING_SAME, custom_call_target="x\\"y", '
    "operand_layout_constraints={f32[2]{0}}, custom_call_has_side_effect=true, "
    "literal=( s32[2]{0} {1, 2}, f32[] 0.5 ), output_to_operand_aliasing={{}: (0, {})}, "
    "schedule=SCHEDULE_LATEST, api_version=API_VERSION_STATUS_RETURNING"
)


def test_every_attribute_is_printed_in_xlas_order() -> None:
    text = program(f"p = f32[2] parameter(0)\n ROOT r = f32[2] custom-call(p), {EVERYTHING}")
    printed = parse(text).to_text()
    assert f"custom-call(%p), {EVERYTHING}\n" in printed
    assert parse(printed).to_text() == printed


@pytest.mark.parametrize(
    "attributes",
    ["padding_type=SOME", "schedule=NOW", "api_version=2", "literal=f32[2] {1}", "window={size=x}"],
)
def test_what_does_not_parse(attributes: str) -> None:
    assert refused(calling("f32[2]", ", " + attributes)).line is not None
