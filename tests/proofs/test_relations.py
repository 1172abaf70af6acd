"""Proofs by relations: any number of devices, their limits, and the indices and totals that they rest on."""

from __future__ import annotations

import pytest

from hloom import HloModule
from hloom.proofs import Relation
from hloom.proofs.partitioned import annotated_tilings, prove_partitioned
from hloom.sharding import partitioned_program
from tests.proofs.partitioned_corpus import judged_apart
from tests.proofs.partitioned_mutants import wrong_proofs
from tests.proofs.test_partitioned import REDUCERS as SUMS_AND_MAXIMA

REDUCERS = f"""{SUMS_AND_MAXIMA}
second {{ a = bf16[] parameter(0) ROOT b = bf16[] parameter(1) }}
sums {{ a = f32[] parameter(0) b = f32[] parameter(1) c = f32[] parameter(2) d = f32[] parameter(3)
  e = f32[] add(a, c) f = f32[] multiply(b, d) ROOT r = (f32[], f32[]) tuple(e, f) }}
quotient {{ a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] divide(a, b) }}
"""

SOFTMAX = """
x = f32[8192,512] parameter(0), sharding={devices=[64,64]<=[4096]}
low = f32[] constant(-inf)
zero = f32[] constant(0)
m = f32[8192] reduce(x, low), dimensions={1}, to_apply=max
mm = f32[8192,512] broadcast(m), dimensions={0}
s = f32[8192,512] subtract(x, mm)
e = f32[8192,512] exponential(s)
t = f32[8192] reduce(e, zero), dimensions={1}, to_apply=add
tt = f32[8192,512] broadcast(t), dimensions={0}
ROOT r = f32[8192,512] divide(e, tt), sharding={devices=[64,64]<=[4096]}"""
"""A softmax on 64 x 64 devices."""
LOCAL_SOFTMAX = """
x = f32[128,8] parameter(0)
low = f32[] constant(-inf)
zero = f32[] constant(0)
p = f32[128] reduce(x, low), dimensions={1}, to_apply=max
m = f32[128] all-reduce(p), GROUPS, to_apply=max
mm = f32[128,8] broadcast(m), dimensions={0}
s = f32[128,8] subtract(x, mm)
e = f32[128,8] exponential(s)
q = f32[128] reduce(e, zero), dimensions={1}, to_apply=add
t = f32[128] all-reduce(q), GROUPS, to_apply=add
tt = f32[128,8] broadcast(t), dimensions={0}
ROOT r = f32[128,8] divide(e, tt)""".replace(
    "GROUPS", "channel_id=1, replica_groups=[64,64]<=[4096], use_global_device_ids=true"
)
ROWS = "[64,64]<=[4096]"


def program(body: str, devices: int = 4096) -> HloModule:
    """Return a program for devices."""
    return HloModule.from_text(f"HloModule m, num_partitions={devices}\n{REDUCERS}\nENTRY e {{{body}\n}}")


def relation(whole: str, local: str, devices: int = 4096) -> Relation:
    """Return the verdict on the program of a device, for the annotated tiles."""
    module = program(whole, devices)
    tilings = annotated_tilings(module, devices)
    return prove_partitioned(module, program(local, devices), *tilings, samples=1).relation


def test_a_softmax_on_4096_devices() -> None:
    assert relation(SOFTMAX, LOCAL_SOFTMAX) is Relation.EQUAL_OVER_REALS


@pytest.mark.parametrize(
    "local",
    [
        LOCAL_SOFTMAX.replace(
            "use_global_device_ids=true, to_apply=max", "use_global_device_ids=true, to_apply=add"
        ),
        LOCAL_SOFTMAX.replace("all-reduce(p)", "copy(p)", 1).replace(
            f"channel_id=1, replica_groups={ROWS}, use_global_device_ids=true, to_apply=max", "metadata={}", 1
        ),
        LOCAL_SOFTMAX.replace(ROWS, "[64,64]<=[64,64]T(1,0)", 1),
        LOCAL_SOFTMAX.replace(ROWS, "[128,32]<=[4096]"),
    ],
    ids=["maxima are added", "an all-reduce is lost", "groups of columns", "groups of half the size"],
)
def test_wrong_softmaxes_are_not_proved(local: str) -> None:
    assert relation(SOFTMAX, local) is Relation.OPEN


STEPS = {
    "uneven tiles": """
    a = f32[6,8] parameter(0), sharding={devices=[4,1]<=[4]}
    b = f32[8,6] parameter(1), sharding={devices=[4,1]<=[4]}
    d = f32[6,6] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
    ROOT r = f32[6,6] exponential(d), sharding={devices=[1,4]<=[4]}""",
    "a table of rows, sharded": """
    t = f32[16,8] parameter(0), sharding={devices=[4,1]<=[4]}
    i = s32[6] parameter(1), sharding={replicated}
    ROOT g = f32[6,8] gather(t, i), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0},
      index_vector_dim=1, slice_sizes={1,8}, sharding={replicated}""",
    "sums of rows, of sharded updates": """
    t = f32[16,8] parameter(0), sharding={replicated}
    i = s32[8] parameter(1), sharding={devices=[4]<=[4]}
    u = f32[8,8] parameter(2), sharding={devices=[4,1]<=[4]}
    ROOT s = f32[16,8] scatter(t, i, u), update_window_dims={1}, inserted_window_dims={0},
      scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add, sharding={replicated}""",
    "rows that are replaced, in order": """
    t = bf16[16,8] parameter(0), sharding={devices=[1,4]<=[4]}
    i = s32[6] parameter(1), sharding={replicated}
    u = bf16[6,8] parameter(2), sharding={devices=[1,4]<=[4]}
    ROOT s = bf16[16,8] scatter(t, i, u), update_window_dims={1}, inserted_window_dims={0},
      scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=second, sharding={devices=[1,4]<=[4]}""",
    "rows of two arrays": """
    t = f32[16,8] parameter(0), sharding={devices=[1,4]<=[4]}
    w = f32[16,8] parameter(1), sharding={devices=[1,4]<=[4]}
    i = s32[6] parameter(2), sharding={replicated}
    u = f32[6,8] parameter(3), sharding={devices=[1,4]<=[4]}
    v = f32[6,8] parameter(4), sharding={devices=[1,4]<=[4]}
    s = (f32[16,8], f32[16,8]) scatter(t, w, i, u, v), update_window_dims={1}, inserted_window_dims={0},
      scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=sums
    x = f32[16,8] get-tuple-element(s), index=0
    y = f32[16,8] get-tuple-element(s), index=1
    ROOT r = f32[16,8] subtract(x, y), sharding={devices=[1,4]<=[4]}""",
    "two products": """
    a = f32[8,8] parameter(0), sharding={devices=[2,2]<=[4]}
    b = f32[8,8] parameter(1), sharding={devices=[2,2]<=[4]}
    c = f32[8,8] parameter(2), sharding={devices=[2,2]<=[4]}
    d = f32[8,8] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
    e = f32[8,8] transpose(d), dimensions={1,0}
    ROOT r = f32[8,8] dot(e, c), lhs_contracting_dims={1}, rhs_contracting_dims={0},
      sharding={devices=[2,2]<=[4]}""",
    "an update across the border of tiles": """
    a = f32[16,8] parameter(0), sharding={devices=[4,1]<=[4]}
    u = f32[1,8] parameter(1), sharding={replicated}
    n = s32[] parameter(2)
    z = s32[] constant(0)
    ROOT d = f32[16,8] dynamic-update-slice(a, u, n, z), sharding={devices=[4,1]<=[4]}""",
    "a slice on the first device": """
    a = f32[512] parameter(0), sharding={devices=[4]<=[4]}
    ROOT s = f32[1] slice(a), slice={[0:1]}, sharding={devices=[4]<=[4]}""",
    "other tiles": """
    a = f32[8,8] parameter(0), sharding={devices=[4,1]<=[4]}
    ROOT b = f32[4,2,8] reshape(a), sharding={devices=[1,1,4]<=[4]}""",
}

ROUNDED_SUM = """
    a = bf16[16,8] parameter(0), sharding={devices=[1,4]<=[4]}
    b = bf16[8,16] parameter(1), sharding={devices=[4,1]<=[4]}
    ROOT d = bf16[16,16] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0},
      sharding={replicated}"""
"""No kind of mutant applies to its few instructions."""


@pytest.mark.parametrize("body", [*STEPS.values(), ROUNDED_SUM], ids=[*STEPS, "a sum that is rounded"])
def test_the_partitioner_is_proved_without_random_numbers(body: str) -> None:
    module = program(body, 4)
    partitioned = partitioned_program(module, 4)
    found = prove_partitioned(module, partitioned.module, partitioned.parameters, partitioned.results)
    assert found.relation.is_proof
    assert found.certain


@pytest.mark.parametrize("body", STEPS.values(), ids=STEPS)
def test_no_mistake_is_proved(body: str) -> None:
    words = wrong_proofs(program(body, 4), 4, seed=1, most=12)
    assert words.total() > 0
    assert words["proved, different"] == 0


def test_a_wrong_choice_is_not_proved_at_one_index() -> None:
    """The fold reads one array from row 5 on, and another one before; its first element is of that one."""
    body = """
    a = f32[8,4] parameter(0), sharding={replicated}
    b = f32[8,4] parameter(1), sharding={replicated}
    one = f32[] constant(1)
    first = f32[8,8,4] broadcast(a), dimensions={0,2}
    second = f32[8,8,4] broadcast(b), dimensions={1,2}
    n = s32[8,8,4] iota(), iota_dimension=0
    five = s32[] constant(5)
    limit = s32[8,8,4] broadcast(five), dimensions={}
    p = pred[8,8,4] compare(n, limit), direction=GE
    s = f32[8,8,4] select(p, first, second)
    f = f32[8,8] reduce(s, one), dimensions={2}, to_apply=quotient
    ROOT r = f32[1,1] slice(f), slice={[0:1],[0:1]}, sharding={replicated}"""
    assert relation(body, body, 2).is_proof
    assert relation(body, body.replace("select(p, first, second)", "copy(second)"), 2).is_proof
    assert relation(body, body.replace("select(p, first, second)", "copy(first)"), 2) is Relation.REFUTED


def test_a_transformers_training_step_on_4096_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the width of a language model, for sequences of 1,024 tokens."""
    pytest.importorskip("jax")
    from hloom.stablehlo import module_of
    from tests.sharding import test_transformer, transformer

    for name, number in (("WIDTH", 1024), ("HEADS", 64), ("VOCABULARY", 50304)):
        monkeypatch.setattr(transformer, name, number)
    monkeypatch.setattr(test_transformer, "LENGTH", 1025)
    module = module_of(test_transformer.lowered(64, 64, layers=2))
    partitioned = partitioned_program(module, 4096)
    found = prove_partitioned(module, partitioned.module, partitioned.parameters, partitioned.results)
    assert found.relation is Relation.EQUAL_OVER_REALS


def test_the_partitioner_of_xla_is_proved() -> None:
    pytest.importorskip("jax")
    relation, reason = judged_apart(program(STEPS["two products"], 4).to_text(), 4, "xla", "spawn")
    assert relation == "equal over the reals", reason
