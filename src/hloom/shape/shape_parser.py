"""The text of shapes: `f32[2,<=3]{1,0:T(8,128)}`, `(f32[2]{0}, /*index=1*/token[])`, `b(f32[2])`.

Layouts and tiles are also parsed on their own.

A dump repeats few shapes many times, so results are cached by text: a regular expression finds the extent of
an array or of a flat tuple, which is looked up. A scanner reads new shapes; it also handles comments, blanks
and the older page's tile spelling.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from hloom.errors import HloError
from hloom.regex import regex
from hloom.shape.element_type import ElementType
from hloom.shape.layout import Layout, PaddingValue, SplitConfig, Tile
from hloom.shape.scanner import CharacterScanner, place_in_text
from hloom.shape.shape import Shape

_ARRAY = regex(r"[A-Za-z]\w*\[[0-9,<=?]*+\](?:\{[0-9:][^{}\s/]*+\})?+")
_FLAT_TUPLE = regex(r"\([^()]*+(?:\([^()]*+\)[^()]*+)*+\)")
_LAYOUT_AHEAD = regex(r"\s*(?:/\*|\{\s*(?:[0-9:]|/\*))")
_WORD = regex(r"[A-Za-z]\w*")
_INTEGER = regex(r"-?[0-9]+")
_LAYOUT_START = regex(r"\{(?:\s++|/\*(?:[^*]++|\*(?!/))*+\*/)*+[0-9:]")
_ASTERISK_OPERATOR = "\N{ASTERISK OPERATOR}"
"""The sign for combined dimensions in the page "Tiled layout"."""
_INT64_END = 1 << 63
_DEEPEST_TUPLE = 200
_LONGEST_KEPT_TEXT = 1 << 14


def parse_shape(text: str) -> Shape:
    """Parse the whole of `text` as a shape; otherwise ParseError with the column, or ShapeError."""
    return _parse_kept(text) if len(text) < _LONGEST_KEPT_TEXT else _parse_whole(text)


@lru_cache(maxsize=1 << 12)
def _parse_kept(text: str) -> Shape:
    return _parse_whole(text)


def _parse_whole(text: str) -> Shape:
    shape, end = parse_shape_at(text, 0)
    scanner = _Scanner(text, end)
    if scanner.peek():
        scanner.fail("the end of the shape", "shape.text-ends")
    return shape


def parse_shape_at(text: str, position: int) -> tuple[Shape, int]:
    """Parse the shape that starts at `position`; return it and the position after it, ignoring the rest.

    Raises ParseError or ShapeError with line and column in `text`.
    """
    return _known_shape(text, position) or _Scanner(text, position).read()


def _known_shape(text: str, position: int) -> tuple[Shape, int] | None:
    """Look up the shape at `position` by its text; return None if its extent or form needs the scanner."""
    array = _ARRAY.match(text, position)
    match = array or _FLAT_TUPLE.match(text, position)
    if match is None or len(match[0]) > _LONGEST_KEPT_TEXT:
        return None
    if array is not None and array[0][-1] == "]" and _LAYOUT_AHEAD.match(text, array.end()):
        return None
    try:
        return _shape_of_text(match[0]), match.end()
    except HloError:
        return None  # the scanner refuses it again, with the place in the whole text


@lru_cache(maxsize=1 << 14)
def _shape_of_text(text: str) -> Shape:
    scanner = _Scanner(text, 0)
    shape, end = scanner.read()
    if end != len(text):
        scanner.fail("the end of the shape", "shape.text-ends")
    return shape


def parse_layout(text: str) -> Layout:
    """Parse the whole of `text` as a layout, with or without braces; otherwise ParseError or ShapeError."""
    scanner = _Scanner(text, 0)
    layout = scanner.layout(braces=scanner.peek() == "{")
    if scanner.peek():
        scanner.fail("the end of the layout", "shape.text-ends")
    return layout


def parse_tile(text: str) -> Tile:
    """Parse the whole of `text` as a tile; otherwise ParseError or ShapeError."""
    scanner = _Scanner(text, 0)
    tile = scanner.tile()
    if scanner.peek():
        scanner.fail("the end of the tile", "shape.text-ends")
    return tile


class _Scanner(CharacterScanner):
    """Reads a shape from `position` on."""

    form_rule = "shape.text-form"

    def __init__(self, text: str, position: int) -> None:
        super().__init__(text, position)
        self.depth = 0

    def placed(self, start: int, make: Callable[[], Any]) -> Any:
        """Return the result of `make`; place its errors at `start`."""
        try:
            return make()
        except HloError as error:
            raise error.at(**place_in_text(self.text, start)) from error.__cause__

    def integer(self) -> int:
        self.peek()
        match = _INTEGER.match(self.text, self.position)
        if match is None:
            self.fail("an integer", "shape.text-integer")
        value = int(match[0]) if len(match[0]) < 21 else _INT64_END
        if not -_INT64_END <= value < _INT64_END:
            self.fail("an integer of 64 bits", "shape.text-integer")
        self.position = match.end()
        return value

    def integers(self, close: str) -> tuple[int, ...]:
        """Read comma-separated integers and the closing character `close`."""
        if self.take(close):
            return ()
        values = [self.integer()]
        while self.take(","):
            values.append(self.integer())
        self.expect(close, "after a list of integers")
        return tuple(values)

    def word(self) -> str:
        self.peek()
        match = _WORD.match(self.text, self.position)
        if match is None:
            self.fail("a shape", "shape.text-form")
        self.position = match.end()
        return match[0]

    def read(self) -> tuple[Shape, int]:
        """Read the shape character by character; return it and the position after it."""
        shape = self.tuple_shape() if self.take("(") else self.array_shape()
        return shape, self.position

    def shape(self) -> Shape:
        """Read an inner shape, from the cache if its text is known."""
        if self.peek() != "(":
            known = _known_shape(self.text, self.position)
            if known is not None:
                shape, self.position = known
                return shape
        return self.read()[0]

    def tuple_shape(self) -> Shape:
        self.depth += 1
        if self.depth > _DEEPEST_TUPLE:
            self.fail(f"at most {_DEEPEST_TUPLE} nested tuples", "shape.text-depth")
        shapes: list[Shape] = []
        if not self.take(")"):
            shapes.append(self.shape())
            while self.take(","):
                shapes.append(self.shape())
            self.expect(")", "after the shapes of a tuple")
        self.depth -= 1
        return Shape.tuple_(shapes)

    def array_shape(self) -> Shape:
        self.peek()
        start = self.position
        name = self.word()
        if name == "b" and self.take("("):
            element_shape = self.shape()
            self.expect(")", "after the shape in a buffer")
            return self.placed(start, lambda: Shape.buffer(element_shape))
        if name.lower() in ("tuple", "buffer"):
            self.fail("an element type", "element-type.known", start)
        element_type: ElementType = self.placed(start, lambda: ElementType.parse(name))
        self.expect("[", "before the dimensions")
        sizes, dynamic = self.dimensions()
        layout = None
        if element_type.is_array:
            self.peek()
            if _LAYOUT_START.match(self.text, self.position):
                layout = self.layout()
        return self.placed(start, lambda: Shape(element_type, sizes, dynamic, layout))

    def dimensions(self) -> tuple[list[int], list[bool]]:
        sizes: list[int] = []
        dynamic: list[bool] = []
        if self.take("]"):
            return sizes, dynamic
        while True:
            if self.take("?"):
                sizes.append(Shape.UNBOUNDED)
                dynamic.append(True)
            else:
                bounded = self.take("<")
                if bounded:
                    self.expect("=", "in a dynamic dimension")
                self.peek()
                start = self.position
                sizes.append(self.integer())
                dynamic.append(bounded)
                if sizes[-1] < 0:
                    self.fail("a size that is not negative", "shape.dimension-non-negative", start)
            if not self.take(","):
                break
        self.expect("]", "after the dimensions")
        return sizes, dynamic

    def layout(self, *, braces: bool = True) -> Layout:
        start = self.position
        if braces:
            self.expect("{", "before the layout")
        order = self.layout_order()
        fields: dict[str, Any] = {}
        if self.take(":"):
            self.components(fields)
        if braces:
            self.expect("}", "after the layout")
        return self.placed(start, lambda: Layout(order, **fields))

    def layout_order(self) -> tuple[int, ...]:
        if self.peek() in (":", "}"):
            return ()
        order = [self.integer()]
        while self.take(","):
            order.append(self.integer())
        return tuple(order)

    def components(self, fields: dict[str, object]) -> None:
        """Read the components after the colon, each at most once and in XLA's order."""
        if self.letter("D"):
            self.dimension_level_types()
        if self.letter("T") or self.peek() == "(":
            fields["tiles"] = self.tiles()
        if self.letter("L"):
            fields["tail_padding_alignment_in_elements"] = self.in_parentheses()
        if self.take("#"):
            fields["index_primitive_type"] = self.type_in_parentheses()
        if self.take("*"):
            fields["pointer_primitive_type"] = self.type_in_parentheses()
        if self.letter("E"):
            fields["element_size_in_bits"] = self.in_parentheses()
        if self.letter("S"):
            fields["memory_space"] = self.in_parentheses()
        if self.letter("SC"):
            fields["split_configs"] = self.split_configs()
        if self.letter("P"):
            self.expect("(", "before the physical shape")
            fields["physical_shape"] = self.shape()
            self.expect(")", "after the physical shape")
        if self.letter("M"):
            fields["dynamic_shape_metadata_prefix_bytes"] = self.in_parentheses()
        if self.letter("PD"):
            self.padding(fields)

    def padding(self, fields: dict[str, object]) -> None:
        """Read ``(3,5:zero)``: padded dimensions and the padding value, a field of the older proto."""
        self.expect("(", "before the padded dimensions")
        if self.peek() not in (":", ")"):
            fields["padded_dimensions"] = self.layout_order()
        if self.take(":"):
            self.peek()
            start = self.position
            word = self.word()
            if word.upper() not in PaddingValue.__members__:
                words = ", ".join(value.name.lower() for value in PaddingValue)
                self.fail(f"a padding value ({words})", "layout.padding-value", start)
            fields["padding_value"] = PaddingValue[word.upper()]
        self.expect(")", "after the padding")

    def letter(self, name: str) -> bool:
        """Consume the component name if it is the next word."""
        self.peek()
        match = _WORD.match(self.text, self.position)
        if match is None or match[0] != name:
            return False
        self.position = match.end()
        return True

    def in_parentheses(self) -> int:
        self.expect("(", "before a number")
        value = self.integer()
        self.expect(")", "after a number")
        return value

    def type_in_parentheses(self) -> ElementType:
        self.expect("(", "before an element type")
        self.peek()
        start = self.position
        name = self.word()
        element_type: ElementType = self.placed(start, lambda: ElementType.parse(name))
        self.expect(")", "after an element type")
        return element_type

    def dimension_level_types(self) -> None:
        """Read D(D,C+~,S), per-dimension sparse storage, which XLA still accepts but no longer keeps."""
        self.expect("(", "before the dimension level types")
        while True:
            self.peek()
            if self.text[self.position : self.position + 1] not in ("D", "C", "S"):
                self.fail("D, C or S", "layout.dimension-level-type")
            self.position += 1
            self.take("+")
            self.take("~")
            if not self.take(","):
                break
        self.expect(")", "after the dimension level types")

    def tiles(self) -> tuple[Tile, ...]:
        parsed: list[Tile] = []
        while self.peek() == "(" or not parsed:
            parsed.append(self.tile())
        return tuple(parsed)

    def tile(self) -> Tile:
        start = self.position
        self.expect("(", "before a tile")
        sizes = self.tile_sizes()
        return self.placed(start, lambda: Tile(sizes))

    def tile_sizes(self) -> tuple[int, ...]:
        sizes: list[int] = []
        while self.peek() != ")" or sizes:
            combines = self.take("*") or self.take(_ASTERISK_OPERATOR)
            sizes.append(Tile.COMBINE if combines else self.integer())
            if not self.take(","):
                break
        self.expect(")", "after a tile")
        return tuple(sizes)

    def split_configs(self) -> tuple[SplitConfig, ...]:
        configs: list[SplitConfig] = []
        while self.peek() == "(" or not configs:
            self.expect("(", "before a split")
            dimension = self.integer()
            self.expect(":", "after the split dimension")
            configs.append(SplitConfig(dimension, self.integers(")")))
        return tuple(configs)
