"""Programs of every collective, in every group mode, for element types and sizes, on 2 x 2 devices."""

from __future__ import annotations

from collections.abc import Iterator

REPLICAS = PARTITIONS = 2
TYPES = (
    "pred", "s4", "s8", "u16", "s32", "u64", "f8e4m3fn", "f8e5m2", "f16", "bf16", "f32", "f64", "c64", "c128",
)  # fmt: skip
PLACES = {
    "cross_replica": ("replica_groups={{1,0}}", 2),
    "cross_replica_and_partition": ("channel_id=1, replica_groups={{0,1}}", 4),
    "flattened_id": ("channel_id=1, replica_groups={{3,1,0,2}}, use_global_device_ids=true", 4),
    "flattened pairs": ("channel_id=1, replica_groups={{0,3},{2,1}}, use_global_device_ids=true", 2),
}
"""Groups of reductions and gathers, and the number of their devices."""
EXCHANGES = {
    "cross_replica": ("replica_groups={{1,0}}", 2),
    "cross_partition": ("channel_id=1, replica_groups={{1,0}}", 2),
}
"""Groups of the operations without `use_global_device_ids`."""
SIZES = (3, 5000, 40000)
"""Rows of 4 columns: in a message with others, all-reduced in parts, and sent in place."""


def programs() -> Iterator[tuple[str, str]]:
    """Yield names and texts."""
    for mode, (groups, count) in PLACES.items():
        for opcode in ("all-reduce", "all-gather", "reduce-scatter"):
            yield f"{opcode} {mode}", single(opcode, "f32", groups, count, 3)
    for mode, (groups, count) in EXCHANGES.items():
        for opcode in ("all-to-all", "collective-broadcast"):
            yield f"{opcode} {mode}", single(opcode, "f32", groups, count, 3)
        yield f"all-to-all of a tuple {mode}", tuple_exchange(groups)
        yield f"ragged-all-to-all {mode}", ragged(groups)
    for kind in TYPES:
        groups, count = PLACES["flattened_id"]
        for opcode in ("all-reduce", "all-gather", "reduce-scatter"):
            yield f"{opcode} {kind}", single(opcode, kind, groups, count, 3)
        yield f"all-to-all {kind}", single("all-to-all", kind, *EXCHANGES["cross_replica"], 3)
        yield f"collective-permute {kind}", permute(kind, "{{0,1},{1,0}}")
    for rows in SIZES[1:]:
        for opcode in ("all-reduce", "all-gather", "reduce-scatter"):
            groups, count = PLACES["flattened_id"]
            yield f"{opcode} of {rows} rows", single(opcode, "f32", groups, count, rows)
        for dimension in (0, 1):
            groups, count = EXCHANGES["cross_replica"]
            name = f"all-to-all of {rows} rows, dimension {dimension}"
            yield name, single("all-to-all", "f32", groups, count, rows, dimension)
    for opcode in ("all-gather", "reduce-scatter"):
        groups, count = PLACES["flattened_id"]
        yield f"{opcode} of columns", single(opcode, "bf16", groups, count, 5, 1)
    yield "collective-permute of partitions", permute("f32", "{{0,1}}", "channel_id=1, ")
    yield "collective-permute in place", permute("f32", "{{0,1},{1,0}}", rows=40000)
    yield "collective-permute within a device", permute("f32", "{{1,1}}")
    yield "collective-permute of nothing", permute("f32", "{}")
    yield "collective-permute of two arrays", permuted_pair()
    yield "two operands of two sizes", two_operands()
    yield "one channel, two sizes", two_sizes()
    yield "begun and ended", asynchronous()
    yield "begun and ended apart", asynchronous(apart=True)
    yield "send and recv", sent()


def computation(kind: str) -> str:
    """Return a reducer."""
    opcode = "or" if kind == "pred" else "add"
    return (
        f"reducer {{\n a = {kind}[] parameter(0)\n b = {kind}[] parameter(1)\n"
        f" ROOT r = {kind}[] {opcode}(a, b)\n}}\n"
    )


def module(body: str, kind: str = "f32") -> str:
    """Return the text of a module for all devices."""
    head = f"HloModule m, replica_count={REPLICAS}, num_partitions={PARTITIONS}\n"
    return f"{head}{computation(kind)}ENTRY e {{\n{body}\n}}\n"


def single(opcode: str, kind: str, groups: str, count: int, rows: int, dimension: int = 0) -> str:
    """Return a program of one collective."""
    sizes = [4 * rows, 4] if dimension == 0 else [rows, 16]
    made = list(sizes)
    attributes = groups
    if opcode in ("all-gather", "reduce-scatter", "all-to-all"):
        attributes += f", dimensions={{{dimension}}}"
    if opcode in ("all-reduce", "reduce-scatter"):
        attributes += ", to_apply=reducer"
    if opcode == "all-gather":
        made[dimension] *= count
    if opcode == "reduce-scatter":
        made[dimension] //= count
    operand, result = (f"{kind}[{','.join(map(str, each))}]" for each in (sizes, made))
    return module(f" x = {operand} parameter(0)\n ROOT y = {result} {opcode}(x), {attributes}", kind)


def permute(kind: str, pairs: str, channel: str = "", rows: int = 6) -> str:
    """Return a program of a permutation."""
    return module(
        f" x = {kind}[{rows}] parameter(0)\n"
        f" ROOT y = {kind}[{rows}] collective-permute(x), {channel}source_target_pairs={pairs}",
        kind,
    )


def permuted_pair() -> str:
    """Return a permutation of two arrays."""
    return module(
        " x = f32[3] parameter(0)\n y = bf16[5] parameter(1)\n"
        " ROOT r = (f32[3], bf16[5]) collective-permute(x, y), source_target_pairs={{1,0}}"
    )


def tuple_exchange(groups: str) -> str:
    """Return an all-to-all of two operands."""
    return module(
        " x = f32[3] parameter(0)\n y = f32[3] parameter(1)\n"
        f" ROOT r = (f32[3], f32[3]) all-to-all(x, y), {groups}"
    )


def ragged(groups: str) -> str:
    """Return an exchange of pieces of different sizes."""
    return module(
        " x = f32[8] parameter(0)\n o = f32[8] parameter(1)\n"
        " at = s64[2] constant({1, 4})\n size = s64[2] constant({2, 3})\n place = s64[2] constant({0, 5})\n"
        f" ROOT r = f32[8] ragged-all-to-all(x, o, at, size, place, size), {groups}"
    )


def two_operands() -> str:
    """Return all-reduces of two arrays, small and in parts."""
    groups, _ = PLACES["flattened_id"]
    return module(
        " x = f32[5] parameter(0)\n y = f32[7] parameter(1)\n z = f32[30000] parameter(2)\n"
        f" a = (f32[5], f32[7]) all-reduce(x, y), {groups}, to_apply=reducer\n"
        f" b = (f32[30000], f32[5]) all-reduce(z, x), {groups.replace('=1', '=2')}, to_apply=reducer\n"
        " ROOT r = ((f32[5], f32[7]), (f32[30000], f32[5])) tuple(a, b)"
    )


def two_sizes() -> str:
    """Return two all-reduces that meet on the same channel, one after the other."""
    groups, _ = PLACES["flattened_id"]
    return module(
        f" x = f32[5] parameter(0)\n a = f32[5] all-reduce(x), {groups}, to_apply=reducer\n"
        f" b = f32[5,3] broadcast(a), dimensions={{0}}\n"
        f" ROOT r = f32[5,3] all-reduce(b), {groups}, to_apply=reducer"
    )


def asynchronous(*, apart: bool = False) -> str:
    """Return collectives in two steps; if ``apart``, an instruction must come between these."""
    groups, _ = PLACES["flattened_id"]
    between = " n = f32[4] negate(x), control-predecessors={s,g,p}\n" if apart else ""
    after = ", control-predecessors={n}" if apart else ""
    return module(
        f" x = f32[4] parameter(0)\n s = f32[4] all-reduce-start(x), {groups}, to_apply=reducer\n"
        f" g = (f32[4], f32[16]) all-gather-start(x), {groups.replace('=1', '=2', 1)}, dimensions={{0}}\n"
        " p = (f32[4], f32[4], u32[], u32[]) collective-permute-start(x), source_target_pairs={{0,1},{1,0}}\n"
        f"{between} c = f32[4] collective-permute-done(p){after}\n b = f32[16] all-gather-done(g){after}\n"
        f" a = f32[4] all-reduce-done(s){after}\n"
        " ROOT r = (f32[4], f32[16], f32[4]) tuple(a, b, c)"
    )


def sent() -> str:
    """Return a value that goes from every device to the next, around a ring of the partitions."""
    pairs = 'frontend_attributes={_xla_send_recv_source_target_pairs="{{0,1},{1,0}}"}'
    return module(
        " x = bf16[5] parameter(0)\n t = token[] after-all()\n"
        f" s = (bf16[5], u32[], token[]) send(x, t), channel_id=1, {pairs}\n"
        f" r = (bf16[5], u32[], token[]) recv(t), channel_id=1, {pairs}\n"
        f" sd = token[] send-done(s), channel_id=1, {pairs}\n"
        f" rd = (bf16[5], token[]) recv-done(r), channel_id=1, {pairs}\n"
        " ROOT y = bf16[5] get-tuple-element(rd), index=0"
    )
