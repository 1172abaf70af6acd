"""`hloom print`: a program in one of its forms."""

from __future__ import annotations

from collections.abc import Mapping

from hloom.files import encoded
from hloom.ir.module import HloModule
from hloom.text.options import PrintOptions


def printed(module: HloModule, form: str, switches: Mapping[str, bool]) -> bytes:
    """The bytes of a form: text, short, canonical, fingerprint, proto or pbtxt.

    `switches` are those of the command line, by their names; the ones for text leave protos as they are.
    """
    if form in ("proto", "pbtxt"):
        return encoded(module, ".pb" if form == "proto" else ".pbtxt")
    options = {
        "text": PrintOptions,
        "short": PrintOptions.short_parsable,
        "canonical": PrintOptions.canonical,
        "fingerprint": PrintOptions.fingerprint,
    }[form]()
    changes: dict[str, bool] = {}
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
    text = module.to_text(options.replace(**changes) if changes else options)
    return (text.rstrip("\n") + "\n").encode("utf-8", "surrogateescape")
