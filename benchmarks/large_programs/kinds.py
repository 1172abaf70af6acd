"""The kinds of programs: each function writes a program of about a number of instructions.

The programs are what tracing writes out: loops of Python, derivatives, arithmetic on small arrays. Values
stay bounded, whatever the size, so that results of two compilers can be compared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Final, TypeAlias

from benchmarks.large_programs.writer import Body, Writer, pairs

Kind: TypeAlias = Callable[[Writer, int, Random], None]
"""Write at least a number of instructions and the result of the entry; `Random` draws what varies by seed."""

KINDS: Final[dict[str, Kind]] = {}
"""The kinds by name."""


def kind(function: Kind) -> Kind:
    """Register a kind under its name, words joined by hyphens."""
    KINDS[function.__name__.replace("_", "-")] = function
    return function


def program_text(name: str, size: int, seed: int = 0) -> str:
    """Return the HLO text of a program of a kind with about ``size`` instructions."""
    writer = Writer(name.replace("-", "_"))
    KINDS[name](writer, size, Random(seed))
    return writer.text()


# -- stencils


def _inner(rows: int) -> str:
    return f"f32[{rows - 2},{rows - 2}]"


def _stencil(b: Body, u: str, rows: int) -> str:
    """Write the sum of four neighbors less four times a value, zero at the border."""
    shape, inner = f"f32[{rows},{rows}]", _inner(rows)
    ranges = ((0, 1), (2, 1), (1, 0), (1, 2), (1, 1))
    sides = [
        b.op(inner, f"slice({u}), slice={{[{r}:{r + rows - 2}], [{c}:{c + rows - 2}]}}") for r, c in ranges
    ]
    total = b.binary("add", inner, b.binary("add", inner, *sides[:2]), b.binary("add", inner, *sides[2:4]))
    center = b.binary("multiply", inner, sides[4], b.filled(inner, "4"))
    laplacian = b.binary("subtract", inner, total, center)
    return b.op(shape, f"pad({laplacian}, {b.scalar('0')}), padding=1_1x1_1")


def _transposed_stencil(b: Body, g: str, rows: int) -> str:
    """Write the transpose of `_stencil`: a slice, and a sum of pads."""
    shape, inner = f"f32[{rows},{rows}]", _inner(rows)
    center = b.op(inner, f"slice({g}), slice={{[1:{rows - 1}], [1:{rows - 1}]}}")
    zero, total = b.scalar("0"), ""
    for padding in ("0_2x1_1", "2_0x1_1", "1_1x0_2", "1_1x2_0"):
        part = b.op(shape, f"pad({center}, {zero}), padding={padding}")
        total = b.binary("add", shape, total, part) if total else part
    scaled = b.binary("multiply", inner, center, b.filled(inner, "-4"))
    part = b.op(shape, f"pad({scaled}, {zero}), padding=1_1x1_1")
    return b.binary("add", shape, total, part)


@kind
def time_stepper(w: Writer, size: int, random: Random) -> None:
    """Explicit steps of a wave equation on a grid."""
    b, rows = w.entry, random.choice((16, 24, 32))
    shape = f"f32[{rows},{rows}]"
    u, v = b.parameter(shape), b.parameter(shape)
    step = b.filled(shape, "0.01")
    while w.size < size:
        force = b.binary("multiply", shape, _stencil(b, u, rows), step)
        v = b.op(shape, f"tanh({b.binary('add', shape, v, force)})")
        u = b.binary("add", shape, u, b.binary("multiply", shape, v, step))
    b.result((shape, u), (shape, v))


@kind
def adjoint(w: Writer, size: int, random: Random) -> None:
    """Steps of a reaction-diffusion equation, and the derivative of the last state by the first."""
    b, rows = w.entry, random.choice((16, 24, 32))
    shape = f"f32[{rows},{rows}]"
    u, v = b.parameter(shape), b.parameter(shape)
    step, one = b.filled(shape, "0.01"), b.filled(shape, "1")
    tape: list[tuple[str, str]] = []
    while w.size < size // 2:
        reaction = b.op(shape, f"tanh({u})")
        tape.append((reaction, v))
        change = b.binary("multiply", shape, _stencil(b, u, rows), step)
        u = b.binary("add", shape, u, change)
        loss = b.binary("multiply", shape, b.binary("multiply", shape, reaction, v), step)
        v = b.binary("subtract", shape, v, loss)
    gu, gv = u, v
    for reaction, value in reversed(tape):
        if w.size >= size:
            break
        spread = b.binary("multiply", shape, _transposed_stencil(b, gu, rows), step)
        gain = b.binary("multiply", shape, b.binary("multiply", shape, gv, reaction), step)
        slope = b.binary("subtract", shape, one, b.binary("multiply", shape, reaction, reaction))
        pull = b.binary("multiply", shape, b.binary("multiply", shape, slope, value), gv)
        gu = b.binary("subtract", shape, b.binary("add", shape, gu, spread), pull)
        gu, gv = b.op(shape, f"tanh({gu})"), b.binary("subtract", shape, gv, gain)
    b.result((shape, gu), (shape, gv))


# -- networks


@kind
def lstm(w: Writer, size: int, random: Random) -> None:
    """An LSTM cell, one step after the other."""
    b, width = w.entry, random.choice((16, 32))
    state, gates = f"f32[8,{width}]", f"f32[8,{4 * width}]"
    x, h, c = b.parameter(state), b.parameter(state), b.parameter(state)
    square = f"f32[{width},{4 * width}]"
    inward, recurrent = b.parameter(square), b.parameter(square)
    bias = b.parameter(f"f32[{4 * width}]")
    while w.size < size:
        total = b.binary("add", gates, b.product(gates, x, inward), b.product(gates, h, recurrent))
        total = b.binary("add", gates, total, b.op(gates, f"broadcast({bias}), dimensions={{1}}"))
        parts = [
            b.op(state, f"slice({total}), slice={{[0:8], [{n * width}:{(n + 1) * width}]}}") for n in range(4)
        ]
        i, f, o = (b.op(state, f"logistic({part})") for part in parts[:3])
        kept = b.binary("multiply", state, f, c)
        c = b.binary("add", state, kept, b.binary("multiply", state, i, b.op(state, f"tanh({parts[3]})")))
        h = b.binary("multiply", state, o, b.op(state, f"tanh({c})"))
    b.result((state, h), (state, c))


@kind
def residual_layers(w: Writer, size: int, random: Random) -> None:
    """Layers with normalized inputs, a product, and a residual sum, each with weights of its own."""
    b, width = w.entry, random.choice((16, 32))
    x_shape, row, weight = f"f32[16,{width}]", "f32[16]", f"f32[{width},{width}]"
    total = w.reducer("add")
    x, zero = b.parameter(x_shape), b.scalar("0")
    count = b.filled(row, str(width))
    weights: list[str] = []
    while w.size < size:
        if len(weights) < 64:
            weights.append(b.parameter(weight))

        def mean(value: str) -> str:
            rows = b.op(row, f"reduce({value}, {zero}), dimensions={{1}}, to_apply={total.name}")
            rows = b.binary("divide", row, rows, count)
            return b.op(x_shape, f"broadcast({rows}), dimensions={{0}}")

        centered = b.binary("subtract", x_shape, x, mean(x))
        variance = mean(b.binary("multiply", x_shape, centered, centered))
        variance = b.binary("add", x_shape, variance, b.filled(x_shape, "1e-3"))
        normal = b.binary("multiply", x_shape, centered, b.op(x_shape, f"rsqrt({variance})"))
        hidden = b.op(x_shape, f"tanh({b.product(x_shape, normal, random.choice(weights))})")
        x = b.binary("add", x_shape, x, hidden)
    b.finish(b.op(x_shape, f"tanh({x})"))


# -- small arrays


@kind
def robot_dynamics(w: Writer, size: int, random: Random) -> None:
    """A chain of joints: rotations from angles, products of 3x3 matrices, forces moved along the chain."""
    b, joints = w.entry, 7
    vector, matrix = "f32[3]", "f32[3,3]"
    angles, point = b.parameter(f"f32[{joints}]"), b.parameter(vector)
    zero, one = b.filled("f32[1]", "0"), b.filled("f32[1]", "1")
    pose, force, joint = b.op(matrix, "constant({{1,0,0},{0,1,0},{0,0,1}})"), point, 0
    while w.size < size:
        angle = b.op("f32[1]", f"slice({angles}), slice={{[{joint % joints}:{joint % joints + 1}]}}")
        cosine, sine = b.op("f32[1]", f"cosine({angle})"), b.op("f32[1]", f"sine({angle})")
        back = b.op("f32[1]", f"negate({sine})")
        axis = random.randrange(3)
        rows = {0: (one, zero, zero, zero, cosine, back, zero, sine, cosine),
                1: (cosine, zero, sine, zero, one, zero, back, zero, cosine),
                2: (cosine, back, zero, sine, cosine, zero, zero, zero, one)}[axis]  # fmt: skip
        flat = b.op("f32[9]", f"concatenate({', '.join(rows)}), dimensions={{0}}")
        rotation = b.op(matrix, f"reshape({flat})")
        pose = b.product(matrix, pose, rotation)
        moved = b.op(
            vector, f"dot({rotation}, {force}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"
        )
        turned = b.op(vector, f"dot({pose}, {point}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}")
        force = b.op(vector, f"tanh({b.binary('add', vector, moved, turned)})")
        joint += 1
    b.result((matrix, pose), (vector, force))


@kind
def small_dots(w: Writer, size: int, random: Random) -> None:
    """Products of small matrices of several shapes, in a graph in which results are used again."""
    b, shape = w.entry, "f32[4,4]"
    values = [b.parameter(shape) for _ in range(4)]
    while w.size < size:
        a, c = random.choice(values[-8:]), random.choice(values[-8:])
        values.append(b.op(shape, f"tanh({b.product(shape, a, c)})"))
    b.result(*pairs(shape, values[-8:]))


@kind
def elementwise_chain(w: Writer, size: int, random: Random) -> None:
    """One long chain of elementwise operations."""
    b, shape = w.entry, f"f32[{random.choice((64, 256, 1000))}]"
    x, y = b.parameter(shape), b.parameter(shape)
    while w.size < size:
        x = b.binary(random.choice(("add", "multiply", "subtract", "maximum")), shape, x, y)
        x = b.op(shape, f"{random.choice(('sine', 'tanh', 'cosine'))}({x})")
    b.finish(b.op(shape, f"negate({x})"))


@kind
def shared_values(w: Writer, size: int, random: Random) -> None:
    """A graph of elementwise operations in which every value has several readers, near and far."""
    b, shape = w.entry, "f32[128]"
    values = [b.parameter(shape) for _ in range(4)]
    while w.size < size:
        near, far = random.choice(values[-4:]), random.choice(values[-200:])
        mixed = b.binary(random.choice(("add", "multiply", "minimum")), shape, near, far)
        values.append(b.op(shape, f"{random.choice(('sine', 'tanh'))}({mixed})"))
    b.result(*pairs(shape, values[-16:]))


@kind
def slice_tree(w: Writer, size: int, random: Random) -> None:
    """Arrays cut into halves down to a leaf, and joined again: butterflies written out."""
    b, count = w.entry, 64
    x = b.parameter(f"f32[{count}]")

    def transformed(value: str, width: int) -> str:
        if width == random.choice((1, 2)) or width == 1:
            return b.op(f"f32[{width}]", f"sine({value})")
        half = f"f32[{width // 2}]"
        low = b.op(half, f"slice({value}), slice={{[0:{width // 2}]}}")
        high = b.op(half, f"slice({value}), slice={{[{width // 2}:{width}]}}")
        low, high = transformed(low, width // 2), transformed(high, width // 2)
        total, difference = b.binary("add", half, low, high), b.binary("subtract", half, low, high)
        return b.op(f"f32[{width}]", f"concatenate({total}, {difference}), dimensions={{0}}")

    while w.size < size:
        x = b.op(f"f32[{count}]", f"tanh({transformed(x, count)})")
    b.finish(b.op(f"f32[{count}]", f"negate({x})"))


@kind
def sorting_network(w: Writer, size: int, random: Random) -> None:
    """Odd-even merge networks: compare-exchange of slices by minimum, maximum and select."""
    b, count = w.entry, 16
    shape, lane = f"f32[{count},32]", "f32[1,32]"
    x = b.parameter(shape)
    while w.size < size:
        lanes = [b.op(lane, f"slice({x}), slice={{[{n}:{n + 1}], [0:32]}}") for n in range(count)]
        for first, second in _compared(count):
            a, c = lanes[first], lanes[second]
            if random.random() < 0.5:
                lanes[first], lanes[second] = b.binary("minimum", lane, a, c), b.binary("maximum", lane, a, c)
                continue
            less = b.op("pred[1,32]", f"compare({a}, {c}), direction=LT")
            lanes[first], lanes[second] = (
                b.op(lane, f"select({less}, {a}, {c})"), b.op(lane, f"select({less}, {c}, {a})"))  # fmt: skip
        joined = b.op(shape, f"concatenate({', '.join(lanes)}), dimensions={{0}}")
        x = b.op(shape, f"sine({joined})")
    b.finish(b.op(shape, f"negate({x})"))


def _compared(count: int) -> list[tuple[int, int]]:
    """Return the pairs of Batcher's odd-even merge sort, in order."""
    found: list[tuple[int, int]] = []
    p = 1
    while p < count:
        k = p
        while k >= 1:
            for start in range(k % p, count - k, 2 * k):
                for n in range(min(k, count - start - k)):
                    if (n + start) // (2 * p) == (n + start + k) // (2 * p):
                        found.append((n + start, n + start + k))
            k //= 2
        p *= 2
    return found


# -- control flow and structure


@kind
def loops(w: Writer, size: int, random: Random) -> None:
    """Many while loops, each with a condition and a body of its own."""
    b, shape = w.entry, "f32[32]"
    x = b.parameter(shape)
    state = f"(s32[], {shape})"
    while w.size < size:
        condition, body = w.body(), w.body()
        s = condition.parameter(state)
        index = condition.op("s32[]", f"get-tuple-element({s}), index=0")
        limit = condition.scalar(str(random.randint(2, 9)), "s32")
        condition.finish(condition.op("pred[]", f"compare({index}, {limit}), direction=LT"))
        s = body.parameter(state)
        index = body.op("s32[]", f"get-tuple-element({s}), index=0")
        value = body.op(shape, f"get-tuple-element({s}), index=1")
        for _ in range(random.randint(1, 4)):
            value = body.op(shape, f"{random.choice(('sine', 'tanh', 'cosine'))}({value})")
        index = body.binary("add", "s32[]", index, body.scalar("1", "s32"))
        body.result(("s32[]", index), (shape, value))
        start = b.op(state, f"tuple({b.scalar('0', 's32')}, {x})")
        loop = b.op(state, f"while({start}), condition={condition.name}, body={body.name}")
        x = b.op(shape, f"get-tuple-element({loop}), index=1")
    b.finish(b.op(shape, f"negate({x})"))


@kind
def training_loop(w: Writer, size: int, random: Random) -> None:
    """A loop over training steps, whose state is the weights of all layers and two moments of each."""
    shape, x_shape, steps = "f32[16,16]", "f32[8,16]", random.randint(5, 50)
    layers = 1 + size // 30
    arrays = 3 * layers
    state = f"(s32[], {', '.join([x_shape, *[shape] * arrays])})"
    condition, b, entry = w.body(), w.body(), w.entry
    index = condition.op("s32[]", f"get-tuple-element({condition.parameter(state)}), index=0")
    limit = condition.scalar(str(steps), "s32")
    condition.finish(condition.op("pred[]", f"compare({index}, {limit}), direction=LT"))
    s = b.parameter(state)
    index = b.op("s32[]", f"get-tuple-element({s}), index=0")
    x = b.op(x_shape, f"get-tuple-element({s}), index=1")
    held = [b.op(shape, f"get-tuple-element({s}), index={2 + n}") for n in range(arrays)]
    weights, tape, following = held[:layers], [x], list[str]()
    for weight in weights:
        tape.append(b.op(x_shape, f"tanh({b.product(x_shape, tape[-1], weight)})"))
    g, one = tape[-1], b.filled(x_shape, "1")
    for n in reversed(range(layers)):
        y = tape[n + 1]
        slope = b.binary("subtract", x_shape, one, b.binary("multiply", x_shape, y, y))
        g = b.binary("multiply", x_shape, g, slope)
        gradient = b.op(shape, f"dot({tape[n]}, {g}), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}")
        g = b.op(x_shape, f"dot({g}, {weights[n]}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}")
        following = [*_adam(b, shape, held[n::layers], gradient), *following]
    ordered = [following[n] for k in range(3) for n in range(k, arrays, 3)]
    index = b.binary("add", "s32[]", index, b.scalar("1", "s32"))
    b.result(("s32[]", index), (x_shape, x), *pairs(shape, ordered))
    values = [entry.parameter(x_shape), *(entry.parameter(shape) for _ in range(arrays))]
    start = entry.op(state, f"tuple({entry.scalar('0', 's32')}, {', '.join(values)})")
    loop = entry.op(state, f"while({start}), condition={condition.name}, body={b.name}")
    results = [entry.op(shape, f"get-tuple-element({loop}), index={2 + n}") for n in range(layers)]
    entry.result(*pairs(shape, results))


def _adam(b: Body, shape: str, state: Sequence[str], gradient: str) -> tuple[str, str, str]:
    """Append a step of Adam for one array; return the next weights and moments."""

    def blend(old: str, new: str, rate: str) -> str:
        decayed = b.binary("multiply", shape, old, b.filled(shape, f"{1 - float(rate):g}"))
        return b.binary("add", shape, decayed, b.binary("multiply", shape, new, b.filled(shape, rate)))

    weight, mean, square = state
    mean = blend(mean, gradient, "0.1")
    square = blend(square, b.binary("multiply", shape, gradient, gradient), "0.01")
    root = b.op(shape, f"rsqrt({b.binary('add', shape, square, b.filled(shape, '1e-8'))})")
    step = b.binary("multiply", shape, b.binary("multiply", shape, mean, root), b.filled(shape, "0.001"))
    return b.binary("subtract", shape, weight, step), mean, square


@kind
def nested_calls(w: Writer, size: int, random: Random) -> None:
    """Functions that call functions, many levels deep; each level computes a little."""
    shape, depth = "f32[64]", 12
    sites: list[tuple[Body, str]] = []
    x = w.entry.parameter(shape)
    while w.size < size:
        callee: Body | None = None
        for _ in range(depth):
            body = w.body()
            value = body.op(shape, f"{random.choice(('sine', 'tanh'))}({body.parameter(shape)})")
            if callee is not None:
                value = body.op(shape, f"call({value}), to_apply={callee.name}")
            body.finish(body.op(shape, f"negate({value})"))
            callee = body
        assert callee is not None
        sites.append((callee, x))
        x = w.entry.op(shape, f"call({x}), to_apply={callee.name}")
    w.entry.finish(w.entry.op(shape, f"cosine({x})"))


@kind
def deep_tuples(w: Writer, size: int, random: Random) -> None:
    """Tuples in tuples, taken apart and put together again between small computations."""
    b, leaf = w.entry, "f32[16]"
    values = [b.parameter(leaf) for _ in range(8)]
    while w.size < size:
        shape, value = leaf, values[0]
        for other in values[1:]:
            value = b.op(f"({leaf}, {shape})", f"tuple({other}, {value})")
            shape = f"({leaf}, {shape})"
        taken: list[str] = []
        for _ in values[1:]:
            taken.append(b.op(leaf, f"get-tuple-element({value}), index=0"))
            shape = shape[len(leaf) + 3 : -1]
            value = b.op(shape, f"get-tuple-element({value}), index=1")
        values = [b.op(leaf, f"{random.choice(('sine', 'tanh'))}({v})") for v in (*taken, value)]
    b.result(*pairs(leaf, values))


@kind
def conditionals(w: Writer, size: int, random: Random) -> None:
    """Branches chosen by the value of the last one, each with a computation of its own."""
    b, shape = w.entry, "f32[32]"
    x = b.parameter(shape)
    while w.size < size:
        branches: list[Body] = []
        for _ in range(2):
            branch = w.body()
            value = branch.parameter(shape)
            for _ in range(random.randint(1, 4)):
                value = branch.op(shape, f"{random.choice(('sine', 'tanh', 'cosine', 'negate'))}({value})")
            branch.finish(branch.op(shape, f"cosine({value})"))
            branches.append(branch)
        first = b.op("f32[]", f"reshape({b.op('f32[1]', f'slice({x}), slice={{[0:1]}}')})")
        chosen = b.op("pred[]", f"compare({first}, {b.scalar('0')}), direction=GT")
        names = f"true_computation={branches[0].name}, false_computation={branches[1].name}"
        x = b.op(shape, f"conditional({chosen}, {x}, {x}), {names}")
    b.finish(b.op(shape, f"negate({x})"))


@kind
def updates(w: Writer, size: int, random: Random) -> None:
    """Rows of a table that are read, changed and written back at computed places."""
    b, rows, width = w.entry, 64, 16
    table, row = f"f32[{rows},{width}]", f"f32[1,{width}]"
    x, at = b.parameter(table), b.parameter("s32[]")
    zero = b.scalar("0", "s32")
    while w.size < size:
        taken = b.op(row, f"dynamic-slice({x}, {at}, {zero}), dynamic_slice_sizes={{1,{width}}}")
        taken = b.op(row, f"{random.choice(('sine', 'tanh', 'cosine'))}({taken})")
        at = b.binary("add", "s32[]", at, b.scalar(str(random.choice((1, 3, 5, 7))), "s32"))
        at = b.binary("and", "s32[]", at, b.scalar(str(rows - 1), "s32"))
        x = b.op(table, f"dynamic-update-slice({x}, {taken}, {at}, {zero})")
    b.result((table, x), ("s32[]", at))


@kind
def wide_results(w: Writer, size: int, random: Random) -> None:
    """One update of very many arrays, as an optimizer's: many parameters, many results, shared scalars."""
    b, shapes = w.entry, ("f32[32]", "f32[8,8]", "f32[4,16]")
    rate, results = b.parameter("f32[]"), list[tuple[str, str]]()
    while w.size < size:
        shape = random.choice(shapes)
        value, slope, moment = (b.parameter(shape) for _ in range(3))
        kept = b.binary("multiply", shape, moment, b.filled(shape, "0.9"))
        moment = b.binary("add", shape, kept, b.op(shape, f"tanh({slope})"))
        step = b.binary("multiply", shape, moment, b.op(shape, f"broadcast({rate}), dimensions={{}}"))
        results += [(shape, b.binary("subtract", shape, value, step)), (shape, moment)]
    b.result(*results)
