"""The option ``--xla-version`` of the commands that print programs."""

from __future__ import annotations

from typing import Any, Final

import click

from hloom.errors import HloError
from hloom.ir.xla_version import NEWEST, XlaVersion


class _VersionType(click.ParamType[XlaVersion]):
    """The version of a jaxlib."""

    name = "version"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> XlaVersion:
        if isinstance(value, XlaVersion):
            return value
        try:
            return XlaVersion.parse(value)
        except HloError as error:
            self.fail(error.message, param, ctx)


XLA_VERSION: Final = click.option(
    "--xla-version",
    type=_VersionType(),
    default=NEWEST,
    show_default=str(NEWEST),
    metavar="VERSION",
    help="Print text as the dumps of this version of jaxlib.",
)
