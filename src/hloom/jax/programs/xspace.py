"""Conversion of recorded executions to an XSpace for XProf: a plane for each device, a line for each thread.

The messages are declared in ``tsl/profiler/protobuf/xplane.proto``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from hloom.jax.pjrt.messages import bytes_field, integer_field

if TYPE_CHECKING:
    from hloom.ir.instruction import HloInstruction
    from hloom.runtime.measurements import Recording

_PLANE: Final = "/device:CUSTOM:hloom:"
"""Prefix of the names of planes, by which readers recognize devices."""
_STATS: Final = ("hlo_op", "hlo_module", "program_id", "tf_op", "hlo_category", "lost_events")
"""Names of stats of events; the last is hloom's, the others XProf's."""
_HLO_OP, _MODULE, _PROGRAM, _OP_NAME, _CATEGORY, _LOST = range(1, 7)


def space(recordings: Sequence[Recording], epoch: int) -> bytes:
    """Serialize recordings of executions as an XSpace, the message that XProf reads.

    ``epoch`` is the wall-clock time minus the monotonic time, in nanoseconds.
    """
    programs: dict[int, int] = {}
    for recording in recordings:
        programs.setdefault(id(recording.instructions), len(programs) + 1)
    devices = sorted({recording.device for recording in recordings})
    planes = [
        _plane([r for r in recordings if r.device == device], device, programs, epoch) for device in devices
    ]
    return b"".join(bytes_field(1, plane) for plane in planes)  # planes


def _plane(recordings: Sequence[Recording], device: int, programs: Mapping[int, int], epoch: int) -> bytes:
    """Serialize the recordings of executions on one device as an XPlane.

    Args:
        recordings: the recordings of this device.
        device: the id of the device.
        programs: the id that the XSpace gives each program; the key is the Python ``id`` of the program's
            list of instructions.
        epoch: the wall-clock time minus the monotonic time, in nanoseconds.
    """
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
    names = [_entry(n, integer_field(1, n) + _text(2, name)) for n, name in enumerate(_STATS, 1)]
    fields = (
        integer_field(1, device),  # id
        _text(2, f"{_PLANE}{device}"),  # name
        *(bytes_field(3, line) for line in lines),  # lines
        *(bytes_field(4, each) for each in metadata),  # event_metadata
        *(bytes_field(5, name) for name in names),  # stat_metadata
    )
    return b"".join(fields)


def _event_metadata(number: int, i: HloInstruction | None, module: str, program: int) -> bytes:
    """Serialize an entry of an XPlane's map of XEventMetadata.

    Args:
        number: the key of the entry, which is the id of its XEventMetadata.
        i: the instruction that the entry describes; None to describe the whole program.
        module: the name of the program's module.
        program: the id that the XSpace gives the program.
    """
    stats = [_stat(_MODULE, module), _stat(_PROGRAM, program)]
    name = module
    if i is not None:
        op_name = i.metadata.op_name if i.metadata is not None else ""
        name = op_name or i.name
        stats += [_stat(_HLO_OP, i.name), _stat(_OP_NAME, op_name), _stat(_CATEGORY, i.opcode)]
    fields = [
        integer_field(1, number),
        _text(2, name),
        *(bytes_field(5, stat) for stat in stats),
    ]  # id, name, stats
    return _entry(number, b"".join(fields))


def _line(
    recordings: Sequence[Recording], thread: int, events: Mapping[tuple[int, int], int], epoch: int
) -> bytes:
    """Serialize the recordings of one thread as an XLine, with events in the order in which they began.

    Args:
        recordings: the recordings of this thread.
        thread: the operating system's number of the thread.
        events: the ids of XEventMetadata; the key is the Python ``id`` of a program's list of instructions,
            and the index of an instruction in that list, or -1 for the whole program.
        epoch: the wall-clock time minus the monotonic time, in nanoseconds.
    """
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
        integer_field(1, thread),  # id
        _text(2, f"hloom thread {thread}"),  # name
        integer_field(3, first + epoch),  # timestamp_ns
        *(bytes_field(4, event) for event in encoded),  # events
    )
    return b"".join(fields)


def _event(metadata: int, offset: int, duration: int, lost: int) -> bytes:
    """Serialize an XEvent.

    Args:
        metadata: the id of its XEventMetadata.
        offset, duration: the start of the event minus that of its XLine, and the duration, in nanoseconds.
        lost: how many events of the execution were not recorded for lack of room; 0 is not written.
    """
    fields = integer_field(1, metadata) + integer_field(2, 1000 * offset) + integer_field(3, 1000 * duration)
    return fields + (bytes_field(4, _stat(_LOST, lost)) if lost else b"")  # stats


def _stat(metadata: int, value: int | str) -> bytes:
    """Serialize an XStat with an integer or a string; ``metadata`` is the id of its XStatMetadata."""
    return integer_field(1, metadata) + (
        integer_field(4, value) if isinstance(value, int) else _text(5, value)
    )


def _entry(key: int, value: bytes) -> bytes:
    """Serialize an entry of a protobuf map: an integer key, and a value that is a serialized message."""
    return integer_field(1, key) + bytes_field(2, value)


def _text(field: int, value: str) -> bytes:
    return bytes_field(field, value.encode())
