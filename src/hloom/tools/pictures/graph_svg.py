"""Pictures of programs as SVG, and as HTML pages in which they can be moved, scaled and searched."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from hloom.ir.instruction import HloInstruction
from hloom.tools.pictures.graph_layout import Point
from hloom.tools.pictures.graph_scene import (
    ADVANCE,
    BOX_PADDING,
    BOX_TITLE,
    DETAIL_SIZE,
    FAMILIES,
    LINE,
    PADDING,
    TITLE_SIZE,
    Box,
    Node,
    Scene,
)
from hloom.tools.pictures.markup import markup

MARGIN: Final = 28.0
HEADER: Final = 44.0
LEGEND: Final = 40.0
FONT: Final = "'DejaVu Sans Mono', 'JetBrains Mono', Menlo, Consolas, monospace"
_BOX_FILLS: Final = ("#fbfbfd", "#f5f6fb", "#eff1f9")


def to_svg(scene: Scene) -> str:
    """Return a scene as an SVG document."""
    width, height = picture_size(scene)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="{FONT}">',
        _defs(),
        f'<rect class="paper" width="{width:.0f}" height="{height:.0f}" fill="#ffffff"/>',
        f'<text x="{MARGIN}" y="{MARGIN + 16}" font-size="18" font-weight="700" fill="#22252e">'
        f"{markup(scene.title)}</text>",
        f'<g transform="translate({MARGIN},{MARGIN + HEADER})">',
        *(_box(box) for box in scene.boxes),
        *(_call(*call) for call in scene.calls),
        *(part for box in scene.boxes for part in _contents(box)),
        "</g>",
        *_legend(scene, height - MARGIN - 14),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def picture_size(scene: Scene) -> tuple[float, float]:
    """Return the width and the height of a scene's picture, with title, legend and margins."""
    legend = sum(34 + ADVANCE * 11 * len(family) for family in scene.families)
    return max(scene.width, legend, 240.0) + 2 * MARGIN, scene.height + HEADER + LEGEND + 2 * MARGIN


def _defs() -> str:
    arrow = '<path d="M0,0 L8,4 L0,8 L2.2,4 z" fill="{0}"/>'
    markers = "".join(
        f'<marker id="{name}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
        f'orient="auto">{arrow.format(color)}</marker>'
        for name, color in (("value", "#9aa0b0"), ("order", "#d0565b"), ("call", "#c2517c"))
    )
    return f"<defs>{markers}</defs>"


# -- boxes and nodes


def box_fill(box: Box) -> str:
    """Return the fill color of a computation, darker with its call depth."""
    return _BOX_FILLS[min(box.column, len(_BOX_FILLS) - 1)]


def _box(box: Box) -> str:
    bounds = f'x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" height="{box.height:.1f}"'
    title = f'x="{box.x + BOX_PADDING:.1f}" y="{box.y + 24:.1f}" font-size="{TITLE_SIZE}" font-weight="700"'
    return (
        f'<g class="box"><rect {bounds} rx="12" fill="{box_fill(box)}" stroke="#c9cdda" stroke-width="1.2"/>'
        f'<text {title} fill="#5b6072">{markup(box.title)}</text></g>'
    )


def _contents(box: Box) -> Iterator[str]:
    x0, y0 = origin(box)
    for (source, target), points in box.layout.paths.items():
        assert isinstance(source, HloInstruction)
        assert isinstance(target, HloInstruction)
        moved = [(x + x0, y + y0) for x, y in points]
        yield _edge(source, target, curve(moved))
    for node in box.nodes.values():
        yield _node(node, x0 + node.x, y0 + node.y)


def _edge(source: HloInstruction, target: HloInstruction, path: str) -> str:
    """Return the path of a value, or of a control dependency, which is red and dashed."""
    look = 'stroke="#9aa0b0" marker-end="url(#value)"'
    if source not in target.operands:
        look = 'stroke="#d0565b" stroke-dasharray="4 3" marker-end="url(#order)"'
    names = f'data-from="{markup(source.name)}" data-to="{markup(target.name)}"'
    return f'<path class="edge" {names} d="{path}" fill="none" stroke-width="1.3" {look}/>'


def origin(box: Box) -> Point:
    """Return the upper left corner of a box's content."""
    slack = (box.width - 2 * BOX_PADDING - box.layout.width) / 2
    return box.x + BOX_PADDING + slack, box.y + BOX_TITLE + BOX_PADDING


def _node(node: Node, x: float, y: float) -> str:
    fill, line = FAMILIES[node.family]
    x0, y0 = x - node.width / 2, y - node.height / 2
    width = 2.6 if node.is_root else 1.2
    texts = [
        f'<text x="{x:.1f}" y="{y0 + PADDING + 9:.1f}" font-size="{TITLE_SIZE}" font-weight="700" '
        f'text-anchor="middle" fill="#22252e">{markup(node.title)}</text>'
    ]
    for i, detail in enumerate(node.details):
        texts.append(
            f'<text x="{x:.1f}" y="{y0 + PADDING + 9 + LINE * (i + 1):.1f}" font-size="{DETAIL_SIZE}" '
            f'text-anchor="middle" fill="#565b6b">{markup(detail)}</text>'
        )
    return (
        f'<g class="node" data-name="{markup(node.instruction.name)}"><title>{markup(node.tooltip)}</title>'
        f'<rect x="{x0:.1f}" y="{y0:.1f}" width="{node.width:.1f}" height="{node.height:.1f}" rx="7" '
        f'fill="{fill}" stroke="{line}" stroke-width="{width}"/>' + "".join(texts) + "</g>"
    )


# -- edges


def curve(points: Sequence[Point]) -> str:
    """Return the SVG path of a smooth curve through points of increasing y, vertical at each of them."""
    parts = [f"M{points[0][0]:.1f},{points[0][1]:.1f}"]
    for (x, y), (u, v) in pairwise(points):
        bend = (v - y) * 0.5
        if abs(u - x) < 0.5:
            parts.append(f"L{u:.1f},{v:.1f}")
        else:
            parts.append(f"C{x:.1f},{y + bend:.1f} {u:.1f},{v - bend:.1f} {u:.1f},{v:.1f}")
    return " ".join(parts)


def _call(box: Box, node: Node, called: Box, role: str) -> str:
    x0, y0 = origin(box)
    x, y = x0 + node.x + node.width / 2, y0 + node.y
    u, v = called.x, called.y + 20
    bend = max(40.0, (u - x) * 0.5)
    path = f"M{x:.1f},{y:.1f} C{x + bend:.1f},{y:.1f} {u - bend:.1f},{v:.1f} {u:.1f},{v:.1f}"
    return (
        f'<path class="call" d="{path}" fill="none" stroke="#c2517c" stroke-width="1.3" '
        f'stroke-dasharray="2 4" stroke-linecap="round" marker-end="url(#call)">'
        f"<title>{markup(role)}</title></path>"
    )


# -- the legend


def _legend(scene: Scene, y: float) -> Iterator[str]:
    x = MARGIN
    for family in scene.families:
        fill, line = FAMILIES[family]
        yield (
            f'<rect x="{x:.1f}" y="{y:.1f}" width="14" height="14" rx="4" fill="{fill}" stroke="{line}"/>'
            f'<text x="{x + 20:.1f}" y="{y + 11:.1f}" font-size="11" fill="#565b6b">{family}</text>'
        )
        x += 34 + ADVANCE * 11 * len(family)


# -- HTML


def to_html(scene: Scene) -> str:
    """Return a page with a scene: drag moves, the wheel scales, hovering marks neighbors, typing finds."""
    return _PAGE.replace("@TITLE@", markup(scene.title)).replace("@SVG@", to_svg(scene))


_PAGE: Final = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>@TITLE@</title>
<style>
  html, body { margin: 0; height: 100%; overflow: hidden; background: #fff; }
  svg { width: 100vw; height: 100vh; cursor: grab; }
  svg.dragging { cursor: grabbing; }
  .node, .edge { transition: opacity .12s; }
  svg.focus .node, svg.focus .edge { opacity: .18; }
  svg.focus .near { opacity: 1; }
  .edge.near { stroke: #22252e; }
  .found rect { stroke: #d00000; stroke-width: 3; }
  #search { position: fixed; right: 16px; top: 16px; width: 220px; padding: 7px 10px; font: 13px system-ui;
            border: 1px solid #c9cdda; border-radius: 8px; box-shadow: 0 2px 8px #0001; }
</style>
<input id="search" placeholder="search instructions" aria-label="search instructions">
@SVG@
<script>
const svg = document.querySelector('svg');
let [x, y, w, h] = svg.getAttribute('viewBox').split(' ').map(Number);
svg.removeAttribute('width'); svg.removeAttribute('height');
svg.setAttribute('preserveAspectRatio', 'xMidYMin meet');
const show = () => svg.setAttribute('viewBox', `${x} ${y} ${w} ${h}`);
const scale = () => Math.max(w / svg.clientWidth, h / svg.clientHeight);
svg.addEventListener('wheel', event => {
  event.preventDefault();
  const factor = Math.exp(event.deltaY * 0.0012), point = svg.createSVGPoint();
  point.x = event.clientX; point.y = event.clientY;
  const at = point.matrixTransform(svg.getScreenCTM().inverse());
  x = at.x - (at.x - x) * factor; y = at.y - (at.y - y) * factor; w *= factor; h *= factor;
  show();
}, { passive: false });
let drag = null;
svg.addEventListener('pointerdown', event => {
  drag = [event.clientX, event.clientY]; svg.classList.add('dragging');
});
addEventListener('pointerup', () => { drag = null; svg.classList.remove('dragging'); });
addEventListener('pointermove', event => {
  if (!drag) return;
  x -= (event.clientX - drag[0]) * scale(); y -= (event.clientY - drag[1]) * scale();
  drag = [event.clientX, event.clientY]; show();
});
const nodes = [...svg.querySelectorAll('.node')], edges = [...svg.querySelectorAll('.edge')];
for (const node of nodes) {
  node.addEventListener('mouseenter', () => {
    const name = node.dataset.name, near = new Set([name]);
    svg.classList.add('focus');
    for (const edge of edges) if (edge.dataset.from === name || edge.dataset.to === name) {
      edge.classList.add('near'); near.add(edge.dataset.from); near.add(edge.dataset.to);
    }
    for (const other of nodes) if (near.has(other.dataset.name)) other.classList.add('near');
  });
  node.addEventListener('mouseleave', () => {
    svg.classList.remove('focus');
    for (const part of [...nodes, ...edges]) part.classList.remove('near');
  });
}
document.getElementById('search').addEventListener('input', event => {
  const text = event.target.value.toLowerCase();
  for (const node of nodes)
    node.classList.toggle('found', text !== '' && node.textContent.toLowerCase().includes(text));
});
</script>
</html>
"""
