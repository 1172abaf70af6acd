"""The rules by which some code of hloom can refuse, and where each is named."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import hloom.operations  # noqa: F401
from hloom.ir.operation import REGISTRY
from hloom.tools.rules import named_in_source, rules_of

SOURCE = Path(__file__).parents[1] / "src" / "hloom"

# Rules of functions that several operations share, which one of them cannot break.
UNREACHABLE = {
    "concatenate.dimensions-unique": "one dimension is never the same twice",
    "complex.same-element-type": "it takes f32 and f64 only, which may be mixed",
    **dict.fromkeys(
        (
            f"{opcode}.element-type"
            for opcode in (
                "add", "bitcast", "bitcast-convert", "clamp", "compare", "convert", "maximum", "minimum",
                "multiply", "select",
            )
        ),
        "every element type of arrays is accepted",
    ),
}  # fmt: skip


@cache
def rules() -> dict[str, str]:
    """Every rule that some code can refuse by, and where it is named."""
    found: dict[str, str] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        for name, line in named_in_source(path):
            found.setdefault(name, f"{path.relative_to(SOURCE)}:{line}")
    for opcode in REGISTRY:
        for rule in rules_of(opcode):
            found.setdefault(rule.name, f"{opcode}, {rule.where}")
    return found
