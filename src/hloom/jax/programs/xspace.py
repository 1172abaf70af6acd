"""Recordings of programs as an XSpace, the format of XProf: a plane for each device, a line for each thread.

The messages are those of ``tsl/profiler/protobuf/xplane.proto``, in protobuf's wire format; field numbers are
beside the fields.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from hloom.ir.instruction import HloInstruction
    from hloom.runtime.measurements import Recording

_PLANE: Final = "/device:CUSTOM:hloom:"
"""Beginning of the names of planes; readers show planes of this prefix as devices."""
_STATS: Final = ("hlo_op", "hlo_module", "program_id", "tf_op", "hlo_category", "lost_events")
"""Names of the stats of events, XProf's but for the last."""
_HLO_OP, _MODULE, _PROGRAM, _OP_NAME, _CATEGORY, _LOST = range(1, 7)


def space(recordings: Sequence[Recording], epoch: int) -> bytes:
    """Return an XSpace of recordings; ``epoch`` is the wall clock's time at the monotonic clock's zero."""
    programs: dict[int, int] = {}
    for recording in recordings:
        programs.setdefault(id(recording.instructions), len(programs) + 1)
    devices = sorted({recording.device for recording in recordings})
    planes = [
        _plane([r for r in recordings if r.device == device], device, programs, epoch) for device in devices
    ]
    return b"".join(_bytes(1, plane) for plane in planes)  # planes


def _plane(recordings: Sequence[Recording], device: int, programs: Mapping[int, int], epoch: int) -> bytes:
    """Return an XPlane of the recordings of a device; programs have numbers by their instructions."""
    events: dict[tuple[int, int], int] = {}
    metadata: list[bytes] = []
    for recording in recordings:
        key = id(recording.instructions)
        if (key, -1) in events:
            continue
        for number, i in ((-1, None), *enumerate(recording.instructions)):
            events[key, number] = len(events) + 1
            metadata.append(_event_metadata(events[key, number], i, recording.module, programs[key]))
    threads = sorted({recording.thread for recording in recordings})
    lines = [
        _line([r for r in recordings if r.thread == thread], thread, events, epoch) for thread in threads
    ]
    names = [_entry(n, _number(1, n) + _text(2, name)) for n, name in enumerate(_STATS, 1)]
    fields = (
        _number(1, device),  # id
        _text(2, f"{_PLANE}{device}"),  # name
        *(_bytes(3, line) for line in lines),  # lines
        *(_bytes(4, each) for each in metadata),  # event_metadata
        *(_bytes(5, name) for name in names),  # stat_metadata
    )
    return b"".join(fields)


def _event_metadata(number: int, i: HloInstruction | None, module: str, program: int) -> bytes:
    """Return an entry of the map of XEventMetadata: an instruction, or the whole program."""
    stats = [_stat(_MODULE, module), _stat(_PROGRAM, program)]
    name = module
    if i is not None:
        op_name = i.metadata.op_name if i.metadata is not None else ""
        name = op_name or i.name
        stats += [_stat(_HLO_OP, i.name), _stat(_OP_NAME, op_name), _stat(_CATEGORY, i.opcode)]
    fields = [_number(1, number), _text(2, name), *(_bytes(5, stat) for stat in stats)]  # id, name, stats
    return _entry(number, b"".join(fields))


def _line(
    recordings: Sequence[Recording], thread: int, events: Mapping[tuple[int, int], int], epoch: int
) -> bytes:
    """Return an XLine of what a thread did; outer events come before inner ones."""
    first = min((int(r.records[:, 1].min()) for r in recordings if len(r.records)), default=0)
    rows: list[tuple[int, int, int, int]] = []
    for recording in recordings:
        key = id(recording.instructions)
        for number, begin, end in recording.records.tolist():
            lost = recording.lost if number == -1 else 0
            rows.append((begin, -end, events[key, number], lost))
    rows.sort()
    encoded = [
        _event(event, begin - first, -minus_end - begin, lost) for begin, minus_end, event, lost in rows
    ]
    fields = (
        _number(1, thread),  # id
        _text(2, f"hloom thread {thread}"),  # name
        _number(3, first + epoch),  # timestamp_ns
        *(_bytes(4, event) for event in encoded),  # events
    )
    return b"".join(fields)


def _event(metadata: int, offset: int, duration: int, lost: int) -> bytes:
    """Return an XEvent, which counts picoseconds."""
    fields = _number(1, metadata) + _number(2, 1000 * offset) + _number(3, 1000 * duration)
    return fields + (_bytes(4, _stat(_LOST, lost)) if lost else b"")  # stats


def _stat(metadata: int, value: int | str) -> bytes:
    """Return an XStat of an integer or a string."""
    return _number(1, metadata) + (_number(4, value) if isinstance(value, int) else _text(5, value))


def _entry(key: int, value: bytes) -> bytes:
    """Return an entry of a map."""
    return _number(1, key) + _bytes(2, value)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _text(field: int, value: str) -> bytes:
    return _bytes(field, value.encode())


def _bytes(field: int, value: bytes) -> bytes:
    return b"".join((_varint(field << 3 | 2), _varint(len(value)), value))


def _varint(value: int) -> bytes:
    """Return a number that is not negative in groups of seven bits."""
    groups: list[int] = []
    while value >= 128:
        groups.append(value & 127 | 128)
        value >>= 7
    return bytes((*groups, value))
