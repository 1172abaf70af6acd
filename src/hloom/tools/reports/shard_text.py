"""`hloom shard`: the report of a sharded program as text."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Final

from hloom.errors import plural
from hloom.tools.console.terminal import styled, table

if TYPE_CHECKING:
    from hloom.sharding.reporting.explanations import Conflict
    from hloom.sharding.reporting.memory import LiveArray
    from hloom.sharding.reporting.report import Report, Row

_MOST: Final = 12
"""Number of entries of a list that are shown by default."""


def report_text(report: Report, everything: bool = False) -> str:
    """Return a report as text; long lists are truncated unless ``everything`` is set."""
    mesh = ", ".join(f"{axis}={size}" for axis, size in report.mesh.items())
    lines = [styled(plural(report.devices, "device") + (f" ({mesh})" if mesh else ""), "title")]
    groups = _groups(report.collectives)
    most = len(groups) if everything else _MOST
    if groups:
        lines += [_table(groups[:most]), *_more(len(groups) - most, "kinds of collectives")]
    total = f"{byte_text(report.bytes_per_step)} sent by each device in a step"
    lines.append(f"{total}, about {report.seconds * 1e6:.1f} us (estimate)")
    if report.unknown_loops:
        lines.append(f"{plural(report.unknown_loops, 'loop')} of unknown length counted as one iteration")
    if groups:
        lines += ["", styled("why", "title")]
        lines += [line for n, rows in enumerate(groups[:most], 1) for line in _why(n, rows[0])]
    if report.conflicts:
        lines += ["", styled("conflicts: incompatible shardings", "title")]
        lines += [_conflict(conflict) for conflict in report.conflicts[:most]]
        lines += _more(len(report.conflicts) - most, "conflicts")
    lines += ["", *_memory(report, most if everything else _MOST)]
    lines += _replicated(report, most if everything else _MOST)
    lines += _suggestions(report, most if everything else _MOST)
    return "\n".join(lines)


def _memory(report: Report, most: int) -> list[str]:
    """Return the lines about a device's memory: its peak, whether it fits, and the arrays at the peak."""
    memory = report.memory
    parts = f"{byte_text(memory.argument_bytes)} arguments, {byte_text(memory.result_bytes)} results"
    if memory.donated_bytes:
        parts += f" ({byte_text(memory.donated_bytes)} in the memory of donated arguments)"
    lines = [styled("memory of a device", "title"), f"{parts}, {byte_text(memory.peak_bytes)} at the peak"]
    if memory.padding_bytes:
        lines[-1] += f", {byte_text(memory.padding_bytes)} of it padding of tiled layouts"
    if report.capacity is not None:
        words = "fits into" if report.fits else "does not fit into"
        lines.append(styled(f"{words} {byte_text(report.capacity)}", "value" if report.fits else "error"))
    if memory.peak:
        lines.append(f"live during %{memory.at}:")
        groups: dict[tuple[str, ...], list[LiveArray]] = {}
        for array in memory.peak:
            groups.setdefault((array.opcode, array.op_name, array.source, array.shape), []).append(array)
        ordered = sorted(groups.values(), key=lambda group: -sum(array.bytes for array in group))
        rows = [("array", "number", "shape", "bytes", "from")]
        rows += [
            (
                f"%{group[0].name} ({group[0].opcode})",
                str(len(group)),
                group[0].shape,
                byte_text(sum(array.bytes for array in group)),
                _origin(group[0].op_name, group[0].source),
            )
            for group in ordered[:most]
        ]
        lines += [table(rows, ("name", "", "", "value")), *_more(len(ordered) - most, "kinds of arrays")]
    return lines


def _replicated(report: Report, most: int) -> list[str]:
    """Return the lines about large replicated arrays."""
    if not report.replicated_arrays:
        return []
    lines = ["", styled("replicated", "title")]
    for array in report.replicated_arrays[:most]:
        origin = _origin(array.op_name, array.source)
        words = f"  %{array.name} {array.shape}: {byte_text(array.bytes)}"
        words += ", annotated" if array.is_annotated else ", not annotated"
        if array.saved:
            words += f"; dimension {array.dimension} over {array.axis} saves {byte_text(array.saved)}"
        lines.append(words + (f" ({origin})" if origin else ""))
    return [*lines, *_more(len(report.replicated_arrays) - most, "arrays")]


def _suggestions(report: Report, most: int) -> list[str]:
    """Return the lines about suggested shardings, with the bytes that each saves."""
    if not report.suggestions:
        return []
    lines = ["", styled("to consider, each by itself", "title")]
    for suggestion in report.suggestions[:most]:
        traffic, memory = _saved(suggestion.saved_bytes), _saved(suggestion.saved_memory)
        lines += [f"  {suggestion.text}"]
        lines += [f"    {traffic} in a step, {memory} at the peak of memory ({suggestion.verified})"]
    return [*lines, *_more(len(report.suggestions) - most, "suggestions")]


def _saved(count: int) -> str:
    return f"saves {byte_text(count)}" if count >= 0 else f"takes {byte_text(-count)} more"


def byte_text(count: float) -> str:
    """Return a number of bytes with a decimal unit, such as ``1.5 MB``."""
    value, unit = float(count), "B"
    for larger in ("KB", "MB", "GB", "TB"):
        if value < 1000:
            break
        value, unit = value / 1000, larger
    return f"{value:.4g} {unit}"


def _more(count: int, what: str) -> list[str]:
    return [f"... and {count} more {what} (--all)"] if count > 0 else []


def _key(row: Row) -> tuple[object, ...]:
    why = row.why
    needed = (why.kind, why.opcode, why.op_name, why.before, why.after)
    return (-row.bytes_per_step, row.opcode, row.axes, row.bytes, row.op_name, row.source, *needed)


def _groups(rows: Sequence[Row]) -> list[list[Row]]:
    """Group collectives of equal size, origin and purpose; groups that send the most bytes come first."""
    groups = [list(group) for _, group in groupby(sorted(rows, key=_key), key=_key)]
    return sorted(groups, key=lambda group: -sum(row.bytes_per_step for row in group))


def _table(groups: Sequence[Sequence[Row]]) -> str:
    rows = [("", "collective", "number", "axis", "of", "bytes", "times", "per step", "estimate", "from")]
    rows += [
        (
            str(number),
            f"{row.opcode} %{row.name}",
            f"{len(group)}",
            row.axes or "-",
            str(row.members),
            byte_text(row.bytes),
            str(row.times),
            byte_text(sum(each.bytes_per_step for each in group)),
            f"{sum(each.seconds for each in group) * 1e6:.1f} us",
            _origin(row.op_name, row.source) or _origin(row.why.op_name, row.why.source),
        )
        for number, group in enumerate(groups, 1)
        for row in group[:1]
    ]
    return table(rows, ("", "name", "", "", "", "", "", "value"))


def _origin(op_name: str, source: str) -> str:
    return ", ".join(filter(None, (op_name, source)))


def _why(number: int, row: Row) -> list[str]:
    """Return the lines that explain a collective: tilings, reason, and origins of the shardings."""
    why = row.why
    by = f" by {why.opcode} %{why.instruction}" if why.instruction else ""
    change = f"%{why.value} {why.before} to {why.after}" if why.before else f"{why.kind}{by}"
    lines = [f"{number:3} {change}{by if why.before else ''}: {why.reason}"]
    if why.other_bytes > why.bytes >= 0:
        lines.append(
            f"    sends {byte_text(why.bytes)}; the second cheapest assignment {byte_text(why.other_bytes)}"
        )
    lines += [f"    {origin}" for origin in why.origins]
    return lines


def _conflict(conflict: Conflict) -> str:
    origin = _origin(conflict.op_name, conflict.source)
    used = "; ".join(conflict.kept) or "nothing"
    costs = f"{byte_text(conflict.bytes)}"
    if conflict.other_bytes >= 0:
        costs += f", the second cheapest assignment {byte_text(conflict.other_bytes)}"
    where = f" ({origin})" if origin else ""
    return f"  %{conflict.instruction}{where}: kept {used}; not {'; '.join(conflict.lost)}: sends {costs}"
