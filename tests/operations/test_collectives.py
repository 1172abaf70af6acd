"""all-reduce, all-gather, reduce-scatter, replica-id and partition-id, in every group mode."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.arrays import f32, s32
from tests.devices import executable, fails, lists, on_devices, program
from tests.evaluation import evaluate, refused
from tests.reducers import ADD, binary


def reducing(body: str) -> str:
    return program(body, ADD)


PAIR = [[f32([1.0, 2.5])], [f32([3.0, 5.25])]]


def test_all_reduce_of_the_page() -> None:
    text = reducing(
        "p = f32[2] parameter(0)\n ROOT r = f32[2] all-reduce(p), replica_groups={}, to_apply=add"
    )
    assert lists(on_devices(text, PAIR, replicas=2)) == [[4.0, 7.75], [4.0, 7.75]]


def test_all_gather_of_the_page() -> None:
    text = program("p = f32[2] parameter(0)\n ROOT r = f32[4] all-gather(p), dimensions={0}")
    assert lists(on_devices(text, PAIR, replicas=2)) == [[1.0, 2.5, 3.0, 5.25]] * 2


def test_reduce_scatter_of_the_page() -> None:
    text = reducing(
        "p = f32[2] parameter(0)\n"
        "ROOT r = f32[1] reduce-scatter(p), dimensions={0}, replica_groups={{0,1}}, to_apply=add"
    )
    arguments = [[f32([1.0, 2.25])], [f32([3.0, 5.25])]]
    assert lists(on_devices(text, arguments, replicas=2)) == [[4.0], [7.5]]


def test_the_order_in_a_group_is_the_order_of_the_result() -> None:
    text = program(
        "p = f32[2] parameter(0)\n ROOT r = f32[4] all-gather(p), dimensions={0}, replica_groups={{1,0}}"
    )
    assert lists(on_devices(text, PAIR, replicas=2)) == [[3.0, 5.25, 1.0, 2.5]] * 2


def test_groups_do_not_meet() -> None:
    text = reducing(
        "p = f32[] parameter(0)\n ROOT r = f32[] all-reduce(p), replica_groups={{0,2},{1,3}}, to_apply=add"
    )
    arguments = [[np.float32(n)] for n in (1, 10, 100, 1000)]
    assert lists(on_devices(text, arguments, replicas=4)) == [101, 1010, 101, 1010]


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        ("[2,2]<=[4]", [11, 11, 1100, 1100]),
        ("[2,2]<=[2,2]T(1,0)", [101, 1010, 101, 1010]),
        ("mesh['a'=2,'b'=2] {'a'}", [101, 1010, 101, 1010]),
        ("mesh['a'=2,'b'=2] {'b'}", [11, 11, 1100, 1100]),
        ("mesh['a'=2,'b'=2] {'a','b'}", [1111] * 4),
        ("mesh['a'=4] {'a':(1)2}", [101, 1010, 101, 1010]),
        ("mesh['a'=4] {'a':(2)2}", [11, 11, 1100, 1100]),
        ("mesh['a'=2,'b'=2], device_ids=(0,3,1,2) {'b'}", [1001, 110, 110, 1001]),
    ],
)
def test_groups_in_every_notation(groups: str, expected: list[float]) -> None:
    text = reducing(
        f"p = f32[] parameter(0)\n ROOT r = f32[] all-reduce(p), replica_groups={groups}, to_apply=add"
    )
    arguments = [[np.float32(10**n)] for n in range(4)]
    assert lists(on_devices(text, arguments, replicas=4)) == expected


# Devices (replica, partition): (0,0) contributes 1, (0,1) 10, (1,0) 100, (1,1) 1000.
@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ("replica_groups={{0,1}}", [101, 1010, 101, 1010]),
        ("replica_groups={}", [101, 1010, 101, 1010]),
        ("channel_id=1, replica_groups={{0,1}}", [1111] * 4),
        ("channel_id=1, replica_groups={{0},{1}}", [11, 11, 1100, 1100]),
        ("channel_id=1, replica_groups={{0,1,2,3}}, use_global_device_ids=true", [1111] * 4),
        ("channel_id=1, replica_groups={{0,3},{1,2}}, use_global_device_ids=true", [1001, 110, 110, 1001]),
        ("channel_id=1, replica_groups={{0},{1,2,3}}, use_global_device_ids=true", [1, 1110, 1110, 1110]),
    ],
)
def test_group_modes_of_all_reduce(attributes: str, expected: list[float]) -> None:
    text = reducing(f"p = f32[] parameter(0)\n ROOT r = f32[] all-reduce(p), {attributes}, to_apply=add")
    arguments = [[np.float32(10**n)] for n in range(4)]
    assert lists(on_devices(text, arguments, replicas=2, partitions=2)) == expected


def test_across_both_the_partitions_are_the_outer_order() -> None:
    text = program(
        "p = s32[1] parameter(0)\n"
        "ROOT r = s32[4] all-gather(p), channel_id=1, dimensions={0}, replica_groups={{0,1}}"
    )
    arguments = [[s32([n])] for n in (0, 1, 10, 11)]
    assert lists(on_devices(text, arguments, replicas=2, partitions=2)) == [[0, 10, 1, 11]] * 4


def test_several_operands_are_reduced_each() -> None:
    text = reducing("""
      p = f32[2] parameter(0)
      q = f32[] parameter(1)
      ROOT r = (f32[2], f32[]) all-reduce(p, q), to_apply=add""")
    arguments = [[f32([1, 2]), np.float32(3)], [f32([10, 20]), np.float32(30)]]
    assert lists(on_devices(text, arguments, replicas=2)) == [[[11, 22], 33]] * 2


def test_a_reduction_that_is_not_elementwise() -> None:
    computations = """
      yes { x = f32[] parameter(0)
        ROOT n = f32[] negate(x) }
      no { ROOT x = f32[] parameter(0) }
      larger_or_negated_smaller {
        x = f32[] parameter(0)
        y = f32[] parameter(1)
        c = pred[] compare(x, y), direction=LT
        ROOT r = f32[] conditional(c, x, x), true_computation=yes, false_computation=no
      }"""
    text = program(
        "p = f32[2] parameter(0)\n ROOT r = f32[2] all-reduce(p), to_apply=larger_or_negated_smaller",
        computations,
    )
    arguments = [[f32([1, 9])], [f32([5, 5])]]
    assert lists(on_devices(text, arguments, replicas=2)) == [[-1, 9]] * 2


def test_a_reduction_in_a_higher_precision_rounds_once() -> None:
    """1 + 2^-8 + 2^-8 is 1 in bf16 where every sum is rounded, 1 + 2^-7 where only the result is."""
    text = reducing("p = bf16[] parameter(0)\n ROOT r = bf16[] all-reduce(p), to_apply=add")
    result = on_devices(text, [[1.0], [2.0**-8], [2.0**-8]], replicas=3)[0]
    assert (result.dtype, float(result)) == (ml_dtypes.bfloat16, 1 + 2.0**-7)


def test_start_and_done() -> None:
    text = reducing("""
      p = f32[2] parameter(0)
      a = f32[2] all-reduce-start(p), to_apply=add
      g = (f32[2], f32[4]) all-gather-start(p), dimensions={0}
      b = f32[4] all-gather-done(g)
      c = f32[2] all-reduce-done(a)
      ROOT t = (f32[2], f32[4]) tuple(c, b)""")
    assert lists(on_devices(text, PAIR, replicas=2)) == [[[4.0, 7.75], [1.0, 2.5, 3.0, 5.25]]] * 2


def test_what_is_started_may_be_finished_in_another_order() -> None:
    """Two programs start two collectives in different orders; starts that wait would block each other."""
    start_a = "a = f32[] all-reduce-start(p), channel_id=1, replica_groups={{0,1}}, to_apply=add"
    start_b = "b = f32[] all-reduce-start(q), channel_id=2, replica_groups={{0,1}}, to_apply=add"
    texts = [
        reducing(f"""
          p = f32[] parameter(0)
          q = f32[] parameter(1)
          {first}
          {second}
          c = f32[] all-reduce-done(a)
          d = f32[] all-reduce-done(b)
          ROOT t = (f32[], f32[]) tuple(c, d)""")
        for first, second in (
            (start_a, start_b + ", control-predecessors={a}"),
            (start_b, start_a + ", control-predecessors={b}"),
        )
    ]
    results = executable(*texts, replicas=2).run(
        [[np.float32(1), np.float32(2)], [np.float32(10), np.float32(20)]]
    )
    assert lists(results) == [[11, 22]] * 2


def test_reduce_scatter_deals_out_along_any_dimension() -> None:
    text = reducing(
        "p = f32[2,4] parameter(0)\n ROOT r = f32[2,2] reduce-scatter(p), dimensions={1}, to_apply=add"
    )
    array = np.arange(8, dtype=np.float32).reshape(2, 4)
    assert lists(on_devices(text, [[array], [array]], replicas=2)) == [
        [[0, 2], [8, 10]],
        [[4, 6], [12, 14]],
    ]


def test_arrays_without_elements() -> None:
    text = reducing("""
      p = f32[0,2] parameter(0)
      a = f32[0,2] all-reduce(p), to_apply=add
      g = f32[0,2] all-gather(a), dimensions={0}
      ROOT s = f32[0,2] reduce-scatter(g), dimensions={0}, to_apply=add""")
    empty = np.zeros((0, 2), np.float32)
    assert [r.shape for r in on_devices(text, [[empty], [empty]], replicas=2)] == [(0, 2), (0, 2)]


def test_one_device_works_alone() -> None:
    text = reducing("""
      p = f32[2] parameter(0)
      a = f32[2] all-reduce(p), to_apply=add
      ROOT g = f32[2] all-gather(a), dimensions={0}, replica_groups={{0}}""")
    assert evaluate(text, f32([1, 2])).tolist() == [1, 2]


def test_ids() -> None:
    text = program("r = u32[] replica-id()\n p = u32[] partition-id()\n ROOT t = (u32[], u32[]) tuple(r, p)")
    results = on_devices(text, [[]] * 6, replicas=2, partitions=3)
    assert lists(results) == [[r, p] for r in range(2) for p in range(3)]
    assert results[0][0].dtype == np.uint32


# -- what is refused before the program runs

P = "p = f32[4] parameter(0)\n"
NEGATE = "negate {\n x = f32[] parameter(0)\n ROOT n = f32[] negate(x)\n}\n"
INTEGER = binary("add", "s32", name="add_integers")


@pytest.mark.parametrize(
    ("body", "rule"),
    [
        ("all-reduce(p), replica_groups={{0,0}}, to_apply=add", "all-reduce.replica-groups-distinct"),
        ("all-reduce(p), replica_groups={{0,-1}}, to_apply=add", "all-reduce.replica-groups-distinct"),
        ("all-reduce(p), use_global_device_ids=true, to_apply=add", "all-reduce.global-ids-channel"),
        (
            "all-reduce(p), channel_id=1, use_global_device_ids=true, to_apply=add",
            "all-reduce.global-ids-groups",
        ),
        ("all-reduce(p), to_apply=negate", "all-reduce.reducer"),
        ("all-reduce(p), to_apply=add_integers", "all-reduce.reducer"),
        ("all-reduce(), to_apply=add", "all-reduce.operand-arrays"),
        ("all-gather(p), dimensions={0}, replica_groups={{0,1},{2}}", "all-gather.replica-groups-equal"),
        ("all-gather(p), dimensions={0}, replica_groups={{}}", "all-gather.replica-groups-filled"),
        ("all-reduce(p), replica_groups={{},{0}}, to_apply=add", "all-reduce.replica-groups-filled"),
        ("all-gather(p), dimensions={0,1}", "all-gather.one-dimension"),
        ("all-gather(p), dimensions={1}", "all-gather.dimension-range"),
        ("all-gather(p), dimensions={0}, replica_groups={{0,1}}", "all-gather.group-size"),
        ("reduce-scatter(p), dimensions={0,0}, to_apply=add", "reduce-scatter.one-dimension"),
        ("reduce-scatter(p), dimensions={1}, to_apply=add", "reduce-scatter.dimension-range"),
        (
            "reduce-scatter(p), dimensions={0}, replica_groups={{0,1}}, to_apply=add",
            "reduce-scatter.group-size",
        ),
        ("reduce-scatter(p), dimensions={0}, to_apply=negate", "reduce-scatter.reducer"),
        *(
            (f"{opcode}(p), {broken}{rest}", f"{opcode}.{rule}")
            for opcode, rest in (
                ("all-gather", ", dimensions={0}"),
                ("all-gather-start", ", dimensions={0}"),
                ("all-reduce-start", ", to_apply=add"),
                ("reduce-scatter", ", dimensions={0}, to_apply=add"),
            )
            for broken, rule in (
                ("replica_groups={{0,0}}", "replica-groups-distinct"),
                ("replica_groups={{},{0}}", "replica-groups-filled"),
                ("use_global_device_ids=true", "global-ids-channel"),
                ("channel_id=1, use_global_device_ids=true", "global-ids-groups"),
            )
        ),
        (
            "all-gather-start(p), dimensions={0}, replica_groups={{0,1},{2}}",
            "all-gather-start.replica-groups-equal",
        ),
        ("all-gather-start(p), dimensions={0}, replica_groups={{0,1}}", "all-gather-start.group-size"),
        ("all-reduce-start(p), to_apply=negate", "all-reduce-start.reducer"),
    ],
)
def test_what_is_refused(body: str, rule: str) -> None:
    shape = "(f32[4], f32[4])" if body.startswith("all-gather-start") else "f32[4]"
    text = program(f"{P}ROOT r = {shape} {body}", ADD + NEGATE + INTEGER)
    assert refused(text).rule == rule


@pytest.mark.parametrize(
    ("instruction", "rule"),
    [
        ("r = f32[6] all-gather(p), dimensions={0}", "all-gather.shape-matches"),
        ("r = s32[8] all-gather(p), dimensions={0}", "all-gather.shape-matches"),
        ("r = f32[8] all-gather-start(p), dimensions={0}", "all-gather-start.shape-form"),
        ("r = (f32[4], f32[6]) all-gather-start(p), dimensions={0}", "all-gather-start.shape-matches"),
        ("r = f32[3] reduce-scatter(p), dimensions={0}, to_apply=add", "reduce-scatter.shape-matches"),
        ("r = f32[3] all-reduce(p), to_apply=add", "instruction.shape-matches"),
        ("r = f32[4] all-gather-done(p)", "all-gather-done.operand-form"),
        ("r = u32[2] replica-id()", "instruction.shape-matches"),
        ("r = s32[] partition-id()", "instruction.shape-matches"),
        ("r = all-gather(p), dimensions={0}", "all-gather.shape-stated"),
        ("r = reduce-scatter(p), dimensions={0}, to_apply=add", "reduce-scatter.shape-stated"),
        (
            "r = reduce-scatter(p), dimensions={0}, replica_groups={{0,1,2}}, to_apply=add",
            "reduce-scatter.divisible",
        ),
        ("r = f32[4] all-reduce(p), mode=everywhere, to_apply=add", "collective.mode"),
    ],
)
def test_which_shapes_are_refused(instruction: str, rule: str) -> None:
    assert refused(program(f"{P}ROOT {instruction}", ADD)).rule == rule


@pytest.mark.parametrize("stated", ["f32[4,2]", "f32[6]", "f32[2]", "(f32[8], f32[8])"])
def test_a_gathered_shape_that_does_not_fit_is_refused_with_that_of_the_groups(stated: str) -> None:
    error = refused(
        program(f"{P}ROOT r = {stated} all-gather(p), dimensions={{0}}, replica_groups={{{{0,1}}}}")
    )
    assert error.rule == "all-gather.shape-matches"
    assert "f32[8]" in error.message


# -- what goes wrong while the program runs


@pytest.mark.parametrize(
    ("body", "rule"),
    [
        ("ROOT r = f32[12] all-gather(p), dimensions={0}", "collective.group-size"),
        ("ROOT r = f32[4] reduce-scatter(p), dimensions={0}, to_apply=add", "collective.group-size"),
    ],
)
def test_what_does_not_fit_the_devices(body: str, rule: str) -> None:
    exe = executable(program(P + body, ADD), replicas=2)
    error = fails(exe, [[np.zeros(4, np.float32)]] * 2)
    assert (error.rule, error.instruction) == (rule, "r")


def test_programs_that_contribute_different_arrays() -> None:
    texts = [
        reducing(f"p = f32[{size}] parameter(0)\n ROOT r = f32[{size}] all-reduce(p), to_apply=add")
        for size in (2, 3)
    ]
    error = fails(executable(*texts, replicas=2), [[np.zeros(2, np.float32)], [np.zeros(3, np.float32)]])
    assert error.rule == "collective.same-operands"
