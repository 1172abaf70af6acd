"""Pictures of programs as HTML pages, in which they can be moved, scaled and searched."""

from __future__ import annotations

from typing import Final

from hloom.tools.pictures.graph_marks import scene_picture
from hloom.tools.pictures.graph_scene import Scene
from hloom.tools.pictures.markup import markup


def to_html(scene: Scene) -> str:
    """Return a page with a scene: drag moves, the wheel scales, hovering marks neighbors, typing finds."""
    svg = scene_picture(scene).to_svg()
    return _PAGE.replace("@TITLE@", markup(scene.title)).replace("@SVG@", svg)


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
