"""Lowerings for the platform ``hloom``: JAX's own for cpu, whose custom calls hloom implements."""

from __future__ import annotations

from importlib import import_module
from typing import Any, ClassVar, Final

_HOMES: Final = (
    "jax._src.lax.linalg", "jax._src.debugging", "jax._src.callback", "jax._src.checkify", "jax._src.lax.lax",
    "jax._src.buffer_callback",
)  # fmt: skip
"""Modules that register lowerings for cpu."""
_CALLBACKS: Final = ("pure_callback", "io_callback", "buffer_callback")
"""Primitives whose only lowering asks for the platform."""


def install(platform: str) -> None:
    """Register JAX's lowerings for cpu under another platform's name, and allow donation there."""
    for home in _HOMES:
        import_module(home)
    mlir: Any = import_module("jax._src.interpreters.mlir")
    if platform not in mlir._platforms_with_donation:
        mlir._platforms_with_donation.append(platform)
    registered = mlir._platform_specific_lowerings
    for primitive, entry in list(registered["cpu"].items()):
        if primitive not in registered[platform]:
            rule = _as_cpu(entry.rule, platform)
            mlir.register_lowering(primitive, rule, platform=platform, inline=entry.inline)
    for primitive, entry in list(mlir._lowerings.items()):
        if primitive.name in _CALLBACKS:
            rule = _as_cpu(entry.rule, platform)
            mlir.register_lowering(primitive, rule, platform=platform, inline=entry.inline)


class _CpuLike:
    """A proxy of a client that gives ``cpu`` as its platform."""

    _made: ClassVar[dict[int, _CpuLike]] = {}
    platform = "cpu"

    def __init__(self, client: Any) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    @staticmethod
    def of(client: Any) -> _CpuLike:
        """Return the proxy of a client."""
        return _CpuLike._made.setdefault(id(client), _CpuLike(client))


def _as_cpu(rule: Any, platform: str) -> Any:
    """Return a rule that lowers for cpu where JAX passes a platform."""

    def lower(context: Any, *arguments: Any, **parameters: Any) -> Any:
        module = context.module_context
        if tuple(module.platforms) != (platform,):
            return rule(context, *arguments, **parameters)
        platforms = ("cpu",) if context.platforms else context.platforms
        inner_module = module.replace(platforms=("cpu",), backend=_CpuLike.of(module.get_backend()))
        inner = context.replace(module_context=inner_module, platforms=platforms)
        results = rule(inner, *arguments, **parameters)
        if inner.tokens_out is not None:
            context.set_tokens_out(inner.tokens_out)
        return results

    return lower
