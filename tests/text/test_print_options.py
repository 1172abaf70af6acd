"""Effect of each print option: the lines of one program that differ from those of the defaults."""

from __future__ import annotations

import difflib
from typing import Any

import pytest

from hloom.ir.module import HloModule
from hloom.ir.print_options import PrintOptions

PROGRAM = """
HloModule m, entry_computation_layout={(f32[2]{0}, token[])->(f32[2]{0}, f32[2]{0})}

FileNames
1 "a.py"

FunctionNames
1 "f"

FileLocations
1 {file_name_id=1 function_name_id=1 line=3 end_line=3 column=1 end_column=2}

StackFrames
1 {file_location_id=1 parent_frame_id=1}

%add.1 (a.2: f32[], b.3: f32[]) -> f32[] {
  %a.2 = f32[] parameter(0)
  %b.3 = f32[] parameter(1)
  ROOT %s.4 = f32[] add(%a.2, %b.3)
}

ENTRY %main.1 (x.5: f32[2], t.6: token[]) -> (f32[2], f32[2]) {
  %x.5 = f32[2]{0} parameter(0)
  %t.6 = token[] parameter(1)
  %i.7 = ((f32[2]{0}), token[]) infeed(%t.6), infeed_config="feed"
  %w.8 = f32[12]{0} constant({0.5, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11})
  %n.9 = s32[12]{0} constant({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12})
  %h.10 = f32[2]{0} constant({0.5, 2})
  %r.11 = f32[2]{0} all-reduce(%x.5), channel_id=1, replica_groups=[1,2]<=[2], use_global_device_ids=true, \
to_apply=%add.1, metadata={op_type="t" op_name="n" stack_frame_id=1}, backend_config="b"
  %c.12 = ((f32[2]{0}), f32[2]{0}, s32[]) custom-call-start(%x.5), custom_call_target="c"
  %d.13 = f32[2]{0} custom-call-done(%c.12), frontend_attributes={k="v"}
  %y.14 = f32[2]{0} add(%d.13, %h.10), origin={{"o"}}, control-predecessors={%r.11}
  ROOT %o.15 = (f32[2]{0}, f32[2]{0}) tuple(%r.11, %y.14)
}
"""
FEED = "%i.7 = ((f32[2]{0}), token[]) infeed(%t.6)"
SUM = (
    "%r.11 = f32[2]{0} all-reduce(%x.5), channel_id=1, replica_groups=[1,2]<=[2], use_global_device_ids=true"
)
METADATA = 'metadata={op_type="t" op_name="n" stack_frame_id=1}'
START = "%c.12 = ((f32[2]{0}), f32[2]{0}, s32[])"
CALL = 'custom_call_target="c", frontend_attributes={k="v"}'
TUPLE = "ROOT %o.15 = (f32[2]{0}, f32[2]{0})"


@pytest.mark.parametrize(
    ("options", "changed"),
    [
        ({"print_large_constants": True}, [
            "%w.8 = f32[12]{0} constant({0.5, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11})",
            "%n.9 = s32[12]{0} constant({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12})",
        ]),
        ({"print_only_essential_constants": True}, [
            "%n.9 = s32[12]{0} constant({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12})",
            "%h.10 = f32[2]{0} constant({...})",
        ]),
        ({"print_subcomputations": True}, [
            f"{SUM}, to_apply=",
            "(a.2: f32[], b.3: f32[]) -> f32[] {",
            "%a.2 = f32[] parameter(0)",
            "%b.3 = f32[] parameter(1)",
            "ROOT %s.4 = f32[] add(%a.2, %b.3)",
            f'}}, {METADATA}, backend_config="b"',
            f"{START} custom-call-start(%x.5), {CALL}, calls=",
            "(async_param: f32[2]) -> f32[2] {",
            "%async_param = f32[2]{0} parameter(0)",
            f"ROOT %custom-call = f32[2]{{0}} custom-call(%async_param), {CALL}",
            "}",
        ]),
        ({"print_metadata": False}, [f'{SUM}, to_apply=%add.1, backend_config="b"']),
        ({"print_metadata_only_op_name": True},
         [f'{SUM}, to_apply=%add.1, metadata={{op_name="n"}}, backend_config="b"']),
        ({"print_backend_config": False}, [f"{SUM}, to_apply=%add.1, {METADATA}"]),
        ({"print_infeed_outfeed_config": False}, [FEED]),
        ({"print_original_value": False},
         ["%y.14 = f32[2]{0} add(%d.13, %h.10), control-predecessors={%r.11}"]),
        ({"print_control_dependencies": False}, ['%y.14 = f32[2]{0} add(%d.13, %h.10), origin={{"o"}}']),
        ({"print_frontend_attributes": False}, [
            f'{START} custom-call-start(%x.5), custom_call_target="c"',
            "%d.13 = f32[2]{0} custom-call-done(%c.12)",
        ]),
        ({"print_extra_attributes": False}, [
            FEED,
            f'%r.11 = f32[2]{{0}} all-reduce(%x.5), to_apply=%add.1, {METADATA}, backend_config="b"',
            f"{START} custom-call-start(%x.5)",
        ]),
        ({"print_full_replica_group_list": True}, [
            f"{SUM}, to_apply=%add.1, {METADATA}, backend_config=\"b\"".replace("[1,2]<=[2]", "{{0,1}}"),
        ]),
        ({"print_operand_index_annotation_interval": 1}, [
            "ROOT %s.4 = f32[] add(%a.2, /*index=1*/%b.3)",
            '%y.14 = f32[2]{0} add(%d.13, /*index=1*/%h.10), control-predecessors={%r.11}, origin={{"o"}}',
            f"{TUPLE} tuple(%r.11, /*index=1*/%y.14)",
        ]),
        ({"syntax_sugar_async_ops": False}, [
            "%async_wrapped (async_param: f32[2]) -> f32[2] {",
            "%async_param = f32[2]{0} parameter(0)",
            f"ROOT %custom-call = f32[2]{{0}} custom-call(%async_param), {CALL}",
            "}",
            "",
            f"{START} async-start(%x.5), calls=%async_wrapped",
            '%d.13 = f32[2]{0} async-done(%c.12), frontend_attributes={k="v"}',
        ]),
        ({"print_program_shape": False}, ["%add.1 {", "ENTRY %main.1 {"]),
        ({"compact_operands": True}, []),
    ],
)  # fmt: skip
def test_an_option_changes_these_lines(options: dict[str, Any], changed: list[str]) -> None:
    module = HloModule.from_text(PROGRAM)
    default = module.to_text().split("\n")
    printed = module.to_text(PrintOptions(**options)).split("\n")
    compared = difflib.ndiff(default, printed)
    assert [line[2:].strip() for line in compared if line.startswith("+ ")] == changed
