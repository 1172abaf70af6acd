"""Modules as protos: what is read is written again, XLA's bytes are hloom's, and the rest is kept."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import hloom.operations  # noqa: F401  (declares the operations)
from hloom.errors import HloError, VerifyError
from hloom.ir.cloning import clone_module
from hloom.ir.instruction import HloInstruction
from hloom.ir.metadata import OriginalArray
from hloom.ir.module import HloModule
from hloom.ir.operation import REGISTRY
from hloom.ir.xla_version import V0_11
from hloom.proto.schema.hlo_pb2 import HloInstructionProto, HloModuleProto, HloProto
from hloom.proto.writer import module_message
from hloom.tools.pages.op_example import example_of
from tests import installed_xla, oracle

WORKLOADS = sorted((Path(__file__).parents[2] / "examples" / "workloads").glob("*.hlo"))
UNKNOWN = b"\xfa\x3e\x03abc"
"""A field numbered 1007 of three bytes, which no message has."""

CALLS = """HloModule calls, entry_computation_layout={(f32[4]{0})->(f32[4]{0}, s32[])}

negated {
  a = f32[4] parameter(0)
  ROOT n = f32[4] negate(a)
}

ENTRY entry {
  p = f32[4] parameter(0), metadata={op_name="argument" source_line=7}
  c = f32[4] call(p), to_apply=negated, sharding={devices=[2]<=[2]}
  k = s32[] constant(3), frontend_attributes={note="three"}
  s = f32[4] add(p, c), control-predecessors={k}, backend_config={"fast":true}
  ROOT t = (f32[4], s32[]) tuple(s, k)
}
"""


@cache
def texts() -> dict[str, str]:
    """Return a program for every opcode, and larger ones."""
    found = {path.stem: path.read_text() for path in WORKLOADS}
    for opcode in REGISTRY:
        example = example_of(opcode)
        assert example is not None
        found[opcode] = example.module().to_text()
    return found


NAMES = sorted([path.stem for path in WORKLOADS] + list(REGISTRY))


def message_of(text: str = CALLS) -> HloModuleProto:
    return module_message(HloModule.from_text(text))


def read(message: HloModuleProto) -> HloModule:
    return HloModule.from_proto(message.SerializeToString())


def again(message: HloModuleProto) -> HloModuleProto:
    """Return the print of a module that was written and read."""
    return HloModuleProto.FromString(read(message).to_proto())


def part(message: HloModuleProto, name: str) -> HloInstructionProto:
    return next(i for c in message.computations for i in c.instructions if i.name == name)


def named(module: HloModule, name: str) -> HloInstruction:
    return next(i for i in module.instructions() if i.name == name)


# -- there and back


@pytest.mark.parametrize("name", NAMES)
def test_every_operation_comes_back(name: str) -> None:
    module = HloModule.from_text(texts()[name])
    data = module.to_proto()
    copy = HloModule.from_proto(data)
    assert copy.to_text() == module.to_text()
    assert copy.to_proto() == data
    operations = {i.name: i.operation for i in module.instructions()}
    assert {i.name: i.operation for i in copy.instructions()} == operations


def without_versions(message: HloModuleProto) -> HloModuleProto:
    """Return a copy without fields that XLA writes in some versions, and hloom for all of them."""
    copy = HloModuleProto.FromString(message.SerializeToString())
    for computation in copy.computations:
        for instruction in computation.instructions:
            instruction.ClearField("comparison_type")
            instruction.ClearField("comparison_order")
            if instruction.opcode == "topk" and oracle.installed_version() < V0_11:
                instruction.ClearField("is_stable")
            for field in ("sparsity_config", "block_scaling_config"):
                if getattr(instruction, field).ByteSize() == 0:
                    instruction.ClearField(field)
    if copy.device_assignment.computation_count * copy.device_assignment.replica_count != 1:
        copy.ClearField("device_assignment")
    return copy


@pytest.mark.parametrize("name", NAMES)
def test_xla_writes_the_same_message_and_reads_ours(name: str) -> None:
    """Apart from the module's id, which XLA counts; and XLA's text reader drops the sign of -0."""
    hlo = pytest.importorskip("jaxlib._hlo")
    version = str(oracle.installed_version())
    text = HloModule.from_text(texts()[name]).to_text(xla_version=version).replace(" -0}", " 0}")
    if name in set(REGISTRY) - set(installed_xla.opcodes()):
        pytest.skip("the installed XLA does not have the operation")
    theirs = hlo.hlo_module_from_text(text)
    message = HloModuleProto.FromString(theirs.as_serialized_hlo_module_proto())
    ours = message_of(text)
    message.ClearField("id")
    assert without_versions(ours) == without_versions(message)
    assert (
        hlo.HloModule.from_serialized_hlo_module_proto(ours.SerializeToString()).to_string()
        == theirs.to_string()
    )


def test_what_travels_with_instructions_comes_back() -> None:
    text = """HloModule m, frontend_attributes={a="b"}, input_output_alias={ {}: (0, {}, must-alias) },
      buffer_donor={ (1, {}) }

      FileNames
      1 "model.py"
      FunctionNames
      1 "loss"
      FileLocations
      1 {file_name_id=1 function_name_id=1 line=3 end_line=3 column=1 end_column=9}
      StackFrames
      1 {file_location_id=1 parent_frame_id=1}

      ENTRY entry {
        p = f32[] parameter(0), sharding={maximal device=1}, origin={{"before"}}
        q = f32[] parameter(1), statistics={visualizing_index=0,flops=3,bytes=4.5}
        ROOT s = f32[] add(p, q), metadata={op_type="Add" op_name="\\303\\244" stack_frame_id=1},
          frontend_attributes={json={"x":[1]},plain="y"}, backend_config="not json"
      }"""
    module = HloModule.from_text(text)
    copy = HloModule.from_proto(module.to_proto())
    assert copy.to_text() == module.to_text()
    for name in ("p", "q", "s"):
        ours, theirs = named(module, name), named(copy, name)
        for field in ("metadata", "sharding", "original_value", "statistics", "frontend_attributes"):
            assert getattr(ours, field) == getattr(theirs, field)
    assert named(copy, "s").backend_config == "not json"
    assert copy.config.stack_frames == module.config.stack_frames


def test_programs_that_recover_lost_values_are_modules_in_the_module() -> None:
    module = HloModule.from_text(CALLS)
    recovery = HloModule.from_text(CALLS.replace("calls", "recovery"))
    lost, kept = OriginalArray("lost", (1,)), OriginalArray("kept")
    module.config.recovery_table[lost] = (kept, recovery)
    copy = HloModule.from_proto(module.to_proto())
    found, program = copy.config.recovery_table[lost]
    assert found == kept
    assert program is not None
    assert program.to_text() == recovery.to_text()


def test_a_domain_has_its_sides_the_other_way_round() -> None:
    text = """ENTRY e { p = f32[] parameter(0)
      ROOT d = f32[] domain(p), domain={kind="sharding", entry={maximal device=1}, exit={replicated}} }"""
    message = part(message_of("HloModule m\n" + text), "d")
    assert list(message.domain_exit_sharding.tile_assignment_devices) == [1]


def test_the_numbers_of_devices_are_those_of_the_device_assignment() -> None:
    counts = "replica_count=2, num_partitions=3"
    module = HloModule.from_text(CALLS.replace("HloModule calls", f"HloModule calls, {counts}"))
    message = HloModuleProto.FromString(module.to_proto())
    devices = [list(each.replica_device_ids) for each in message.device_assignment.computation_devices]
    assert devices == [[0, 3], [1, 4], [2, 5]]
    copy = HloModule.from_proto(module.to_proto())
    assert counts in copy.to_text()
    copy.config.num_partitions = copy.config.replica_count = 1
    assert not HloModuleProto.FromString(copy.to_proto()).HasField("device_assignment")


def test_an_assignment_of_devices_that_was_read_stays() -> None:
    message = message_of()
    message.device_assignment.replica_count = message.device_assignment.computation_count = 1
    message.device_assignment.computation_devices.add(replica_device_ids=[7])
    assert HloModuleProto.FromString(HloModule.from_proto(message.SerializeToString()).to_proto()) == message


# -- ids and order


def test_new_ids_count_computations_and_instructions() -> None:
    message = message_of()
    assert [c.id for c in message.computations] == [0, 1]
    ids = {i.name: i.id for i in message.computations[1].instructions}
    assert ids == {name: (1 << 32) + number for number, name in enumerate("pckst")}
    assert message.entry_computation_id == 1


def renumbered() -> HloModuleProto:
    """Return the program with unusual ids: old ones, not contiguous, not ascending."""
    message = message_of()
    ids = {i.id: 1000 - 7 * n for c in message.computations for n, i in enumerate(c.instructions, c.id)}
    for computation in message.computations:
        computation.root_id = ids[computation.root_id]
        for instruction in computation.instructions:
            instruction.id = ids[instruction.id]
            for field in (instruction.operand_ids, instruction.control_predecessor_ids):
                field[:] = [ids[number] for number in field]
            instruction.called_computation_ids[:] = [17 for _ in instruction.called_computation_ids]
    message.computations[0].id = 17
    message.computations[1].id = message.entry_computation_id = 300
    message.id = 5
    return message


def test_ids_that_were_read_stay() -> None:
    """Instructions count in the order of their ids, as XLA has it, and are written operands first."""
    message = renumbered()
    written = again(message)
    assert written.id == 5
    assert [c.id for c in written.computations] == [17, 300]
    assert {i.name: i.id for c in written.computations for i in c.instructions} == {
        i.name: i.id for c in message.computations for i in c.instructions
    }
    assert read(written).to_text() == read(message).to_text()


def test_instructions_added_later_get_ids_that_are_free() -> None:
    module = read(renumbered())
    root = module.entry.root
    added = module.entry.add(named(module, "k").clone("k.1"))
    moved = module.entry.add(root.clone("t.1", operands=[root.operands[0], added]))
    moved.unique_id = root.unique_id
    module.entry.root = moved
    message = module_message(module)
    ids = [i.id for c in message.computations for i in c.instructions if c.id == 300]
    assert len({number & 0xFFFFFFFF for number in ids}) == len(ids)
    assert part(message, "k.1").id == (300 << 32) + 994
    assert read(message).to_text() == module.to_text()


def test_the_order_of_a_scheduled_module_is_its_schedule() -> None:
    text = "HloModule m, is_scheduled=true\nENTRY e { a = f32[] parameter(0)\n n = f32[] negate(a)\n"
    text += " b = f32[] parameter(1)\n ROOT s = f32[] add(b, n) }"
    message = message_of(text)
    assert list(message.schedule.sequences[0].instruction_ids) == [0, 1, 2, 3]
    assert [i.name for i in message.computations[0].instructions] == ["b", "a", "n", "s"]
    message.schedule.sequences[0].instruction_ids[:] = [2, 0, 1, 3]
    assert [i.name for i in read(message).entry] == ["b", "a", "n", "s"]
    assert again(message) == message


def test_names_become_well_formed() -> None:
    message = message_of()
    part(message, "s").name = "the sum%"
    assert named(read(message), "the_sum_").opcode == "add"


# -- fields that only protos have


LEVELS: dict[str, Callable[[HloModuleProto], Any]] = {
    "module": lambda m: m,
    "alias": lambda m: m.input_output_alias,
    "computation": lambda m: m.computations[0],
    "instruction": lambda m: part(m, "c"),
    "shape in a tuple": lambda m: part(m, "t").shape.tuple_shapes[1],
    "layout": lambda m: part(m, "p").shape.layout,
    "metadata": lambda m: part(m, "p").metadata,
    "sharding": lambda m: part(m, "c").sharding,
    "literal": lambda m: part(m, "k").literal,
    "program shape": lambda m: m.host_program_shape.parameters[0],
}


@pytest.mark.parametrize("level", LEVELS)
def test_unknown_fields_survive(level: str) -> None:
    message = message_of()
    LEVELS[level](message).MergeFromString(UNKNOWN)
    written = again(message)
    assert written == message
    assert UNKNOWN in LEVELS[level](written).SerializeToString()


def test_unknown_fields_survive_a_copy_of_the_module() -> None:
    message = message_of()
    for level in ("module", "computation", "instruction"):
        LEVELS[level](message).MergeFromString(UNKNOWN)
    assert module_message(clone_module(read(message))) == message


def test_an_unknown_field_goes_with_its_operation() -> None:
    message = message_of()
    part(message, "s").MergeFromString(UNKNOWN)
    module = read(message)
    s = named(module, "s")
    assert s.clone().unmodelled
    assert not s.clone(operation=REGISTRY["multiply"]()).unmodelled


def test_known_fields_that_mean_nothing_here_survive() -> None:
    message = message_of()
    message.is_dynamic = True
    message.pjrt_id = 3
    message.spmd_output_sharding.type = 4  # type: ignore[assignment]
    message.cross_program_prefetches.add(parameter=0, offset=8)
    message.device_assignment.replica_count = 2
    part(message, "s").epsilon = 0.5
    part(message, "c").window.dimensions.add(size=3)
    part(message, "p").all_reduce_id = 7
    assert again(message) == message


def test_payloads_are_read_where_they_lie() -> None:
    """Configurations that stand in a table of the module come back in place."""
    message = message_of()
    message.payloads.extend([b"", b"long configuration"])
    part(message, "s").ClearField("backend_config")
    part(message, "s").backend_config_payload.id = 1
    part(message, "c").backend_config_payload.value = b"short"
    module = read(message)
    assert named(module, "s").backend_config == "long configuration"
    assert named(module, "c").backend_config == "short"
    assert part(module_message(module), "s").backend_config == b"long configuration"


def test_groups_of_older_writers_are_read() -> None:
    text = """HloModule m\nENTRY e { p = f32[2] parameter(0)
      ROOT g = f32[4] all-gather(p), replica_groups={{0,1}}, dimensions={0} }"""
    message = message_of(text)
    part(message, "g").ClearField("collective_device_list")
    part(message, "g").replica_groups.add(replica_ids=[0, 1])
    assert read(message).to_text() == HloModule.from_text(text).to_text()


# -- refusals


def refusal(change: Callable[[HloModuleProto], Any], text: str = CALLS) -> HloError:
    message = message_of(text)
    change(message)
    with pytest.raises(HloError) as caught:
        read(message)
    return caught.value


def without_instructions(message: HloModuleProto) -> None:
    del message.computations[0].instructions[:]


def calling(name: str, *computations: int) -> Callable[[HloModuleProto], Any]:
    return lambda m: part(m, name).called_computation_ids.__setitem__(slice(None), computations)


def using(name: str, *operands: int) -> Callable[[HloModuleProto], Any]:
    return lambda m: part(m, name).operand_ids.__setitem__(slice(None), operands)


def running(*instructions: int) -> Callable[[HloModuleProto], Any]:
    return lambda m: m.schedule.sequences[0].instruction_ids.extend(instructions)


def after(name: str, other: str) -> Callable[[HloModuleProto], Any]:
    return lambda m: part(m, name).control_predecessor_ids.append(part(m, other).id)


REFUSALS: dict[str, tuple[str, Callable[[HloModuleProto], Any]]] = {
    "no program": ("proto.no-module", lambda m: m.ClearField("computations")),
    "an empty computation": ("proto.root", without_instructions),
    "another entry": ("proto.entry", lambda m: setattr(m, "entry_computation_id", 9)),
    "another root": ("proto.root", lambda m: setattr(m.computations[0], "root_id", 9)),
    "computations of one id": ("proto.unique-ids", lambda m: setattr(m.computations[1], "id", 0)),
    "instructions of one id": ("proto.unique-ids", lambda m: setattr(part(m, "n"), "id", part(m, "a").id)),
    "computations of one name": (
        "proto.unique-names", lambda m: setattr(m.computations[1], "name", "negated"),
    ),
    "instructions of one name": ("proto.unique-names", lambda m: setattr(part(m, "n"), "name", "p")),
    "no name": ("proto.unique-names", lambda m: part(m, "n").ClearField("name")),
    "an unknown opcode": ("proto.opcode", lambda m: setattr(part(m, "n"), "opcode", "frobnicate")),
    "an unknown operand": ("proto.operand", using("n", 9)),
    "its own operand": ("proto.operand", using("n", 1)),
    "a later predecessor": ("proto.operand", after("p", "t")),
    "too many operands": ("instruction.arity", using("n", 0, 0)),
    "an unknown callee": ("proto.computation", calling("c", 9)),
    "its own caller": ("proto.computation", calling("c", 1)),
    "no callee": ("proto.computation-count", calling("c")),
    "a callee too many": ("proto.computation-count", calling("s", 0)),
    "a parameter left out": (
        "computation.parameter-numbers", lambda m: setattr(part(m, "p"), "parameter_number", 1),
    ),
    "an unknown payload": ("proto.payload", lambda m: setattr(part(m, "s").backend_config_payload, "id", 3)),
    "a schedule for nothing": ("proto.schedule", lambda m: m.schedule.sequences[7].instruction_ids.append(0)),
    "a schedule with holes": ("proto.schedule", running(0)),
    "a schedule too early": ("proto.schedule", running(1, 0)),
    "an alias of nothing": (
        "module.alias-output", lambda m: m.input_output_alias.entries.add(output_shape_index=[2]),
    ),
    "an alias with nothing": (
        "module.alias-parameter",
        lambda m: m.input_output_alias.entries.add(output_shape_index=[0], parameter_number=1),
    ),
    "two aliases of one output": (
        "module.alias-once",
        lambda m: [m.input_output_alias.entries.add(output_shape_index=[0]) for _ in "12"],
    ),
    "a donor that is not there": (
        "module.alias-parameter", lambda m: m.buffer_donor.entries.add(parameter_shape_index=[0]),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSALS)
def test_messages_that_are_no_programs(case: str) -> None:
    rule, change = REFUSALS[case]
    error = refusal(change)
    assert error.rule == rule
    assert error.message


def test_a_refusal_names_the_instruction() -> None:
    assert refusal(REFUSALS["an unknown operand"][1]).instruction == "n"


def test_enums_have_no_other_numbers() -> None:
    text = "HloModule m\nENTRY e { p = c64[4] parameter(0)\n"
    text += " ROOT f = c64[4] fft(p), fft_type=FFT, fft_length={4} }"
    assert refusal(lambda m: setattr(part(m, "f"), "fft_type", 9), text).rule == "proto.enum-value"


def test_labels_have_numbers_of_dimensions() -> None:
    text = """HloModule m\nENTRY e { p = f32[1,4,1] parameter(0)\n k = f32[2,1,1] parameter(1)
      ROOT v = f32[1,3,1] convolution(p, k), window={size=2}, dim_labels=b0f_0io->b0f }"""
    change: Callable[[HloModuleProto], Any] = lambda m: setattr(  # noqa: E731
        part(m, "v").convolution_dimension_numbers, "input_batch_dimension", 10**12
    )
    assert refusal(change, text).rule == "dim-labels.range"


def test_recovery_modules_have_an_end() -> None:
    message = message_of()
    for _ in range(9):
        outer = message_of()
        outer.original_value_recovery_table.entries.add().recovery_module.CopyFrom(message)
        message = outer
    with pytest.raises(HloError) as caught:
        read(message)
    assert caught.value.rule == "proto.recovery-depth"


@pytest.mark.parametrize("data", [b"", b"\xff\xff", b"HloModule m", b"\x0a\x03abc", bytes(100)])
def test_bytes_that_are_no_message(data: bytes) -> None:
    with pytest.raises(HloError) as caught:
        HloModule.from_proto(data)
    assert caught.value.rule == ("proto.cut" if data == b"\xff\xff" else "proto.no-module")


def test_a_snapshot_whose_inputs_are_broken() -> None:
    snapshot = HloProto(hlo_module=message_of()).SerializeToString() + b"\x12\x01\xff"
    with pytest.raises(HloError) as caught:
        HloModule.from_proto(snapshot)
    assert caught.value.rule == "proto.malformed"


def test_values_that_no_field_holds() -> None:
    module = HloModule.from_text(CALLS)
    named(module, "s").frontend_attributes = {"broken": "\udcff"}
    with pytest.raises(HloError) as caught:
        module.to_proto()
    assert (caught.value.rule, caught.value.instruction) == ("proto.value", "s")
    module.name = "\udcff"
    named(module, "s").frontend_attributes = None
    with pytest.raises(HloError) as caught:
        module.to_proto()
    assert caught.value.rule == "proto.value"


def test_computations_that_call_each_other_have_no_order() -> None:
    module = HloModule.from_text(CALLS)
    named(module, "c").called_computations = (module.entry,)
    with pytest.raises(VerifyError) as caught:
        module.to_proto()
    assert caught.value.rule == "module.recursion"


def test_computations_of_other_modules_are_not_called() -> None:
    module, other = HloModule.from_text(CALLS), HloModule.from_text(CALLS)
    named(module, "c").called_computations = named(other, "c").called_computations
    with pytest.raises(VerifyError) as caught:
        module.to_proto()
    assert caught.value.rule == "module.callee"


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("", "module_entry"), ("a b", "a_b"), ("1x", "_x"), ("ENTRY", "%ENTRY"), ("f32", "f32_"),
        ("h\u00e9", "h__"), ("a\nb", "a_b"), ("a\0b", "a_b"), ("__x", "a_x"), ("jit_f.1-2", "jit_f.1-2"),
    ],
)  # fmt: skip
def test_any_name_of_a_module_is_printed_so_that_it_can_be_read(name: str, shown: str) -> None:
    message = message_of()
    message.name = name
    module = read(message)
    text = module.to_text()
    assert text.startswith(f"HloModule {shown},")
    assert HloModule.from_text(text).to_text() == text
    assert again(message).name == name


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("", "_"), ("a b", "a_b"), ("1x", "_x"), ("x=", "x_"), ("h\u00e9", "h__"), ("f32", "f32"), ("}", "_"),
        ("a,b", "a_b"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("value", [3.0, float("inf"), float("nan"), -1e300])
def test_any_name_of_a_statistic_is_printed_so_that_it_can_be_read(
    name: str, shown: str, value: float
) -> None:
    message = message_of()
    part(message, "s").statistics_viz.statistics.add(stat_name=name, stat_val=value)
    text = read(message).to_text()
    assert f"statistics={{visualizing_index=0,{shown}=" in text
    assert HloModule.from_text(text).to_text() == text
    written = part(again(message), "s").statistics_viz.statistics
    assert [(s.stat_name, repr(s.stat_val)) for s in written] == [(name, repr(value))]
