"""Arguments of the wrong kind: every function of `hloom.ops` refuses them in words, by an HloError."""

from __future__ import annotations

import inspect
import random
from typing import Any

import numpy as np
import pytest

from hloom import HloError, Shape, XlaBuilder, XlaOp, ops
from tests.builder.building import ADD


def refusal(name: str, *arguments: Any) -> str:
    b = XlaBuilder("f")
    x = ops.Parameter(b, 0, Shape.parse("f32[4]"), "x")
    with pytest.raises(HloError) as caught:
        getattr(ops, name)(*(x if a is XlaOp else b if a is XlaBuilder else a for a in arguments))
    assert caught.value.rule == "builder.argument"
    return caught.value.message


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("Sin", (3.0,), "Sin: operand is an XlaOp, got 3.0"),
        ("Fft", (XlaOp, [1], [4]), "Fft: fft_type is a string, got [1]"),
        ("Parameter", (XlaBuilder, "0", "f32[]", "x"), "Parameter: parameter_number is an integer, got '0'"),
        ("Infeed", (XlaOp, "f32[]"), "Infeed: builder is an XlaBuilder, got <XlaOp %x: f32[4]{0}>"),
        ("While", (None, ADD, XlaOp), "While: condition is a computation, got None"),
        ("GetDimensionSize", (XlaOp, "x"), "GetDimensionSize: dimension is an integer, got 'x'"),
        ("ReducePrecision", (XlaOp, 1, [5]), "ReducePrecision: exponent_bits is an integer, got [5]"),
        (
            "CollectivePermute",
            (XlaOp, [(0, 1), 2]),
            "CollectivePermute: source_target_pairs is a sequence of pairs of integers, got [(0, 1), 2]",
        ),
    ],
)
def test_the_argument_is_named(name: str, arguments: tuple[Any, ...], message: str) -> None:
    assert refusal(name, *arguments) == message


def test_wrong_calls_stay_type_errors() -> None:
    with pytest.raises(TypeError, match="missing"):
        ops.Sin()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unexpected keyword"):
        ops.Sin(operant=3)  # type: ignore[call-arg]


def some_values(b: XlaBuilder) -> list[Any]:
    shapes = ("f32[4,2]", "s32[]", "c64[3]", "pred[4,2]", "f32[<=4,2]", "f32[0,3]")
    values: list[Any] = [ops.Parameter(b, i, Shape.parse(s), f"p{i}") for i, s in enumerate(shapes)]
    token = ops.CreateToken(b)
    return [
        *values, ops.Tuple([values[0], token]), token, ADD, 3, -1, 2.5, 1 << 70, float("nan"), True, None, "",
        "f32", "f32[2]", "SAME", Shape.parse("f32[2]"), [], [0], [1, 0], [-1, -2], [2, 2], [[0, 1]],
        [(1, 1, 1), (0, 0, 0)], [None], ["x"], [values[0]], {}, {"handle": 1}, np.float32(1),
        np.ones((4, 2), np.float32),
        np.datetime64("2020"), object(), b, len,
    ]  # fmt: skip


@pytest.mark.parametrize("name", ops.__all__)
def test_no_other_error_comes_out(name: str) -> None:
    choose = random.Random(name)
    function = getattr(ops, name)
    signature = inspect.signature(function)
    for _ in range(40):
        values = some_values(XlaBuilder("f"))
        arguments: list[Any] = []
        keywords: dict[str, Any] = {}
        for parameter in signature.parameters.values():
            value = choose.choice(values[:8] if not arguments and choose.random() < 0.7 else values)
            if parameter.kind is parameter.VAR_KEYWORD:
                continue
            if parameter.kind is parameter.KEYWORD_ONLY:
                keywords[parameter.name] = value
            elif parameter.default is parameter.empty or choose.random() < 0.5:
                arguments.append(value)
            else:
                break
        try:
            function(*arguments, **keywords)
        except HloError as error:
            assert error.message
        except TypeError as error:  # a builder in front does not count as an argument
            assert "missing" in str(error)
