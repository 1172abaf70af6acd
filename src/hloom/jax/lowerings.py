"""JAX's lowerings for hloom: those for cpu, whose custom calls it implements, and composites of functions."""

from __future__ import annotations

from typing import Any, ClassVar

from hloom.jaxlib import private


def install(platform: str) -> None:
    """Register JAX's lowering rules for cpu as rules for ``platform``, and enable buffer donation on it.

    Rules that ``platform`` has already are kept, except those of Python callbacks, which are replaced.
    """
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


def install_composites(platform: str) -> None:
    """Register rules that lower functions absent from StableHLO, such as erfc, to ``stablehlo.composite``.

    JAX's own rules emit operations of CHLO, which jaxlib decomposes into arithmetic before a plug-in gets the
    program. A composite keeps the function's name, so that hloom can compile it as one operation.
    """
    for name, primitive in private.COMPOSITE_PRIMITIVES.items():
        rule = private.lowerings()[primitive()].rule
        private.register_lowering()(primitive(), _as_composite(rule, name), platform=platform)


def _as_composite(rule: Any, name: str) -> Any:
    """Return a lowering rule that emits a ``stablehlo.composite`` called ``name``.

    Its decomposition is what ``rule`` emits, JAX's rule for a function of one array, such as erfc. If a call
    states a mode of accuracy, or if the array has a dynamic shape, the new rule only calls ``rule``.
    """

    def lower(context: Any, x: Any, **parameters: Any) -> Any:
        ir, functions = private.ir(), private.functions()
        asks_for_more = any(value is not None for value in parameters.values())  # a mode of accuracy
        if asks_for_more or not x.type.has_static_shape:
            return rule(context, x, **parameters)
        module = context.module_context
        with ir.InsertionPoint.at_block_begin(module.module.body):
            decomposition = functions.FuncOp(
                name, ir.FunctionType.get([x.type], [x.type]), visibility="private"
            )
        module.symbol_table.insert(decomposition)
        with ir.InsertionPoint(decomposition.add_entry_block()):
            functions.ReturnOp(rule(context, decomposition.arguments[0], **parameters))
        composite = private.stablehlo().CompositeOp(
            [x.type], [x], name=name, decomposition=ir.FlatSymbolRefAttr.get(decomposition.name.value)
        )
        return composite.results

    return lower


class _CpuLike:
    """A proxy of a JAX client that reports the platform ``cpu`` and forwards all other attributes.

    With it JAX's lowering rules for cpu, some of which ask for the client's platform, lower for hloom.
    """

    _proxies: ClassVar[dict[int, _CpuLike]] = {}
    platform = "cpu"

    def __init__(self, client: object) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    @staticmethod
    def of(client: object) -> _CpuLike:
        """Return the proxy of ``client``; every call with the same client returns the same proxy."""
        return _CpuLike._proxies.setdefault(id(client), _CpuLike(client))


def _as_cpu(rule: Any, platform: str) -> Any:
    """Return a lowering rule that calls ``rule``, one of JAX's rules for cpu, as if JAX lowered for cpu.

    If JAX lowers for other platforms than ``platform`` too, it calls ``rule`` with the unchanged context.
    """

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
