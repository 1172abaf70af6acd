"""call-inliner: replace calls by the bodies of their callees."""

from __future__ import annotations

from dataclasses import replace

from hloom.errors import HloError
from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction
from hloom.ir.metadata import OpMetadata
from hloom.ir.module import HloModule
from hloom.operations.control_flow import Call, Fusion
from hloom.operations.structure import Parameter
from hloom.passes.facts import INLINED
from hloom.passes.fuel import consume
from hloom.passes.pipeline import Pass
from hloom.passes.writing import Writer


class CallInliner(Pass, name="call-inliner", establishes={INLINED}):
    """``y = call(x), to_apply=f`` → the body of f with x for its parameter; fusions too, to be fused anew.

    Attributes:
        most_instructions: maximum number of instructions after inlining, for programs that inlining enlarges
            more than fourfold. Chains of computations that call others twice grow exponentially.
    """

    most_instructions: int = 1 << 18

    def run(self, module: HloModule) -> bool:
        """Inline every call, callees first."""
        check_size(module, self.most_instructions)
        changed = False
        for computation in module.post_order():
            for instruction in computation:
                if isinstance(instruction.operation, (Call, Fusion)) and consume(f"%{instruction.name}"):
                    inline(instruction)
                    changed = True
        return changed


def check_size(module: HloModule, most: int) -> None:
    """Reject a module that inlining enlarges beyond ``most`` instructions and four times its size."""
    written = sum(len(c) for c in module.computations)
    sizes: dict[HloComputation, int] = {}
    for computation in module.post_order():
        sizes[computation] = sum(
            1 + sum(sizes[c] for c in i.called_computations if _is_copied(i))
            for i in computation.instructions
        )
    size = sizes[module.entry]
    if size > max(most, 4 * written):
        count = str(size) if size < 10**12 else f"about 2^{size.bit_length() - 1}"
        message = (
            f"the program has {count} instructions once every caller has its own copy of what it calls; at "
            f"most {most} are compiled. Call fewer computations from several places, or call them in a loop"
        )
        raise HloError(message, rule="call-inliner.program-size")


def _is_copied(i: HloInstruction) -> bool:
    """Return whether the computations of an instruction are copied for each caller."""
    return i.operation.calls_program or i.opcode == "fusion"


def inline(call: HloInstruction) -> HloInstruction:
    """Replace one call by a copy of its callee's instructions; return the copy of the root.

    The copies come from the framework's operation of the call; those without a source line have the call's.
    """
    computation = call.parent
    assert computation is not None
    callee = call.called_computations[0]
    copies = copy_body(callee, computation, call.operands)
    root = copies[callee.root]
    for instruction, copy in copies.items():
        if not isinstance(instruction.operation, Parameter):
            if isinstance(call.operation, Call):
                copy.metadata = _within(copy.metadata, call.metadata)
            for predecessor in call.control_predecessors:
                predecessor.add_control_dependency_to(copy)
            for successor in call.control_successors:
                copy.add_control_dependency_to(successor)
    call.bypass_control_dependencies()
    call.replace_all_uses_with(root)
    computation.remove(call)
    return root


def _within(inner: OpMetadata | None, outer: OpMetadata | None) -> OpMetadata | None:
    """Return the metadata of an instruction that is called by another, as XLA joins them when it inlines."""
    if inner is None or outer is None:
        return inner
    name = inner.op_name
    if name and outer.op_name and not name.startswith(outer.op_name):
        name = f"{outer.op_name}/{name}"
    has_place = inner.source_file or inner.stack_frame_id
    scope = inner if has_place else outer
    return replace(
        inner,
        op_name=name,
        source_file=scope.source_file,
        source_line=scope.source_line,
        source_end_line=scope.source_end_line,
        source_column=scope.source_column,
        source_end_column=scope.source_end_column,
        stack_frame_id=scope.stack_frame_id,
    )


def copy_body(
    source: HloComputation, target: HloComputation, arguments: list[HloInstruction]
) -> dict[HloInstruction, HloInstruction]:
    """Copy a computation's instructions into another with given arguments; return a map of old to new."""
    module = target.module
    copies: dict[HloInstruction, HloInstruction] = {}
    for instruction in source.post_order():
        if isinstance(instruction.operation, Parameter):
            copies[instruction] = arguments[instruction.operation.parameter_number]
            continue
        name = module.unique_name(instruction.name) if module is not None else instruction.name
        copy = instruction.clone(name, operands=[copies[o] for o in instruction.operands])
        copies[instruction] = target.add(copy)
        for predecessor in instruction.control_predecessors:
            copies[predecessor].add_control_dependency_to(copy)
    return copies


def replace_caller(i: HloInstruction, result: HloInstruction) -> None:
    """Replace an instruction of control flow, and remove its computations, which have no other caller."""
    w = Writer(i)
    w.replace(result)
    for computation in dict.fromkeys(i.called_computations):
        w.module.remove(computation)
