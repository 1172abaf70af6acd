"""Shardings: read, normalized, printed as XLA does it, and kept through OpSharding messages."""

from __future__ import annotations

import pytest

from hloom.errors import HloError, ParseError
from hloom.ir.cursor import Cursor
from hloom.ir.sharding import Sharding
from hloom.ir.xla_version import OLDEST, V0_11
from hloom.shape.shape import Shape
from tests import oracle

MESH = "mesh['a'=2,'b'=4]"
SUM = '{op_type="sdy::reduction_op" op_name="SUM"}'

# What is written, and what is printed where that differs.
FORMS = [
    ("{replicated}", ""),
    ("{maximal device=3}", ""),
    ("{manual}", ""),
    ("{unknown}", ""),
    ("{unreduced}", ""),
    ("{devices=[2,1]0,1}", ""),
    ("{devices=[2,2]<=[2,2]T(1,0)}", ""),
    ("{devices=[60,1]<=[3,4,5]T(1,2,0)}", "{devices=[60,1]<=[3,20]T(1,0)}"),
    ("{devices=[2,1,2]3,1,2,0 last_tile_dim_replicate}", "{devices=[2,1,2]1,3,0,2 last_tile_dim_replicate}"),
    ("{devices=[1,4]<=[4] last_tile_dim_replicate}", "{replicated}"),
    ("{devices=[2,1,1]<=[2] last_tile_dims={manual}}", "{devices=[2,1]<=[2]}"),
    ("{devices=[1,1,2,2]<=[4] last_tile_dims={manual, manual}}", "{manual}"),
    (
        "{devices=[2,1,2,2]<=[8] last_tile_dims={replicated, manual}}",
        "{devices=[2,1,2,2]<=[2,2,2]T(0,2,1) last_tile_dims={manual, replicated}}",
    ),
    (
        "{devices=[2,1,2,2]7,6,5,4,3,2,1,0 last_tile_dims={replicated, manual}}",
        "{devices=[2,1,2,2]5,7,4,6,1,3,0,2 last_tile_dims={manual, replicated}}",
    ),
    (
        "{devices=[3,1,8]<=[4,6]T(1,0) last_tile_dim_replicate}",
        "{devices=[3,1,8]<=[4,3,2]T(1,0,2) last_tile_dim_replicate}",
    ),
    (
        "{devices=[2,1,3,2]<=[3,2,2]T(2,1,0) last_tile_dims={replicated,manual}}",
        "{devices=[2,1,2,3]0,6,8,2,4,10,1,7,9,3,5,11 last_tile_dims={manual, replicated}}",
    ),
    ("{shard_as 3 replicated}", "{replicated shard_as 3}"),
    (
        '{devices=[2]<=[2] metadata={op_name="a"} shard_like 1}',
        '{devices=[2]<=[2] shard_like 1 metadata={op_name="a"}}',
    ),
    ('{manual metadata={{op_name="a"}, {op_name="b"}}}', ""),
    ("{{replicated}, {maximal device=1}}", ""),
    ("{}", ""),
    ("{maximal_mesh[device_id=3]}", ""),
    (f"{{{MESH}, replicated}}", ""),
    (f"{{{MESH}, []}}", f"{{{MESH}, replicated}}"),
    (f"{{{MESH} [{{'a'}}, {{?}}], unreduced={{'b'}}}}", f"{{{MESH}, [{{'a'}}, {{?}}], unreduced={{'b'}}}}"),
    (f"{{{MESH}, [{{'b':(2)2, ?}}], replicated={{'b':(1)2}}, manual={{'a'}}}}", ""),
    (f"{{{MESH}, device_ids=([4,2]T(1,0)), [{{'b'}}, {{}}], metadata={{{{op_name=\"a\"}}}}}}", ""),
]  # fmt: skip


def parse(text: str) -> Sharding:
    return Sharding.parse(Cursor(text))


@pytest.mark.parametrize(("written", "printed"), FORMS)
def test_forms(written: str, printed: str) -> None:
    sharding = parse(written)
    text = sharding.text(version=OLDEST)
    assert text == (printed or written)
    assert parse(text) == sharding
    assert hash(parse(text)) == hash(sharding)


@pytest.mark.parametrize(
    ("written", "printed"),
    [
        ("{maximal_mesh[device_id=3]}", "{single_device[device_id=3]}"),
        ("{single_device[device_id=3]}", "{single_device[device_id=3]}"),
        (f"{{{MESH}, unreduced=max}}", f"{{{MESH}, unreduced=max}}"),
        (f"{{{MESH}, unreduced=sum}}", f"{{{MESH}, unreduced}}"),
        (f"{{{MESH}, unreduced=min{{'a','b'}}}}", f"{{{MESH}, unreduced=min}}"),
        (f"{{{MESH}, [{{'a'}}], unreduced=min{{'b'}}}}", f"{{{MESH}, [{{'a'}}], unreduced=min{{'b'}}}}"),
        ("{unreduced}", f"{{unreduced metadata={SUM}}}"),
        (f"{{unreduced metadata={SUM}}}", f"{{unreduced metadata={SUM}}}"),
        ('{unreduced metadata={op_name="a"}}', f'{{unreduced metadata={{{{op_name="a"}}, {SUM}}}}}'),
        (
            "{devices=[2,1,2]<=[4] last_tile_dims={unreduced}}",
            f"{{devices=[2,1,2]<=[4] last_tile_dims={{unreduced}} metadata={SUM}}}",
        ),
        ("{{unreduced}, {manual}}", f"{{{{unreduced metadata={SUM}}}, {{manual}}}}"),
    ],
)
def test_forms_of_the_newest_version(written: str, printed: str) -> None:
    assert parse(written).text() == printed
    assert parse(printed).text() == printed
    from hloom.proto.schema.xla_data_pb2 import OpSharding

    message = OpSharding()
    parse(written).write(message)
    assert Sharding.read(message) == parse(written)


def test_before_0_12_the_mesh_of_one_device_is_maximal() -> None:
    sharding = parse("{single_device[device_id=3]}")
    assert sharding.text(version=V0_11) == "{maximal_mesh[device_id=3]}"


def test_before_0_11_a_reduction_is_metadata_as_any_other() -> None:
    assert parse("{unreduced}").text(version=OLDEST) == "{unreduced}"
    assert parse(f"{{unreduced metadata={SUM}}}").text(version=OLDEST) == f"{{unreduced metadata={SUM}}}"


@pytest.mark.parametrize(("written", "printed"), FORMS)
def test_forms_as_xla_prints_them(written: str, printed: str) -> None:
    hlo = pytest.importorskip("jaxlib._hlo")
    module = hlo.hlo_module_from_text(f"ENTRY e {{ p = f32[8,8] parameter(0), sharding={written} }}")
    assert f", sharding={parse(written).text(version=oracle.installed_version())}\n" in module.to_string()


@pytest.mark.parametrize("written", [written for written, _ in FORMS])
def test_messages_keep_shardings(written: str) -> None:
    from hloom.proto.schema.xla_data_pb2 import OpSharding

    sharding = parse(written)
    message = OpSharding()
    sharding.write(message)
    assert Sharding.read(OpSharding.FromString(message.SerializeToString())) == sharding


def test_a_tuple_has_one_for_each_array() -> None:
    shape = Shape.parse("(f32[2], (s32[], f32[]))")
    assert parse("{replicated}").for_shape(shape).text() == "{{replicated}, {replicated}, {replicated}}"
    assert parse("{{manual}}").for_shape(shape).text() == "{{manual}}"


def test_long_tuples_are_numbered() -> None:
    text = parse("{" + ",".join(["{manual}"] * 6) + "}").text()
    assert text == "{{manual}, {manual}, {manual}, {manual}, {manual}, /*index=5*/{manual}}"


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        ("sharding.reduction", f"{{{MESH}, unreduced=mean}}"),
        ("sharding.no-devices", "{replicated devices=[2]0,1}"),
        ("sharding.maximal-device", "{maximal}"),
        ("sharding.tiles", "{device=1}"),
        ("sharding.tiled-devices", "{devices=[1]0}"),
        ("sharding.device-count", "{devices=[2,2]<=[2]}"),
        ("sharding.iota-permutation", "{devices=[4]<=[2,2]T(0,2)}"),
        ("sharding.last-tile-dims", "{devices=[2]<=[2] last_tile_dims={sideways}}"),
        ("sharding.words", "{devices=[2]<=[2] shard_with=3}"),
        ("mesh.axis", f"{{{MESH}, [{{'c'}}]}}"),
        ("mesh.axis-names", "{mesh['a'=2,'a'=2], replicated}"),
        ("sharding.axes", f"{{{MESH}, [{{'a'}}, {{'a'}}]}}"),
        ("sharding.axes", f"{{{MESH}, [{{'b':(1)2,'b':(2)2}}]}}"),
        ("sharding.axes", f"{{{MESH}, [], replicated={{'b','a'}}}}"),
        ("sharding.open-axes", f"{{{MESH}, [], manual={{?}}}}"),
    ],
)
def test_refused(rule: str, text: str) -> None:
    with pytest.raises(HloError) as caught:
        parse(text)
    assert caught.value.rule == rule


def test_messages_that_mean_nothing_are_refused() -> None:
    from hloom.proto.schema.xla_data_pb2 import OpSharding

    for message, rule in (
        (OpSharding(type=OpSharding.MAXIMAL), "sharding.maximal-device"),
        (OpSharding(type=OpSharding.OTHER, tile_assignment_dimensions=[2]), "sharding.device-count"),
        (
            OpSharding(type=OpSharding.OTHER, tile_assignment_dimensions=[2], iota_reshape_dims=[2]),
            "sharding.iota-permutation",
        ),
    ):
        with pytest.raises(ParseError) as caught:
            Sharding.read(message)
        assert caught.value.rule == rule
