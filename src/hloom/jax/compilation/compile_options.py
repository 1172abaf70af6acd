"""Compile options of JAX: device assignment, and XLA's debug options.

``jax.jit(f, compiler_options={"xla_dump_to": "/tmp/dump"})`` passes debug options by their names in XLA's
DebugOptions (``xla/xla.proto``). ``xla_dump_*`` options write dumps; the others are type-checked and ignored,
as XLA:CPU ignores most of them.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final

from hloom.jax.devices.client import Client, ClientDevice
from hloom.jax.pjrt.errors import INVALID_ARGUMENT, PjrtError
from hloom.jax.pjrt.messages import assigned_devices
from hloom.jaxlib import private
from hloom.records import dataclass

Option = str | bool | int | float

_NAMES: Final = Path(__file__).parent / "xla_options.txt"
_BITS: Final = {"int32": 32, "int64": 64}


@dataclass(frozen=True, slots=True)
class PjrtCompileOptions:
    """The compile options of a JAX program, as far as hloom uses them.

    Attributes:
        num_replicas, num_partitions: their product is the number of devices.
        assignment: a serialized DeviceAssignmentProto; None to run on the client's first devices.
        dump_flags: XLA's ``--xla_dump_*`` options, in the syntax of ``XLA_FLAGS``.
        open_parameters: for each parameter, whether the partitioner chooses its sharding if it has none;
            empty on one device.
    """

    num_replicas: int
    num_partitions: int
    assignment: bytes | None
    dump_flags: str
    open_parameters: tuple[bool, ...]

    @staticmethod
    def parsed(options: bytes) -> PjrtCompileOptions:
        """Parse a serialized CompileOptionsProto. Raises PjrtError for unknown or mistyped options."""
        parsed = private.parse_compile_options()(options)
        build = parsed.executable_build_options
        assignment = parsed.device_assignment or build.device_assignment
        return PjrtCompileOptions(
            build.num_replicas,
            build.num_partitions,
            None if assignment is None else assignment.serialize(),
            dump_flags(compiler_options(parsed.env_option_overrides)),
            tuple(build.allow_spmd_sharding_propagation_to_parameters) if build.num_partitions > 1 else (),
        )

    def devices(self, client: Client) -> list[ClientDevice]:
        """Return the program's devices in replica-major order.

        Raises PjrtError if the device assignment is malformed or contains an unknown device id.
        """
        ids: Sequence[int] = range(self.num_replicas * self.num_partitions)
        if self.assignment is not None:
            try:
                ids = assigned_devices(self.assignment, self.num_replicas, self.num_partitions)
            except ValueError as error:
                raise PjrtError(INVALID_ARGUMENT, str(error)) from None
        if any(not 0 <= n < len(client.devices) for n in ids):
            message = f"the program runs on devices {list(ids)}, there are {len(client.devices)}"
            raise PjrtError(INVALID_ARGUMENT, message)
        return [client.devices[n] for n in ids]


def compiler_options(overrides: Sequence[tuple[str, Option]]) -> Mapping[str, Option]:
    """Return the given debug options of XLA by name, with values converted to the options' types.

    ``overrides`` are pairs of a name and a value, which may be a string. Raises PjrtError with XLA's message
    for an unknown option or a value of the wrong type.
    """
    return {name: _checked(name, value) for name, value in overrides}


def dump_flags(options: Mapping[str, Option]) -> str:
    """Return the options whose names begin with ``xla_dump_``, in the syntax of ``XLA_FLAGS``."""
    dumps = {name: value for name, value in options.items() if name.startswith("xla_dump_")}
    return shlex.join(f"--{name}={value}" for name, value in dumps.items())


@cache
def _types() -> Mapping[str, str]:
    """Return the types of all debug options of XLA, such as ``int32``, by the names of the options.

    In the type of an enum, ``enum`` is followed by the names of its values, separated by spaces.
    """
    types: dict[str, str] = {}
    kind = ""
    for line in _NAMES.read_text().splitlines():
        if line.startswith(" "):
            types.update(dict.fromkeys(line.split(), kind))
        else:
            kind = line.rstrip(":")
    return types


def _checked(name: str, value: Option) -> Option:
    kind, *values = _types().get(name, "unknown").split()
    if kind == "unknown":
        raise PjrtError(INVALID_ARGUMENT, f"No such compile option: '{name}'")
    checked = _parsed(kind, value, values) if isinstance(value, str) else _converted(kind, value, values)
    if checked is None:
        shown = int(value) if isinstance(value, bool) else value
        message = f"While setting option {name}, '{shown}' is not a valid {kind} value."
        raise PjrtError(INVALID_ARGUMENT, message)
    return checked


def _parsed(kind: str, text: str, values: Sequence[str]) -> Option | None:
    """Parse a string as a value of an option's type; return None for an invalid string.

    ``kind`` is the type; ``values`` are the names of an enum's values, empty if any name is allowed.
    """
    match kind:
        case "string":
            return text
        case "bool":
            return {"true": True, "false": False}.get(text.lower())
        case "int32" | "int64":
            return _converted(kind, int(text), ()) if re.fullmatch(r"[+-]?\d+", text) else None
        case "float":
            return float(text) if re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", text, re.I) else None
        case "enum":
            return text if text in values or not values else None
        case _:
            return None


def _converted(kind: str, value: bool | int | float, values: Sequence[str]) -> Option | None:
    """Return ``value`` if it is a value of the option's type ``kind``, else None.

    A value of an enum is an index into ``values``, the names of its values; any integer if that is empty.
    """
    match kind, value:
        case "bool", bool():
            return value
        case _, bool():
            return None
        case (("int32" | "int64"), int()):
            limit = 1 << _BITS[kind] - 1
            return value if -limit <= value < limit else None
        case "enum", int():
            return value if 0 <= value < len(values) or not values else None
        case "float", float():
            return value
        case _:
            return None
