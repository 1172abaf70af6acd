"""Run small programs on the backend of the test: every test with the fixture `backend` runs on each."""

from __future__ import annotations

import numpy as np
import pytest

import hloom
from tests.evaluation import parse

MIN = np.iinfo(np.int32).min
INF, NAN = np.float32(np.inf), np.float32(np.nan)


@pytest.fixture(params=["evaluator", "cpu"], autouse=True)
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Parametrize a test by both backends."""
    monkeypatch.setattr(THIS, "backend", request.param)
    return request.param


class THIS:
    """The backend of the test that runs."""

    backend = "evaluator"


def compiled(module: hloom.HloModule, **options) -> hloom.Executable:
    """Compile a module for the backend of the test."""
    module.verify()
    return hloom.compile(module, backend=THIS.backend, **options)


def evaluate(text: str, *arguments):
    """Return the value of a program on the backend of the test."""
    return compiled(parse(text))(*map(np.asarray, arguments))


def binary(opcode: str, x, y, attributes: str = "", result: str = ""):
    """Apply one operation to two arrays of one shape."""
    shape = hloom.Shape.of(np.asarray(x)).to_string(layout=False)
    return evaluate(
        f"x = {shape} parameter(0)\ny = {shape} parameter(1)\n"
        f"ROOT r = {result or shape} {opcode}(x, y){attributes}",
        x,
        y,
    )


def unary(opcode: str, x, result: str = "", attributes: str = ""):
    """Apply one operation to one array."""
    shape = hloom.Shape.of(np.asarray(x)).to_string(layout=False)
    return evaluate(f"x = {shape} parameter(0)\nROOT r = {result or shape} {opcode}(x){attributes}", x)


def shown(value) -> str:
    """Return the elements as text, which distinguishes -0.0 from 0.0 and equates NaNs."""
    return str(np.asarray(value).tolist())
