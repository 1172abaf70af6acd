"""HloModule: a whole program."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import field
from typing import TYPE_CHECKING, Final

from hloom.display import Displayed
from hloom.errors import HloError, VerifyError, expect, plural
from hloom.hooks import EntryPoint, Hook
from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction
from hloom.ir.metadata import OriginalArray
from hloom.ir.naming import NameUniquer
from hloom.ir.operation import ProgramShape
from hloom.ir.stack_frames import StackFrames
from hloom.records import dataclass

if TYPE_CHECKING:
    from hloom.ir.print_options import PrintOptions

ShapeIndex = tuple[int, ...]

ALIAS_KINDS: Final = {"may-alias": 1, "must-alias": 2}
"""Kinds of input-output aliases and their proto numbers."""


@dataclass(frozen=True, slots=True)
class Alias:
    """One entry of input_output_alias: an output leaf that shares the buffer of a parameter leaf."""

    parameter_number: int
    parameter_index: ShapeIndex
    kind: str = "may-alias"


@dataclass(slots=True)
class ModuleConfig:
    """The properties of a module other than its computations, named as in hlo.proto.

    Attributes:
        entry_layout: parameter and result shapes of the entry with their layouts, if stated.
        is_scheduled: computations that are not excluded (`HloComputation.is_scheduled`) list their
            instructions in the order of execution.
        aliases: output ShapeIndex -> Alias.
        buffer_donors: (parameter number, ShapeIndex) pairs.
        alias_passthrough_params: parameters that are returned unchanged share their buffer with the output.
        allow_spmd_sharding_propagation_to_parameters, allow_spmd_sharding_propagation_to_output: permission
            for the partitioner to choose shardings, one flag for all of them or one for each.
        recovery_table: original arrays that were lost, the arrays that replace them, and the program that
            computes the lost ones from the replacements.
        stack_frames: the table that ``stack_frame_id`` of metadata refers to.
        unmodelled: serialized HloModuleProto of the fields that have no other representation.
    """

    entry_layout: ProgramShape | None = None
    is_scheduled: bool = False
    aliases: dict[ShapeIndex, Alias] = field(default_factory=dict[ShapeIndex, Alias])
    buffer_donors: list[tuple[int, ShapeIndex]] = field(default_factory=list[tuple[int, ShapeIndex]])
    alias_passthrough_params: bool = False
    allow_spmd_sharding_propagation_to_parameters: tuple[bool, ...] = (False,)
    allow_spmd_sharding_propagation_to_output: tuple[bool, ...] = (False,)
    replica_count: int = 1
    num_partitions: int = 1
    frontend_attributes: dict[str, str] = field(default_factory=dict[str, str])
    recovery_table: dict[OriginalArray, tuple[OriginalArray, HloModule | None]] = field(
        default_factory=dict[OriginalArray, "tuple[OriginalArray, HloModule | None]"]
    )
    stack_frames: StackFrames = field(default_factory=StackFrames)
    unmodelled: bytes = b""


class HloModule(Displayed):
    """A program: computations, one of them the entry, and its configuration.

    Attributes:
        name: the module's name.
        computations: every computation, callees before callers.
        entry: the computation that runs first.
        config: entry layout, aliasing, device counts and the like.
        source: the text that the module was parsed from, for positions of errors; empty if it was not.
    """

    __slots__ = ("_computations", "_entry", "_names", "config", "name", "source")

    def __init__(self, name: str) -> None:
        self.name = name
        self.config = ModuleConfig()
        self.source = ""
        self._computations: dict[HloComputation, None] = {}
        self._entry: HloComputation | None = None
        self._names: NameUniquer | None = None

    def __repr__(self) -> str:
        return f"<HloModule {self.name}: {plural(len(self._computations), 'computation')}>"

    @property
    def computations(self) -> list[HloComputation]:
        """Return the computations in the order they were added."""
        return list(self._computations)

    @property
    def entry(self) -> HloComputation:
        """Return the entry computation; raise VerifyError if the module has none."""
        if self._entry is None:
            raise VerifyError(f"module {self.name} has no entry computation", rule="module.entry")
        return self._entry

    def add(self, computation: HloComputation, *, entry: bool = False) -> HloComputation:
        """Add a computation and return it."""
        self._computations[computation] = None
        computation.module = self
        if self._names is not None:
            self._take_names(self._names, computation)
        if entry:
            self._entry = computation
        return computation

    def remove(self, computation: HloComputation) -> None:
        """Remove a computation that no instruction calls."""
        del self._computations[computation]
        computation.module = None

    def reorder(self, order: list[HloComputation]) -> None:
        """Reorder the computations; ``order`` must hold each of them once."""
        if set(order) != self._computations.keys():
            raise VerifyError("the new order does not hold every computation once", rule="module.reorder")
        self._computations = dict.fromkeys(order)

    @property
    def instruction_count(self) -> int:
        """Return the number of instructions of all computations."""
        return sum(map(len, self.computations))

    def instructions(self) -> Iterator[HloInstruction]:
        """Iterate over the instructions of all computations."""
        for computation in self._computations:
            yield from computation.instructions

    def unique_name(self, wanted: str) -> str:
        """Return ``wanted`` made well formed, with a number appended if the module has that name already."""
        if self._names is None:
            self._names = NameUniquer()
            for computation in self._computations:
                self._take_names(self._names, computation)
        return self._names.unique(wanted)

    @staticmethod
    def _take_names(names: NameUniquer, computation: HloComputation) -> None:
        names.take(computation.name)
        for instruction in computation.instructions:
            names.take(instruction.name)

    def post_order(self) -> list[HloComputation]:
        """Return the computations, callees before callers, otherwise in the order in which XLA prints them.

        XLA's walk marks a callee as visited when it is found rather than when it is listed, so that a
        computation called at several depths may come after one of its callers; such a callee is moved before
        it. A cycle of calls, which the verifier refuses, is left out unless a computation outside it calls
        into it.
        """
        called = {c for i in self.instructions() for c in i.called_computations}
        done: dict[HloComputation, None] = {}
        for root in self._computations:
            if root not in called:
                for computation in _embedded(root):
                    done.setdefault(computation)
                done.setdefault(root)
        return _callees_first(list(done))

    def verify(self) -> None:
        """Verify the structure and the rules of every operation; raise HloError at the first violation."""
        try:
            VERIFY(self)
        except HloError as error:
            self.locate(error)
            raise

    def locate(self, error: HloError) -> HloError:
        """Set line and column of an error of an instruction, if the module was parsed from text."""
        if self.source and error.instruction is not None and error.line is None:
            from hloom.ir.cursor import Cursor

            for instruction in self.instructions():
                if instruction.name == error.instruction and instruction.position >= 0:
                    return Cursor(self.source).locate(error, instruction.position)
        return error

    def clone(self) -> HloModule:
        """Return a deep copy under the same names; operations and shapes are immutable and shared."""
        return CLONE(self)

    def __copy__(self) -> HloModule:
        return self.clone()

    def __deepcopy__(self, _: dict[int, object]) -> HloModule:
        return self.clone()

    def __reduce__(self) -> tuple[Callable[[bytes], HloModule], tuple[bytes]]:
        # Pickled as a proto, because the graph is too deep for pickle's recursion.
        return HloModule.from_proto, (self.to_proto(),)

    # -- conversions; each loads its implementation at the first call

    @classmethod
    def from_text(cls, text: str) -> HloModule:
        """Parse HLO text; raise ParseError with line, column and caret."""
        return PARSE(text)

    def to_text(self, options: PrintOptions | None = None, *, xla_version: str | None = None) -> str:
        """Return the text that XLA's ``HloModule::ToString`` prints; ``options`` select other forms.

        Args:
            options: names of XLA's print options.
            xla_version: a version of jaxlib such as ``0.11``. Without options, the text is that of its dumps;
                otherwise the options with that version's forms. By default, the newest version's forms.

        Raise HloError (``text.xla-version``) for an unknown version.
        """
        from hloom.ir.print_options import PrintOptions

        expect(options, (PrintOptions, type(None)), "PrintOptions")
        if xla_version is not None:
            from hloom.ir.xla_version import XlaVersion

            expect(xla_version, str, "a version of jaxlib as a str")
            version = XlaVersion.parse(xla_version)
            options = PrintOptions.dump(version) if options is None else options.replace(xla_version=version)
        return PRINT(self, options)

    @classmethod
    def from_proto(cls, data: bytes) -> HloModule:
        """Return the module of a serialized HloModuleProto (or HloProto); raise ParseError."""
        expect(data, (bytes, bytearray, memoryview), "the bytes of a proto")
        return READ_PROTO(bytes(data))

    def to_proto(self) -> bytes:
        """Return the serialized HloModuleProto."""
        return WRITE_PROTO(self)

    def __str__(self) -> str:
        return self.to_text()


PARSE: Final[Hook[[str], HloModule]] = Hook("parse_module")
PRINT: Final[Hook[[HloModule, PrintOptions | None], str]] = Hook("print_module")
READ_PROTO: Final[Hook[[bytes], HloModule]] = Hook("read_module")
WRITE_PROTO: Final[Hook[[HloModule], bytes]] = Hook("write_module")
VERIFY: Final[EntryPoint[[HloModule], None]] = EntryPoint("hloom.ir.verifier:verify")
CLONE: Final[EntryPoint[[HloModule], HloModule]] = EntryPoint("hloom.ir.cloning:clone_module")


def _callees_first(order: list[HloComputation]) -> list[HloComputation]:
    """Move callees that come after a caller before the first of their callers; keep any other order."""
    places = {computation: number for number, computation in enumerate(order)}
    callees: dict[HloComputation, list[HloComputation]] = {}
    for computation in order:
        called = {c for i in computation.instructions for c in i.called_computations}
        callees[computation] = sorted(called, key=places.__getitem__)
    if all(places[callee] < places[caller] for caller, called in callees.items() for callee in called):
        return order
    done: dict[HloComputation, None] = {}
    waiting = order[::-1]
    opened: set[HloComputation] = set()
    while waiting:
        computation = waiting[-1]
        fresh = [c for c in callees[computation] if c not in done and c not in opened]
        if computation in done or computation in opened or not fresh:
            done.setdefault(waiting.pop())
        else:
            opened.add(computation)
            waiting += reversed(fresh)
    return list(done)


def _embedded(root: HloComputation) -> list[HloComputation]:
    """Return the computations that ``root`` calls, directly or not, callees first, as XLA walks them."""
    order: list[HloComputation] = []
    seen: set[HloComputation] = set()
    stack: list[tuple[HloComputation, Iterator[HloInstruction]]] = [(root, iter(root.in_id_order()))]
    while stack:
        computation, instructions = stack[-1]
        for instruction in instructions:
            fresh = [c for c in reversed(instruction.called_computations) if c not in seen]
            if fresh:
                for callee in dict.fromkeys(fresh):
                    seen.add(callee)
                    stack.append((callee, iter(callee.in_id_order())))
                break
        else:
            stack.pop()
            order.append(computation)
    return order[:-1]
