"""Layered drawing of directed acyclic graphs, after Sugiyama, Tagawa and Toda (1981).

Nodes are assigned to layers so that edges point down and are short; an edge has a bend in each layer that it
crosses. Sweeps order each layer by the median position of the neighbors, and the order with the fewest
crossings is used. Coordinates are computed layer by layer: isotonic regression finds those nearest to the
mean of the neighbors that respect order and distances. Edges move sideways only between layers, so that they
never cross a node.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import field
from itertools import pairwise
from typing import Final, TypeAlias

from hloom.records import dataclass

Key: TypeAlias = Hashable
Point: TypeAlias = tuple[float, float]

NODE_GAP: Final = 18.0
BEND_GAP: Final = 8.0
LAYER_GAP: Final = 34.0
_ORDER_SWEEPS: Final = 12
_PLACE_SWEEPS: Final = 24


@dataclass
class GraphLayout:
    """Coordinates of nodes and edges, in pixels from the upper left corner.

    Attributes:
        centres: the center of each node.
        paths: the points of each edge, from the bottom of its source to the top of its target.
        width, height: of the drawing.
    """

    centres: dict[Key, Point] = field(default_factory=dict[Key, Point])
    paths: dict[tuple[Key, Key], list[Point]] = field(default_factory=dict[tuple[Key, Key], list[Point]])
    width: float = 0.0
    height: float = 0.0


@dataclass(frozen=True)
class _Bend:
    """The crossing of an edge and a layer."""

    edge: tuple[Key, Key]
    layer: int


def layered(sizes: Mapping[Key, tuple[float, float]], edges: Iterable[tuple[Key, Key]]) -> GraphLayout:
    """Lay out a graph.

    Args:
        sizes: width and height of each node, in topological order.
        edges: pairs of an earlier and a later node.
    """
    unique = list(dict.fromkeys(edges))
    layer_of = _layers(list(sizes), unique)
    chains = [_chain(edge, layer_of) for edge in unique]
    layers = _filled(layer_of, chains)
    above, below = _neighbours(chains)
    layers = _ordered(layers, above, below)
    widths: dict[Key, float] = {key: size[0] for key, size in sizes.items()}
    places = _placed(layers, above, below, widths)
    return _assembled(layers, places, sizes, chains)


# -- layers


def _layers(nodes: Sequence[Key], edges: Sequence[tuple[Key, Key]]) -> dict[Key, int]:
    """Assign a layer to each node by the longest path from above; move branches with one user down to it."""
    after: dict[Key, list[Key]] = {node: [] for node in nodes}
    before: dict[Key, list[Key]] = {node: [] for node in nodes}
    for source, target in edges:
        after[source].append(target)
        before[target].append(source)
    layer: dict[Key, int] = {}
    for node in nodes:
        layer[node] = max((layer[source] + 1 for source in before[node]), default=0)
    loose: dict[Key, bool] = {}
    for node in nodes:
        loose[node] = all(loose[source] and len(after[source]) == 1 for source in before[node])
    for node in reversed(nodes):
        room = min((layer[target] for target in after[node]), default=layer[node] + 1) - 1
        if room > layer[node] and (loose[node] or len(before[node]) < len(after[node])):
            layer[node] = room
    return layer


def _chain(edge: tuple[Key, Key], layer_of: Mapping[Key, int]) -> list[Key]:
    """Return the nodes and bends along an edge."""
    source, target = edge
    between = range(layer_of[source] + 1, layer_of[target])
    return [source, *(_Bend(edge, layer) for layer in between), target]


def _filled(layer_of: Mapping[Key, int], chains: Sequence[Sequence[Key]]) -> list[list[Key]]:
    layers: list[list[Key]] = [[] for _ in range(max(layer_of.values(), default=-1) + 1)]
    for node, layer in layer_of.items():
        layers[layer].append(node)
    for chain in chains:
        for bend in chain[1:-1]:
            assert isinstance(bend, _Bend)
            layers[bend.layer].append(bend)
    return layers


def _neighbours(chains: Sequence[Sequence[Key]]) -> tuple[dict[Key, list[Key]], dict[Key, list[Key]]]:
    above: dict[Key, list[Key]] = {}
    below: dict[Key, list[Key]] = {}
    for chain in chains:
        for upper, lower in pairwise(chain):
            below.setdefault(upper, []).append(lower)
            above.setdefault(lower, []).append(upper)
    return above, below


# -- the order in the layers


def _ordered(
    layers: list[list[Key]], above: Mapping[Key, list[Key]], below: Mapping[Key, list[Key]]
) -> list[list[Key]]:
    """Order layers by median sweeps down and up; return the order with the fewest crossings."""
    best, fewest = [list(layer) for layer in layers], _crossings(layers, below)
    for sweep in range(_ORDER_SWEEPS):
        down = sweep % 2 == 0
        numbers = range(1, len(layers)) if down else range(len(layers) - 2, -1, -1)
        for number in numbers:
            beside = layers[number - 1 if down else number + 1]
            position = {node: float(i) for i, node in enumerate(beside)}
            neighbours = above if down else below
            layers[number] = _by_median(layers[number], neighbours, position)
        count = _crossings(layers, below)
        if count < fewest:
            best, fewest = [list(layer) for layer in layers], count
        if not count:
            break
    return best


def _by_median(
    layer: Sequence[Key], neighbours: Mapping[Key, list[Key]], place: Mapping[Key, float]
) -> list[Key]:
    """Sort a layer by the median position of neighbors; nodes without neighbors stay in place."""
    keys: list[float] = []
    for i, node in enumerate(layer):
        places = sorted(place[n] for n in neighbours.get(node, ()) if n in place)
        half = len(places) // 2
        middle = places[half] if len(places) % 2 else (places[half - 1] + places[half]) / 2 if places else i
        keys.append(middle)
    return [layer[i] for i in sorted(range(len(layer)), key=lambda i: (keys[i], i))]


def _crossings(layers: Sequence[Sequence[Key]], below: Mapping[Key, list[Key]]) -> int:
    """Count the crossings of edges as inversions between adjacent layers."""
    total = 0
    for upper, lower in pairwise(layers):
        position = {node: i for i, node in enumerate(lower)}
        seen: list[int] = []
        for node in upper:
            targets = sorted(position[n] for n in below.get(node, ()))
            for target in targets:
                total += len(seen) - bisect_left(seen, target + 1)
            for target in targets:
                seen.insert(bisect_left(seen, target), target)
    return total


# -- coordinates in the layers


def _placed(
    layers: Sequence[Sequence[Key]],
    above: Mapping[Key, list[Key]],
    below: Mapping[Key, list[Key]],
    widths: Mapping[Key, float],
) -> dict[Key, float]:
    """Return the x coordinate of each node and bend, by sweeps towards the weighted mean of the neighbors."""
    x: dict[Key, float] = {}
    offsets = [_offsets(layer, widths) for layer in layers]
    for layer, offset in zip(layers, offsets, strict=True):
        middle = offset[-1] / 2 if offset else 0.0
        x |= {node: position - middle for node, position in zip(layer, offset, strict=True)}
    for sweep in range(_PLACE_SWEEPS):
        down = sweep % 2 == 0
        numbers = range(len(layers)) if down else range(len(layers) - 1, -1, -1)
        last = sweep >= _PLACE_SWEEPS - 4
        for number in numbers:
            layer, offset = layers[number], offsets[number]
            targets: list[float] = []
            weights: list[float] = []
            for node in layer:
                near = (above if down else below).get(node, [])
                if last:
                    near = [*above.get(node, ()), *below.get(node, ())]
                pulls = [(x[n], _pull(node, n)) for n in near]
                weight = sum(w for _, w in pulls)
                targets.append(sum(p * w for p, w in pulls) / weight if pulls else x[node])
                weights.append(weight if pulls else 0.05)
            x.update(zip(layer, isotonic(targets, weights, offset), strict=True))
    _straightened(layers, x, above, below, widths)
    return x


def _pull(node: Key, other: Key) -> float:
    """Return the weight of a neighbor's position: higher between bends, to straighten long edges."""
    bends = isinstance(node, _Bend) + isinstance(other, _Bend)
    return (1.0, 2.0, 6.0)[bends]


def _offsets(layer: Sequence[Key], widths: Mapping[Key, float]) -> list[float]:
    """Return the smallest x coordinates of a layer's nodes without overlaps, from 0."""
    places: list[float] = []
    for i, node in enumerate(layer):
        if i == 0:
            places.append(0.0)
            continue
        previous = layer[i - 1]
        bends = isinstance(node, _Bend) or isinstance(previous, _Bend)
        gap = BEND_GAP if bends else NODE_GAP
        places.append(places[-1] + (widths.get(previous, 0.0) + widths.get(node, 0.0)) / 2 + gap)
    return places


def isotonic(targets: Sequence[float], weights: Sequence[float], offsets: Sequence[float]) -> list[float]:
    """Return positions whose distances are at least those of the offsets, nearest to the targets.

    The weighted least-squares solution is an isotonic regression of targets minus offsets: adjacent values
    out of order are pooled.
    """
    pools: list[tuple[float, float, int]] = []
    for target, weight, offset in zip(targets, weights, offsets, strict=True):
        mean, total, count = target - offset, weight, 1
        while pools and pools[-1][0] > mean:
            other, amount, members = pools.pop()
            mean = (mean * total + other * amount) / (total + amount)
            total, count = total + amount, count + members
        pools.append((mean, total, count))
    flat = [mean for mean, _, count in pools for _ in range(count)]
    return [position + offset for position, offset in zip(flat, offsets, strict=True)]


def _straightened(
    layers: Sequence[Sequence[Key]],
    x: dict[Key, float],
    above: Mapping[Key, list[Key]],
    below: Mapping[Key, list[Key]],
    widths: Mapping[Key, float],
) -> None:
    """Align chains of nodes and bends vertically where there is room."""
    runs = _runs(layers, above, below)
    beside: dict[Key, tuple[Key | None, Key | None]] = {}
    for layer in layers:
        for i, node in enumerate(layer):
            beside[node] = (layer[i - 1] if i else None, layer[i + 1] if i + 1 < len(layer) else None)
    for _ in range(4):
        for run in runs:
            low, high = float("-inf"), float("inf")
            for node in run:
                previous, following = beside[node]
                if previous is not None:
                    low = max(low, x[previous] + _offsets([previous, node], widths)[1])
                if following is not None:
                    high = min(high, x[following] - _offsets([node, following], widths)[1])
            if low <= high:
                middle = sum(x[node] for node in run) / len(run)
                x.update(dict.fromkeys(run, min(max(middle, low), high)))


def _runs(
    layers: Sequence[Sequence[Key]], above: Mapping[Key, list[Key]], below: Mapping[Key, list[Key]]
) -> list[list[Key]]:
    """Return the maximal chains in which each node is its predecessor's only successor, and vice versa."""
    runs: list[list[Key]] = []
    run_of: dict[Key, list[Key]] = {}
    for layer in layers:
        for node in layer:
            before = above.get(node, [])
            follows = len(before) == 1 and len(below[before[0]]) == 1
            if follows:
                run_of[node] = run_of[before[0]]
                run_of[node].append(node)
            else:
                run_of[node] = [node]
                runs.append(run_of[node])
    return [run for run in runs if len(run) > 1]


# -- the result


def _assembled(
    layers: Sequence[Sequence[Key]],
    x: Mapping[Key, float],
    sizes: Mapping[Key, tuple[float, float]],
    chains: Sequence[Sequence[Key]],
) -> GraphLayout:
    sides = [center - (sizes[node][0] / 2 if node in sizes else 0.0) for node, center in x.items()]
    left_edge = min(sides, default=0.0)
    layout = GraphLayout()
    bands: list[tuple[float, float]] = []
    bottom = 0.0
    for layer in layers:
        height = max((sizes[node][1] for node in layer if node in sizes), default=0.0)
        bands.append((bottom, bottom + height))
        bottom += height + LAYER_GAP
    layout.height = max(0.0, bottom - LAYER_GAP)
    layer_of = {node: number for number, layer in enumerate(layers) for node in layer}
    for node, number in layer_of.items():
        width = sizes[node][0] if node in sizes else 0.0
        layout.width = max(layout.width, x[node] - left_edge + width / 2)
        if node in sizes:
            layout.centres[node] = (x[node] - left_edge, sum(bands[number]) / 2)
    entries = _entry_places(chains, x)
    for chain in chains:
        source, target = chain[0], chain[-1]
        reach = entries[(source, target)] * min(0.7 * sizes[target][0], 60.0)
        layout.paths[(source, target)] = _path(chain, x, left_edge, reach, layout, bands, layer_of, sizes)
    return layout


def _path(
    chain: Sequence[Key],
    x: Mapping[Key, float],
    left: float,
    reach: float,
    found: GraphLayout,
    bands: Sequence[tuple[float, float]],
    layer_of: Mapping[Key, int],
    sizes: Mapping[Key, tuple[float, float]],
) -> list[Point]:
    """Return the points of an edge, which moves sideways only between layers."""
    source, target = chain[0], chain[-1]
    start, end = x[source] - left, x[target] - left + reach
    points = [
        (start, found.centres[source][1] + sizes[source][1] / 2),
        (start, bands[layer_of[source]][1]),
    ]
    for bend in chain[1:-1]:
        top, bottom = bands[layer_of[bend]]
        points += [(x[bend] - left, top), (x[bend] - left, bottom)]
    points += [
        (end, bands[layer_of[target]][0]),
        (end, found.centres[target][1] - sizes[target][1] / 2),
    ]
    return [point for i, point in enumerate(points) if i == 0 or abs(point[1] - points[i - 1][1]) > 0.1]


def _entry_places(chains: Sequence[Sequence[Key]], x: Mapping[Key, float]) -> dict[tuple[Key, Key], float]:
    """Return where each edge enters its target, from -0.5 (left) to 0.5, in the order of the sources."""
    arriving: dict[Key, list[tuple[float, Key]]] = {}
    for chain in chains:
        arriving.setdefault(chain[-1], []).append((x[chain[-2]], chain[0]))
    places: dict[tuple[Key, Key], float] = {}
    for target, sources in arriving.items():
        ordered = sorted(sources, key=lambda pair: pair[0])
        for i, (_, source) in enumerate(ordered):
            places[(source, target)] = 0.0 if len(ordered) == 1 else i / (len(ordered) - 1) - 0.5
    return places
