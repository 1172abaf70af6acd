"""Where arguments and results of a module lie: attributes of StableHLO's ``main`` that HLO does not have.

``mhlo.memory_kind`` names one of a device's memories.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any, Final

from hloom.jax.client import MEMORY_KINDS
from hloom.jax.errors import INVALID_ARGUMENT, PjrtError

_MEMORY_KIND: Final = "mhlo.memory_kind"


def result_memories(artifact: bytes, count: int) -> Sequence[int]:
    """Return the numbers of the memories of the results of a portable artifact of StableHLO.

    Raises PjrtError for a memory kind that devices have not.
    """
    kinds = _attributes(artifact, "res_attrs", _MEMORY_KIND) if _MEMORY_KIND.encode() in artifact else ()
    for kind in kinds:
        if kind and kind not in MEMORY_KINDS:
            message = f"devices have the memories {', '.join(MEMORY_KINDS)}, not {kind!r}"
            raise PjrtError(INVALID_ARGUMENT, message)
    return [MEMORY_KINDS.index(kind) if kind else 0 for kind in kinds] or [0] * count


def _attributes(artifact: bytes, group: str, name: str) -> list[str]:
    """Return a text attribute of the arguments or results of ``main``, empty where there is none."""
    ir: Any = import_module("jaxlib.mlir.ir")
    stablehlo: Any = import_module("jaxlib.mlir.dialects.stablehlo")
    with import_module("jax._src.interpreters.mlir").make_ir_context() as context:
        module = stablehlo.deserialize_portable_artifact(context, artifact)
        symbols = ir.SymbolTable(module.operation)
        attributes = symbols["main"].attributes
        if group not in attributes:
            return []
        rows = [ir.DictAttr(row) for row in ir.ArrayAttr(attributes[group])]
        return [ir.StringAttr(row[name]).value if name in row else "" for row in rows]
