"""Run programs of the builder on the reference evaluator and as native code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hloom
from hloom import HloError, HloModule, PrintOptions, Shape, XlaOp
from hloom.shape.element_type import ElementType
from tests import agreement
from tests.builder.building import built

BACKENDS = ("evaluator", "cpu")


def each_value(function: Callable[..., XlaOp], *arguments: Any) -> list[Any]:
    """Return each backend's value for these arrays; the program must survive printing and parsing."""
    arrays = [np.asarray(a) for a in arguments]
    module = built(function, *(str(Shape.of(a)) for a in arrays))
    text = module.to_text(PrintOptions(print_large_constants=True))
    assert HloModule.from_text(text).to_text() == module.to_text()
    return [hloom.compile(module, backend).run([arrays])[0] for backend in BACKENDS]


def value(function: Callable[..., XlaOp], *arguments: Any) -> Any:
    """Return the value of both backends for these arrays, which must be equal bit for bit."""
    wanted, got = each_value(function, *arguments)
    agreement.same(got, wanted)
    return wanted


def on_replicas(function: Callable[..., XlaOp], *inputs: Any) -> list[Any]:
    """Return each replica's value, on both backends, of a program of one parameter."""
    module = built(function, str(Shape.of(np.asarray(inputs[0]))))
    wanted, got = (
        hloom.compile(module, backend, num_replicas=len(inputs)).run([[each] for each in inputs])
        for backend in BACKENDS
    )
    agreement.same(tuple(got), tuple(wanted))
    return wanted


def rule_of(function: Callable[..., XlaOp], *shapes: str) -> str:
    """Return the rule by which the builder refuses a program."""
    with pytest.raises(HloError) as caught:
        built(function, *shapes)
    return caught.value.rule


def shape_of(function: Callable[..., XlaOp], *shapes: str) -> str:
    """Return the shape of a program's result, without layout."""
    return built(function, *shapes).entry.root.shape.to_string(layout=False)


def dtype(name: str) -> np.dtype[Any]:
    """Return the numpy type of an element type."""
    return ElementType.parse(name).numpy_dtype
