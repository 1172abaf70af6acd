"""Notebooks: the `_repr_html_` of modules, shapes, layouts, executables and what they report."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from hloom.errors import HloError
from hloom.ir.module import HloModule
from hloom.shape.element_type import F32, U4
from hloom.shape.layout import Layout, Tile
from hloom.shape.shape import Shape
from hloom.tools.pictures.markup import markup
from hloom.tools.reports.statistics import quantity

if TYPE_CHECKING:
    from hloom.debug.tracing import Event, Trace
    from hloom.runtime.executable import Executable
    from hloom.runtime.measurements import Profile, ProgramMemory

_DRAWN: Final = 300
"""Number of instructions up to which a module is drawn."""
_LINES: Final = 60
_EXAMPLE_SIZE: Final = 2
_ROWS: Final = 50
"""Number of rows of a table."""


def html_of(value: object) -> str:
    """Return a value of a class that inherits `hloom.display.Displayed` as HTML."""
    names = (cls.__name__ for cls in type(value).__mro__)
    return next(_WRITERS[name] for name in names if name in _WRITERS)(value)


def module_html(module: HloModule) -> str:
    """Return a small program as its picture, a large one as the beginning of its text."""
    from hloom.tools.pictures.graph_scene import scene_of
    from hloom.tools.pictures.graph_svg import to_svg

    count = sum(len(computation) for computation in module.computations)
    if count <= _DRAWN:
        return f'<div style="max-height: 640px; overflow: auto">{to_svg(scene_of(module))}</div>'
    return (
        f"<b>{markup(module.name)}</b>: {count} instructions in {len(module.computations)} computations"
        f"{_pre(_beginning(module.to_text()))}"
    )


def shape_html(shape: Shape) -> str:
    """Return the explanation of a shape, and the picture of an array's layout."""
    from hloom.tools.pictures.layout_picture import layout_picture
    from hloom.tools.reports.layout import explain_layout

    text = _pre(explain_layout(str(shape)))
    if not shape.is_array or shape.is_unbounded or shape.element_count == 0:
        return text
    return text + layout_picture(shape).to_svg()


def layout_html(layout: Layout) -> str:
    """Return a layout explained by an array that it fits: two tiles in each tiled dimension, one not full."""
    rank = layout.rank
    sizes = [_EXAMPLE_SIZE] * rank
    tile = layout.tiles[0].dimensions if layout.tiles else ()
    for dimension, size in zip(layout.minor_to_major, reversed(tile), strict=False):
        if size != Tile.COMBINE:
            sizes[dimension] = size + 1
    if layout.padded_dimensions:
        sizes = list(layout.padded_dimensions)
    bits = layout.element_size_in_bits
    element_type = U4 if 0 < bits <= 4 else F32
    example = Shape.array(element_type, sizes, layout)
    return f"<div>for example</div>{shape_html(example)}"


def executable_html(executable: Executable) -> str:
    """Return the arguments, results, memory and cost of an executable, and its optimized program, folded."""
    module = executable.modules[0]
    rows = [(_code(p.name), _code(p.shape.to_string()), "argument") for p in module.entry.parameters[:_ROWS]]
    rows.append(("result", _code(module.entry.root.shape.to_string()), "result"))
    devices = executable.num_replicas * executable.num_partitions
    head = f"<b>{markup(module.name)}</b> on {_plural(devices, 'device')}"
    try:
        memory, cost, text = executable.memory, executable.cost, executable.to_hlo()
    except HloError as error:  # a backend that offers no inspection, or sizes that are not known yet
        return head + _table(("", "shape", ""), rows) + markup(str(error))
    words = f"{quantity(cost.flops, 'flop')}, {quantity(cost.transcendentals)} transcendental functions, "
    words += f"{quantity(cost.bytes, 'B')} read and written"
    program = f"<details><summary>the optimized program</summary>{_pre(_beginning(text))}</details>"
    return f"{head}: {words}{_table(('', 'shape', ''), rows)}{memory_html(memory)}{program}"


def memory_html(memory: ProgramMemory) -> str:
    """Return the parts of a program's memory, with bars."""
    parts = {"arguments": memory.argument, "results": memory.output, "temporaries": memory.temp}
    rows = [(name, quantity(size, "B"), _bar(size, memory.peak)) for name, size in parts.items()]
    return _table(("memory", "", ""), [*rows, ("together", quantity(memory.peak, "B"), "")])


def profile_html(profile: Profile) -> str:
    """Return the instructions of a profile that took the most time, with bars."""
    rows: list[tuple[str, ...]] = []
    for line in profile.lines[:_ROWS]:
        amounts = (line.flops, line.bytes)
        rates = [f"{n * line.runs / line.seconds / 1e9:.3g}" if line.seconds else "" for n in amounts]
        time = _bar(line.seconds, profile.seconds)
        rows.append((f"{1e6 * line.seconds:.1f}", time, str(line.runs), *rates, _code(line.text)))
    devices = f" on {len(profile.devices)} devices, the slowest; means of devices below" * bool(
        profile.devices
    )
    head = f"<b>{1e6 * profile.seconds:.1f} µs</b>{devices}"
    titles = ("µs", "", "runs", "GFLOP/s", "GB/s", "instruction")
    return head + _table(titles, rows, len(profile.lines))


def trace_html(trace: Trace) -> str:
    """Return the statistics of the values of a trace, and the first NaN."""
    rows = [row for event in trace.events[:_ROWS] for row in _event_rows(event)]
    first = trace.first_nan
    origin = f"<div>first NaN:</div>{_pre(str(first))}" if first is not None else ""
    titles = ("value", "shape", "min", "max", "mean", "NaN", "inf", "operation")
    return f"<b>{_plural(len(trace), 'value')}</b>{origin}{_table(titles, rows, len(trace))}"


def _event_rows(event: Event) -> list[tuple[str, ...]]:
    origin = ", ".join(part for part in (event.op_name, event.source_line) if part)
    rows: list[tuple[str, ...]] = []
    for s in event.statistics:
        numbers = ("" if x is None else f"{x:.5g}" for x in (s.minimum, s.maximum, s.mean))
        counts = (str(count) if count else "" for count in (s.nans, s.infinities))
        name = _code(f"{event.loop}%{event.instruction.name}")
        rows.append((name, _code(s.shape), *numbers, *counts, markup(origin)))
    return rows


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]], count: int = 0) -> str:
    """Return a table of cells in HTML; `count` is the number of all rows, if some are left out."""
    style = 'style="text-align: left; vertical-align: top"'
    head = "".join(f"<th {style}>{markup(title)}</th>" for title in titles)
    body = "".join(f"<tr>{''.join(f'<td {style}>{cell}</td>' for cell in row)}</tr>" for row in rows)
    note = f"<div>… and {count - _ROWS} more</div>" if count > _ROWS else ""
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div style="overflow: auto; max-height: 480px">{table}{note}</div>'


def _bar(part: float, total: float) -> str:
    width = 100 * part / total if total else 0
    style = f"width: {width:.0f}px; height: 0.8em; margin-top: 0.2em; background: #4c78a8"
    return f'<div style="width: 100px"><div style="{style}"></div></div>'


def _code(text: str) -> str:
    return f'<code style="white-space: pre">{markup(text)}</code>'


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _beginning(text: str) -> str:
    lines = text.split("\n")
    note = f"\n… {len(lines) - _LINES} more lines; hloom view shows the whole program" * (len(lines) > _LINES)
    return "\n".join(lines[:_LINES]) + note


def _pre(text: str) -> str:
    return f'<pre style="overflow: auto; margin: 4px 0 10px">{markup(text)}</pre>'


_WRITERS: Final[Mapping[str, Callable[[Any], str]]] = {
    "Executable": executable_html,
    "HloModule": module_html,
    "Layout": layout_html,
    "ProgramMemory": memory_html,
    "Profile": profile_html,
    "Shape": shape_html,
    "Trace": trace_html,
}
"""By the names of classes, because most are not loaded when a value of another is shown."""
