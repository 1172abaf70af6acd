"""The message classes: XLA's on the wire, and hloom's own in the process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from google.protobuf import json_format, text_format
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet
from hypothesis import given
from hypothesis import strategies as st

from hloom.proto.schema import POOL, hlo_pb2, xla_data_pb2
from hloom.proto.schema.hlo_pb2 import HloModuleProto, HloSnapshot
from hloom.proto.schema.packed import append_packed_bytes, packed_bytes
from hloom.proto.schema.xla_data_pb2 import LiteralProto

ROOT = Path(__file__).parents[2]
SCHEMA = ROOT / "src" / "hloom" / "proto" / "schema"
WORKLOADS = sorted((ROOT / "examples" / "workloads").glob("*.hlo"))


def test_descriptors_are_those_of_the_proto_files(tmp_path: Path) -> None:
    pytest.importorskip("grpc_tools")
    output = tmp_path / "schema.binpb"
    files = [str(SCHEMA / "xla_data.proto"), str(SCHEMA / "hlo.proto")]
    command = ["-m", "grpc_tools.protoc", f"--proto_path={ROOT / 'src'}", f"--descriptor_set_out={output}"]
    subprocess.run([sys.executable, *command, "--include_imports", *files], check=True)
    compiled = FileDescriptorSet.FromString(output.read_bytes())
    assert compiled == FileDescriptorSet.FromString((SCHEMA / "schema.binpb").read_bytes()), (
        "run `make proto`"
    )


def test_other_definitions_of_the_same_messages_do_not_clash() -> None:
    """TensorFlow, for one, registers its own xla.HloModuleProto in the common pool."""
    code = """
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
theirs = descriptor_pb2.FileDescriptorProto(name="hlo.proto", package="xla")
theirs.message_type.add(name="HloModuleProto")
pool = descriptor_pool.Default()
pool.AddSerializedFile(theirs.SerializeToString())
import hloom.proto.schema.hlo_pb2 as ours
other = message_factory.GetMessageClass(pool.FindMessageTypeByName("xla.HloModuleProto"))
assert "name" in ours.HloModuleProto.DESCRIPTOR.fields_by_name
assert "name" not in other.DESCRIPTOR.fields_by_name
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_modules_look_as_if_protoc_had_written_them() -> None:
    assert xla_data_pb2.PrimitiveType.Name(xla_data_pb2.BF16) == "BF16"
    assert xla_data_pb2.OpSharding.Type.Value("TUPLE") == xla_data_pb2.OpSharding.TUPLE == 2
    assert hlo_pb2.MUST_ALIAS == 2
    assert HloModuleProto.DESCRIPTOR.full_name == "xla.HloModuleProto"
    assert POOL.FindMessageTypeByName("xla.LiteralProto") is LiteralProto.DESCRIPTOR


def test_fields_that_nobody_knows_survive() -> None:
    unknown = b"\xfa\x3e\x03abc"  # field 1007, three bytes
    data = HloModuleProto(name="m").SerializeToString() + unknown
    assert unknown in HloModuleProto.FromString(data).SerializeToString()


def test_old_layouts_with_padded_dimensions_are_read() -> None:
    data = bytes.fromhex("0a0201001202081018 01")
    layout = xla_data_pb2.LayoutProto.FromString(data)
    assert list(layout.minor_to_major) == [1, 0]
    assert list(layout.padded_dimensions) == [8, 16]
    assert layout.padding_value == xla_data_pb2.ZERO_PAD


def test_text_and_json_forms_come_back_as_they_were() -> None:
    snapshot = HloSnapshot(execution_platform="cpu")
    snapshot.hlo.hlo_module.name = "m"
    snapshot.hlo.hlo_module.schedule.sequences[3].instruction_ids.extend([5, 4])
    snapshot.arguments.add(f16s=b"\x00<")
    assert text_format.Parse(text_format.MessageToString(snapshot), HloSnapshot()) == snapshot
    assert json_format.Parse(json_format.MessageToJson(snapshot), HloSnapshot()) == snapshot


@given(st.lists(st.integers(0, 2**32 - 1)))
def test_every_bit_of_a_float_goes_through_packed_bytes(bits: list[int]) -> None:
    """Signaling NaNs and their payloads, infinities, both zeros, denormals."""
    elements = np.array(bits, "<u4").tobytes()
    literal = LiteralProto(s32s=[1, 300], u8s=b"xy", f64s=[1.5])
    append_packed_bytes(literal, "f32s", elements)
    assert packed_bytes(literal, "f32s") == elements
    assert packed_bytes(LiteralProto.FromString(literal.SerializeToString()), "f32s") == elements
    assert literal.f64s == [1.5] and literal.s32s == [1, 300]


def test_packed_bools_are_bytes() -> None:
    literal = LiteralProto(preds=[True, False, True])
    assert packed_bytes(literal, "preds") == b"\1\0\1"
    append_packed_bytes(literal, "preds", b"\0\1")
    assert list(literal.preds) == [True, False, True, False, True]


def unknown_fields(message: Message) -> list[str]:
    """`Message.number` of every field that the schema does not have, however deep."""
    found = [f"{message.DESCRIPTOR.full_name}.{field.field_number}" for field in UnknownFieldSet(message)]
    for field, value in message.ListFields():
        if field.message_type and not field.message_type.GetOptions().map_entry:
            for child in value if field.is_repeated else [value]:
                found += unknown_fields(child)
    return found


def test_an_unknown_field_is_noticed_however_deep() -> None:
    shape = xla_data_pb2.ShapeProto.FromString(b"\xfa\x3e\x03abc")
    module = HloModuleProto()
    module.computations.add().instructions.add().shape.CopyFrom(shape)
    assert unknown_fields(module) == ["xla.ShapeProto.1007"]


@pytest.mark.parametrize("path", WORKLOADS, ids=lambda path: path.stem)
def test_bytes_from_xla_come_back_bit_for_bit_and_xla_reads_them(path: Path) -> None:
    hlo = pytest.importorskip("jaxlib._hlo")
    module = hlo.hlo_module_from_text(path.read_text())
    theirs = module.as_serialized_hlo_module_proto()
    message = HloModuleProto.FromString(theirs)
    assert not unknown_fields(message)
    rebuilt = HloModuleProto()
    text_format.Parse(text_format.MessageToString(message), rebuilt)
    ours = rebuilt.SerializeToString(deterministic=True)
    assert ours == theirs
    assert hlo.HloModule.from_serialized_hlo_module_proto(ours).to_string() == module.to_string()
