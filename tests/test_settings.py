"""The typed reader of JSON objects: every kind of field, given as wanted and otherwise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hloom.errors import HloError
from hloom.settings import Settings
from tests import agreement


def refuse(what: str) -> HloError:
    return HloError(what, rule="test.settings")


def read(text: str) -> Settings:
    return Settings.parse(text, refuse)


def test_fields_have_their_types_and_the_defaults_of_proto3() -> None:
    settings = read('{"a": 1.5, "b": "4", "c": "X", "d": true, "e": [1, "2"], "f": ["x"], "g": {"h": "NaN"}}')
    agreement.same(settings.number("a"), 1.5)
    assert settings.integer("b") == 4 and settings.number("b") == 4.0
    assert settings.word("c") == "X" and settings.flag("d")
    assert settings.integers("e") == (1, 2) and settings.words("f") == ("x",)
    assert settings.message("g").number("h") != settings.message("g").number("h")
    assert (settings.number("z"), settings.integer("z", 7), settings.word("z", "w")) == (0.0, 7, "w")
    assert not settings.flag("z") and settings.integers("z") == settings.words("z") == ()
    assert not settings.message("z").fields


@pytest.mark.parametrize(
    ("text", "use", "message"),
    [
        ("{", lambda s: s, "it is not JSON: Expecting property name enclosed in double quotes"),
        ("[1]", lambda s: s, "it is [1], wanted is a JSON object"),
        ('{"a": true}', lambda s: s.number("a"), "a is True, wanted is a number"),
        ('{"a": "x"}', lambda s: s.number("a"), "a is 'x', wanted is a number"),
        ('{"a": null}', lambda s: s.integer("a"), "a is None, wanted is an integer"),
        ('{"a": 1.5}', lambda s: s.integer("a"), "a is 1.5, wanted is an integer"),
        ('{"a": 1}', lambda s: s.word("a"), "a is 1, wanted is a string"),
        ('{"a": 1}', lambda s: s.flag("a"), "a is 1, wanted is true or false"),
        ('{"a": [1, []]}', lambda s: s.integers("a"), "a is [1, []], wanted is a list of integers"),
        ('{"a": 3}', lambda s: s.words("a"), "a is 3, wanted is a list of strings"),
        ('{"a": {"b": 3}}', lambda s: s.message("a").message("b"), "a.b is 3, wanted is an object"),
        ('{"a": 3}', lambda s: s.require("a", "b"), "b is missing"),
        (f'{{"a": "{"x" * 99}"}}', lambda s: s.flag("a"), f"a is '{'x' * 56}..., wanted is true or false"),
    ],
)
def test_an_error_names_the_field_what_it_is_and_what_is_wanted(
    text: str, use: Callable[[Settings], Any], message: str
) -> None:
    with pytest.raises(HloError) as caught:
        use(read(text))
    assert caught.value.rule == "test.settings" and caught.value.message.startswith(message)
