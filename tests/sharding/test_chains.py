"""Generated programs: chains of operations, each cut at random, give on tiles what one device gives.

Arguments are small integers, whose sums and products are exact in f32.
"""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest

import hloom
from hloom.ir.module import HloModule
from tests import agreement
from tests.sharding.runs import run_partitioned
from tests.sharding.test_operations import REDUCERS, SHARDINGS

LINKS = """
$N = f32[8,6] add($P, y)@
$N = f32[8,6] reverse($P), dimensions={$D}@
$Na = f32[9,6] pad($P, one), padding=1_0x0_0@; $N = f32[8,6] slice($Na), slice={[0:8], [0:6]}@
$Na = f32[8,7] pad($P, one), padding=0_0x0_1@; $N = f32[8,6] slice($Na), slice={[0:8], [1:7]}@
$Na = f32[6] reduce($P, zero), dimensions={0}, to_apply=sum; $N = f32[8,6] broadcast($Na), dimensions={1}@
$Na = f32[8] reduce($P, low), dimensions={1}, to_apply=largest; $N = f32[8,6] broadcast($Na), dimensions={0}@
$N = f32[8,6] dot($P, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}@
$Na = f32[8,8] dot($P, y), lhs_contracting_dims={1}, rhs_contracting_dims={1}@
  ; $N = f32[8,6] slice($Na), slice={[0:8], [2:8]}@
$Na = f32[5,6] slice($P), slice={[3:8], [0:6]}@; $Nb = f32[3,6] slice($P), slice={[0:3], [0:6]}@
  ; $N = f32[8,6] concatenate($Na, $Nb), dimensions={0}@
$N = f32[8,6] sort($P), dimensions={$D}, to_apply=less@
$Na = f32[16,6] concatenate($P, y), dimensions={0}@; $N = f32[8,6] slice($Na), slice={[1:16:2], [0:6]}@
$Na = f32[8,12] concatenate(y, $P), dimensions={1}@; $N = f32[8,6] slice($Na), slice={[0:8], [3:9]}@
$Na = f32[3,6] slice($P), slice={[2:5], [0:6]}@; $N = f32[8,6] dynamic-update-slice($P, $Na, n, o)@
$Na = f32[3,2] dynamic-slice($P, n, n), dynamic_slice_sizes={3,2}@
  ; $N = f32[8,6] dynamic-update-slice($P, $Na, o, n)@
$N = f32[8,6] gather($P, rows), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0},
  index_vector_dim=1, slice_sizes={1,6}@
$N = f32[8,6] scatter(y, rows, $P), update_window_dims={1}, inserted_window_dims={0},
  scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=sum@
$N = f32[8,6] reduce-window($P, zero), window={size=3x2 pad=1_1x1_0}, to_apply=sum@
$Na = f32[2,4,3,2] reshape($P); $Nb = f32[4,2,2,3] transpose($Na), dimensions={1,0,3,2}
  ; $N = f32[8,6] reshape($Nb)@
$Na = f32[6,8] transpose($P), dimensions={1,0}@; $N = f32[8,6] reshape($Na)@
$Na = f32[8,6] iota(), iota_dimension=$D@; $N = f32[8,6] subtract($P, $Na)@
$Na = f32[1,8,6] reshape($P); $Nb = f32[1,8,6] convolution($Na, k), window={size=3 pad=2_2 rhs_dilate=2},
  dim_labels=b0f_0io->b0f; $N = f32[8,6] reshape($Nb)@
"""
"""A link a line or more: $P is the value before it, $D a dimension, @ a place where a sharding may stand."""
COUNT = 40


def links() -> list[str]:
    return [*LINKS.strip().replace("\n  ", " ").splitlines()]


def program(random: np.random.Generator, devices: int) -> HloModule:
    """Return a chain of two to five links."""
    known = SHARDINGS[devices]

    def cut(text: str) -> str:
        head, *rest = text.split("@")
        for part in rest:
            chosen = known[random.integers(len(known))] if random.integers(2) else ""
            head += (f", sharding={chosen}" if chosen else "") + part
        return head

    body: list[str] = []
    before = "x"
    every = links()
    for number in range(random.integers(2, 6)):
        link = every[random.integers(len(every))].replace("$P", before).replace("$N", f"v{number}")
        body += cut(link).replace("$D", str(random.integers(2))).split(";")
        before = f"v{number}"
    parameters = [
        "x = f32[8,6]",
        "y = f32[8,6]",
        "w = f32[6,6]",
        "rows = s32[8,1]",
        "k = f32[3,6,6]",
        "n = s32[]",
    ]
    stated = [f"{p} parameter({i})" + (cut("@") if i < 4 else "") for i, p in enumerate(parameters)]
    constants = ["o = s32[] constant(0)", "zero = f32[] constant(0)", "one = f32[] constant(1)"]
    lines = [
        *stated,
        *constants,
        "low = f32[] constant(-99)",
        *body,
        cut(f"ROOT r = f32[8,6] copy({before})@"),
    ]
    return HloModule.from_text(f"HloModule m\n{REDUCERS}\nENTRY e {{\n" + "\n".join(lines) + "\n}")


@pytest.mark.parametrize("seed", range(COUNT))
def test_chains(seed: int) -> None:
    random = np.random.default_rng(seed)
    devices = (4, 6, 8)[seed % 3]
    module = program(random, devices)
    given: list[Any] = [
        random.integers(-3, 4, shape).astype(np.float32) for shape in ((8, 6), (8, 6), (6, 6))
    ]
    given += [random.integers(-1, 10, (8, 1)).astype(np.int32)]
    given += [random.integers(-3, 4, (3, 6, 6)).astype(np.float32), np.int32(random.integers(-2, 9))]
    _, found = run_partitioned(module, devices, given)
    wanted = hloom.compile(module, "evaluator")(*given)
    with contextlib.suppress(agreement.Toothless):  # a chain may end in an array of equal numbers
        agreement.equal(found[0], wanted)
