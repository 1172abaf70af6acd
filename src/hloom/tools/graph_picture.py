"""`hloom draw`: the picture of a program in a file."""

from __future__ import annotations

from pathlib import Path

from hloom.errors import HloError
from hloom.ir.module import HloModule
from hloom.tools.graph_dot import to_dot
from hloom.tools.graph_scene import scene_of
from hloom.tools.graph_svg import to_html, to_svg

_WRITERS = {".svg": to_svg, ".html": to_html, ".dot": to_dot}


def save_picture(module: HloModule, path: Path, *, full: bool = False) -> tuple[int, int]:
    """Draw a program into an .svg, .html or .dot file; returns how many nodes and computations it shows.

    Raises HloError for another suffix, and for a program that is too large to be read in a picture.
    """
    writer = _WRITERS.get(path.suffix)
    if writer is None:
        raise HloError(f"pictures are .svg, .html or .dot, not {path.suffix!r}", rule="draw.suffix")
    scene = scene_of(module, full=full)
    path.write_text(writer(scene))
    return sum(len(box.nodes) for box in scene.boxes), len(scene.boxes)
