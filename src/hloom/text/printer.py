"""HLO text out: what XLA's HloModule::ToString prints, derived from the declarations."""

from __future__ import annotations

from hloom.ir.codec import REQUIRED
from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction
from hloom.ir.metadata import frontend_attributes_text
from hloom.ir.module import HloModule
from hloom.ir.operation import Operation
from hloom.text.options import PrintOptions


def print_module(module: HloModule, options: PrintOptions | None = None) -> str:
    """The text of a module."""
    return _Printer(options or PrintOptions()).module(module)


def print_computation(computation: HloComputation, options: PrintOptions | None = None) -> str:
    """The text of one computation."""
    return "".join(_Printer(options or PrintOptions()).computation(computation))


def print_instruction(instruction: HloInstruction, options: PrintOptions | None = None) -> str:
    """The text of one instruction, without ROOT and indentation."""
    return _Printer(options or PrintOptions()).instruction(instruction)


class _Printer:
    def __init__(self, options: PrintOptions) -> None:
        self.options = options
        self.percent = "%" if options.print_percent else ""
        self.operation_texts: dict[int, tuple[Operation, str]] = {}

    def module(self, module: HloModule) -> str:
        out = [f"HloModule {module.name}"]
        config = module.config
        if config.is_scheduled:
            out.append(", is_scheduled=true")
        if config.entry_layout is not None:
            layout = config.entry_layout
            parameters = ", ".join(s.to_string() for s in layout.parameters)
            out.append(f", entry_computation_layout={{({parameters})->{layout.result.to_string()}}}")
        out.append("\n\n")
        order = module.post_order()
        for index, computation in enumerate(order):
            if index:
                out.append("\n\n")
            if computation is module.entry:
                out.append("ENTRY ")
            out.extend(self.computation(computation))
        return "".join(out) + "\n"

    def computation(self, computation: HloComputation) -> list[str]:
        module = computation.module
        scheduled = module is not None and module.config.is_scheduled
        order = list(computation.instructions) if scheduled else computation.post_order()
        out = [f"{self.percent}{computation.name} "]
        if self.options.print_program_shape:
            parameters = ", ".join(
                f"{p.name}: {p.shape.to_string(layout=False)}" for p in computation.parameters
            )
            result = computation.root.shape.to_string(layout=False)
            out.append(f"({parameters}) -> {result} ")
        out.append("{\n")
        root = computation.root
        for instruction in order:
            out.append("  ROOT " if instruction is root else "  ")
            out.append(self.instruction(instruction))
            out.append("\n")
        out.append("}")
        if computation.execution_thread != "main":
            out.append(f', execution_thread="{computation.execution_thread}"')
        return out

    def instruction(self, instruction: HloInstruction) -> str:
        operation = instruction.operation
        percent = self.percent
        operands = operation.operand_text(instruction)
        if operands is None:
            operands = ", ".join([percent + o.name for o in instruction.operands])
        shape = instruction.shape.to_string(layout=self.options.include_layout_in_shapes)
        text = f"{percent}{instruction.name} = {shape} {operation.opcode}({operands})"
        return text + self.operation_text(operation, instruction) + self.annotations(instruction)

    def operation_text(self, operation: Operation, instruction: HloInstruction) -> str:
        """``, name=value`` for every printed attribute and called computation."""
        if not operation.attributes and not instruction.called_computations:
            return ""
        before: list[str] = []
        after: list[str] = []
        for attribute in operation.attributes:
            value = getattr(operation, attribute.field)
            if attribute.default is not REQUIRED and value == attribute.default and not attribute.always:
                continue
            if operation.omitted(attribute.field, instruction):
                continue
            part = f", {attribute.name}={attribute.codec.text(value)}"
            (after if attribute.after_computations else before).append(part)
        for role, computations in operation.role_of(instruction):
            names = ", ".join(self.percent + c.name for c in computations)
            before.append(f", {role.name}={{{names}}}" if role.many else f", {role.name}={names}")
        return "".join(before) + "".join(after)

    def annotations(self, instruction: HloInstruction) -> str:
        """``, sharding=...`` and what else travels with an instruction."""
        out = ""
        if instruction.sharding is not None:
            out += ", sharding=" + instruction.sharding.text()
        if instruction.frontend_attributes:
            out += ", frontend_attributes=" + frontend_attributes_text(instruction.frontend_attributes)
        if instruction.control_predecessors and self.options.print_control_dependencies:
            names = ", ".join(self.percent + p.name for p in instruction.control_predecessors)
            out += f", control-predecessors={{{names}}}"
        if instruction.metadata is not None and self.options.print_metadata:
            out += ", metadata=" + instruction.metadata.text()
        if instruction.backend_config and self.options.print_backend_config:
            out += ", backend_config=" + instruction.backend_config
        return out
