"""Formatting: print the program of a text with hloom's printer and the text's names.

The printer drops comments, so a text with comments is refused. Large constants are printed in full; ``%``
before names and layouts of shapes are printed if the text has them.
"""

from __future__ import annotations

import re
from typing import Final

from hloom.errors import HloError, broken
from hloom.ir.module import HloModule
from hloom.ir.print_options import PrintOptions
from hloom.regex import regex
from hloom.tools.language_server.analysis import Analysis
from hloom.tools.language_server.source import Source

_COMMENT: Final = regex(r'"(?:[^"\\]|\\.)*+"|(?P<comment>/\*(?!index=\d+\*/)|//)')
_PERCENT: Final = regex(r"^\s*+(?:ROOT\s++)?+%", re.M)
_LAYOUT: Final = regex(r"[ \t]=[ \t]+\(*+[a-z0-9]++\[[^\]\n]*+\]\{[0-9]")
_MEANING: Final = PrintOptions.canonical().replace(
    print_large_constants=True,
    print_metadata=True,
    print_backend_config=True,
    print_control_dependencies=True,
)
"""Print options whose text states everything except names and the order of computations."""


def formatted(text: str) -> str:
    """Format a text.

    Raises HloError with the rules ``format.comments``, ``format.valid`` (the text has errors) and
    ``format.exact`` (the result would be another program).
    """
    comment = next((token for token in _COMMENT.finditer(text) if token["comment"]), None)
    if comment is not None:
        line = text.count("\n", 0, comment.start()) + 1
        raise broken("format.comments", f"line {line} has a comment, which formatting would remove")
    analysis = Analysis(Source(text))
    if not analysis.is_valid or analysis.module is None:
        first = analysis.problems[0].message if analysis.problems else "the text has no program"
        raise broken("format.valid", f"only valid programs are formatted: {first}")
    module = analysis.module
    meaning = module.to_text(_MEANING)
    for scope in analysis.scopes:
        for instruction in scope.instructions:
            instruction.name = analysis.name_of(instruction)
    options = PrintOptions(
        print_large_constants=True,
        print_percent=_PERCENT.search(text) is not None,
        include_layout_in_shapes=_LAYOUT.search(text) is not None,
    )
    for choice in (options, options.replace(include_layout_in_shapes=True)):
        result = module.to_text(choice).rstrip("\n") + "\n"
        if _means(result, meaning):
            return result
    raise broken("format.exact", "the printed program would differ from the text")


def _means(text: str, meaning: str) -> bool:
    """Return whether a text parses to the program that prints as ``meaning``."""
    try:
        return HloModule.from_text(text).to_text(_MEANING) == meaning
    except HloError:
        return False
