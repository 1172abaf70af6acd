"""Check a folder of dumps: read, verify, print, compare, draw and run every file.

The program before optimizations, every one between two passes, and the optimized one are run by the evaluator
and by the cpu backend with the arguments of XLA's run; the results agree with XLA's.
"""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import import_module
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

import numpy as np

import hloom
from hloom.debug.error_analysis import ErrorAnalysis
from hloom.error_bounds.bounded import is_inexact_type
from hloom.error_bounds.floating import ulp
from hloom.error_bounds.sums import growth
from hloom.errors import HloError, NoBound
from hloom.files import load_snapshot
from hloom.ir.module import HloModule
from hloom.ir.print_options import PrintOptions
from hloom.ir.xla_version import V0_11
from hloom.shape.literal import Literal
from hloom.sharding.partitioning.partitioner import partitioned_program
from hloom.tools.pictures.graph_picture import save_picture
from hloom.tools.reports.diff_text import diff_text
from tests import agreement, oracle

from .writing import VALUES

_hlo: Any = import_module("jaxlib._hlo")

BACKENDS: Final = ("evaluator", "cpu")
_NO_PROGRAMS: Final = re.compile(
    r"buffer-assignment|live-range|memory-usage-report|thunk|debug_options|\.ll$|\.o$|\.mlir$"
)
_CONFIGURATION: Final = re.compile(r"(, backend_config=)(\{\".*\})$", re.M)
_BARE: Final = PrintOptions(print_metadata=False, compact_gte=True, xla_version=oracle.installed_version())
_LARGEST_PICTURE: Final = 400
"""Instructions of the largest program that is drawn; a picture of more tells nothing."""


@dataclass
class Report:
    """The outcome of a folder: how many files passed each check, and what failed."""

    counts: dict[str, int] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    def check(self, what: str, path: Path, action: Any) -> Any:
        """Return what an action returns; record a failure and return None if it raises."""
        self.counts[what] = self.counts.get(what, 0) + 1
        try:
            return action()
        except (HloError, AssertionError, NoBound) as error:
            reason = f"{type(error).__name__}: {error}"
        except Exception as error:  # a fault of any other kind is a failure as well
            reason = f"fault, {type(error).__name__}: {error}"
        self.failures.append(f"{path.name}: {what}: {reason[:600]}")
        return None


@dataclass(frozen=True)
class Values:
    """XLA's run: the arguments and the results of each device."""

    arguments: list[list[Any]]
    results: list[list[Any]]


def check_folder(folder: Path, backends: tuple[str, ...] = BACKENDS) -> Report:
    """Check every dump in a folder that `writing.write` has filled."""
    report = Report()
    values = Values(*pickle.loads((folder / VALUES).read_bytes()))
    texts = sorted(p for p in folder.glob("*.txt") if not _NO_PROGRAMS.search(p.name))
    bounds = _bounds(hloom.load(next(folder.glob("*.before_optimizations.hlo.pb"))), values)
    tried: set[str] = set()
    previous: HloModule | None = None
    for path in texts:
        report.check("text", path, lambda path=path: _text(path))
        proto = path.with_name(path.name.removesuffix(".txt") + ".hlo.pb")
        full = report.check("proto", proto, lambda proto=proto, text=path: _proto(proto, text))
        if full is None:
            full = hloom.load(proto)
        report.check("diff", path, lambda full=full, previous=previous: _diff(previous, full))
        previous = full
        if sum(map(len, full.computations)) <= _LARGEST_PICTURE:
            report.check("draw", path, lambda full=full: save_picture(full, folder / "picture.svg"))
        key = full.to_text(PrintOptions.fingerprint()) + path.name.partition(".")[0]
        if key not in tried:
            tried.add(key)
            for backend in backends:
                report.check(backend, proto, lambda b=backend, m=full: _run(m, b, values, bounds))
    for path in sorted(folder.glob("*.snapshot.*.pb")):
        for backend in backends:
            report.check(
                f"snapshot on {backend}", path, lambda p=path, b=backend: _replay(p, b, values, bounds)
            )
    return report


# -- reading and printing


def _text(path: Path) -> None:
    module = HloModule.from_text(path.read_text())
    module.verify()
    _same_lines(oracle.as_read_by_xla(module), _hlo.hlo_module_from_text(path.read_text()).to_string())
    # XLA numbers the stack frames of what it reads anew; the rest stays as it is
    printed = module.to_text(_BARE)
    again = HloModule.from_text(printed).to_text(_BARE)
    assert _computations(again) == _computations(printed), "its text is not a fixed point"


def _same_lines(printed: str, wanted: str) -> None:
    lines = zip_longest(printed.rstrip("\n").split("\n"), wanted.rstrip("\n").split("\n"))
    different = next(((ours, theirs) for ours, theirs in lines if ours != theirs), None)
    assert different is None, "printed otherwise than by XLA:\n{}\n{}".format(*different)


def _proto(path: Path, text: Path) -> HloModule:
    found = hloom.load(path)
    found.verify()
    data = found.to_proto()
    assert HloModule.from_proto(data).to_proto() == data, "its proto is not a fixed point"
    read = _hlo.HloModule.from_serialized_hlo_module_proto(data)
    _same_lines(_body(oracle.as_read_by_xla(found)), _body(read.to_string()))
    if oracle.installed_version() >= V0_11:  # whose dumps have all stack frames, under their numbers
        dumped = found.to_text(PrintOptions.dump(oracle.installed_version()))
        _same_lines(*("\n".join(_computations(_ordered_json(_body(t)))) for t in (dumped, text.read_text())))
    # XLA's protos lack a part of the header, and list instructions in another order than texts
    modules = (found, HloModule.from_text(text.read_text()))
    lines = [sorted(_ordered_json(_body(m.to_text(_BARE))).split("\n")) for m in modules]
    assert lines[0] == lines[1], "the text and the proto differ"
    return found


def _computations(text: str) -> list[str]:
    """Return the computations of a text in an order of their own.

    XLA lists them by the order of instructions in memory, and dead ones where they were added; a text with
    ``%x#i`` has other instructions in memory, and a proto does not say where dead ones were.
    """
    return sorted(text.split("\n\n"))


def _body(text: str) -> str:
    """Return a text without its first line, of which XLA's protos lack a part."""
    return text.partition("\n")[2]


def _ordered_json(text: str) -> str:
    """Sort the keys of configurations, which XLA writes in an order that changes from time to time."""
    return _CONFIGURATION.sub(lambda c: c[1] + json.dumps(json.loads(c[2]), sort_keys=True), text)


def _diff(previous: HloModule | None, module: HloModule) -> None:
    plain = lambda text, role: text  # noqa: E731
    assert diff_text(module, module, plain) == "", "differs from itself"
    if previous is not None:
        equal = diff_text(previous, module, plain) == ""
        backwards = diff_text(module, previous, plain) == ""
        assert equal == backwards, "the difference depends on the order of the two"


# -- running


def _bounds(module: HloModule, values: Values) -> list[Any]:
    """Return the rounding error of each result of a program, by element on one device if there is a bound.

    Else in the norm of each array: each operation may round once, and the errors add as in a sum.
    """
    units = 2 * growth(sum(map(len, module.computations)))
    largest = [max(np.max(np.abs(r), initial=0) for r in each) for each in zip(*values.results)]
    in_norm = [
        units * ulp(most, result.dtype) if is_inexact_type(result) else 0.0
        for most, result in zip(largest, values.results[0])
    ]
    if len(values.arguments) > 1:
        return in_norm
    try:
        found = agreement.flat(ErrorAnalysis(module).run(_shaped(module, values.arguments[0]))[1])
    except NoBound:
        return in_norm
    return [bound if np.all(np.isfinite(bound)) else norm for bound, norm in zip(found, in_norm)]


def _shaped(module: HloModule, arguments: list[Any]) -> list[Any]:
    """Return arguments in the form of the entry's parameters: tuples where those are tuples."""
    rest = list(arguments)

    def taken(shape: Any) -> Any:
        return tuple(map(taken, shape.tuple_shapes)) if shape.is_tuple else rest.pop(0)

    return [taken(p.shape) for p in module.entry.parameters]


def _run(module: HloModule, backend: str, values: Values, bounds: list[Any]) -> None:
    devices = len(values.arguments)
    is_whole = devices > 1 and not _is_local(module, values)
    program = partitioned_program(module, devices).module if is_whole else module
    executable = hloom.compile(program, backend, num_partitions=devices)  # XLA's protos do not have it
    found = executable.run([_shaped(program, arguments) for arguments in values.arguments])
    for ours, theirs in zip(found, values.results, strict=True):
        _agree(agreement.flat(ours), theirs, bounds)


def _is_local(module: HloModule, values: Values) -> bool:
    """Return whether a program of several devices is the one that each of them runs."""
    leaves = [leaf for p in module.entry.parameters for _, leaf in p.shape.leaves()]
    return [leaf.dimensions for leaf in leaves] == [np.shape(a) for a in values.arguments[0]]


def _replay(path: Path, backend: str, values: Values, bounds: list[Any]) -> None:
    snapshot = load_snapshot(path)
    module, (arguments,) = snapshot.module, snapshot.runs
    assert snapshot.result is not None
    (wanted,) = values.results
    if snapshot.result.shape.compatible(module.entry.root.shape):  # XLA stores none for donated arguments
        wanted = [leaf.numpy() for leaf in _literals(snapshot.result)]
    found = hloom.compile(module, backend)(*arguments)
    _agree(agreement.flat(found), wanted, bounds)


def _literals(literal: Literal) -> Iterator[Literal]:
    if not literal.shape.is_tuple:
        yield literal
        return
    for element in literal.elements:
        yield from _literals(element)


def _agree(found: list[Any], wanted: list[Any], bounds: list[Any]) -> None:
    """Assert that results agree within their bounds."""
    assert len(found) == len(wanted), f"{len(found)} results, {len(wanted)} wanted"
    for number, (got, other) in enumerate(zip(found, wanted, strict=True)):
        try:
            agreement.within(got, other, bounds[number])
        except AssertionError as error:
            raise AssertionError(f"result {number}: {error}") from None
