"""Build a small program in a test and evaluate it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import hloom
from hloom import HloModule, PrintOptions, XlaBuilder, XlaComputation, XlaOp
from hloom.evaluate.evaluator import Evaluator
from hloom.shape.shape import Shape

ops: Any = hloom.ops
"""Functions, called in all of XLA's forms; their declarations have one form each."""


def built(function: Callable[..., XlaOp], *shapes: str) -> XlaComputation:
    """Build a program with parameters of these shapes whose result is that of `function`."""
    b = XlaBuilder("f")
    parameters = [ops.Parameter(b, i, Shape.parse(shape), f"p{i}") for i, shape in enumerate(shapes)]
    result = function(*parameters) if parameters else function(b)
    return b.build(result)


def value(function: Callable[..., XlaOp], *arguments: Any) -> Any:
    """Return the program's value for these arrays; the program must survive printing and parsing."""
    arrays = [np.asarray(a) for a in arguments]
    computation = built(function, *(str(Shape.of(a)) for a in arrays))
    text = computation.to_text(PrintOptions(print_large_constants=True))
    assert HloModule.from_text(text).to_text() == computation.to_text()
    return Evaluator().run(computation.entry, arrays)


def scalar(function: Callable[..., XlaOp], *types: str) -> XlaComputation:
    """Return a computation of scalars, to be reduced or mapped with."""
    return built(function, *(f"{t}[]" for t in types))


ADD = scalar(lambda x, y: x + y, "f32", "f32")
ADD_S32 = scalar(lambda x, y: x + y, "s32", "s32")
MAX = scalar(ops.Max, "f32", "f32")
MIN = scalar(ops.Min, "f32", "f32")
GE = scalar(ops.Ge, "f32", "f32")
LT = scalar(ops.Lt, "f32", "f32")
