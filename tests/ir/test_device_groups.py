"""Replica groups in their notations, in text and in protos."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hloom.errors import ParseError
from hloom.ir.cursor import Cursor
from hloom.ir.device_groups import (
    DeviceList,
    Groups,
    IotaTiles,
    Mesh,
    ReplicaGroupsCodec,
    SourceTargetPairsCodec,
    group_mode,
    read_mesh,
    write_mesh,
)
from tests.evaluation import parse, refused
from tests.reducers import with_reducers

CODEC = ReplicaGroupsCodec()
NOTATIONS: list[tuple[str, Groups]] = [
    ("{}", ()),
    ("{{}}", ((),)),
    ("{{0,1},{2,3}}", ((0, 1), (2, 3))),
    ("{{3},{0,1,2}}", ((3,), (0, 1, 2))),
    ("[2,4]<=[8]", ((0, 1, 2, 3), (4, 5, 6, 7))),
    ("[4,2]<=[2,4]T(1,0)", ((0, 4), (1, 5), (2, 6), (3, 7))),
    ("[2,4]<=[2,2,2]T(2,1,0)", ((0, 4, 2, 6), (1, 5, 3, 7))),
    ("[1,1]<=[1]", ((0,),)),
    ("mesh['a'=2,'b'=4] {'a'}", ((0, 4), (1, 5), (2, 6), (3, 7))),
    ("mesh['a'=2,'b'=4] {'b'}", ((0, 1, 2, 3), (4, 5, 6, 7))),
    ("mesh['a'=2,'b'=4] {'b','a'}", ((0, 4, 1, 5, 2, 6, 3, 7),)),
    ("mesh['a'=2,'b'=4] {'b':(1)2}", ((0, 2), (1, 3), (4, 6), (5, 7))),
    ("mesh['a'=2,'b'=4] {'b':(2)2}", ((0, 1), (2, 3), (4, 5), (6, 7))),
    ("mesh['a'=8] {'a':(1)2,'a':(4)2}", ((0, 1, 4, 5), (2, 3, 6, 7))),
    ("mesh['a'=8] {'a':(4)2,'a':(1)2}", ((0, 4, 1, 5), (2, 6, 3, 7))),
    ("mesh['a'=2,'b'=4], device_ids=([4,2]T(1,0)) {'a'}", ((0, 1), (2, 3), (4, 5), (6, 7))),
    ("mesh['a'=2], device_ids=(1,0) {'a'}", ((1, 0),)),
    ("mesh['a'=2,'b'=1] {'b'}", ((0,), (1,))),
    ("mesh['a'=2] {}", ((0,), (1,))),
]


def groups(text: str) -> Any:
    return CODEC.parse(Cursor(text))


@pytest.mark.parametrize(("text", "expected"), NOTATIONS)
def test_what_a_notation_means(text: str, expected: Groups) -> None:
    value = groups(text)
    assert value.groups == expected
    assert value.text() == text


@pytest.mark.parametrize(("text", "expected"), NOTATIONS)
def test_a_proto_holds_it(text: str, expected: Groups) -> None:
    from hloom.proto.schema.hlo_pb2 import HloInstructionProto

    message = HloInstructionProto()
    CODEC.write(message, "collective_device_list", groups(text))
    again = HloInstructionProto.FromString(message.SerializeToString())
    assert CODEC.read(again, "collective_device_list") == groups(text)


def test_protos_of_former_writers() -> None:
    from hloom.proto.schema.hlo_pb2 import HloInstructionProto

    message = HloInstructionProto()
    message.replica_groups.add(replica_ids=[1, 0])
    assert CODEC.read(message, "collective_device_list") == DeviceList(((1, 0),))
    former = HloInstructionProto()
    iota = former.collective_device_list.iota_replica_group_list
    iota.num_replica_groups, iota.num_devices_per_group = 2, 2
    iota.iota_reshape_dims.extend([2, 2])
    iota.iota_transpose_perm.extend([1, 0])
    assert CODEC.read(former, "collective_device_list").text() == "[2,2]<=[2,2]T(1,0)"
    iota.num_devices_per_group = 3
    with pytest.raises(ParseError) as caught:
        CODEC.read(former, "collective_device_list")
    assert caught.value.rule == "replica-groups.iota-size"


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("[2,4]<=[2,4]T(0,1)", "[2,4]<=[8]"),
        ("[2,4]<=[2,1,4]T(2,1,0)", "[2,4]<=[2,4]T(1,0)"),
        ("[8,1]<=[2,2,2]T(2,0,1)", "[8,1]<=[4,2]T(1,0)"),
        ("[2, 4] <= [8]", "[2,4]<=[8]"),
        ("{ {0, 1} , {2,3} }", "{{0,1},{2,3}}"),
        ('mesh["a"=2,"b"=2]{"a"}', "mesh['a'=2,'b'=2] {'a'}"),
    ],
)
def test_equal_arrangements_have_one_form(text: str, canonical: str) -> None:
    assert groups(text).text() == canonical
    assert groups(text) == groups(canonical)


@given(st.permutations(range(4)), st.lists(st.integers(1, 3), min_size=4, max_size=4))
def test_the_canonical_form_means_the_same(permutation: list[int], sizes: list[int]) -> None:
    full = IotaTiles(tuple(sizes), tuple(permutation))
    short = IotaTiles.canonical(tuple(sizes), tuple(permutation))
    assert short.numbers == full.numbers
    assert len(short.reshape) <= 4
    assert IotaTiles.canonical(short.reshape, short.permutation) == short


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("[2,3]<=[8]", "replica-groups.iota-size"),
        ("[2,4]<=[8]T(1)", "replica-groups.permutation"),
        ("[2,4]<=[2,4]T(0)", "replica-groups.permutation"),
        ("[0,4]<=[0]", "replica-groups.permutation"),
        ("[8]<=[8]", "text.syntax"),
        ("[1,33554432]<=[33554432]", "replica-groups.device-count"),
        ("mesh['a'=2] {'c'}", "mesh.axis"),
        ("mesh['a'=2,'b'=4] {'a':(1)2}", "mesh.sub-axis"),
        ("mesh['a'=6] {'a':(2)2}", "mesh.sub-axis"),
        ("mesh['a'=4] {'a':(1)2,'a':(1)2}", "mesh.axes-disjoint"),
        ("mesh['a'=4] {'a','a'}", "mesh.axes-disjoint"),
        ("mesh['a'=8] {'a':(1)4,'a':(2)4}", "mesh.axes-disjoint"),
        ("mesh['a'=2], device_ids=(0,0) {'a'}", "mesh.device-ids"),
        ("mesh['a'=2], device_ids=(0,1,2) {'a'}", "mesh.device-ids"),
        ("mesh['a'=2], device_ids=([4]) {'a'}", "mesh.device-ids"),
        ("mesh['a'=0] {'a'}", "mesh.axis-size"),
        ("mesh['a'=2,'a'=2] {'a'}", "mesh.axis-names"),
    ],
)
def test_what_is_refused(text: str, rule: str) -> None:
    with pytest.raises(ParseError) as caught:
        groups(text)
    assert caught.value.rule == rule
    assert caught.value.line == 1


def test_meshes_in_protos() -> None:
    from hloom.proto.schema.xla_data_pb2 import MeshProto

    for text in (
        "mesh['a'=2]",
        "mesh['a'=2], device_ids=(1,0)",
        "mesh['a'=2,'b'=2], device_ids=([2,2]T(1,0))",
    ):
        mesh = Mesh.parse(Cursor(text))
        message = MeshProto()
        write_mesh(message, mesh)
        assert read_mesh(message) == mesh


def test_pairs_of_three() -> None:
    with pytest.raises(ParseError) as caught:
        SourceTargetPairsCodec().parse(Cursor("{{0,1},{1,2,3}}"))
    assert caught.value.rule == "source-target-pairs.pair"


@pytest.mark.parametrize(
    ("channel", "global_ids", "mode"),
    [
        (None, False, "cross_replica"),
        (0, None, "cross_replica"),
        (None, None, "cross_replica"),
        (1, None, "cross_partition"),
        (1, False, "cross_replica_and_partition"),
        (1, True, "flattened_id"),
        (0, True, "flattened_id"),
    ],
)
def test_group_modes(channel: int | None, global_ids: bool | None, mode: str) -> None:
    assert group_mode(channel, global_ids) == mode


REDUCE = with_reducers("""HloModule m
ENTRY e {
  p = f32[4] parameter(0)
  ROOT r = f32[4] all-reduce(p), channel_id=3, replica_groups=GROUPS, use_global_device_ids=true, to_apply=add
}
""")


@pytest.mark.parametrize("notation", [text for text, _ in NOTATIONS])
def test_xla_prints_and_stores_the_same(notation: str) -> None:
    hlo = pytest.importorskip("jaxlib._hlo")
    from hloom.proto.schema.hlo_pb2 import HloModuleProto

    text = REDUCE.replace("GROUPS", notation)
    theirs = hlo.hlo_module_from_text(text)
    assert f"replica_groups={notation}," in theirs.to_string()
    message = HloModuleProto.FromString(theirs.as_serialized_hlo_module_proto())
    (instruction,) = [i for c in message.computations for i in c.instructions if i.opcode == "all-reduce"]
    assert CODEC.read(instruction, "collective_device_list") == groups(notation)
    ours = type(instruction)()
    CODEC.write(ours, "collective_device_list", groups(notation))
    kind = instruction.WhichOneof("replica_group_list")
    assert ours.WhichOneof("replica_group_list") == kind
    assert getattr(ours, kind) == getattr(instruction, kind)


def test_errors_in_a_program_have_a_place() -> None:
    error = refused(REDUCE.replace("GROUPS", "[2,3]<=[4]"))
    assert (error.rule, error.line) == ("replica-groups.iota-size", 9)
    assert parse(REDUCE.replace("GROUPS", "[2,2]<=[4]")).entry.root.opcode == "all-reduce"
