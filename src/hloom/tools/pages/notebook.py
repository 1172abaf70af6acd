"""Notebooks: the `_repr_html_` of modules, shapes, layouts, executables, profiles and traces."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from hloom.errors import HloError, plural
from hloom.ir.module import HloModule
from hloom.shape.element_type import F32, U4
from hloom.shape.layout import Layout, Tile
from hloom.shape.shape import Shape
from hloom.tools.pictures.markup import markup
from hloom.tools.reports.amounts import quantity
from hloom.tools.reports.statistics import cost_words

if TYPE_CHECKING:
    from hloom.debug.tracing import Event, Trace
    from hloom.runtime.executable import Executable
    from hloom.runtime.measurements import Profile, ProgramMemory

_DRAWN: Final = 300
"""Limit of instructions for drawing a module."""
_LINES: Final = 60
"""Limit of the lines of a text."""
_EXAMPLE_SIZE: Final = 2
_ROWS: Final = 50
"""Limit of the rows of a table."""


def html_of(value: object) -> str:
    """Return the HTML of an instance of a `hloom.display.Displayed` class."""
    names = (cls.__name__ for cls in type(value).__mro__)
    return next(_WRITERS[name] for name in names if name in _WRITERS)(value)


def module_html(module: HloModule) -> str:
    """Return the picture of a small program, or the beginning of the text of a large one."""
    from hloom.tools.pictures.graph_marks import scene_picture
    from hloom.tools.pictures.graph_scene import scene_of

    count = sum(len(computation) for computation in module.computations)
    if count <= _DRAWN:
        return (
            f'<div style="max-height: 640px; overflow: auto">{scene_picture(scene_of(module)).to_svg()}</div>'
        )
    return (
        f"<b>{markup(module.name)}</b>: {plural(count, 'instruction')} in "
        f"{plural(len(module.computations), 'computation')}"
        f"{_pre(_beginning(module.to_text()))}"
    )


def shape_html(shape: Shape) -> str:
    """Return the explanation of a shape, with a picture of its layout if it is an array."""
    from hloom.tools.pictures.layout_picture import layout_picture
    from hloom.tools.reports.layout import explain_layout

    text = _pre(explain_layout(str(shape)))
    if not shape.is_array or shape.is_unbounded or shape.element_count == 0:
        return text
    return text + layout_picture(shape).to_svg()


def layout_html(layout: Layout) -> str:
    """Return the HTML of an example array with the layout: in each tiled dimension a tile and one element."""
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
    """Return the arguments, results, memory and cost of an executable, and its optimized program."""
    module = executable.modules[0]
    rows = [(_code(p.name), _code(p.shape.to_string()), "argument") for p in module.entry.parameters[:_ROWS]]
    rows.append(("result", _code(module.entry.root.shape.to_string()), "result"))
    devices = executable.num_replicas * executable.num_partitions
    head = f"<b>{markup(module.name)}</b> on {plural(devices, 'device')}"
    try:
        memory, cost, text = executable.memory, executable.cost, executable.to_hlo()
    except HloError as error:  # a backend without inspection, or unknown sizes
        return head + _table(("", "shape", ""), rows) + markup(str(error))
    program = f"<details><summary>the optimized program</summary>{_pre(_beginning(text))}</details>"
    return f"{head}: {cost_words(cost)}{_table(('', 'shape', ''), rows)}{memory_html(memory)}{program}"


def memory_html(memory: ProgramMemory) -> str:
    """Return a table of a program's memory by purpose, with bars."""
    parts = {"arguments": memory.argument, "results": memory.output, "temporaries": memory.temp}
    rows = [(name, quantity(size, "B"), _bar(size, memory.peak)) for name, size in parts.items()]
    return _table(("memory", "", ""), [*rows, ("together", quantity(memory.peak, "B"), "")])


def profile_html(profile: Profile) -> str:
    """Return a table of the instructions that took the most time, with bars."""
    rows: list[tuple[str, ...]] = []
    for line in profile.lines[:_ROWS]:
        amounts = (line.flops, line.bytes)
        rates = [f"{n * line.runs / line.seconds / 1e9:.3g}" if line.seconds else "" for n in amounts]
        time = _bar(line.seconds, profile.seconds)
        rows.append((f"{1e6 * line.seconds:.1f}", time, str(line.runs), *rates, _code(line.text)))
    devices = f" on {plural(len(profile.devices), 'device')}, the slowest; means of devices below" * bool(
        profile.devices
    )
    head = f"<b>{1e6 * profile.seconds:.1f} µs</b>{devices}"
    titles = ("µs", "", "runs", "GFLOP/s", "GB/s", "instruction")
    return head + _table(titles, rows, len(profile.lines))


def trace_html(trace: Trace) -> str:
    """Return a table of the statistics of a trace's values, and the first NaN."""
    rows = [row for event in trace.events[:_ROWS] for row in _event_rows(event)]
    first = trace.first_nan
    origin = f"<div>first NaN:</div>{_pre(str(first))}" if first is not None else ""
    titles = ("value", "shape", "min", "max", "mean", "NaN", "inf", "operation")
    return f"<b>{plural(len(trace), 'value')}</b>{origin}{_table(titles, rows, len(trace))}"


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
    """Return an HTML table of HTML cells; `count` is the number of rows before truncation."""
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
"""Functions by the names of classes, so that displaying one class does not import the others."""
