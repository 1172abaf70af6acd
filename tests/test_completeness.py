"""Nothing is left out: opcodes are declared, with shape rules and values; every rule is broken by a test."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import hloom.operations  # noqa: F401
from hloom.ir.operation import REGISTRY, Operation
from hloom.tools.op_example import example_of
from rule_names import UNREACHABLE, rules

TESTS = Path(__file__).parent

# The names of jaxlib's HloOpcode whose text is not just their words with dashes.
IRREGULAR = {
    "Clz": "count-leading-zeros",
    "Cos": "cosine",
    "Exp": "exponential",
    "Expm1": "exponential-minus-one",
    "Log1p": "log-plus-one",
    "OptimizationBarrier": "opt-barrier",
    "PopulationCount": "popcnt",
    "Sin": "sine",
    "TopK": "topk",
}


def opcodes_of_jaxlib() -> list[str]:
    hlo = pytest.importorskip("jaxlib._hlo")
    names = [name[1:] for name in hlo.HloOpcode.__members__]
    words = (re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name).lower() for name in names)
    return [IRREGULAR.get(name, word) for name, word in zip(names, words, strict=True)]


# -- operations


def test_every_opcode_of_xla_is_declared() -> None:
    opcodes = opcodes_of_jaxlib()
    assert len(opcodes) == 133
    assert sorted(REGISTRY) == sorted(opcodes)


@pytest.mark.parametrize("opcode", sorted(REGISTRY))
def test_every_operation_has_a_shape_rule_and_a_value(opcode: str) -> None:
    cls = REGISTRY[opcode]
    assert cls.evaluate is not Operation.evaluate
    assert (cls.infer if cls.infers else cls.check) not in (Operation.infer, Operation.check)
    assert cls.__doc__


@pytest.mark.parametrize("opcode", sorted(REGISTRY))
def test_every_operation_has_an_example(opcode: str) -> None:
    example = example_of(opcode)
    assert example is not None
    assert opcode in {i.opcode for i in example.module().instructions()}


# -- rules


@cache
def asserted() -> list[tuple[frozenset[str], tuple[re.Pattern[str], ...]]]:
    """For every test file the texts in it, and the patterns of its f-strings."""
    found: list[tuple[frozenset[str], tuple[re.Pattern[str], ...]]] = []
    for path in sorted(TESTS.rglob("*.py")):
        tree = ast.parse(path.read_text())
        nodes = list(ast.walk(tree))
        plain = (n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str))
        texts = frozenset(text.replace("\\.", ".") for text in plain)
        patterns = tuple(_pattern(n) for n in nodes if isinstance(n, ast.JoinedStr))
        found.append((texts, patterns))
    for path in sorted(TESTS.rglob("*.hlo")):
        words = re.findall(r"(?:EXPECT-ERROR:|raises) ([\w.\-]+)", path.read_text())
        found.append((frozenset(words), ()))
    return found


def _pattern(node: ast.JoinedStr) -> re.Pattern[str]:
    parts = (re.escape(v.value) if isinstance(v, ast.Constant) else "(.+)" for v in node.values)  # type: ignore[arg-type]
    return re.compile("".join(parts))


def is_asserted(rule: str) -> bool:
    """Whether some test names the rule, in full or put together from texts of the same file."""
    for texts, patterns in asserted():
        if rule in texts:
            return True
        for pattern in patterns:
            match = pattern.fullmatch(rule)
            if match and match.groups() and all(_known(group, texts) for group in match.groups()):
                return True
    return False


def _known(text: str, texts: frozenset[str]) -> bool:
    return text in texts or text in REGISTRY or any(text in t.split() for t in texts if len(t) < 400)


def missing() -> Iterator[str]:
    for rule, where in sorted(rules().items()):
        if rule not in UNREACHABLE and not is_asserted(rule):
            yield f"{rule} ({where})"


def test_every_rule_is_broken_by_a_test() -> None:
    left = list(missing())
    assert not left, f"{len(left)} rules without a negative test:\n" + "\n".join(left)


def test_rules_are_named_by_room_or_opcode_and_by_what_holds() -> None:
    odd = [rule for rule in rules() if not re.fullmatch(r"[a-z0-9\-]+\.[a-z0-9_\-]+", rule)]
    assert not odd
