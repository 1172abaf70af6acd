"""`hloom draw`: draw a program to a file."""

from __future__ import annotations

from pathlib import Path

from hloom.errors import HloError
from hloom.ir.module import HloModule
from hloom.tools.pictures.graph_dot import to_dot
from hloom.tools.pictures.graph_marks import scene_picture
from hloom.tools.pictures.graph_page import to_html
from hloom.tools.pictures.graph_scene import scene_around, scene_of

_WRITERS = {".html": to_html, ".dot": to_dot}


def save_picture(
    module: HloModule, path: Path, *, full: bool = False, around: str = "", depth: int = 2
) -> tuple[int, int]:
    """Draw a program, or the neighborhood of the instruction `around`, to an .svg, .png, .html or .dot file.

    Return the numbers of drawn instructions and computations. Raises HloError with the rules ``draw.suffix``,
    ``draw.size`` (too large to read) and ``draw.instruction`` (unknown name).
    """
    writer = _WRITERS.get(path.suffix)
    if writer is None and path.suffix not in (".svg", ".png"):
        message = f"pictures are .svg, .png, .html or .dot files, got {path.name!r}"
        raise HloError(message, rule="draw.suffix")
    scene = scene_around(module, around, depth, full=full) if around else scene_of(module, full=full)
    if writer is not None:
        path.write_text(writer(scene))
    else:
        scene_picture(scene).save(path)
    return sum(len(box.nodes) for box in scene.boxes), len(scene.boxes)
