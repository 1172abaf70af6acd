"""The rules that code of hloom can raise, and the positions that name each."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import hloom.operations  # noqa: F401
from hloom.ir.operation import REGISTRY
from hloom.tools.pages.rules import named_in_source, rules_of

SOURCE = Path(__file__).parents[1] / "src" / "hloom"

# Rules of functions shared by several operations, some of which cannot break them.
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
    """Return every rule that some code can raise, and where it is named."""
    found: dict[str, str] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        for name, line in named_in_source(path):
            found.setdefault(name, f"{path.relative_to(SOURCE)}:{line}")
    return found | {name: where for name, where in rules_of_operations().items() if name not in found}


@cache
def rules_of_operations() -> dict[str, str]:
    """Return the rules that methods of operations can raise, and the methods."""
    found: dict[str, str] = {}
    for opcode in REGISTRY:
        for rule in rules_of(opcode):
            found.setdefault(rule.name, f"{opcode}, {rule.where}")
    return found
