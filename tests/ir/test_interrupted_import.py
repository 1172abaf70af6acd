"""An import that is interrupted can be tried again."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import sys

stops = int(sys.argv[1])
seen = 0

def trace(frame, event, argument):
    global seen
    if event == "call" and "/hloom/operations/" in frame.f_code.co_filename:
        seen += 1
        if seen == stops:
            sys.settrace(None)
            raise KeyboardInterrupt
    return None

sys.settrace(trace)
try:
    import hloom.operations
except KeyboardInterrupt:
    print("interrupted")
sys.settrace(None)
import hloom
text = "ENTRY e { x = f32[2] parameter(0) ROOT y = f32[2] add(x, x) }"
module = hloom.HloModule.from_text(text)
module.verify()
print(hloom.compile(module, backend="evaluator")([1, 2]).tolist())
"""


def test_the_operations_can_be_imported_after_an_interrupt() -> None:
    outputs = [
        subprocess.run(
            [sys.executable, "-c", SCRIPT, str(stops)], capture_output=True, text=True, check=True
        ).stdout.split("\n", 1)
        for stops in (2, 60, 150)
    ]
    assert [first for first, _ in outputs] == ["interrupted"] * 3
    assert {rest for _, rest in outputs} == {"[2.0, 4.0]\n"}
