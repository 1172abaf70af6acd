"""Pictures of rectangles, lines and text, written as SVG or PNG."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import field
from pathlib import Path

from hloom.errors import HloError
from hloom.records import dataclass
from hloom.tools.pictures.marks import Curve, Line, Mark, MarkGroup, Rectangle, TextMark, text_width
from hloom.tools.pictures.markup import markup


@dataclass(slots=True)
class Picture:
    """Marks in the order of painting, on white."""

    width: float
    height: float
    title: str = ""
    marks: list[Mark] = field(default_factory=list["Mark"])

    def save(self, path: str | Path) -> None:
        """Write an SVG or PNG file, by suffix. Raises HloError for other suffixes."""
        target = Path(path)
        if target.suffix.lower() == ".svg":
            target.write_text(self.to_svg(), encoding="utf-8")
        elif target.suffix.lower() == ".png":
            target.write_bytes(self.to_png())
        else:
            raise HloError(
                f"pictures are .svg or .png files, got {target.name!r}", rule="picture.format-known"
            )

    def to_svg(self) -> str:
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.width:g}" height="{self.height:g}"'
            f' viewBox="0 0 {self.width:g} {self.height:g}"'
            ' font-family="ui-monospace, Menlo, Consolas, DejaVu Sans Mono, monospace">',
            f"<title>{markup(self.title)}</title>",
            '<rect width="100%" height="100%" fill="#ffffff"/>',
        ]
        parts += [
            f'<marker id="head-{color[1:]}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7"'
            f' markerHeight="7" orient="auto"><path d="M0,0 L8,4 L0,8 L2.2,4 z" fill="{color}"/></marker>'
            for color in dict.fromkeys(_colors(self.marks))
        ]
        parts += [part for mark in self.marks for part in _svg(mark)]
        return "\n".join([*parts, "</svg>\n"])

    def to_png(self, scale: float = 2.0) -> bytes:
        """Return the picture as a PNG file with `scale` pixels per unit; see `raster.py`."""
        from hloom.tools.pictures.raster import rasterize

        return rasterize(self.marks, self.width, self.height, scale)


def _svg(mark: Mark) -> Iterator[str]:
    match mark:
        case MarkGroup(marks, attributes, tooltip):
            named = "".join(f' {name}="{markup(value)}"' for name, value in attributes.items())
            yield f"<g{named}>" + (f"<title>{markup(tooltip)}</title>" if tooltip else "")
            yield from (part for each in marks for part in _svg(each))
            yield "</g>"
        case Curve():
            yield _svg_curve(mark)
        case TextMark():
            yield _svg_text(mark)
        case Line():
            yield _svg_line(mark)
        case Rectangle():
            yield _svg_rectangle(mark)


def _svg_curve(mark: Curve) -> str:
    pieces = ["LC"[len(piece) > 1] + " ".join(f"{x:.5g},{y:.5g}" for x, y in piece) for piece in mark.pieces]
    path = " ".join([f"M{mark.start[0]:.5g},{mark.start[1]:.5g}", *pieces])
    dashes = f' stroke-dasharray="{mark.dashes}"' if mark.dashes else ""
    return (
        f'<path d="{path}" fill="none" stroke="{mark.color}" stroke-width="{mark.width:g}"{dashes}'
        f' marker-end="url(#head-{mark.color[1:]})"/>'
    )


def _colors(marks: Iterable[Mark]) -> Iterator[str]:
    """Yield the colors of curves, which need an arrowhead each."""
    for mark in marks:
        if isinstance(mark, MarkGroup):
            yield from _colors(mark.marks)
        elif isinstance(mark, Curve):
            yield mark.color


def _svg_line(mark: Line) -> str:
    return (
        f'<line x1="{mark.x1:g}" y1="{mark.y1:g}" x2="{mark.x2:g}" y2="{mark.y2:g}"'
        f' stroke="{mark.color}" stroke-width="{mark.width:g}"/>'
    )


def _svg_rectangle(mark: Rectangle) -> str:
    stroke = f' stroke="{mark.stroke}" stroke-width="{mark.stroke_width:g}"' if mark.stroke else ""
    radius = f' rx="{mark.radius:g}"' if mark.radius else ""
    return (
        f'<rect x="{mark.x:g}" y="{mark.y:g}" width="{mark.width:g}" height="{mark.height:g}"{radius}'
        f' fill="{mark.fill or "none"}"{stroke}/>'
    )


def _svg_text(mark: TextMark) -> str:
    # Monospaced fonts have capitals about 0.72 of the font size high; textLength keeps the widths true.
    length = f' textLength="{text_width(mark.text, mark.size):.5g}" lengthAdjust="spacingAndGlyphs"'
    weight = ' font-weight="600"' if mark.bold else ""
    return (
        f'<text x="{mark.x:g}" y="{mark.y:g}" font-size="{mark.size / 0.72:g}" fill="{mark.color}"'
        f' text-anchor="{mark.anchor}"{length if len(mark.text) > 1 else ""}'
        f' xml:space="preserve"{weight}>{markup(mark.text)}</text>'
    )
