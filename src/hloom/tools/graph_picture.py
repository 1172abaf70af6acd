"""`hloom draw`: write the picture of a program to a file."""

from __future__ import annotations

from pathlib import Path

from hloom.errors import HloError
from hloom.ir.module import HloModule
from hloom.tools.graph_dot import to_dot
from hloom.tools.graph_scene import scene_of
from hloom.tools.graph_svg import to_html, to_svg

_WRITERS = {".svg": to_svg, ".html": to_html, ".dot": to_dot}


def save_picture(module: HloModule, path: Path, *, full: bool = False) -> tuple[int, int]:
    """Draw a program into an .svg, .html or .dot file; return the numbers of drawn nodes and computations.

    Raises HloError for another suffix (``draw.suffix``), and for a program that is too large (``draw.size``).
    """
    writer = _WRITERS.get(path.suffix)
    if writer is None:
        raise HloError(f"pictures are .svg, .html or .dot files, got {path.name!r}", rule="draw.suffix")
    scene = scene_of(module, full=full)
    path.write_text(writer(scene))
    return sum(len(box.nodes) for box in scene.boxes), len(scene.boxes)
