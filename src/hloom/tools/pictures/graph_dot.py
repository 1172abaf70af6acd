"""Pictures of programs in Graphviz' language: a cluster for each computation, with the nodes of the SVG."""

from __future__ import annotations

from collections.abc import Iterator

from hloom.tools.pictures.graph_scene import FAMILIES, Box, Node, Scene
from hloom.visible import visible


def to_dot(scene: Scene) -> str:
    """Return a scene as a Graphviz ``digraph``."""
    return "\n".join(_lines(scene)) + "\n"


def _lines(scene: Scene) -> Iterator[str]:
    names = {id(node): f"n{i}" for i, node in enumerate(n for box in scene.boxes for n in box.nodes.values())}
    yield f"digraph {_quoted(scene.title)} {{"
    yield '  graph [rankdir=TB, compound=true, fontname="Helvetica", labeljust=l, fontsize=12];'
    yield '  node [shape=box, style="rounded,filled", fontname="Helvetica", fontsize=10];'
    yield '  edge [color="#9aa0b0", arrowsize=0.7];'
    for number, box in enumerate(scene.boxes):
        yield from _cluster(number, box, names)
    for _, node, called, role in scene.calls:
        root = next(n for n in called.nodes.values() if n.is_root)
        number = scene.boxes.index(called)
        yield (
            f"  {names[id(node)]} -> {names[id(root)]} [lhead=cluster_{number}, style=dotted, "
            f'color="#c2517c", constraint=false, label={_quoted(role)}];'
        )
    yield "}"


def _cluster(number: int, box: Box, names: dict[int, str]) -> Iterator[str]:
    yield f"  subgraph cluster_{number} {{"
    yield f'    label={_quoted(box.title)}; style="rounded"; color="#c9cdda";'
    for node in box.nodes.values():
        yield f"    {names[id(node)]} [{_attributes(node)}];"
    for source, target in box.layout.paths:
        is_order = source not in target.operands  # type: ignore[attr-defined]
        style = ' [style=dashed, color="#d0565b"]' if is_order else ""
        ends = names[id(box.nodes[source])], names[id(box.nodes[target])]  # type: ignore[index]
        yield f"    {ends[0]} -> {ends[1]}{style};"
    yield "  }"


def _attributes(node: Node) -> str:
    fill, line = FAMILIES[node.family]
    label = _quoted("\n".join([node.title, *node.details]))
    width = 2.5 if node.is_root else 1
    colors = f'fillcolor="{fill}", color="{line}", penwidth={width}'
    return f"label={label}, tooltip={_quoted(node.tooltip)}, {colors}"


def _quoted(text: str) -> str:
    return '"' + visible(text).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
