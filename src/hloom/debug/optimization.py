"""Runs of compiler passes on a program, chosen by name and configured as in a backend's pipeline."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hloom.errors import HloError, expect
from hloom.ir.module import HloModule
from hloom.passes.pipeline import Pass, Pipeline
from hloom.passes.registry import created, pass_named, passes
from hloom.runtime.backend import backend_named
from hloom.runtime.executable import Executable as Executable  # registers the backends

Observer = Callable[[Pass, HloModule], None]


def optimized(
    module: HloModule,
    names: str | Sequence[str] = "",
    *,
    backend: str = "cpu",
    observe: Observer | None = None,
) -> HloModule:
    """Return a copy of a program after compiler passes; it is verified after each pass that changed it.

    Args:
        module: the program.
        names: names of passes, or of pipelines within the backend's pipeline, in the order in which they run:
            ``"expansion,cse,algsimp"``; "" for the whole pipeline.
        backend: the backend whose pipeline configures the passes.
        observe: called after each pass that changed the program, with the pass and the changed program.

    Raises HloError for an invalid program, an unknown pass or backend.
    """
    expect(module, HloModule, "an HloModule")
    steps = selected(names, backend)
    copy = module.clone()
    copy.verify()

    def after(item: Pass, program: HloModule) -> None:
        program.verify()
        if observe is not None:
            observe(item, program)

    for item in steps:
        if isinstance(item, Pipeline):
            item.run(copy, after)
        elif item.run(copy):
            after(item, copy)
    return copy


def selected(names: str | Sequence[str], backend: str = "cpu") -> list[Pass]:
    """Return the passes, or pipelines within a backend's pipeline, with the given names, in this order.

    ``names`` is a list or a text with commas; without names, the backend's whole pipeline is returned. A pass
    that the pipeline does not contain has default options. Raises HloError for an unknown name.
    """
    pipeline = backend_named(backend).pipeline()
    split = names.split(",") if isinstance(names, str) else list(names)
    stripped = [name.strip() for name in split if name.strip()]
    if not stripped:
        return [pipeline]
    parts = {part.title: part for part in (pipeline, *pipeline.passes) if isinstance(part, Pipeline)}
    configured = {type(item): item for item in pipeline.flat()}
    passes_selected: list[Pass] = []
    for name in stripped:
        if name in parts:
            passes_selected.append(parts[name])
            continue
        cls = _class_named(name, parts)
        passes_selected.append(configured[cls] if cls in configured else created(cls))
    return passes_selected


def _class_named(name: str, parts: dict[str, Pipeline]) -> type[Pass]:
    """Return the class of the pass named ``name``.

    Raises HloError for an unknown name, with a message that also lists the names of ``parts``, the pipelines
    within the backend's pipeline.
    """
    try:
        return pass_named(name)
    except HloError as error:
        error.message += f"; parts of the pipeline are {', '.join(parts)}"
        raise


def listing(backend: str = "cpu") -> str:
    """Return a text that lists the passes of a backend's pipeline, indented, then all other passes."""
    pipeline = backend_named(backend).pipeline()
    lines: list[str] = []
    _list(pipeline, 0, lines)
    used = {item.name for item in pipeline.flat()}
    others = [name for name in sorted(passes()) if name not in used]
    return "\n".join([*lines, *(["other passes", *(f"  {name}" for name in others)] if others else [])])


def _list(pipeline: Pipeline, depth: int, lines: list[str]) -> None:
    stable = ", until nothing changes" if pipeline.until_stable else ""
    lines.append("  " * depth + pipeline.title + stable)
    for item in pipeline.passes:
        if isinstance(item, Pipeline):
            _list(item, depth + 1, lines)
        else:
            lines.append("  " * (depth + 1) + item.name)
