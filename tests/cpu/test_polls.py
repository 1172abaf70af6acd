"""Polls for the end of a program: emitted after kernels that did enough work since the last poll."""

from __future__ import annotations

import pytest

from hloom.cpu.jit.compilation import optimize
from hloom.cpu.program import emit_program
from hloom.cpu.runtime.interruption import LONG_KERNELS, POLL_FUNCTION
from tests.evaluation import parse

PRODUCT = 64**3
"""Work of one product."""


def polls(count: int) -> int:
    """Return the number of polls of products that follow each other."""
    lines = "\n".join(
        f" x{n + 1} = f32[64,64] dot(x{n}, x{n}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"
        for n in range(count)
    )
    text = f"ENTRY e {{\n x0 = f32[64,64] parameter(0)\n{lines}\n ROOT r = f32[64,64] negate(x{count})\n}}"
    program = emit_program(optimize(parse(f"HloModule m\n{text}")))
    return program.text.count(f"@{POLL_FUNCTION}(") - (f"declare i32 @{POLL_FUNCTION}(" in program.text)


@pytest.mark.parametrize("times", [1, 2, 3])
def test_work_adds_up_until_the_next_poll(times: int) -> None:
    each = -(-LONG_KERNELS // PRODUCT)
    assert each > 1
    assert polls(times * each - 1) == times - 1
    assert polls(times * each) == times


def test_a_program_that_is_not_interruptible_does_not_poll() -> None:
    module = optimize(parse("x = f32[4096,4096] parameter(0)\nROOT r = f32[4096,4096] dot(x, x), "
                            "lhs_contracting_dims={1}, rhs_contracting_dims={0}"))  # fmt: skip
    assert POLL_FUNCTION in emit_program(module).text
    assert POLL_FUNCTION not in emit_program(module, interruptible=False).text
