"""The messages of ``xla_data.proto`` and ``hlo.proto`` in this directory.

``from hloom.proto.schema.hlo_pb2 import HloModuleProto`` is typed like any generated module. But the
classes are in a separate descriptor pool: TensorFlow and others register messages of the same names
in the common pool, which refuses a second definition. And they are built from a descriptor set
(``schema.binpb``, written by ``make proto``), not from generated code, because that is bound to one major
version of the protobuf runtime.
"""

from __future__ import annotations

from pathlib import Path

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper
from google.protobuf.message_factory import GetMessageClass


def _load_pool() -> DescriptorPool:
    pool = DescriptorPool()
    descriptors = FileDescriptorSet.FromString(Path(__file__).with_name("schema.binpb").read_bytes())
    for file in descriptors.file:
        pool.AddSerializedFile(file.SerializeToString())
    return pool


POOL = _load_pool()


def generated_names(proto: str) -> dict[str, object]:
    """Return the names that protoc's module for the file ``proto`` defines: messages, enums, values."""
    file = POOL.FindFileByName(f"hloom/proto/schema/{proto}")
    names: dict[str, object] = {"DESCRIPTOR": file}
    for enum in file.enum_types_by_name.values():
        names[enum.name] = EnumTypeWrapper(enum)
        names.update((value.name, value.number) for value in enum.values)
    names.update((message.name, GetMessageClass(message)) for message in file.message_types_by_name.values())
    return names
