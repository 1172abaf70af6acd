"""Print options, named as in XLA's HloPrintOptions."""

from __future__ import annotations

from dataclasses import replace

from hloom.ir.xla_version import NEWEST, V0_11, XlaVersion
from hloom.records import dataclass


@dataclass(frozen=True, slots=True)
class PrintOptions:
    """Options of the printer; the defaults are those of ``HloModule::ToString()``.

    Attributes:
        print_large_constants: print constants of more than 10 elements in full instead of ``{...}``.
        print_only_essential_constants: print only constants of all 0, all 1 or integers; others as ``{...}``.
        print_subcomputations: print called computations in full in their callers, instead of by name.
        print_metadata: print ``metadata={...}`` and the stack frame tables.
        print_metadata_only_op_name: print only ``op_name`` of the metadata.
        print_backend_config: print ``backend_config=...``.
        print_infeed_outfeed_config: print ``infeed_config=...`` and ``outfeed_config=...``.
        print_original_value: print ``origin={...}``.
        print_frontend_attributes: print ``frontend_attributes={...}``.
        print_result_shape: print the shape before the opcode.
        print_operand_shape: print the shape before each operand name.
        print_operand_names: print operand names.
        print_operand_index_annotation_interval: distance between comments ``/*index=5*/``; 0 for none.
        compact_operands: print at most four operands and the number of the others, which cannot be parsed.
        include_layout_in_shapes: print layouts in shapes.
        print_percent: print ``%`` before names.
        print_program_shape: print the signature of each computation.
        print_control_dependencies: print ``control-predecessors={...}``.
        print_extra_attributes: print the operations' own attributes.
        print_full_replica_group_list: print replica groups as lists, never as an iota.
        print_ids: print names of module and computations, and the part of names after the first dot.
        canonicalize_instruction_names: print ``tmp_0``, ``tmp_1`` ... instead of names.
        canonicalize_computations: print computations in the module's order instead of callees first.
        syntax_sugar_async_ops: print ``custom-call-start`` for an async-start that calls a custom call.
        is_in_nested_computation: print computations without their names.
        indent_amount: indentation of every line in units of two blanks.
        compact_gte: print an element of a tuple only where it is used, as ``%tuple#1``.
        xla_version: the version of XLA whose forms are printed.
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
    compact_gte: bool = False
    xla_version: XlaVersion = NEWEST

    @staticmethod
    def dump(xla_version: XlaVersion = NEWEST) -> PrintOptions:
        """Return the options of the dumps (``--xla_dump_hlo_as_text``) of a version of XLA."""
        return PrintOptions(xla_version=xla_version, compact_gte=xla_version >= V0_11)

    @staticmethod
    def short_parsable() -> PrintOptions:
        """Return options for the shortest text of the whole program."""
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
        """Return options that give isomorphic programs equal texts."""
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
        """Return `canonical` without names, weights and infeed configs, which do not affect optimization."""
        return PrintOptions.canonical().replace(
            print_infeed_outfeed_config=False,
            print_only_essential_constants=True,
            print_ids=False,
            canonicalize_computations=True,
            print_full_replica_group_list=True,
        )

    @staticmethod
    def module_fingerprint() -> PrintOptions:
        """Return `fingerprint` without operand shapes, which follow from the rest of a module."""
        return PrintOptions.fingerprint().replace(print_operand_shape=False)

    def replace(self, **changes: object) -> PrintOptions:
        """Return the options with some of them changed."""
        return replace(self, **changes)
