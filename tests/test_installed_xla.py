"""The installed jaxlib has no opcode and no field of its protos that hloom does not know."""

from __future__ import annotations

import hloom.operations  # noqa: F401
from hloom.ir.operation import REGISTRY
from tests import installed_xla

OWN = {"erfc"}
"""Operations of hloom alone, which composite calls name."""
NEWER_THAN_0_10 = {"collective-reduce", "exp2", "log2", "shuffle"}
MESSAGES = (
    "HloProto", "HloSnapshot", "HloUnoptimizedSnapshot", "HloInputs", "HloModuleProto", "HloComputationProto",
    "HloInstructionProto", "HloScheduleProto", "HloInputOutputAliasProto", "HloBufferDonorProto",
    "StackFrameIndexProto", "OriginalValueRecoveryTableProto", "DebugAttributesProto", "X64ConfigProto",
    "DebugAttributeTableEntryProto", "OpSharding", "NamedShardingProto", "MeshProto", "AxisRefProto",
    "OpMetadata", "OriginalValueProto", "OriginalArrayProto", "OriginalValueElementProto", "StatisticsViz",
    "FrontendAttributes", "ShapeProto", "LayoutProto", "TileProto", "LiteralProto", "ProgramShapeProto",
    "PrecisionConfig", "DotDimensionNumbers", "RaggedDotDimensionNumbers", "ConvolutionDimensionNumbers",
    "GatherDimensionNumbers", "ScatterDimensionNumbers", "Window", "WindowDimension", "PaddingConfig",
    "ReplicaGroup", "CollectiveDeviceListProto", "IotaReplicaGroupListProto", "SourceTarget",
    "MeshAxesReplicaGroupListProto", "ParameterReplication", "TriangularSolveOptions", "CholeskyOptions",
    "ResultAccuracy", "SparsityConfig", "BlockScalingConfig", "ShuffleMode", "OutputOperandAliasing",
    "DeviceAssignmentProto", "PrimitiveType", "RandomDistribution", "RandomAlgorithm", "FftType", "Payload",
)  # fmt: skip
"""The messages of a program, and those in them; XLA's files have others, of its compiler and run time."""


def known_fields() -> dict[str, tuple[int, int, int]]:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    from hloom.proto.schema import POOL

    found: dict[str, tuple[int, int, int]] = {}
    for name in ("hlo", "xla_data"):
        file = FileDescriptorProto()
        POOL.FindFileByName(f"hloom/proto/schema/{name}.proto").CopyToProto(file)
        found |= installed_xla.fields_of(file)
    return found


def missing_opcodes(opcodes: list[str]) -> list[str]:
    return [
        f"declare {opcode!r} in hloom/operations/: its text, semantics and lowering (see CONTRIBUTING.md)"
        for opcode in opcodes
        if opcode not in REGISTRY
    ]


def missing_fields(fields: dict[str, tuple[int, int, int]]) -> list[str]:
    known = known_fields()
    return [
        f"add {name} = {number} (type {kind}, label {label}) to hloom/proto/schema/*.proto and run make "
        f"proto; it is {known.get(name, 'missing')}"
        for name, (number, kind, label) in fields.items()
        if name.partition(".")[0] in MESSAGES and known.get(name) != (number, kind, label)
    ]


def test_every_opcode_is_declared() -> None:
    opcodes = installed_xla.opcodes()
    assert len(opcodes) >= 133
    missing = missing_opcodes(opcodes)
    assert not missing, "\n".join(missing)
    assert set(REGISTRY) - set(opcodes) <= NEWER_THAN_0_10 | OWN


def test_every_field_is_in_the_schema() -> None:
    fields = installed_xla.proto_fields()
    assert len([name for name in fields if name.startswith("HloInstructionProto.")]) > 80
    missing = missing_fields(fields)
    assert not missing, "\n".join(missing)
    assert {name.partition(".")[0] for name in known_fields()} >= set(MESSAGES)


def test_what_is_missing_is_named() -> None:
    assert missing_opcodes(["add", "subtract-all"]) == [
        "declare 'subtract-all' in hloom/operations/: its text, semantics and lowering (see CONTRIBUTING.md)"
    ]
    (sentence,) = missing_fields({"HloModuleProto.name": (1, 9, 1), "HloModuleProto.owner": (99, 9, 1)})
    assert sentence.startswith("add HloModuleProto.owner = 99 (type 9, label 1)")
