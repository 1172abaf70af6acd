"""Print options, named as in XLA's HloPrintOptions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class PrintOptions:
    """What a printed module shows; the defaults are those of ``HloModule::ToString()``.

    Attributes:
        print_large_constants: constants of more than 10 elements in full instead of ``{...}``.
        print_only_essential_constants: constants that are all 0, all 1 or integers; others as ``{...}``.
        print_subcomputations: called computations in full where they are called, instead of by name.
        print_metadata: ``metadata={...}``, and the stack frame tables.
        print_metadata_only_op_name: of the metadata, only ``op_name``.
        print_backend_config: ``backend_config=...``.
        print_infeed_outfeed_config: ``infeed_config=...`` and ``outfeed_config=...``.
        print_original_value: ``origin={...}``.
        print_frontend_attributes: ``frontend_attributes={...}``.
        print_result_shape: the shape before the opcode.
        print_operand_shape: the shape before each operand name.
        print_operand_names: operand names.
        print_operand_index_annotation_interval: every so many operands an ``/*index=5*/``; 0 for none.
        compact_operands: at most four operands, then how many are left out (no program text any more).
        include_layout_in_shapes: layouts in shapes.
        print_percent: ``%`` before names.
        print_program_shape: the signature of each computation.
        print_control_dependencies: ``control-predecessors={...}``.
        print_extra_attributes: the operations' own attributes.
        print_full_replica_group_list: replica groups written out, never as an iota.
        print_ids: what follows the first dot of a name, and the names of module and computations.
        canonicalize_instruction_names: ``tmp_0``, ``tmp_1`` ... instead of names.
        canonicalize_computations: computations in the module's order, not callees first.
        syntax_sugar_async_ops: ``custom-call-start`` instead of an async-start that calls a computation.
        is_in_nested_computation: computations without their names.
        indent_amount: how many times two blanks stand before every line.
    """

    print_large_constants: bool = False
    print_only_essential_constants: bool = False
    print_subcomputations: bool = False
    print_metadata: bool = True
    print_metadata_only_op_name: bool = False
    print_backend_config: bool = True
    print_infeed_outfeed_config: bool = True
    print_original_value: bool = True
    print_frontend_attributes: bool = True
    print_result_shape: bool = True
    print_operand_shape: bool = False
    print_operand_names: bool = True
    print_operand_index_annotation_interval: int = 5
    compact_operands: bool = False
    include_layout_in_shapes: bool = True
    print_percent: bool = True
    print_program_shape: bool = True
    print_control_dependencies: bool = True
    print_extra_attributes: bool = True
    print_full_replica_group_list: bool = False
    print_ids: bool = True
    canonicalize_instruction_names: bool = False
    canonicalize_computations: bool = False
    syntax_sugar_async_ops: bool = True
    is_in_nested_computation: bool = False
    indent_amount: int = 0

    @staticmethod
    def short_parsable() -> PrintOptions:
        """The shortest text that says the whole program."""
        return PrintOptions(
            print_large_constants=True,
            print_metadata=False,
            print_operand_index_annotation_interval=0,
            print_program_shape=False,
            print_percent=False,
            print_control_dependencies=False,
        )

    @staticmethod
    def canonical() -> PrintOptions:
        """Equal texts for isomorphic programs."""
        return PrintOptions(
            print_subcomputations=True,
            print_metadata=False,
            print_backend_config=False,
            print_operand_names=False,
            print_operand_shape=True,
            print_operand_index_annotation_interval=0,
            print_program_shape=False,
            print_percent=False,
            print_control_dependencies=False,
            canonicalize_instruction_names=True,
        )

    @staticmethod
    def fingerprint() -> PrintOptions:
        """`canonical` without what does not matter for optimization: names, weights, infeeds' config."""
        return PrintOptions.canonical().replace(
            print_infeed_outfeed_config=False,
            print_only_essential_constants=True,
            print_ids=False,
            canonicalize_computations=True,
            print_full_replica_group_list=True,
        )

    @staticmethod
    def module_fingerprint() -> PrintOptions:
        """`fingerprint` without operand shapes, which follow from the rest of a module."""
        return PrintOptions.fingerprint().replace(print_operand_shape=False)

    def replace(self, **changes: Any) -> PrintOptions:
        """The same with some options changed."""
        return replace(self, **changes)
