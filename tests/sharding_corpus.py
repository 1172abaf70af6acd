"""Run a corpus of annotated programs: ``python -m tests.sharding_corpus programs.zip [--only NAME]``.

With ``--mesh 2x2`` the annotations are replaced by random ones over a mesh.

Each program is partitioned. If it is small, its tiles run on virtual devices and are compared with the
evaluator on one device: integers exactly, floats within their rounding error. The bytes that a device sends
are compared with XLA's: the exit status is 1 if a program sends more than 1.5 times as much without a reason
(`tests/sharding/corpus_reasons.py`). Results without a sharding are made whole, as XLA does by default.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import zipfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hloom.analysis.cost import Breakdown, module_cost
from hloom.errors import HloError, NoBound
from hloom.fuzzing.generators.shardings import retargeted
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.ir.sharding import Sharding
from hloom.ir.traits import shape_bytes
from hloom.operations.structure import Tuple
from hloom.passes.expand.multi_slice_calls import MultiSliceCalls
from hloom.shape.element_type import PRED, ElementType
from hloom.shape.shape import Shape
from hloom.sharding.reporting.traffic import bytes_sent
from tests import agreement
from tests.sharding.corpus_reasons import REASONS
from tests.sharding.runs import partitioned_of, run_tiles

LARGEST_RUN = 2e7
"""Programs of more flops are partitioned but not run, as are those of large values."""
MOST_DEVICES = 32
"""Programs for more devices are partitioned but not run."""
UNJUDGED = frozenset({
    "infeed", "outfeed", "send", "recv", "partition-id", "all-reduce", "all-gather", "collective-permute",
    "all-to-all", "reduce-scatter", "rng",
})  # fmt: skip
"""Operations whose value on one device is not the one on many."""
SHAPES_CHANGE = ("SPMDFullToShardShape", "SPMDShardToFullShape")


@dataclass(frozen=True)
class Outcome:
    """The outcome of a program.

    Attributes:
        status: equal, different, refused, crashed, or partitioned (not run).
        sent: the bytes that each device sends.
        reason: the error or the reason why it did not run.
    """

    status: str
    sent: int = 0
    reason: str = ""


def outcome(module: HloModule, devices: int, scale: float = 1.0) -> Outcome:
    """Partition a program, run it, and compare it with one device.

    Args:
        scale: factor of the limits on the size of programs that are run.
    """
    MultiSliceCalls().run(module)
    _state_results(module.entry.root)
    try:
        partitioned = partitioned_of(module, devices)
    except HloError as error:
        return Outcome("refused", reason=str(error).replace("\n", " "))
    except Exception as error:
        return Outcome("crashed", reason=f"{type(error).__name__} {error}")
    sent = bytes_sent(partitioned.module)
    reason = _unjudged(module, devices, scale)
    if devices == 1 or devices > MOST_DEVICES:
        reason = f"{devices} devices"
    if reason:
        return Outcome("partitioned", sent, reason)
    arguments = [value for p in module.entry.parameters for value in arrays(p.shape, p.name)]
    try:
        found = run_tiles(partitioned, devices, module, arguments)
        agreement.computed(found, module, nested(module, arguments))
    except (AssertionError, HloError, NoBound) as error:
        if isinstance(error, agreement.Toothless):
            return Outcome("equal", sent, "toothless")
        if isinstance(error, NoBound):
            return Outcome("partitioned", sent, f"no bound: {error}")
        return Outcome("different", sent, f"{type(error).__name__} {error}".replace("\n", " ")[:200])
    return Outcome("equal", sent)


def _state_results(root: HloInstruction) -> None:
    """State whole results where neither the root nor an element of its tuple states a sharding."""
    if root.sharding is not None:
        return
    whole = Sharding.replicated()
    parts = root.operands if isinstance(root.operation, Tuple) else ()
    if parts and all(part.shape.is_array for part in parts):
        root.sharding = Sharding("tuple", elements=tuple(part.sharding or whole for part in parts))
    else:
        root.sharding = whole.for_shape(root.shape)


def _unjudged(module: HloModule, devices: int, scale: float) -> str:
    """Return why a program is not run; "" if it is."""
    for i in module.instructions():
        target = getattr(i.operation, "custom_call_target", "")
        if i.opcode in UNJUDGED or target in SHAPES_CHANGE:
            return target or i.opcode
        if target and target not in ("Sharding", "ShardBarrierFrom", "ShardBarrierTo", "TopK"):
            return target
        if shape_bytes(i.shape) > scale * 1e7 / devices:
            return "large"
    breakdown = Breakdown()
    breakdown.add(module.entry)
    if breakdown.unknown_loops:
        return "loop of unknown length"
    return "large" if module_cost(module).flops > scale * LARGEST_RUN else ""


def arrays(shape: Shape, name: str) -> list[Any]:
    """Return random values of the leaves of a parameter: small integers, normal floats."""
    if shape.is_tuple:
        return [a for n, part in enumerate(shape.tuple_shapes) for a in arrays(part, f"{name}.{n}")]
    if not shape.is_array:
        return [None]
    random = np.random.default_rng(sum(map(ord, name)))
    kind: ElementType = shape.element_type
    if kind is PRED:
        return [random.integers(0, 2, shape.dimensions).astype(bool)]
    if kind.is_floating:
        return [random.standard_normal(shape.dimensions).astype(kind.numpy_dtype)]
    return [random.integers(0, 6, shape.dimensions).astype(kind.numpy_dtype)]


def nested(module: HloModule, leaves: list[Any]) -> list[Any]:
    """Return the arguments of a module from the arrays in them."""
    rest = iter(leaves)

    def build(shape: Shape) -> Any:
        return tuple(map(build, shape.tuple_shapes)) if shape.is_tuple else next(rest)

    return [build(p.shape) for p in module.entry.parameters]


def programs(path: Path) -> list[tuple[dict[str, Any], str]]:
    """Return the entries of a corpus' index with the texts of the programs."""
    with zipfile.ZipFile(path) as archive:
        index = json.loads(archive.read("index.json"))
        return [(entry, archive.read(f"{entry['name']}.hlo").decode()) for entry in index]


def main() -> None:
    """Print a line for each program that is not equal, or sends more than XLA's, and the sums."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--only", default="", help="Run the programs whose names contain this.")
    parser.add_argument("--all", action="store_true", help="Print every program.")
    parser.add_argument("--mesh", default="", help="Sizes of axes, as 2x2, for random shardings.")
    parser.add_argument("--added", type=float, default=0, help="Share of other instructions to annotate.")
    parser.add_argument("--seed", type=int, default=1, help="Of the random shardings.")
    parser.add_argument("--scale", type=float, default=1.0, help="Run programs larger by this factor.")
    chosen = parser.parse_args()
    mesh = [int(size) for size in chosen.mesh.split("x")] if chosen.mesh else []
    counts: Counter[str] = Counter()
    ours = theirs = 0
    above: list[str] = []
    for entry, text in programs(chosen.corpus):
        if chosen.only not in entry["name"] or entry["template"]:
            continue
        module, devices = HloModule.from_text(text), entry["num_partitions"]
        if mesh and "manual" in text:
            continue  # the shapes of tiles in the program follow from its shardings
        if mesh:
            module, devices = retargeted(module, mesh, chosen.seed, chosen.added), math.prod(mesh)
        found = outcome(module, devices, chosen.scale)
        counts[found.status] += 1
        xla = None if mesh else entry.get("xla", {}).get("bytes_sent_per_device")
        figures = f"{found.sent} : {xla}"
        if xla is not None and found.status not in ("refused", "crashed"):
            ours, theirs = ours + found.sent, theirs + xla
            above += unreasoned(entry["name"], found.sent, xla)
        more = xla is not None and found.sent > xla
        if chosen.all or more or found.status in ("refused", "crashed", "different"):
            print(f"{found.status:12} {entry['name']:70} {figures:28} {found.reason[:160]}", flush=True)
    print(", ".join(f"{count} {status}" for status, count in sorted(counts.items())))
    print(f"bytes sent per device, summed: {ours} : {theirs}")
    if above:
        sys.exit("\n".join(["more than 1.5 times XLA's bytes, without a reason that holds:", *above]))


def unreasoned(name: str, sent: int, xla: int) -> list[str]:
    """Return a line if a program has no reason to send more than 1.5 times XLA's bytes, or a needless one."""
    reason = REASONS.get(name)
    if sent <= 1.5 * xla:
        return [f"{name}: {sent} : {xla} needs no reason"] if reason is not None else []
    return [] if reason is not None and sent <= reason.most else [f"{name}: {sent} : {xla}"]


if __name__ == "__main__":
    main()
