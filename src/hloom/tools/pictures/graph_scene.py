"""The scene of a program's picture: computations as boxes, instructions as nodes, values as edges.

Scalars and small constants are shown in the nodes that use them, and computations of one operation, such as
the sum of two scalars, are named in their caller.
"""

from __future__ import annotations

import difflib
from collections.abc import Hashable, Sequence
from dataclasses import field
from typing import Final

from hloom.errors import HloError, plural
from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.ir.traits import ElementCost, Family
from hloom.operations.conversion import Convert
from hloom.operations.movement import Broadcast
from hloom.operations.reshaping import Reshape
from hloom.operations.structure import Constant, Iota, Parameter
from hloom.records import dataclass
from hloom.text.printer import print_instruction
from hloom.tools.pictures.graph_layout import GraphLayout, isotonic, layered

TITLE_SIZE: Final = 12.0
DETAIL_SIZE: Final = 10.0
ADVANCE: Final = 0.61
"""Width of a character of the monospaced font, relative to the font size."""
PADDING: Final = 9.0
LINE: Final = 14.0
BOX_PADDING: Final = 18.0
BOX_TITLE: Final = 26.0
COLUMN_GAP: Final = 70.0
BOX_GAP: Final = 30.0
_LONGEST: Final = 34

FAMILIES: Final = {
    "elementwise": ("#fff4cc", "#c9a227"),
    "movement": ("#dff3e4", "#4c9a63"),
    "indexing": ("#d5efec", "#2a8c82"),
    "contraction": ("#dbe7fb", "#3d6fc4"),
    "reduction": ("#eadffa", "#8055c0"),
    "control flow": ("#fbdfe8", "#c2517c"),
    "devices and host": ("#d9f1f9", "#2b8fb3"),
    "random": ("#eef6cf", "#849a25"),
    "frame": ("#f1f1f4", "#8a8d99"),
    "parameter": ("#ffe8d6", "#d07a35"),
}
"""Fill and line colors of each group of the legend."""

_GROUPS: Final = {
    Family.ELEMENTWISE: "elementwise",
    Family.MOVEMENT: "movement",
    Family.CONTRACTION: "contraction",
    Family.COMBINATION: "reduction",
    Family.LINEAR_ALGEBRA: "contraction",
    Family.NORMALIZATION: "reduction",
    Family.RANDOM: "random",
    Family.STRUCTURE: "frame",
    Family.CONTROL: "control flow",
    Family.COLLECTIVE: "devices and host",
    Family.TRANSFER: "devices and host",
    Family.CUSTOM: "control flow",
}
"""The group of the legend of each family of operations."""


@dataclass
class Node:
    """An instruction in the picture; `x` and `y` are its center, relative to the content of its box."""

    instruction: HloInstruction
    title: str
    details: list[str]
    family: str
    tooltip: str
    is_root: bool
    x: float = 0.0
    y: float = 0.0

    @property
    def width(self) -> float:
        widest = max(
            [ADVANCE * TITLE_SIZE * len(self.title), *(ADVANCE * DETAIL_SIZE * len(d) for d in self.details)]
        )
        return widest + 2 * PADDING

    @property
    def height(self) -> float:
        return 2 * PADDING - 4 + LINE * (1 + len(self.details))


@dataclass
class Box:
    """A computation in the picture; `x` and `y` are its upper left corner."""

    computation: HloComputation
    title: str
    nodes: dict[HloInstruction, Node]
    layout: GraphLayout
    column: int = 0
    x: float = 0.0
    y: float = 0.0

    @property
    def width(self) -> float:
        """Width in pixels, at least that of the title."""
        return max(self.layout.width, ADVANCE * TITLE_SIZE * len(self.title)) + 2 * BOX_PADDING

    @property
    def height(self) -> float:
        return self.layout.height + BOX_TITLE + 2 * BOX_PADDING


@dataclass
class Scene:
    """The picture of a program.

    Attributes:
        title: of the picture.
        boxes: the drawn computations, the entry first.
        calls: each call as the caller's box and node, the callee's box, and the callee's role.
        width, height: in pixels.
    """

    title: str
    boxes: list[Box] = field(default_factory=list[Box])
    calls: list[tuple[Box, Node, Box, str]] = field(default_factory=list[tuple[Box, Node, Box, str]])
    width: float = 0.0
    height: float = 0.0

    @property
    def families(self) -> list[str]:
        """The groups of the legend that occur, in its order."""
        used = {node.family for box in self.boxes for node in box.nodes.values()}
        return [family for family in FAMILIES if family in used]


def scene_of(module: HloModule, *, full: bool = False, most: int = 2000) -> Scene:
    """Lay out the picture of a module.

    Args:
        full: draw all instructions and computations, also small ones.
        most: limit of the number of instructions.

    Raises HloError with the rule ``draw.size`` above the limit.
    """
    _check_size(module.name, sum(len(c) for c in module.computations), most)
    scene = Scene(module.name)
    drawn: dict[HloComputation, Box] = {}
    waiting: list[tuple[HloComputation, int]] = [(module.entry, 0)]
    while waiting:
        computation, column = waiting.pop(0)
        if computation in drawn:
            drawn[computation].column = max(drawn[computation].column, column)
            continue
        box = drawn[computation] = _box(computation, full, computation is module.entry)
        box.column = column
        scene.boxes.append(box)
        for instruction in box.nodes:
            waiting += [(c, column + 1) for c in instruction.called_computations if full or not short_name(c)]
    for box in scene.boxes:
        for instruction, node in box.nodes.items():
            for role, computations in instruction.operation.role_of(instruction):
                scene.calls += [(box, node, drawn[c], role.name) for c in computations if c in drawn]
    _arrange(scene)
    return scene


def scene_around(module: HloModule, name: str, depth: int, *, full: bool = False, most: int = 2000) -> Scene:
    """Lay out the part of a computation that is at most `depth` edges away from an instruction.

    Raises HloError with the rules ``draw.instruction`` (unknown name) and ``draw.size``.
    """
    target = name.removeprefix("%")
    middle = next((i for i in module.instructions() if i.name == target), None)
    if middle is None or middle.parent is None:
        close = difflib.get_close_matches(target, [i.name for i in module.instructions()], 3)
        hint = f"; did you mean {', '.join(close)}?" if close else ""
        raise HloError(f"{module.name} has no instruction %{target}{hint}", rule="draw.instruction")
    members = {middle}
    edge = [middle]
    for _ in range(depth):
        near = dict.fromkeys(n for i in edge for n in _neighbours(i) if n not in members)
        members.update(near)
        edge = list(near)
    _check_size(f"the neighbourhood of %{target}", len(members), most)
    scene = Scene(f"{module.name}: around %{target}, depth {depth}")
    scene.boxes.append(_box(middle.parent, full, middle.parent is module.entry, members))
    _arrange(scene)
    return scene


def _neighbours(i: HloInstruction) -> list[HloInstruction]:
    return [*i.operands, *i.users, *i.control_predecessors, *i.control_successors]


def _check_size(what: str, count: int, most: int) -> None:
    if count > most:
        message = (
            f"{what} has {plural(count, 'instruction')}; more than {most} "
            "cannot be read in a picture: show it with "
            f"hloom view, or draw a part with --around NAME --depth N"
        )
        raise HloError(message, rule="draw.size")


def short_name(computation: HloComputation) -> str:
    """Return the opcode of a computation of one operation on its parameters; empty for others."""
    root = computation.root
    plain = len(computation) <= 3 and all(isinstance(o.operation, Parameter) for o in root.operands)
    if not plain or not root.operands or root.called_computations or isinstance(root.operation, Parameter):
        return ""
    direction = getattr(root.operation, "direction", "")
    return f"{root.opcode} {direction}".strip()


def _box(
    computation: HloComputation, full: bool, is_entry: bool, kept: set[HloInstruction] | None = None
) -> Box:
    order = [i for i in computation.post_order() if kept is None or i in kept]
    inline = {i for i in order if not full and _is_inline(i)}
    nodes = {i: _node(i, inline, full) for i in order if i not in inline}
    sizes: dict[Hashable, tuple[float, float]] = {i: (node.width, node.height) for i, node in nodes.items()}
    edges = [(o, i) for i in nodes for o in (*i.operands, *i.control_predecessors) if o in nodes]
    layout = layered(sizes, edges)
    for instruction, (x, y) in layout.centres.items():
        node = nodes[instruction]  # type: ignore[index]
        node.x, node.y = x, y
    title = f"{'ENTRY ' if is_entry else ''}%{computation.name}"
    return Box(computation, title, nodes, layout)


def _is_inline(instruction: HloInstruction) -> bool:
    """Return whether an instruction is shown in its users: a small constant, its broadcast, or an iota."""
    if instruction.is_root or instruction.control_successors or instruction.control_predecessors:
        return False
    match instruction.operation:
        case Constant():
            return instruction.shape.is_array and instruction.shape.element_count <= 4
        case Broadcast() | Reshape() | Convert():
            operand = instruction.operands[0]
            return isinstance(operand.operation, Constant) and operand.shape.is_scalar
        case operation:
            return isinstance(operation, Iota)


def _node(instruction: HloInstruction, inline: set[HloInstruction], full: bool) -> Node:
    details = [_shape_text(instruction)]
    values = [_inline_text(o) for o in instruction.operands if o in inline]
    if values:
        details.append(_shortened("with " + ", ".join(values)))
    details += [_shortened(text) for text in instruction.operation.highlights()]
    for role, computations in instruction.operation.role_of(instruction):
        words = "by" if role.name == "to_apply" else role.name.replace("_", " ")
        names = [(not full and short_name(c)) or "%" + c.name for c in computations]
        details.append(_shortened(f"{words} {', '.join(names)}"))
    title = instruction.opcode
    if isinstance(instruction.operation, Parameter):
        title = f"parameter {instruction.operation.parameter_number}"
        details.insert(0, _shortened(instruction.name))
    return Node(
        instruction,
        title,
        details,
        family_of(instruction),
        print_instruction(instruction)[:600],
        instruction.is_root,
    )


def family_of(instruction: HloInstruction) -> str:
    """Return the group of the legend that determines the color of an instruction."""
    operation = instruction.operation
    if isinstance(operation, Parameter):
        return "parameter"
    if operation.element_cost is ElementCost.INDEXED:
        return "indexing"
    return _GROUPS[operation.family]


def _shape_text(instruction: HloInstruction) -> str:
    return _shortened(instruction.shape.to_string(layout=False))


def _inline_text(instruction: HloInstruction) -> str:
    if isinstance(instruction.operation, Constant):
        return instruction.operation.literal.to_text()
    return _inline_text(instruction.operands[0]) if instruction.operands else instruction.opcode


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


# -- positions of boxes


def _arrange(scene: Scene) -> None:
    """Place the entry on the left, and called computations in columns to the right, near their callers."""
    columns: dict[int, list[Box]] = {}
    for box in scene.boxes:
        columns.setdefault(box.column, []).append(box)
    x = 0.0
    for number in sorted(columns):
        boxes = columns[number]
        for box in boxes:
            box.x = x
        _stack(boxes, {id(box): _preferred_top(scene, box) for box in boxes})
        x += max(box.width for box in boxes) + COLUMN_GAP
    scene.width = max((box.x + box.width for box in scene.boxes), default=0.0)
    scene.height = max((box.y + box.height for box in scene.boxes), default=0.0)


def _preferred_top(scene: Scene, box: Box) -> float:
    """Return the top that puts the center of a box at the mean height of its callers."""
    callers = [
        caller.y + BOX_TITLE + BOX_PADDING + node.y
        for caller, node, called, _ in scene.calls
        if called is box
    ]
    return sum(callers) / len(callers) - box.height / 2 if callers else 0.0


def _stack(boxes: Sequence[Box], tops: dict[int, float]) -> None:
    """Stack the boxes of a column in the order of their preferred tops, as near to these as possible."""
    ordered = sorted(boxes, key=lambda box: tops[id(box)] + box.height / 2)
    offsets: list[float] = []
    at = 0.0
    for box in ordered:
        offsets.append(at)
        at += box.height + BOX_GAP
    targets = [max(0.0, tops[id(box)]) for box in ordered]
    for box, y in zip(ordered, isotonic(targets, [1.0] * len(ordered), offsets), strict=True):
        box.y = y
    highest = min(box.y for box in ordered)
    for box in ordered:
        box.y -= min(0.0, highest)
