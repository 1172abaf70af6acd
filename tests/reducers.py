"""Computations for reductions, in tests."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from hloom.errors import HloError
from hloom.shape.shape import Shape
from tests.evaluation import evaluate, refused


def binary(opcode: str, element_type: str = "f32", name: str = "f") -> str:
    """Return ``f(x, y) = opcode(x, y)``; its names begin with its own, so that they do not meet others."""
    lhs, rhs = f"{name}.lhs", f"{name}.rhs"
    return (
        f"{name} {{\n {lhs} = {element_type}[] parameter(0)\n {rhs} = {element_type}[] parameter(1)\n"
        f" ROOT {name}.result = {element_type}[] {opcode}({lhs}, {rhs})\n}}\n"
    )


def comparison(direction: str, element_type: str = "f32", name: str = "g") -> str:
    """Return ``g(x, y) = x direction y``."""
    lhs, rhs = f"{name}.lhs", f"{name}.rhs"
    return (
        f"{name} {{\n {lhs} = {element_type}[] parameter(0)\n {rhs} = {element_type}[] parameter(1)\n"
        f" ROOT {name}.result = pred[] compare({lhs}, {rhs}), direction={direction}\n}}\n"
    )


ADD = binary("add", name="add")
MAXIMUM = binary("maximum", name="maximum")
LESS = comparison("LT", name="less")
_APPLIED = re.compile(
    r"\b(?:to_apply=|scatter=|called_computations=\{)((add|multiply|maximum|minimum|and|or)(?:_([a-z0-9]+))?)\b"
)
_HEADER = re.compile(r"\s*HloModule .*\n|")


def with_reducers(program: str) -> str:
    """Define the reducers that a program applies, by name: ``add`` of f32, ``maximum_s32`` ..."""
    applied = dict.fromkeys(_APPLIED.findall(program))
    header = _HEADER.match(program)
    assert header and applied, program
    computations = (binary(opcode, kind or "f32", name) for name, opcode, kind in applied)
    return program[: header.end()] + "".join(computations) + program[header.end() :]


ARGMAX = """f {
  max = f32[] parameter(0)
  argmax = s32[] parameter(1)
  value = f32[] parameter(2)
  index = s32[] parameter(3)
  newer = pred[] compare(value, max), direction=GE
  best = f32[] select(newer, value, max)
  where = s32[] select(newer, index, argmax)
  ROOT r = (f32[], s32[]) tuple(best, where)
}
"""
"""The page's reduction function: the largest value and its index."""

JAX_ARGMAX = """f {
  a = f32[] parameter(0)
  i = s32[] parameter(1)
  b = f32[] parameter(2)
  j = s32[] parameter(3)
  greater = pred[] compare(a, b), direction=GT
  unordered = pred[] compare(a, a), direction=NE
  first = pred[] or(greater, unordered)
  equal = pred[] compare(a, b), direction=EQ
  earlier = pred[] compare(i, j), direction=LT
  tie = pred[] and(equal, earlier)
  keep = pred[] or(first, tie)
  best = f32[] select(first, a, b)
  where = s32[] select(keep, i, j)
  ROOT r = (f32[], s32[]) tuple(best, where)
}
"""
"""JAX's argmax: the first NaN, or the largest value; of equals the lower index."""

LATER = "f {\n x = f32[] parameter(0)\n ROOT y = f32[] parameter(1)\n}\n"
"""The second value: associative, not commutative."""


def selecting(direction: str, element_type: str = "f32", comparison: str = "") -> str:
    """Return ``f(a, b) = a direction b ? a : b``."""
    return (
        f"f {{\n a = {element_type}[] parameter(0)\n b = {element_type}[] parameter(1)\n"
        f" c = pred[] compare(a, b), direction={direction}{comparison}\n"
        f" ROOT r = {element_type}[] select(c, a, b)\n}}\n"
    )


def program(computations: str, operation: str, *shapes: str) -> str:
    """Return a program of one operation with operands p0, p1 ...; ``@`` stands for all of them."""
    parameters = "".join(f"  p{i} = {shape} parameter({i})\n" for i, shape in enumerate(shapes))
    names = ", ".join(f"p{i}" for i in range(len(shapes)))
    entry = f"ENTRY entry {{\n{parameters}  ROOT root = {operation.replace('@', names)}\n}}\n"
    return f"HloModule m\n{computations}{entry}"


def apply(computations: str, operation: str, *operands: Any) -> Any:
    """Return the value of an operation with called computations."""
    arrays = [np.asarray(operand) for operand in operands]
    return evaluate(program(computations, operation, *(str(Shape.of(a)) for a in arrays)), *arrays)


def refusal(computations: str, operation: str, *shapes: str) -> HloError:
    """Return the error of an operation with called computations."""
    return refused(program(computations, operation, *shapes))
