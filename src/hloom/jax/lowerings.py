"""JAX's lowerings for the platform ``hloom``: those for cpu, whose custom calls hloom implements."""

from __future__ import annotations

from typing import Any, ClassVar

from hloom.jaxlib import private


def install(platform: str) -> None:
    """Register JAX's cpu lowerings for another platform, and enable buffer donation on it."""
    for home in private.HOMES_OF_LOWERINGS:
        home()
    if platform not in private.platforms_with_donation():
        private.platforms_with_donation().append(platform)
    registered = private.platform_lowerings()
    rules = {p: entry for p, entry in registered["cpu"].items() if p not in registered[platform]}
    callbacks = [primitive() for primitive in private.CALLBACK_PRIMITIVES]
    rules |= {primitive: private.lowerings()[primitive] for primitive in callbacks}
    for primitive, entry in rules.items():
        rule = _as_cpu(entry.rule, platform)
        private.register_lowering()(primitive, rule, platform=platform, inline=entry.inline)


class _CpuLike:
    """A proxy of a client that reports the platform ``cpu``."""

    _proxies: ClassVar[dict[int, _CpuLike]] = {}
    platform = "cpu"

    def __init__(self, client: object) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    @staticmethod
    def of(client: object) -> _CpuLike:
        """Return the proxy of a client; every call for the same client returns the same object."""
        return _CpuLike._proxies.setdefault(id(client), _CpuLike(client))


def _as_cpu(rule: Any, platform: str) -> Any:
    """Wrap a lowering rule so that it sees the platform ``cpu`` when JAX lowers for ``platform`` alone."""

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
