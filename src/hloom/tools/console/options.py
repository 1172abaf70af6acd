"""Options that several commands have: arguments of a program, tolerance, JSON, the version of XLA."""

from __future__ import annotations

from typing import Any, Final

import click

from hloom.errors import HloError
from hloom.ir.xla_version import KNOWN, NEWEST, XlaVersion
from hloom.tools.console.terminal import FILE


class _VersionType(click.ParamType[XlaVersion]):
    """A parameter type for versions of jaxlib."""

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
    help=f"Print text as the dumps of this version of jaxlib, {KNOWN}.",
)
INPUTS: Final = click.option(
    "--input", "inputs", multiple=True, type=FILE, help="A .npy or .npz file of arguments."
)
SEED: Final = click.option(
    "--random",
    "seed",
    type=click.IntRange(0),
    metavar="SEED",
    help="Draw the arguments from this seed. Default: those of a snapshot, else 0.",
)
TOLERANCE: Final = click.option(
    "--tolerance",
    default="analysis",
    show_default=True,
    metavar="HOW",
    help="analysis, exact, 4ulp, or rtol=1e-5,atol=1e-8.",
)
AS_JSON: Final = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
