"""XLA's dump flags in ``XLA_FLAGS``.

Other flags of XLA are ignored; dump flags that hloom does not support are named in a warning.
"""

from __future__ import annotations

import re
import shlex
import warnings
from dataclasses import fields, replace
from pathlib import Path
from typing import Final, TypeAlias

from hloom.errors import HloError
from hloom.records import dataclass

STANDARD_OUTPUT: Final = "-"
Flag: TypeAlias = bool | int | str
"""The value of a flag."""
_YES: Final = ("true", "t", "yes", "1")
_NO: Final = ("false", "f", "no", "0")


@dataclass(frozen=True, slots=True)
class DumpOptions:
    """The values of XLA's dump flags; each attribute is named as its flag without the prefix ``xla_``.

    Attributes:
        dump_to: a directory; ``-`` is the standard output.
        dump_hlo_as_text, dump_hlo_as_proto: the formats in which modules are written; text if none is chosen.
        dump_hlo_as_long_text: print text as XLA does by default, not in the short form.
        dump_hlo_snapshots: write the arguments and results of every run.
        dump_hlo_module_re, dump_hlo_pass_re, dump_hlo_pipeline_re: regular expressions, searched in the names
            of the modules, passes and pipelines to dump.
        dump_include_timestamp: prefix file names with the microseconds since 1970.
        dump_max_hlo_modules: maximum number of modules dumped; no limit if negative.
        dump_compress_protos: compress protos by gzip.
        dump_disable_metadata: omit metadata from text.
        dump_large_constants: print large constants in full.
    """

    dump_to: str = ""
    dump_hlo_as_text: bool = False
    dump_hlo_as_proto: bool = False
    dump_hlo_as_long_text: bool = True
    dump_hlo_snapshots: bool = False
    dump_hlo_module_re: str = ""
    dump_hlo_pass_re: str = ""
    dump_hlo_pipeline_re: str = ""
    dump_include_timestamp: bool = False
    dump_max_hlo_modules: int = -1
    dump_compress_protos: bool = False
    dump_disable_metadata: bool = False
    dump_large_constants: bool = False

    @property
    def directory(self) -> str:
        """Return the directory for dump files: ``-`` for standard output, empty if nothing is dumped."""
        forms = self.dump_hlo_as_text or self.dump_hlo_as_proto or self.dump_hlo_snapshots
        return self.dump_to or (STANDARD_OUTPUT if forms else "")

    @property
    def as_text(self) -> bool:
        """Return whether the flags ask for modules as text, which is the default."""
        return self.dump_hlo_as_text or not (self.dump_hlo_as_proto or self.dump_hlo_snapshots)

    def wants_pass(self, pipeline: str, after: str, before: str) -> bool:
        """Return whether the flags ask for the module between two passes, after the first has changed it.

        The passes are named ``after`` and ``before``; ``pipeline`` is the title of the pipeline of both.
        """
        if not self.dump_hlo_pass_re and not self.dump_hlo_pipeline_re:
            return False
        of_pass = any(re.search(self.dump_hlo_pass_re, name) for name in (after, before))
        return of_pass and re.search(self.dump_hlo_pipeline_re, pipeline) is not None

    def text_form(self) -> str:
        """Return the dump flags that differ from their defaults as text, ``name: value`` on each line."""
        lines: list[str] = []
        for item in fields(self):
            value: Flag = getattr(self, item.name)
            if value != item.default:
                quoted = f'"{value}"' if isinstance(value, str) else str(value).lower()
                lines.append(f"xla_{item.name}: {quoted}\n")
        return "".join(lines)


def dump_options(flags: str, more: str = "") -> DumpOptions:
    """Parse the dump flags in the value of ``XLA_FLAGS``, or in the file that it names, and in ``more``.

    Flags in ``more`` override those in ``flags``. Flags that are not about dumps are ignored; unsupported
    dump flags cause a warning. Raises HloError for a malformed value (rule ``dump.flag-value``) and for an
    unreadable file (``dump.flags-file``).
    """
    if flags.strip() and not flags.lstrip().startswith("-"):
        try:
            flags = Path(flags.strip()).read_text()
        except OSError as error:
            message = f"XLA_FLAGS names the file {flags.strip()!r}: {error.strerror}"
            raise HloError(message, rule="dump.flags-file") from None
    options = {f"--xla_{item.name}": item for item in fields(DumpOptions)}
    defaults = DumpOptions()
    values: dict[str, Flag] = {}
    ignored: list[str] = []
    for word in shlex.split(flags) + shlex.split(more):
        name, has_value, value = word.partition("=")
        item = options.get(name)
        if item is not None:
            default: Flag = getattr(defaults, item.name)
            values[item.name] = _parsed(name, default, value if has_value else None)
        elif name.startswith("--xla_dump_"):
            ignored.append(name)
    if ignored:
        message = f"hloom does not follow {', '.join(dict.fromkeys(ignored))}"
        warnings.warn(message, RuntimeWarning, stacklevel=2)
    return replace(defaults, **values)


def _parsed(name: str, default: Flag, value: str | None) -> Flag:
    """Return the value of the flag ``name``, parsed as the type of its default: bool, int or str.

    ``value``: the text after ``=``; None for a flag without ``=``, which is true if it is a bool and
    malformed otherwise. Raises HloError (rule ``dump.flag-value``) for a malformed value.
    """
    if isinstance(default, bool):
        word = (value or "true").lower()
        if word in _YES or word in _NO:
            return word in _YES
        expected = "true or false"
    elif isinstance(default, int):
        if value is not None and re.fullmatch(r"-?\d+", value):
            return int(value)
        expected = "a number"
    else:
        if value is not None:
            if name.endswith("_re"):
                _check_expression(name, value)
            return value
        expected = "a value"
    raise HloError(f"{name} is {expected}, got {value!r}", rule="dump.flag-value")


def _check_expression(name: str, value: str) -> None:
    try:
        re.compile(value)
    except re.error as error:
        message = f"{name} is {value!r}, no regular expression: {error}"
        raise HloError(message, rule="dump.flag-value") from None
