"""The extension of VS Code: its files exist, and its grammar colors HLO text."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

EXTENSION = Path(__file__).parents[2] / "editors" / "vscode"
GRAMMAR = json.loads((EXTENSION / "syntaxes" / "hlo.tmLanguage.json").read_text())
LINE = (
    "  ROOT %r.1 = f32[4,8]{1,0:T(8,128)} "
    'reduce(%x, %z), dimensions={1}, to_apply=%sum, metadata={op_name="a"}'
)


def test_files_of_the_package_exist() -> None:
    package = json.loads((EXTENSION / "package.json").read_text())
    named = [
        package["contributes"]["languages"][0]["configuration"],
        package["contributes"]["grammars"][0]["path"],
    ]
    assert all((EXTENSION / path).exists() for path in named)
    assert (EXTENSION / "src" / "extension.js").exists()  # bundled into package["main"] by `npm run build`
    json.loads((EXTENSION / "language-configuration.json").read_text())


def rules(patterns: list[Any]) -> list[Any]:
    """Return the patterns in order, with included ones in their places."""
    found: list[Any] = []
    for pattern in patterns:
        named = pattern.get("include")
        included = GRAMMAR["repository"][named[1:]] if named else pattern
        found += [included] if {"match", "begin"} & set(included) else rules(included["patterns"])
    return found


def scope(word: str) -> str:
    """Return the scope of a word of the line, by the first rule that matches at the leftmost place."""
    position, wanted = 0, LINE.index(word)
    ordered = [(re.compile(rule.get("match") or rule["begin"]), rule) for rule in rules(GRAMMAR["patterns"])]
    while True:
        found = ((pattern.search(LINE, position), rule) for pattern, rule in ordered)
        match, rule = min(((m, rule) for m, rule in found if m), key=lambda pair: pair[0].start())
        if match.start() <= wanted < match.end():
            for group, capture in rule.get("captures", {}).items():
                if match.start(int(group)) <= wanted < match.end(int(group)):
                    return capture["name"]
            return rule["name"]
        position = max(match.end(), position + 1)


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("ROOT", "keyword.control.hlo"),
        ("%r.1", "variable.other.definition.hlo"),
        ("f32", "storage.type.hlo"),
        ("[4,8]", "constant.numeric.dimensions.hlo"),
        ("{1,0:T", "comment.layout.hlo"),
        ("reduce", "entity.name.function.opcode.hlo"),
        ("%x", "variable.other.hlo"),
        ("dimensions", "variable.parameter.hlo"),
        ("%sum", "entity.name.function.hlo"),
        ('"a"', "string.quoted.double.hlo"),
    ],
)
def test_words_have_colors(word: str, expected: str) -> None:
    assert scope(word) == expected
