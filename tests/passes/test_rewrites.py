"""Results of each rewrite rule on its examples: `rewrites/` has both sides; ``pytest --bless`` writes it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from hloom.ir.module import HloModule
from hloom.ir.print_options import PrintOptions
from hloom.passes.rewriting import RewriteRule
from tests.evaluation import parse
from tests.passes import test_arithmetic_rules, test_contraction_rules, test_movement_rules
from tests.rule_checks import Example, rewritten

TABLES = {
    "arithmetic": test_arithmetic_rules,
    "contraction": test_contraction_rules,
    "movement": test_movement_rules,
}
FORM = PrintOptions.short_parsable().replace(include_layout_in_shapes=False)


def body(module: HloModule) -> list[str]:
    """Return the instructions of the entry computation; of its parameters only one that is the root."""
    printed = module.to_text(FORM)
    lines = printed[printed.index("\nENTRY ") :].split("\n")[2:]
    steps = [line.strip() for line in lines[: lines.index("}")] if " parameter(" not in line]
    return steps or [f"ROOT {module.entry.root.name}"]


def rewrites(rules: Mapping[str, RewriteRule], examples: Mapping[str, Sequence[Example]]) -> Iterator[str]:
    """Yield the lines of a table: of each example with its first type both sides of its rule."""
    for name, of in examples.items():
        for example in of:
            module = parse(next(iter(example.programs())))
            before = body(module)
            assert rewritten(rules[name], module)
            yield ""
            yield f"{name}: {example.parameters}"
            yield from (f"    {line}" for line in before)
            yield "  →"
            yield from (f"    {line}" for line in body(module))


@pytest.mark.parametrize("name", TABLES)
def test_rules_make_these_programs(name: str, pytestconfig: pytest.Config) -> None:
    file = Path(__file__).parent / "rewrites" / f"{name}.txt"
    found = "\n".join(rewrites(TABLES[name].RULES, TABLES[name].EXAMPLES)).lstrip("\n") + "\n"
    if pytestconfig.getoption("--bless"):
        file.write_text(found)
    assert found == file.read_text()
