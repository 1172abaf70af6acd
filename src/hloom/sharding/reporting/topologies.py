"""Topologies: link speeds and device memory, from vendor data sheets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from hloom.errors import HloError
from hloom.records import dataclass
from hloom.regex import regex


@dataclass(frozen=True, slots=True)
class Link:
    """The network link of a device along a mesh axis, as a cost model.

    Attributes:
        latency: seconds per message.
        bandwidth: bytes per second that a device can send.
    """

    latency: float
    bandwidth: float


@dataclass(frozen=True, slots=True)
class Topology:
    """A kind of device and its interconnect.

    Attributes:
        link: the link of a device along every mesh axis.
        memory: the memory of a device in bytes; None if it depends on the machine.
    """

    link: Link
    memory: int | None


TOPOLOGIES: Final[dict[str, Topology]] = {
    "tpu-v5p": Topology(Link(1e-6, 100e9), 95_000_000_000),
    "tpu-v5e": Topology(Link(1e-6, 50e9), 16_000_000_000),
    "nvlink-a100": Topology(Link(2e-6, 300e9), 80_000_000_000),
    "nvlink-h100": Topology(Link(2e-6, 450e9), 80_000_000_000),
    "nvlink-h200": Topology(Link(2e-6, 450e9), 141_000_000_000),
    "ethernet": Topology(Link(20e-6, 12.5e9), None),
}
"""Topologies by name.

Sources: docs.cloud.google.com/tpu/docs/v5p (95 GB; 1200 GB/s in both directions over the 6 links of a chip,
of which a ring uses one in one direction) and .../v5e (16 GB, 400 GB/s over 4 links); NVIDIA's data sheets of
the A100 (80 GB, NVLink 600 GB/s in both directions), H100 SXM (80 GB, 900 GB/s) and H200 SXM (141 GB,
900 GB/s); 100 Gbit/s Ethernet. Latencies are orders of magnitude.
"""

_SIZE: Final = regex(r"(\d+(?:\.\d+)?)\s*([KMGT]i?)?B?", re.IGNORECASE)
_PREFIXES: Final = "KMGT"


def parse_memory(text: str) -> int:
    """Parse a number of bytes such as ``16GiB``, ``80GB`` or ``1e9``; return it.

    Raises HloError (rule ``memory.notation``) for any other text.
    """
    size = _SIZE.fullmatch(text.strip())
    if size is not None:
        unit = (size[2] or "").upper()
        base = 1024 if unit.endswith("I") else 1000
        return round(float(size[1]) * base ** (_PREFIXES.index(unit[0]) + 1 if unit else 0))
    try:
        return round(float(text))
    except (ValueError, OverflowError):
        message = f"expected a number of bytes such as 16GiB or 80GB, got {text!r}"
        raise HloError(message, rule="memory.notation") from None


def links_of(topology: str | Mapping[str, Link], axes: Mapping[str, int]) -> dict[str, Link]:
    """Return the network link along each mesh axis, by axis name, and the slowest link, by the name "".

    ``topology`` is a name of `TOPOLOGIES`, or a link for each axis. Raises HloError (rule
    ``report.topology``) for an unknown name or an axis without a link.
    """
    if isinstance(topology, str):
        return dict.fromkeys((*axes, ""), _named(topology).link)
    missing = [axis for axis in axes if axis not in topology]
    if missing or not topology:
        message = f"the topology has no link for the axes {', '.join(missing) or 'of the mesh'}"
        raise HloError(message, rule="report.topology")
    slowest = min(topology.values(), key=lambda link: link.bandwidth)
    return {**topology, "": slowest}


def memory_of_device(topology: str | Mapping[str, Link]) -> int | None:
    """Return the memory of a device in bytes; None if ``topology`` does not state it.

    ``topology`` is a name of `TOPOLOGIES`, or a mapping with a link for each axis; the latter states none.
    """
    return _named(topology).memory if isinstance(topology, str) else None


def _named(name: str) -> Topology:
    if name not in TOPOLOGIES:
        message = f"there is no topology {name!r}; known are {', '.join(TOPOLOGIES)}"
        raise HloError(message, rule="report.topology")
    return TOPOLOGIES[name]
