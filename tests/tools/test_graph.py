"""Pictures of programs: nothing overlaps, edges go down, small things stand where they are used."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hloom
from hloom import HloError, HloModule
from hloom.tools.pictures.graph_dot import to_dot
from hloom.tools.pictures.graph_layout import layered
from hloom.tools.pictures.graph_marks import scene_picture
from hloom.tools.pictures.graph_page import to_html
from hloom.tools.pictures.graph_picture import save_picture
from hloom.tools.pictures.graph_scene import scene_around, scene_of
from hloom.tools.pictures.marks import Line, Rectangle, TextMark, simple
from tests import agreement
from tests.reducers import with_reducers

WORKLOADS = Path(__file__).parents[2] / "examples" / "workloads"
NAMES = ["softmax", "lstm_scan", "transformer_block", "sort"]


@st.composite
def graphs(draw: st.DrawFn) -> tuple[dict[int, tuple[float, float]], list[tuple[int, int]]]:
    count = draw(st.integers(1, 25))
    sizes: dict[int, tuple[float, float]] = {
        i: (draw(st.integers(10, 90)), draw(st.integers(10, 60))) for i in range(count)
    }
    pairs = st.tuples(st.integers(0, count - 1), st.integers(0, count - 1))
    edges = [(a, b) for a, b in draw(st.lists(pairs, max_size=50)) if a < b]
    return sizes, edges


@given(graphs())
def test_nodes_do_not_overlap_and_edges_go_down(graph) -> None:
    sizes, edges = graph
    found = layered(sizes, edges)
    boxes = {
        i: (x - sizes[i][0] / 2, y - sizes[i][1] / 2, x + sizes[i][0] / 2, y + sizes[i][1] / 2)
        for i, (x, y) in found.centres.items()
    }
    assert boxes.keys() == sizes.keys()
    for i, (left, top, right, bottom) in boxes.items():
        assert left >= -0.01
        assert top >= -0.01
        assert right <= found.width + 0.01
        assert bottom <= found.height + 0.01
        for j, other in boxes.items():
            assert i == j or right <= other[0] or other[2] <= left or bottom <= other[1] or other[3] <= top
    for (source, target), points in found.paths.items():
        heights = [y for _, y in points]
        assert heights == sorted(heights)
        agreement.near(points[0][1], boxes[source][3], 4)
        agreement.near(points[-1][1], boxes[target][1], 4)
    assert found.paths.keys() == set(edges)


@given(graphs())
def test_edges_cross_no_node(graph) -> None:
    sizes, edges = graph
    found = layered(sizes, edges)
    for (source, target), points in found.paths.items():
        for (x, y), (u, v) in pairwise(points):
            if abs(x - u) > 0.1:
                continue
            for node, (a, b) in found.centres.items():
                width, height = sizes[node]
                inside = (
                    abs(a - x) < width / 2 - 0.01 and y < b + height / 2 - 0.01 and v > b - height / 2 + 0.01
                )
                assert node in (source, target) or not inside


def test_chains_stand_exactly_under_each_other() -> None:
    found = layered(dict.fromkeys(range(5), (40.0, 20.0)), [(i, i + 1) for i in range(4)])
    assert len({round(x, 6) for x, _ in found.centres.values()}) == 1


def test_an_empty_graph() -> None:
    assert layered({}, []).width == 0


@pytest.mark.parametrize("name", NAMES)
def test_pictures_are_well_formed(name: str) -> None:
    scene = scene_of(hloom.load(WORKLOADS / f"{name}.hlo"))
    svg = ElementTree.fromstring(scene_picture(scene).to_svg())
    shown = [g for g in svg.iter("{http://www.w3.org/2000/svg}g") if g.get("class") == "node"]
    assert len(shown) == sum(len(box.nodes) for box in scene.boxes)
    assert to_html(scene).count('class="node"') == len(shown)
    assert to_dot(scene).count("fillcolor=") == len(shown)


@pytest.mark.parametrize("name", NAMES)
def test_boxes_do_not_overlap(name: str) -> None:
    boxes = scene_of(hloom.load(WORKLOADS / f"{name}.hlo")).boxes
    for a in boxes:
        for b in boxes:
            apart = (
                a.x + a.width <= b.x or b.x + b.width <= a.x or a.y + a.height <= b.y or b.y + b.height <= a.y
            )
            assert a is b or apart


PROGRAM = with_reducers("""HloModule m

ENTRY e {
  p = f32[4] parameter(0)
  z = f32[] constant(2.5)
  w = f32[4] broadcast(z), dimensions={}
  t = f32[4] multiply(p, w)
  k = f32[4] abs(p), control-predecessors={t}
  u = f32[4] add(t, k)
  ROOT r = f32[] reduce(u, z), dimensions={0}, to_apply=add
}
""")


def test_small_things_stand_where_they_are_used() -> None:
    scene = scene_of(HloModule.from_text(PROGRAM))
    (box,) = scene.boxes
    nodes = {i.name: node for i, node in box.nodes.items()}
    assert sorted(nodes) == ["k", "p", "r", "t", "u"]
    assert nodes["t"].details == ["f32[4]", "with 2.5"]
    assert nodes["r"].details == ["f32[]", "with 2.5", "dimensions {0}", "by add"]
    assert nodes["r"].is_root


@pytest.mark.parametrize(("opcode", "family"), [("reverse", "movement"), ("transpose", "indexing")])
def test_what_reads_memory_in_another_order_has_its_own_color(opcode: str, family: str) -> None:
    text = f"HloModule m\nENTRY e {{ p = f32[4] parameter(0) ROOT r = f32[4] {opcode}(p), dimensions={{0}} }}"
    (box,) = scene_of(HloModule.from_text(text)).boxes
    assert [node.family for node in box.nodes.values()] == ["parameter", family]


def test_everything_can_be_shown() -> None:
    scene = scene_of(HloModule.from_text(PROGRAM), full=True)
    assert [box.title for box in scene.boxes] == ["ENTRY %e", "%add"]
    assert len(scene.boxes[0].nodes) == 7
    assert len(scene.calls) == 1


def test_control_dependencies_are_dashed() -> None:
    svg = scene_picture(scene_of(HloModule.from_text(PROGRAM))).to_svg()
    assert svg.count("stroke-dasharray") == 1
    assert 'data-from="t" data-to="k"' in svg
    assert "style=dashed" in to_dot(scene_of(HloModule.from_text(PROGRAM)))


def test_names_are_escaped() -> None:
    text = PROGRAM.replace("abs(p)", 'abs(p), metadata={op_name="a<b & \\"c\\""}')
    ElementTree.fromstring(scene_picture(scene_of(HloModule.from_text(text))).to_svg())


def test_what_nobody_could_read_is_not_drawn() -> None:
    with pytest.raises(HloError) as caught:
        scene_of(HloModule.from_text(PROGRAM), most=5)
    assert caught.value.rule == "draw.size"


# -- a part of a program, and pixels


CHAIN = (
    "HloModule chain\nENTRY e {\n  n0 = f32[8] parameter(0)\n"
    + "".join(f"  n{i + 1} = f32[8] abs(n{i})\n" for i in range(9))
    + "  ROOT r = f32[8] add(n9, n2)\n}\n"
)


@pytest.mark.parametrize(
    ("name", "depth", "wanted"),
    [
        ("n5", 0, {"n5"}),
        ("%n5", 2, {"n3", "n4", "n5", "n6", "n7"}),
        ("n2", 1, {"n1", "n2", "n3", "r"}),
    ],
)
def test_what_is_around_an_instruction(name: str, depth: int, wanted: set[str]) -> None:
    (box,) = scene_around(HloModule.from_text(CHAIN), name, depth).boxes
    assert {i.name for i in box.nodes} == wanted


def test_an_unknown_instruction_is_refused_with_names_near_to_it() -> None:
    with pytest.raises(HloError, match="did you mean n5") as caught:
        scene_around(HloModule.from_text(CHAIN), "n55", 1)
    assert caught.value.rule == "draw.instruction"


def test_large_programs_are_refused_with_what_to_do_instead() -> None:
    with pytest.raises(HloError, match="hloom view, or draw a part with --around"):
        scene_of(HloModule.from_text(CHAIN), most=5)
    assert scene_around(HloModule.from_text(CHAIN), "n5", 1, most=5).boxes


@pytest.mark.parametrize("name", NAMES)
def test_the_pixels_show_what_the_svg_shows(name: str) -> None:
    scene = scene_of(HloModule.from_text((WORKLOADS / f"{name}.hlo").read_text()))
    picture = scene_picture(scene)
    drawn = ElementTree.fromstring(picture.to_svg())
    assert drawn.attrib["viewBox"] == f"0 0 {picture.width:g} {picture.height:g}"
    painted = list(simple(picture.marks))
    rectangles, texts, paths = svg_marks(drawn)
    marks = [(m.text, m.color, m.x, m.y) for m in painted if isinstance(m, TextMark)]
    assert_near(sorted(marks), sorted(texts))
    outlines = [(m.fill, m.stroke, m.x, m.y, m.width, m.height) for m in painted if isinstance(m, Rectangle)]
    assert_near(sorted(outlines), sorted(rectangles))
    lines = [m for m in painted if isinstance(m, Line)]
    ends = {(round(x), round(y)) for m in lines for x, y in ((m.x1, m.y1), (m.x2, m.y2))}
    for x, y in paths:
        near = {(round(x) + i, round(y) + j) for i in (-1, 0, 1) for j in (-1, 0, 1)}
        assert near & ends, (x, y)


def svg_marks(element: ElementTree.Element) -> tuple[list, list, list]:
    """Return rectangles, texts and points of paths of a drawing."""
    tag, get = element.tag.split("}")[-1], element.get
    found: tuple[list, list, list] = [], [], []
    if tag == "rect" and get("width") != "100%":
        box = (float(element.attrib[name]) for name in ("x", "y", "width", "height"))
        found[0].append((get("fill"), get("stroke"), *box))
    elif tag == "text":
        found[1].append((element.text, get("fill"), float(element.attrib["x"]), float(element.attrib["y"])))
    elif tag == "path" and get("fill") == "none":
        found[2].extend(curve_points(element.attrib["d"]))
    for child in element if tag != "marker" else ():
        for own, more in zip(found, svg_marks(child), strict=True):
            own.extend(more)
    return found


def curve_points(path: str) -> Iterator[tuple[float, float]]:
    """Yield the ends of lines and curves of a path, and two points of each curve.

    The point in the middle does not tell how a curve bends.
    """
    last = (0.0, 0.0)
    for command, numbers in re.findall(r"([MLC])([^MLC]*)", path):
        values = [float(n) for n in re.findall(r"-?[\d.]+", numbers)]
        points = [last, *zip(values[::2], values[1::2], strict=True)]
        for t in (0.2, 0.5) if command == "C" else ():
            weights = ((1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t * t * (1 - t), t**3)
            x, y = (sum(w * p[k] for w, p in zip(weights, points, strict=True)) for k in (0, 1))
            yield x, y
        last = points[-1]
        yield last


def assert_near(marks: list, drawn: list) -> None:
    """Assert that marks have the words and, to the tenth that is printed, the numbers of drawn ones."""
    assert len(marks) == len(drawn)
    for mark, other in zip(marks, drawn, strict=True):
        for a, b in zip(mark, other, strict=True):
            assert a == b if isinstance(a, str) else abs(a - b) <= 0.0501, (mark, other)


def test_a_png_file(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    path = tmp_path / "chain.png"
    assert save_picture(HloModule.from_text(CHAIN), path, around="n5", depth=1) == (3, 1)
    with image.open(path) as picture:
        assert picture.width > 400
        assert len(picture.getcolors(maxcolors=1 << 24)) > 10
