"""Batch normalization."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests import agreement, oracle
from tests.arrays import f32
from tests.evaluation import parse
from tests.one_operation import apply, array, program, refusal, same

ATTRIBUTES = "epsilon=0.001, feature_index=1"


def draw(*sizes: int, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).normal(size=sizes).astype(f32)


def test_training_by_hand() -> None:
    operand = f32([[1, 10], [3, 30]])
    attributes = "epsilon=0, feature_index=1"
    output, mean, variance = apply(
        "batch-norm-training", operand, f32([1, 2]), f32([0, 5]), attributes=attributes
    )
    assert mean.tolist() == [2, 20]
    assert variance.tolist() == [1, 100]
    assert output.tolist() == [[-1, 3], [1, 7]]


@pytest.mark.parametrize("feature", [0, 1, 2])
def test_training_normalizes_every_feature(feature: int) -> None:
    operand = draw(4, 5, 6)
    count = operand.shape[feature]
    ones, zeros = np.ones(count, f32), np.zeros(count, f32)
    attributes = f"epsilon=0, feature_index={feature}"
    output, mean, variance = apply("batch-norm-training", operand, ones, zeros, attributes=attributes)
    axes = tuple(i for i in range(3) if i != feature)
    wide = operand.astype(np.float64)
    agreement.near(mean, wide.mean(axis=axes))
    agreement.near(variance, wide.var(axis=axes))
    # The output is rounded once: its mean is off by half a unit in the last place of its largest number,
    # its variance by twice that times the largest number.
    step = np.spacing(np.abs(output).max())
    agreement.within(output.astype(np.float64).mean(axis=axes), zeros, step)
    agreement.within(output.astype(np.float64).var(axis=axes), ones, 2 * step * np.abs(output).max())


def test_inference_with_the_batch_statistics_is_training() -> None:
    operand, scale, offset = draw(4, 3, 2), draw(3, seed=1), draw(3, seed=2)
    output, mean, variance = apply("batch-norm-training", operand, scale, offset, attributes=ATTRIBUTES)
    again = apply("batch-norm-inference", operand, scale, offset, mean, variance, attributes=ATTRIBUTES)
    # Mean and variance come back rounded to f32; a centered number loses as much.
    eps, spread = np.finfo(f32).eps, np.abs(scale).max() / np.sqrt(variance.min())
    agreement.within(
        again, output, eps * (np.abs(output) + np.abs(offset).max() + 2 * spread * np.abs(operand).max())
    )


def test_gradients_are_differences_of_training() -> None:
    rng = np.random.default_rng(3)
    operand, scale, offset = rng.normal(size=(4, 2, 3)), rng.normal(size=2), rng.normal(size=2)
    grad_output = rng.normal(size=operand.shape)

    def loss(x: Any, gamma: Any, beta: Any) -> float:
        return float(
            (apply("batch-norm-training", x, gamma, beta, attributes=ATTRIBUTES)[0] * grad_output).sum()
        )

    _, mean, variance = apply("batch-norm-training", operand, scale, offset, attributes=ATTRIBUTES)
    found = apply("batch-norm-grad", operand, scale, mean, variance, grad_output, attributes=ATTRIBUTES)
    arguments, step = [operand, scale, offset], 1e-6
    for number, gradient in enumerate(found):
        for index in list(np.ndindex(gradient.shape))[:4]:
            shifted = [[a.copy() for a in arguments] for _ in range(2)]
            shifted[0][number][index] += step
            shifted[1][number][index] -= step
            difference = (loss(*shifted[0]) - loss(*shifted[1])) / (2 * step)
            # The loss, of 24 numbers of size 1 to 10, is known to 1e-14; its third derivative is of size 10³.
            agreement.within(gradient[index], difference, 1e-14 / step + 1e3 * step**2)


def test_the_pages_gradient_formula() -> None:
    x, dy, gamma = (array("f64", draw(5, 2, seed=s)) for s in (4, 5, 6))
    gamma, mean, variance, epsilon = gamma[0], x.mean(axis=0), x.var(axis=0), float(f32(0.001))
    c = (dy * (x - mean) / (variance + epsilon)).mean(axis=0)
    wanted = gamma / np.sqrt(variance + epsilon) * (dy - dy.mean(axis=0) - c * (x - mean))
    grad_operand, _, grad_offset = apply(
        "batch-norm-grad", x, gamma, mean, variance, dy, attributes=ATTRIBUTES
    )
    magnitude = (
        gamma / np.sqrt(variance + epsilon) * (np.abs(dy) + np.abs(dy).mean(axis=0) + np.abs(c * (x - mean)))
    )
    agreement.within(grad_operand, wanted, 16 * np.finfo(np.float64).eps * np.abs(magnitude))
    agreement.within(grad_offset, dy.sum(axis=0), 5 * np.finfo(np.float64).eps * np.abs(dy).sum(axis=0))


def test_an_empty_batch_has_no_mean() -> None:
    one = np.ones(2, f32)
    output, mean, variance = apply(
        "batch-norm-training", np.ones((0, 2), f32), one, one, attributes=ATTRIBUTES
    )
    assert output.shape == (0, 2)
    same(mean, [np.nan] * 2)
    same(variance, [np.nan] * 2)


def test_results_have_the_operands_type() -> None:
    operand, one = array("bf16", draw(4, 3)), np.ones(3, f32)
    results = apply("batch-norm-training", operand, one, one, attributes=ATTRIBUTES)
    assert [r.dtype.name for r in results] == ["bfloat16"] * 3


VECTOR = "f32[3]"


@pytest.mark.parametrize(
    ("opcode", "shapes", "feature", "rule"),
    [
        ("batch-norm-training", ["s32[2,3]", "s32[3]", "s32[3]"], 1, "element-type"),
        ("batch-norm-training", ["f32[2,3]", "s32[3]", VECTOR], 1, "element-type"),
        ("batch-norm-training", ["f32[2,3]", VECTOR, VECTOR], 2, "feature-index"),
        ("batch-norm-training", ["f32[2,3]", VECTOR, VECTOR], -1, "feature-index"),
        ("batch-norm-training", ["f32[2,3]", "f32[2]", VECTOR], 1, "feature-count"),
        ("batch-norm-training", ["f32[2,3]", VECTOR, "f32[3,1]"], 1, "feature-count"),
        ("batch-norm-inference", ["c64[2,3]", *[VECTOR] * 4], 1, "element-type"),
        ("batch-norm-inference", ["f32[2,3]", *[VECTOR] * 4], 2, "feature-index"),
        ("batch-norm-inference", ["f32[2,3]", VECTOR, VECTOR, VECTOR, "f32[2]"], 1, "feature-count"),
        ("batch-norm-grad", ["s32[2,3]", VECTOR, VECTOR, VECTOR, "f32[2,3]"], 1, "element-type"),
        ("batch-norm-grad", ["f32[2,3]", VECTOR, VECTOR, VECTOR, "f32[2,3]"], 5, "feature-index"),
        ("batch-norm-grad", ["f32[2,3]", VECTOR, "f32[4]", VECTOR, "f32[2,3]"], 1, "feature-count"),
        ("batch-norm-grad", ["f32[2,3]", VECTOR, VECTOR, VECTOR, "f32[3,3]"], 1, "grad-output"),
    ],
)
def test_batch_norm_refuses(opcode: str, shapes: list[str], feature: int, rule: str) -> None:
    attributes = f"epsilon=0.001, feature_index={feature}"
    assert refusal(opcode, *shapes, attributes=attributes).rule == f"{opcode}.{rule}"


@pytest.mark.parametrize("opcode", ["batch-norm-training", "batch-norm-inference", "batch-norm-grad"])
def test_xla_agrees(opcode: str) -> None:
    operand, positive = draw(4, 3, 5), np.abs(draw(3, seed=4)) + 1
    operands = {
        "batch-norm-training": [operand, draw(3, seed=1), draw(3, seed=2)],
        "batch-norm-inference": [operand, draw(3, seed=1), draw(3, seed=2), draw(3, seed=3), positive],
        "batch-norm-grad": [operand, draw(3, seed=1), draw(3, seed=3), positive, draw(4, 3, 5, seed=5)],
    }[opcode]
    shapes = [f"f32[{','.join(map(str, o.shape))}]" for o in operands]
    text = f"HloModule m\nENTRY e {{\n{program(opcode, *shapes, attributes=ATTRIBUTES)}\n}}"
    theirs = oracle.run(text, *operands)
    agreement.computed(theirs[0] if len(theirs) == 1 else tuple(theirs), parse(text), operands)
