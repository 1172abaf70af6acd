"""The viewer's data of stack frames."""

from __future__ import annotations

from hloom.tools.viewer.program import program_data
from tests.evaluation import parse

PROGRAM = """HloModule m

FileNames
1 "first.py"
2 "second.py"

FunctionNames
1 "outer"
2 "inner"

FileLocations
1 {file_name_id=1 function_name_id=1 line=10 end_line=10 column=1 end_column=5}
2 {file_name_id=2 function_name_id=2 line=20 end_line=20 column=1 end_column=5}

StackFrames
1 {file_location_id=1 parent_frame_id=1}
2 {file_location_id=2 parent_frame_id=2}

ENTRY e {
  x = f32[2] parameter(0), metadata={op_name="x" stack_frame_id=1}
  ROOT y = f32[2] negate(x), metadata={op_name="y" stack_frame_id=2}
}
"""


def test_frames_name_function_line_and_caller() -> None:
    frames = program_data(parse(PROGRAM))["frames"]
    assert frames == [["outer", "first.py:10", 0], ["inner", "second.py:20", 1]]
