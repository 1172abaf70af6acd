"""Random programs of one operation that declares its elements, on small arrays of integers."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Final

from hloom.ir.instruction import HloInstruction
from hloom.ir.window import WindowDimension
from tests.evaluation import parse
from tests.reducers import binary

Draw = Callable[[random.Random], str]
HEAD = "HloModule m\n" + binary("add", "u64", "add")


def sizes(rng: random.Random, rank: int = 0, least: int = 1) -> list[int]:
    return [rng.randint(least, 5) for _ in range(rank or rng.randint(1, 3))]


def numbers(values: Sequence[int]) -> str:
    return ",".join(map(str, values))


def program(operation: str, result: Sequence[int], *parameters: str, kind: str = "u64") -> str:
    """Return a program whose parameters are p0, p1 ...; the operation lacks the result's shape."""
    lines = [f"p{n} = {shape} parameter({n})" for n, shape in enumerate(parameters)]
    body = "\n  ".join([*lines, f"ROOT r = {kind}[{numbers(result)}] {operation}"])
    return f"{HEAD}ENTRY e {{\n  {body}\n}}\n"


def array(dimensions: Sequence[int], kind: str = "u64") -> str:
    return f"{kind}[{numbers(dimensions)}]"


def broadcast(rng: random.Random) -> str:
    result = sizes(rng)
    kept = rng.sample(range(len(result)), rng.randint(0, len(result)))
    text = f"broadcast(p0), dimensions={{{numbers(kept)}}}"
    return program(text, result, array([result[d] for d in kept]))


def transpose(rng: random.Random) -> str:
    operand = sizes(rng)
    order = rng.sample(range(len(operand)), len(operand))
    return program(
        f"transpose(p0), dimensions={{{numbers(order)}}}", [operand[d] for d in order], array(operand)
    )


def reverse(rng: random.Random) -> str:
    operand = sizes(rng)
    chosen = rng.sample(range(len(operand)), rng.randint(0, len(operand)))
    return program(f"reverse(p0), dimensions={{{numbers(chosen)}}}", operand, array(operand))


def reshape(rng: random.Random) -> str:
    operand, result = rng.choice(
        [([4, 9], [12, 3]), ([2, 3, 5], [5, 6]), ([24], [2, 3, 4]), ([7, 1], [7]), ([3, 4], [4, 3])]
    )
    return program("reshape(p0)", result, array(operand))


def cut(rng: random.Random) -> str:
    operand = sizes(rng)
    starts = [rng.randint(0, n - 1) for n in operand]
    limits = [rng.randint(s, n) for s, n in zip(starts, operand, strict=True)]
    strides = [rng.randint(1, 3) for _ in operand]
    ranges = list(zip(starts, limits, strides, strict=True))
    text = ", ".join(f"[{s}:{e}:{k}]" for s, e, k in ranges)
    return program(f"slice(p0), slice={{{text}}}", [-((s - e) // k) for s, e, k in ranges], array(operand))


def pad(rng: random.Random) -> str:
    operand = sizes(rng, least=0)
    result: list[int] = []
    texts: list[str] = []
    for n in operand:
        holes = rng.choice([0, 0, 1, 2])
        inner = n + max(n - 1, 0) * holes
        low = rng.randint(-min(inner, 3), 4)
        high = rng.randint(-min(inner + low, 3), 4) if inner + low >= 0 else -inner - low
        result.append(inner + low + high)
        texts.append(f"{low}_{high}_{holes}")
    return program(f"pad(p0, p1), padding={'x'.join(texts)}", result, array(operand), "u64[]")


def concatenate(rng: random.Random) -> str:
    operand = sizes(rng)
    d = rng.randrange(len(operand))
    parts = [[*operand[:d], rng.randint(0, 4), *operand[d + 1 :]] for _ in range(rng.randint(1, 4))]
    result = [*operand[:d], sum(p[d] for p in parts), *operand[d + 1 :]]
    names = ", ".join(f"p{n}" for n in range(len(parts)))
    return program(f"concatenate({names}), dimensions={{{d}}}", result, *map(array, parts))


def dynamic_slice(rng: random.Random) -> str:
    operand = sizes(rng)
    result = [rng.randint(1, n) for n in operand]
    kind = rng.choice(["s32", "u8", "s64"])
    names = ", ".join(f"p{n + 1}" for n in range(len(operand)))
    text = f"dynamic-slice(p0, {names}), dynamic_slice_sizes={{{numbers(result)}}}"
    return program(text, result, array(operand), *[f"{kind}[]"] * len(operand))


def dynamic_update_slice(rng: random.Random) -> str:
    operand = sizes(rng)
    update = [rng.randint(0, n) for n in operand]
    kind = rng.choice(["s32", "u8", "s64"])
    names = ", ".join(f"p{n + 2}" for n in range(len(operand)))
    text = f"dynamic-update-slice(p0, p1, {names})"
    return program(text, operand, array(operand), array(update), *[f"{kind}[]"] * len(operand))


def gather(rng: random.Random) -> str:
    operand, count = sizes(rng, rank=2), rng.randint(1, 4)
    slices = [1, rng.randint(1, operand[1])]
    component = rng.choice([0, 1])
    shape, place = rng.choice([([count], 1), ([count, 1], 1), ([1, count], 0)])
    attributes = (
        f"offset_dims={{1}}, collapsed_slice_dims={{0}}, start_index_map={{{component}}}, "
        f"index_vector_dim={place}, slice_sizes={{{numbers(slices)}}}"
    )
    result = [count, slices[1]]
    return program(f"gather(p0, p1), {attributes}", result, array(operand), array(shape, "s32"))


def iota(rng: random.Random) -> str:
    result = sizes(rng)
    return program(f"iota(), iota_dimension={rng.randrange(len(result))}", result)


def constant(rng: random.Random) -> str:
    return program(f"constant({rng.randrange(1 << 63)})", [])


def bitcast_convert(rng: random.Random) -> str:
    operand = sizes(rng)
    kind = rng.choice(["u64", "u16", "s8"])
    ratio = {"u64": 1, "u16": 4, "s8": 8}[kind]
    if rng.random() < 0.5:
        return program(
            "bitcast-convert(p0)", operand, array([*operand, ratio][: len(operand) + (ratio > 1)], kind)
        )
    result = [*operand, ratio] if ratio > 1 else operand
    return program("bitcast-convert(p0)", result, array(operand), kind=kind)


def reduce(rng: random.Random) -> str:
    operand = sizes(rng)
    reduced = sorted(rng.sample(range(len(operand)), rng.randint(1, len(operand))))
    result = [n for d, n in enumerate(operand) if d not in reduced]
    text = f"reduce(p0, p1), dimensions={{{numbers(reduced)}}}, to_apply=add"
    return program(text, result, array(operand), "u64[]")


def any_window(rng: random.Random, size: int) -> tuple[WindowDimension, int]:
    """Return a window dimension with some positions over a base, and their number."""
    while True:
        window = WindowDimension(
            rng.randint(1, 4), rng.randint(1, 3), rng.randint(-1, 3), rng.randint(-1, 3),
            rng.choice([1, 1, 2, 3]), rng.choice([1, 1, 2, 3]), rng.random() < 0.3,
        )  # fmt: skip
        if window.output_size(size):
            return window, window.output_size(size)


def window_text(windows: Sequence[WindowDimension]) -> str:
    return "{" + " ".join([
        "size=" + "x".join(str(w.size) for w in windows),
        "stride=" + "x".join(str(w.stride) for w in windows),
        "pad=" + "x".join(f"{w.padding_low}_{w.padding_high}" for w in windows),
        "lhs_dilate=" + "x".join(str(w.base_dilation) for w in windows),
        "rhs_dilate=" + "x".join(str(w.window_dilation) for w in windows),
        "rhs_reversal=" + "x".join(str(int(w.window_reversal)) for w in windows),
    ]) + "}"  # fmt: skip


def reduce_window(rng: random.Random) -> str:
    operand = sizes(rng)
    windows, result = zip(*(any_window(rng, n) for n in operand), strict=True)
    text = f"reduce-window(p0, p1), window={window_text(windows)}, to_apply=add"
    return program(text, result, array(operand), "u64[]")


def dot(rng: random.Random) -> str:
    shared = {role: rng.randint(1, 5) for role in rng.choice(["k", "bk"])}
    first, second = ({**shared, role: rng.randint(1, 5)} for role in "lr")
    first, second = (dict(rng.sample(sorted(o.items()), len(o))) for o in (first, second))

    def where(operand: dict[str, int], role: str) -> str:
        return f"{{{numbers([d for d, name in enumerate(operand) if name == role])}}}"

    text = (
        f"dot(p0, p1), lhs_batch_dims={where(first, 'b')}, lhs_contracting_dims={where(first, 'k')}, "
        f"rhs_batch_dims={where(second, 'b')}, rhs_contracting_dims={where(second, 'k')}"
    )
    batch = [shared["b"]] if "b" in shared else []
    shapes = [array(list(operand.values())) for operand in (first, second)]
    return program(text, [*batch, first["l"], second["r"]], *shapes)


def convolution(rng: random.Random) -> str:
    size, batch, inputs, outputs = (rng.randint(1, 4) for _ in range(4))
    features, batches = rng.choice([(1, 1), (2, 1), (1, 2)])
    window, positions = any_window(rng, size)
    left = [batch * batches, size, inputs * features]
    right = [window.size, inputs, outputs * features * batches]
    text = (
        f"convolution(p0, p1), window={window_text([window])}, dim_labels=b0f_0io->b0f, "
        f"feature_group_count={features}, batch_group_count={batches}"
    )
    return program(text, [batch, positions, right[2]], array(left), array(right))


DRAWS: Final[dict[str, Draw]] = {
    "broadcast": broadcast, "transpose": transpose, "reverse": reverse, "reshape": reshape, "slice": cut,
    "pad": pad, "concatenate": concatenate, "dynamic-slice": dynamic_slice,
    "dynamic-update-slice": dynamic_update_slice, "gather": gather, "iota": iota, "constant": constant,
    "bitcast-convert": bitcast_convert, "reduce": reduce, "reduce-window": reduce_window, "dot": dot,
    "convolution": convolution,
}  # fmt: skip


def drawn(opcode: str, seed: int) -> HloInstruction:
    """Return the root of a random program of an operation."""
    module = parse(DRAWS[opcode](random.Random(f"{opcode} {seed}")))
    module.verify()
    return module.entry.root
