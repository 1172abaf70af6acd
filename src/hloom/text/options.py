"""Print options, named as in XLA's HloPrintOptions."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PrintOptions:
    """What a printed module shows; the defaults are those of ``HloModule::ToString()``.

    Attributes:
        print_large_constants: constants of more than 10 elements in full instead of ``{...}``.
        print_metadata: ``metadata={...}``.
        print_backend_config: ``backend_config=...``.
        print_operand_shape: the shape before each operand name.
        include_layout_in_shapes: layouts in shapes.
        print_percent: ``%`` before names.
        print_program_shape: the signature of each computation.
        print_control_dependencies: ``control-predecessors={...}``.
    """

    print_large_constants: bool = False
    print_metadata: bool = True
    print_backend_config: bool = True
    print_operand_shape: bool = False
    include_layout_in_shapes: bool = True
    print_percent: bool = True
    print_program_shape: bool = True
    print_control_dependencies: bool = True
