"""all-to-all, ragged-all-to-all, collective-permute and collective-broadcast."""

from __future__ import annotations

import numpy as np
import pytest

from tests.arrays import s32
from tests.devices import executable, fails, lists, on_devices, program
from tests.evaluation import refused

# -- all-to-all


def test_all_to_all_of_the_page() -> None:
    """Four devices split f32[4,16] along dimension 1 and join what arrives along dimension 0: f32[16,4].

    HLO's array form splits and concatenates along one dimension, so what XlaBuilder emits goes on with a
    reshape and a transpose.
    """
    text = program("""
      x = f32[4,16] parameter(0)
      a = f32[4,16] all-to-all(x), dimensions={1}
      b = f32[4,4,4] reshape(a)
      c = f32[4,4,4] transpose(b), dimensions={1,0,2}
      ROOT d = f32[16,4] reshape(c)""")
    whole = np.arange(4 * 64, dtype=np.float32).reshape(4, 4, 16)
    results = on_devices(text, [[x] for x in whole], replicas=4)
    for device, result in enumerate(results):
        expected = np.concatenate([x[:, 4 * device : 4 * device + 4] for x in whole], axis=0)
        assert np.array_equal(result, expected)


def test_the_order_of_the_group_counts() -> None:
    text = program(
        "p = s32[2] parameter(0)\n ROOT r = s32[2] all-to-all(p), dimensions={0}, replica_groups={{1,0}}"
    )
    arguments = [[s32([1, 2])], [s32([3, 4])]]
    assert lists(on_devices(text, arguments, replicas=2)) == [[4, 2], [3, 1]]


def test_a_channel_exchanges_between_partitions() -> None:
    text = program("p = s32[2] parameter(0)\n ROOT r = s32[2] all-to-all(p), channel_id=1, dimensions={0}")
    arguments = [[s32([n, n + 1])] for n in (0, 10, 20, 30)]
    results = on_devices(text, arguments, replicas=2, partitions=2)
    assert lists(results) == [[0, 10], [1, 11], [20, 30], [21, 31]]


def test_the_tuple_form_exchanges_operands() -> None:
    text = program("""
      p = s32[] parameter(0)
      q = s32[] parameter(1)
      ROOT r = (s32[], s32[]) all-to-all(p, q), replica_groups={{0,1}}""")
    arguments = [[np.int32(1), np.int32(2)], [np.int32(3), np.int32(4)]]
    assert lists(on_devices(text, arguments, replicas=2)) == [[1, 3], [2, 4]]


P = "p = f32[4] parameter(0)\n q = f32[2] parameter(1)\n"


@pytest.mark.parametrize(
    ("instruction", "rule"),
    [
        ("r = f32[4] all-to-all(p), dimensions={1}", "all-to-all.split-dimension"),
        ("r = f32[4] all-to-all(p), dimensions={0}, replica_groups={{0,1,2}}", "all-to-all.divisible"),
        ("r = (f32[4], f32[2]) all-to-all(p, q)", "all-to-all.operands-equal"),
        ("r = (f32[4], f32[4]) all-to-all(p, p), replica_groups={{0,1,2}}", "all-to-all.group-size"),
        (
            "r = f32[4] all-to-all(p), dimensions={0}, replica_groups={{0,0}}",
            "all-to-all.replica-groups-distinct",
        ),
        (
            "r = f32[4] all-to-all(p), dimensions={0}, replica_groups={{0,1},{2}}",
            "all-to-all.replica-groups-equal",
        ),
        (
            "r = f32[4] all-to-all(p), dimensions={0}, replica_groups={{},{0}}",
            "all-to-all.replica-groups-filled",
        ),
        ("r = () all-to-all()", "all-to-all.operand-arrays"),
    ],
)
def test_what_all_to_all_refuses(instruction: str, rule: str) -> None:
    assert refused(program(P + "ROOT " + instruction)).rule == rule


@pytest.mark.parametrize(
    "body", ["f32[4] all-to-all(p), dimensions={0}", "(f32[4], f32[4]) all-to-all(p, p)"]
)
def test_an_all_to_all_that_does_not_fit_the_devices(body: str) -> None:
    exe = executable(program(f"p = f32[4] parameter(0)\n ROOT r = {body}"), replicas=3)
    assert fails(exe, [[np.zeros(4, np.float32)]] * 3).rule == "collective.group-size"


# -- ragged-all-to-all


RAGGED = """
  input = s32[3] parameter(0)
  output = s32[4] parameter(1)
  input_offsets = s32[2] parameter(2)
  send_sizes = s32[2] parameter(3)
  output_offsets = s32[2] parameter(4)
  recv_sizes = s32[2] parameter(5)
  ROOT r = s32[4] ragged-all-to-all(input, output, input_offsets, send_sizes, output_offsets, recv_sizes),
    replica_groups={{0,1}}
"""


def test_rows_of_different_numbers() -> None:
    """Device 0 keeps [1] and sends [2, 3]; device 1 sends [4] and keeps [5, 6]."""
    zeros = np.zeros(4, np.int32)
    arguments = [
        [s32([1, 2, 3]), zeros, s32([0, 1]), s32([1, 2]), s32([0, 0]), s32([1, 1])],
        [s32([4, 5, 6]), zeros, s32([0, 1]), s32([1, 2]), s32([1, 2]), s32([2, 2])],
    ]
    assert lists(on_devices(program(RAGGED), arguments, replicas=2)) == [[1, 4, 0, 0], [2, 3, 5, 6]]


def test_several_pieces_for_each_device_may_stand_in_a_matrix() -> None:
    text = RAGGED.replace("s32[2] parameter", "s32[2,2] parameter")
    zeros, ones = np.zeros(4, np.int32), np.ones((2, 2), np.int32)
    offsets, places = s32([[0, 1], [2, 0]]), [s32([[n, n + 1], [n, n + 1]]) for n in (0, 2)]
    arguments = [
        [s32([1, 2, 3]), zeros, offsets, ones, places[0], ones],
        [s32([4, 5, 6]), zeros, offsets, ones, places[1], ones],
    ]
    assert lists(on_devices(program(text), arguments, replicas=2)) == [[1, 2, 4, 5], [3, 1, 6, 4]]


def test_rows_out_of_bounds_are_left_out() -> None:
    zeros = np.zeros(4, np.int32)
    far = [
        s32([1, 2, 3]),
        zeros,
        s32([-1, 2]),
        s32([3, 9]),
        s32([0, 3]),
        s32([3, 9]),
    ]
    none = [
        s32([7, 8, 9]),
        zeros,
        s32([0, 0]),
        s32([0, 0]),
        s32([0, 0]),
        s32([0, 0]),
    ]
    assert lists(on_devices(program(RAGGED), [far, none], replicas=2)) == [[0, 1, 2, 0], [0, 0, 0, 3]]


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (("output = s32[4]", "output = f32[4]"), "ragged-all-to-all.rows"),
        (("send_sizes = s32[2]", "send_sizes = s32[3]"), "ragged-all-to-all.offsets"),
        (("recv_sizes = s32[2]", "recv_sizes = u8[2]"), "ragged-all-to-all.offsets"),
        (("{{0,1}}", "{{0,1,2}}"), "ragged-all-to-all.offset-count"),
        (("{{0,1}}", "{{0,0}}"), "ragged-all-to-all.replica-groups-distinct"),
        (("{{0,1}}", "{{0,1},{2}}"), "ragged-all-to-all.replica-groups-equal"),
        (("{{0,1}}", "{{},{0}}"), "ragged-all-to-all.replica-groups-filled"),
    ],
)
def test_what_ragged_all_to_all_refuses(change: tuple[str, str], rule: str) -> None:
    assert refused(program(RAGGED.replace(*change))).rule == rule


def test_offsets_that_do_not_fit_the_group() -> None:
    exe = executable(program(RAGGED.replace("{{0,1}}", "{}")), replicas=3)
    zeros = [np.zeros(n, np.int32) for n in (3, 4, 2, 2, 2, 2)]
    assert fails(exe, [zeros] * 3).rule == "collective.group-size"


# -- collective-permute


def permuting(pairs: str, more: str = "") -> str:
    return program(
        f"p = s32[1] parameter(0)\n ROOT r = s32[1] collective-permute(p), source_target_pairs={pairs}{more}"
    )


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ("{{0,1},{1,2},{2,0}}", [[3], [1], [2]]),
        ("{{0,1},{1,2}}", [[0], [1], [2]]),
        ("{{1,1}}", [[0], [2], [0]]),
        ("{}", [[0], [0], [0]]),
    ],
)
def test_a_device_that_is_no_target_gets_zeros(pairs: str, expected: list[list[int]]) -> None:
    arguments = [[s32([n])] for n in (1, 2, 3)]
    assert lists(on_devices(permuting(pairs), arguments, replicas=3)) == expected


def test_a_channel_permutes_partitions() -> None:
    arguments = [[s32([n])] for n in (1, 2, 3, 4)]
    results = on_devices(permuting("{{0,1}}", ", channel_id=5"), arguments, replicas=2, partitions=2)
    assert lists(results) == [[0], [1], [0], [3]]


def test_start_and_done_with_several_operands() -> None:
    text = program("""
      p = s32[1] parameter(0)
      q = f32[] parameter(1)
      s = ((s32[1], f32[]), (s32[1], f32[]), u32[], u32[]) collective-permute-start(p, q),
        source_target_pairs={{0,1},{1,0}}
      ROOT d = (s32[1], f32[]) collective-permute-done(s)""")
    arguments = [[s32([1]), np.float32(0.5)], [s32([2]), np.float32(1.5)]]
    assert lists(on_devices(text, arguments, replicas=2)) == [[[2], 1.5], [[1], 0.5]]


IN_PLACE = """
  input = s32[4] parameter(0)
  output = s32[4] parameter(1)
  from = s32[] parameter(2)
  to = s32[] parameter(3)
  a = (s32[]) tuple(from)
  b = (s32[]) tuple(to)
"""


@pytest.mark.parametrize("form", ["plain", "start"])
def test_in_place_a_slice_goes_to_its_place_in_the_output_of_the_target(form: str) -> None:
    attributes = "source_target_pairs={{0,1}}, slice_sizes={{2}}"
    body = {
        "plain": f"ROOT r = s32[4] collective-permute(input, output, a, b), {attributes}",
        "start": f"""
          s = (s32[4], s32[4], u32[], u32[]) collective-permute-start(input, output, a, b), {attributes}
          ROOT r = s32[4] collective-permute-done(s)""",
    }[form]
    nines = np.full(4, 9, np.int32)
    arguments = [
        [s32([1, 2, 3, 4]), nines, np.int32(1), np.int32(0)],
        [s32([5, 6, 7, 8]), nines, np.int32(0), np.int32(7)],
    ]
    assert lists(on_devices(program(IN_PLACE + body), arguments, replicas=2)) == [[9] * 4, [9, 9, 2, 3]]


def test_in_place_several_slices_of_several_arrays() -> None:
    text = program(
        """
      x = s32[4] parameter(0)
      y = s32[4] parameter(1)
      zero = s32[] constant(0)
      two = s32[] constant(2)
      from = ((s32[]), (s32[])) tuple(t0, t2)
      arrays = (s32[4], s32[4]) tuple(x, y)
      both = (((s32[]), (s32[])), ((s32[]), (s32[]))) tuple(from, from)
      ROOT r = (s32[4], s32[4]) collective-permute(arrays, arrays, both, both),
        source_target_pairs={{0,1},{1,0},{0,1}}, slice_sizes={{2},{1}}
    """.replace("from =", "t0 = (s32[]) tuple(zero)\n t2 = (s32[]) tuple(two)\n from =")
    )
    arguments = [
        [np.arange(4, dtype=np.int32), np.arange(10, 14, dtype=np.int32)],
        [np.arange(20, 24, dtype=np.int32), np.arange(30, 34, dtype=np.int32)],
    ]
    results = lists(on_devices(text, arguments, replicas=2))
    assert results == [[[20, 21, 2, 3], [30, 31, 12, 13]], [[0, 1, 2, 23], [10, 11, 12, 33]]]


@pytest.mark.parametrize(
    ("instruction", "rule"),
    [
        (
            "r = f32[4] collective-permute(p), source_target_pairs={{0,1},{0,2}}",
            "collective-permute.pairs-distinct",
        ),
        (
            "r = f32[4] collective-permute(p), source_target_pairs={{0,1},{2,1}}",
            "collective-permute.pairs-distinct",
        ),
        (
            "r = f32[4] collective-permute(p), source_target_pairs={{0,-1}}",
            "collective-permute.pairs-distinct",
        ),
        ("r = f32[4] collective-permute(), source_target_pairs={}", "collective-permute.operands"),
        ("r = f32[4] collective-permute(p), source_target_pairs={{0,1,2}}", "source-target-pairs.pair"),
        (
            "r = f32[4] collective-permute(p, p), source_target_pairs={{0,1}}, slice_sizes={{1}}",
            "collective-permute.in-place-operands",
        ),
        (
            "r = f32[4] collective-permute-start(p), source_target_pairs={{0,1}}",
            "collective-permute-start.shape-matches",
        ),
        (
            "r = (f32[4], f32[4]) collective-permute-start(p), source_target_pairs={{0,1},{0,2}}",
            "collective-permute-start.pairs-distinct",
        ),
        (
            "r = (f32[4], f32[4]) collective-permute-start(), source_target_pairs={}",
            "collective-permute-start.operands",
        ),
        (
            "r = (f32[4], f32[4]) collective-permute-start(p), source_target_pairs={}, slice_sizes={{1}}",
            "collective-permute-start.in-place-operands",
        ),
        ("r = f32[4] collective-permute-done(p)", "collective-permute-done.operand-form"),
    ],
)
def test_what_collective_permute_refuses(instruction: str, rule: str) -> None:
    assert refused(program(P + "ROOT " + instruction)).rule == rule


@pytest.mark.parametrize(
    "operands",
    ["p, t, s, (s, s)", "t, p, (s, s), s", "t, t, s, (s, s)", "t, t, (s, s), s", "p, p, (s, s), (u, u)"],
)
@pytest.mark.parametrize("opcode", ["collective-permute", "collective-permute-start"])
def test_slices_have_start_indices_in_every_buffer(opcode: str, operands: str) -> None:
    """Of the tuples: t of two buffers, s and u of the start indices for one and two dimensions."""
    lines = "n = s32[] constant(0)\nt = (f32[4], f32[4]) tuple(p, p)\ns = (s32[]) tuple(n)\n"
    lines += "u = (s32[], s32[]) tuple(n, n)\nss = ((s32[]), (s32[])) tuple(s, s)\n"
    lines += "uu = ((s32[], s32[]), (s32[], s32[])) tuple(u, u)\n"
    operands = operands.replace("(s, s)", "ss").replace("(u, u)", "uu")
    result = "(f32[4], f32[4])"
    text = f"{P}{lines}ROOT r = {result} {opcode}({operands}), source_target_pairs={{{{0,1}}}}"
    assert refused(program(f"{text}, slice_sizes={{{{1}}}}")).rule == f"{opcode}.in-place-starts"


def test_a_pair_of_a_device_that_is_not_there() -> None:
    exe = executable(permuting("{{0,2}}"), replicas=2)
    assert fails(exe, [[s32([0])]] * 2).rule == "collective.device-range"


# -- collective-broadcast


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ("replica_groups={{2,1}}", [[0], [3], [3], [0]]),
        ("replica_groups={{0,1},{3,2}}", [[1], [1], [4], [4]]),
        ("replica_groups={{1},{0,2,3}}", [[1], [2], [1], [1]]),
        ("replica_groups={}", [[1]] * 4),
    ],
)
def test_the_first_device_of_a_group_is_heard_by_all(attributes: str, expected: list[list[int]]) -> None:
    text = program(f"p = s32[1] parameter(0)\n ROOT r = s32[1] collective-broadcast(p), {attributes}")
    arguments = [[s32([n])] for n in (1, 2, 3, 4)]
    assert lists(on_devices(text, arguments, replicas=4)) == expected


def test_a_channel_broadcasts_between_partitions() -> None:
    text = program(
        "p = s32[1] parameter(0)\n"
        "ROOT r = s32[1] collective-broadcast(p), channel_id=1, replica_groups={{1,0}}"
    )
    arguments = [[s32([n])] for n in (1, 2, 3, 4)]
    assert lists(on_devices(text, arguments, replicas=2, partitions=2)) == [[2], [2], [4], [4]]


@pytest.mark.parametrize(
    ("body", "rule"),
    [
        ("collective-broadcast(p), replica_groups={{0,0}}", "collective-broadcast.replica-groups-distinct"),
        ("collective-broadcast(p), replica_groups={{},{0}}", "collective-broadcast.replica-groups-filled"),
        ("collective-broadcast(t)", "collective-broadcast.operand-arrays"),
    ],
)
def test_what_collective_broadcast_refuses(body: str, rule: str) -> None:
    text = program(f"p = f32[] parameter(0)\n t = (f32[]) tuple(p)\n ROOT r = f32[] {body}")
    assert refused(text).rule == rule
