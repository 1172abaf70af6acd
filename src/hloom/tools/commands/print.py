"""`hloom print`: print a program in one of its formats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from hloom.errors import HloError
from hloom.files import encoded
from hloom.ir.module import HloModule
from hloom.ir.print_options import PrintOptions
from hloom.ir.xla_version import XlaVersion
from hloom.stablehlo import to_stablehlo

_SUFFIXES: Final = {"proto": ".pb", "pbtxt": ".pbtxt", "json": ".json"}
DIVIDER: Final = b"// -----\n\n"
"""Separator of several programs in a text."""


def all_printed(
    modules: Sequence[HloModule], form: str, version: XlaVersion, switches: Mapping[str, bool]
) -> bytes:
    """Print several programs in a format. Raises HloError if the format holds only one program."""
    if len(modules) > 1 and form in (*_SUFFIXES, "stablehlo"):
        message = f"a {form} holds one program, the file has {len(modules)}"
        raise HloError(message, rule="print.one-program")
    return DIVIDER.join(printed(module, form, version, switches) for module in modules)


def printed(module: HloModule, form: str, version: XlaVersion, switches: Mapping[str, bool]) -> bytes:
    """Print a program in a format of `hloom print --format`.

    `switches` are the flags of the command line by name. They and the version affect only HLO text.
    """
    if form in _SUFFIXES:
        return encoded(module, _SUFFIXES[form])
    if form == "stablehlo":
        return to_stablehlo(module).encode()
    options = {
        "text": PrintOptions,
        "short": PrintOptions.short_parsable,
        "canonical": PrintOptions.canonical,
        "fingerprint": PrintOptions.fingerprint,
    }[form]()
    compact = form in ("text", "short") and PrintOptions.dump(version).compact_gte
    changes: dict[str, object] = {"xla_version": version, "compact_gte": compact}
    for switch, option, value in (
        ("large_constants", "print_large_constants", True),
        ("no_metadata", "print_metadata", False),
        ("no_backend_config", "print_backend_config", False),
        ("no_layouts", "include_layout_in_shapes", False),
        ("no_percent", "print_percent", False),
        ("operand_shapes", "print_operand_shape", True),
    ):
        if switches.get(switch):
            changes[option] = value
    text = module.to_text(options.replace(**changes))
    return (text if text.endswith("\n") else text + "\n").encode("utf-8", "surrogateescape")
