"""Placements of arguments and results: attributes of StableHLO's ``main`` that HLO cannot express.

``mhlo.memory_kind`` names a memory space. ``mhlo.layout_mode`` is a minor-to-major order such as ``{0,1}``
(a column-major matrix), ``default`` (row-major), or ``auto`` (chosen by the compiler).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hloom.jax.devices.client import MEMORY_KINDS
from hloom.jax.devices.memory_layouts import canonical
from hloom.jax.pjrt.errors import INVALID_ARGUMENT, UNIMPLEMENTED, PjrtError
from hloom.jaxlib import private
from hloom.records import dataclass
from hloom.regex import regex

_MEMORY_KIND: Final = "mhlo.memory_kind"
_LAYOUT: Final = "mhlo.layout_mode"
_ORDER: Final = regex(r"\{(\d+(?:,\d+)*)?\}")


@dataclass(frozen=True, slots=True)
class Placement:
    """The memory space and layout of an argument or a result.

    Attributes:
        memory: the index of the memory space among those of the device.
        order: the minor-to-major order of the dimensions in memory; empty for row-major.
        is_auto: whether the compiler is to choose ``order``, which is empty until then.
    """

    memory: int = 0
    order: tuple[int, ...] = ()
    is_auto: bool = False


@dataclass(frozen=True, slots=True)
class Placements:
    """The memory spaces and layouts of a program's arguments and results.

    Attributes:
        arguments, results: the placement of each argument and of each result; empty if the program states
            none: then all arguments, or results, are row-major and in the default memory space.
    """

    arguments: Sequence[Placement] = ()
    results: Sequence[Placement] = ()


def placements_of(artifact: bytes) -> Placements:
    """Read the memory spaces and layouts of arguments and results from a portable artifact of StableHLO.

    Raises PjrtError for unknown memory kinds, and for layouts that are more than an order of dimensions.
    """
    if _MEMORY_KIND.encode() not in artifact and _LAYOUT.encode() not in artifact:
        return Placements()
    ir = private.ir()
    with private.make_ir_context()() as context:
        module = private.stablehlo().deserialize_portable_artifact(context, artifact)
        attributes = ir.SymbolTable(module.operation)["main"].attributes

        def stated(group: str) -> list[Placement]:
            rows = [ir.DictAttr(r) for r in ir.ArrayAttr(attributes[group])] if group in attributes else []
            texts = [
                [ir.StringAttr(row[name]).value if name in row else "" for name in (_MEMORY_KIND, _LAYOUT)]
                for row in rows
            ]
            return [Placement(_memory(kind), _order(layout), layout == "auto") for kind, layout in texts]

        return Placements(stated("arg_attrs"), stated("res_attrs"))


def _memory(kind: str) -> int:
    if kind and kind not in MEMORY_KINDS:
        message = f"devices have the memories {', '.join(MEMORY_KINDS)}, not {kind!r}"
        raise PjrtError(INVALID_ARGUMENT, message)
    return MEMORY_KINDS.index(kind) if kind else 0


def _order(layout: str) -> tuple[int, ...]:
    if layout in ("", "default", "auto"):
        return ()
    match = _ORDER.fullmatch(layout)
    if match is None:
        raise PjrtError(UNIMPLEMENTED, f"the layout {layout} is more than an order of dimensions")
    return canonical([int(digit) for digit in (match[1] or "").split(",") if digit])
