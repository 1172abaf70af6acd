"""Printing of HLO text as XLA's ``HloModule::ToString`` does, derived from the declarations."""

from __future__ import annotations

from typing import Any, Final

from hloom.ir.codec import REQUIRED
from hloom.ir.collector import collector_paused
from hloom.ir.computation import HloComputation
from hloom.ir.cursor import escape
from hloom.ir.instruction import HloInstruction
from hloom.ir.metadata import OpMetadata, frontend_attributes_text, quoted_or_json
from hloom.ir.module import HloModule
from hloom.ir.operation import Operation
from hloom.ir.print_options import PrintOptions
from hloom.ir.xla_version import V0_11
from hloom.regex import regex
from hloom.shape.shape import Shape
from hloom.text import asynchronous
from hloom.text.constants import constant_text
from hloom.text.header import header_text

_COMPACT_OPERANDS: Final = 4
# XLA does not print an empty list of queues for a GPU instruction.
_NO_QUEUES: Final = regex(r'"wait_on_operation_queues":\s*+\[\s*+\]\s*+,')
_ALWAYS_SHOWN: Final = ("result_accuracy", "is_composite")
_CONFIGURATIONS: Final = ("infeed_config", "outfeed_config")


def print_module(module: HloModule, options: PrintOptions | None = None) -> str:
    """Return the text of a module."""
    with collector_paused():
        return _Printer(options or PrintOptions()).module(module)


def print_computation(computation: HloComputation, options: PrintOptions | None = None) -> str:
    """Return the text of one computation."""
    options = options or PrintOptions()
    return _Printer(options).computation(computation, options.indent_amount, None, named=True)


def print_instruction(instruction: HloInstruction, options: PrintOptions | None = None) -> str:
    """Return the text of one instruction without ROOT, indentation and canonical name."""
    options = options or PrintOptions()
    return _Printer(options).instruction(instruction, options.indent_amount, None)


class _Printer:
    def __init__(self, options: PrintOptions) -> None:
        self.options = options
        self.percent = "%" if options.print_percent else ""
        self.texts: dict[int, tuple[Operation, str]] = {}
        self.metadata_texts: dict[int, tuple[OpMetadata, str]] = {}
        self.frames: dict[int, int] = {}

    # -- modules and computations

    def module(self, module: HloModule) -> str:
        options = self.options
        computations = module.computations if options.canonicalize_computations else module.post_order()
        orders = self.orders(module, computations)
        tab = "  " * options.indent_amount
        out = [tab, header_text(module, options), "\n\n"]
        if options.print_metadata and module.config.stack_frames.frames:
            out.append(self.stack_frames(module))
        hidden = self.hidden_computations(module)
        for computation in computations:
            if computation in hidden:
                continue
            text = self.computation(
                computation,
                options.indent_amount,
                orders[computation],
                named=not options.is_in_nested_computation,
            )
            if computation is module.entry:
                text = f"{tab}ENTRY {text[len(tab) :]}"
            out.append(text)
            out.append("\n\n")
        return "".join(out)

    def orders(
        self, module: HloModule, computations: list[HloComputation]
    ) -> dict[HloComputation, list[HloInstruction]]:
        """Return the instructions of each computation in its schedule's order, else operands first."""
        if not module.config.is_scheduled:
            return {c: c.post_order() for c in computations}
        fused = {c for i in module.instructions() if i.opcode == "fusion" for c in i.called_computations}
        return {c: c.post_order() if c in fused else c.execution_order() for c in computations}

    def hidden_computations(self, module: HloModule) -> set[HloComputation]:
        """Return the computations that are printed as ``...-start`` instructions."""
        if not self.options.syntax_sugar_async_ops:
            return set()
        return {
            computation
            for instruction in module.instructions()
            if instruction.opcode == asynchronous.START
            for computation in instruction.called_computations
            if asynchronous.is_short(instruction)
        }

    def stack_frames(self, module: HloModule) -> str:
        """Return the tables of frames; before 0.11 of those that instructions refer to, renumbered.

        The new numbers follow the module's own order of computations and instructions, not the printed one.
        """
        tables = module.config.stack_frames
        if self.options.xla_version >= V0_11:
            self.frames = {number: number for number in range(1, len(tables.frames) + 1)}
            return tables.text() + "\n"
        numbers = (
            instruction.metadata.stack_frame_id
            for computation in module.computations
            for instruction in computation.in_id_order()
            if instruction.metadata is not None and instruction.metadata.stack_frame_id
        )
        tables, self.frames = module.config.stack_frames.used(numbers)
        return tables.text() + "\n" if self.frames else ""

    def computation(
        self, computation: HloComputation, indent: int, order: list[HloInstruction] | None, *, named: bool
    ) -> str:
        """Return the text of a computation with its braces, each line indented."""
        options = self.options
        tab = "  " * indent
        head = tab
        if named:
            head += f"{self.percent}{computation.name} " if options.print_ids else self.percent
        if options.print_program_shape:
            parameters = ", ".join(
                f"{self.name(p.name)}: {p.shape.to_string(layout=False)}" for p in computation.parameters
            )
            head += f"({parameters}) -> {computation.root.shape.to_string(layout=False)} "
        out = [head, "{\n"]
        root, names = computation.root, _CanonicalNames()
        for instruction in order if order is not None else computation.post_order():
            if self.is_compact(instruction):
                continue
            out.append(f"{tab}  ROOT " if instruction is root else f"{tab}  ")
            out.append(self.instruction(instruction, indent + 1, names))
            out.append("\n")
        out.append(tab + "}")
        if options.print_ids and computation.execution_thread != "main":
            out.append(f', execution_thread="{escape(computation.execution_thread)}"')
        return "".join(out)

    # -- instructions

    def is_compact(self, instruction: HloInstruction) -> bool:
        """Return whether an instruction is printed only where it is used: an element of a tuple.

        One with control dependencies has a line, since these are printed by name. XLA omits it even then, and
        does not read the text that it prints.
        """
        return (
            self.options.compact_gte
            and not self.options.canonicalize_instruction_names
            and instruction.operation.opcode == "get-tuple-element"
            and not instruction.is_root
            and not instruction.control_predecessors
            and not instruction.control_successors
        )

    def operand_name(self, operand: HloInstruction) -> str:
        """Return the name of an operand with its ``%``; ``%tuple#1#0`` for an element of a tuple."""
        indices = ""
        while self.is_compact(operand):
            indices = f"#{operand.operation.index}{indices}"  # type: ignore[attr-defined]
            operand = operand.operands[0]
        return self.percent + self.name(operand.name) + indices

    def instruction(
        self, instruction: HloInstruction, indent: int, names: dict[HloInstruction, str] | None
    ) -> str:
        """Return the text of an instruction without indentation; ``names`` are the canonical names."""
        options = self.options
        opcode = instruction.operation.opcode
        if opcode in asynchronous.OPCODES and options.syntax_sugar_async_ops:
            opcode = asynchronous.short_opcode(instruction) or opcode
        if not options.canonicalize_instruction_names:
            text = f"{self.percent}{self.name(instruction.name)} = "
        else:
            text = "" if names is None else f"{names[instruction]} = "
        if options.print_result_shape:
            text += self.shape(instruction.shape) + " "
        text += f"{opcode}({self.operands(instruction, names)})"
        text += self.attributes(instruction, indent)
        return text + self.annotations(instruction)

    def shape(self, shape: Shape) -> str:
        return str(shape) if self.options.include_layout_in_shapes else shape.to_string(layout=False)

    def name(self, name: str) -> str:
        return name if self.options.print_ids else name.partition(".")[0]

    def operands(self, instruction: HloInstruction, names: dict[HloInstruction, str] | None) -> str:
        """Return the text in the parentheses."""
        options = self.options
        operation = instruction.operation
        if operation.opcode == "constant":
            return constant_text(operation.literal, options)  # type: ignore[attr-defined]
        special = operation.operand_text(instruction)
        if special is not None:
            return special
        operands = instruction.operands
        if not operands:
            return ""
        shown = operands[:_COMPACT_OPERANDS] if options.compact_operands else operands
        if (
            options.print_operand_shape
            or options.canonicalize_instruction_names
            or not options.print_operand_names
        ):
            parts = [self.operand(operand, names) for operand in shown]
        elif options.print_ids and not options.compact_gte:
            percent = self.percent
            parts = [percent + operand.name for operand in shown]
        else:
            parts = [self.operand_name(operand) for operand in shown]
        interval = options.print_operand_index_annotation_interval
        if interval and len(parts) > interval:
            for i in range(interval, len(parts), interval):
                parts[i] = f"/*index={i}*/{parts[i]}"
        left_out = len(operands) - len(shown)
        return ", ".join(parts) + (f", ...(+{left_out})" if left_out else "")

    def operand(self, operand: HloInstruction, names: dict[HloInstruction, str] | None) -> str:
        options = self.options
        parts = [self.shape(operand.shape)] if options.print_operand_shape else []
        if options.canonicalize_instruction_names:
            if names is not None:
                parts.append(names[operand])
        elif options.print_operand_names:
            parts.append(self.operand_name(operand))
        return " ".join(parts)

    # -- attributes

    def attributes(self, instruction: HloInstruction, indent: int) -> str:
        """Return ``, name=value`` for every printed attribute and called computation."""
        operation = instruction.operation.spelled_out(instruction)
        if operation.opcode in asynchronous.OPCODES and self.options.syntax_sugar_async_ops:
            wrapped = asynchronous.wrapped_instruction(instruction)
            if wrapped is not None:
                return self.wrapped_attributes(instruction, wrapped, indent)
        if not operation.roles:
            return self.own_attributes(operation, instruction) if operation.attributes else ""
        before = self.own_attributes(operation, instruction, after=False)
        after = self.own_attributes(operation, instruction, after=True)
        return before + self.called_computations(operation, instruction, indent) + after

    def wrapped_attributes(self, instruction: HloInstruction, wrapped: HloInstruction, indent: int) -> str:
        """Return the attributes of an asynchronous short form: its own, then the wrapped operation's."""
        operation = instruction.operation
        if operation.opcode != asynchronous.START:
            return self.own_attributes(operation, instruction)
        out = self.own_attributes(operation.replace(output_to_operand_aliasing=()), instruction)
        if self.options.print_extra_attributes:
            out += self.attributes(wrapped, indent)
            out += self.shared_attributes(wrapped, besides=instruction)
            out += self.own_attributes(operation.replace(async_execution_thread="main"), instruction)
        if self.options.print_subcomputations:
            out += self.called_computations(operation, instruction, indent)
        return out

    def own_attributes(
        self, operation: Operation, instruction: HloInstruction, *, after: bool | None = None
    ) -> str:
        """Return the operation's attributes that are printed after (or before) the called computations."""
        options = self.options
        out = ""
        for attribute in operation.attributes:
            if after is not None and attribute.after_computations is not after:
                continue
            if not attribute.is_printed_by(options.xla_version):
                continue
            if not options.print_extra_attributes and attribute.name not in _ALWAYS_SHOWN:
                continue
            if not options.print_ids and attribute.name == "parameter_replication":
                continue
            value = getattr(operation, attribute.field)
            if attribute.default is not REQUIRED and value == attribute.default and not attribute.always:
                continue
            if operation.omitted(attribute.field, instruction):
                continue
            if attribute.name in _CONFIGURATIONS and not options.print_infeed_outfeed_config:
                continue
            if attribute.name == "replica_groups" and options.print_full_replica_group_list:
                value = _written_out(value)
            out += f", {attribute.name}={attribute.codec.text(value)}"
        return out

    def called_computations(self, operation: Operation, instruction: HloInstruction, indent: int) -> str:
        """Return ``, to_apply=%name``, or the bodies if the options select them."""
        out = ""
        bodies = self.options.print_subcomputations
        for role, computations in operation.role_of(instruction):
            if bodies:
                name = "calls" if operation.opcode == "reduce-scatter" else role.name
                texts = [self.computation(c, indent, None, named=False) for c in computations]
                joined = ",\n".join(texts)
                out += f", {name}={{\n{joined}\n}}" if role.many else f", {name}=\n{joined}"
            else:
                joined = ", ".join([self.percent + self.name(c.name) for c in computations])
                out += f", {role.name}={{{joined}}}" if role.many else f", {role.name}={joined}"
        return out

    def shared_attributes(self, instruction: HloInstruction, *, besides: HloInstruction | None = None) -> str:
        """Return sharding, frontend attributes, control dependencies, statistics, except ``besides``."""
        options = self.options
        out = ""
        if instruction.sharding is not None and (besides is None or besides.sharding is None):
            out += ", sharding=" + instruction.sharding.text(
                metadata=options.print_metadata, version=options.xla_version
            )
        attributes = instruction.frontend_attributes if options.print_frontend_attributes else None
        if attributes and (besides is None or not besides.frontend_attributes):
            out += ", frontend_attributes=" + frontend_attributes_text(attributes)
        if instruction.control_predecessors and options.print_control_dependencies:
            names = ", ".join(self.percent + self.name(p.name) for p in instruction.control_predecessors)
            out += f", control-predecessors={{{names}}}"
        if instruction.statistics is not None and (besides is None or besides.statistics is None):
            out += ", statistics=" + instruction.statistics.text()
        return out

    def annotations(self, instruction: HloInstruction) -> str:
        """Return ``, sharding=...`` and the other properties that every instruction may have."""
        options = self.options
        out = self.shared_attributes(instruction)
        if instruction.original_value is not None and options.print_original_value:
            out += ", origin=" + instruction.original_value.text(options.xla_version)
        if instruction.metadata is not None and options.print_metadata:
            out += self.metadata(instruction.metadata)
        if instruction.backend_config and options.print_backend_config:
            out += ", backend_config=" + quoted_or_json(_NO_QUEUES.sub("", instruction.backend_config))
        return out

    def metadata(self, metadata: OpMetadata) -> str:
        """Return ``, metadata={...}``, or an empty text if no field is shown."""
        cached = self.metadata_texts.get(id(metadata))
        if cached is not None:
            return cached[1]
        frame = self.frames.get(metadata.stack_frame_id, 0)
        text = ""
        if self.options.print_metadata_only_op_name:
            text = OpMetadata(op_name=metadata.op_name).text() if metadata.op_name else ""
        elif metadata.is_shown or frame:
            text = metadata.text(frame)
        text = f", metadata={text}" if text else ""
        self.metadata_texts[id(metadata)] = (metadata, text)
        return text


class _CanonicalNames(dict[HloInstruction, str]):
    """Canonical names ``tmp_0``, ``tmp_1`` ..., assigned at the first lookup."""

    def __missing__(self, instruction: HloInstruction) -> str:
        name = self[instruction] = f"tmp_{len(self)}"
        return name


def _written_out(groups: Any) -> Any:
    from hloom.ir.device_groups import DeviceList

    return DeviceList(groups.groups)
