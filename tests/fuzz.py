"""Mutated texts and protos: ``python -m tests.fuzz --cases 100000 [FILES ...]``.

For any bytes, the only exception is HloError, and no case takes long. A mutation is a splice, a deletion, a
duplication, a bit flip or a token from another position, or another value for a field of a proto; half of the
cases mutate more than once. Accepted modules are verified and printed; those with mutated fields are
optimized and emitted too. What `hloom.fuzzing` draws is valid; most of these programs are not.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from hloom.codegen.target import Target
from hloom.cpu import emitters  # noqa: F401  (registers emitters)
from hloom.cpu.jit.compilation import optimize
from hloom.cpu.program import emit_program
from hloom.errors import HloError
from hloom.ir.module import HloModule
from hloom.proto.schema.hlo_pb2 import HloModuleProto

TOKENS = (
    "{", "}", "(", ")", "[", "]", ",", "=", "%", '"', "->", "/*", "*/", "//", "\n", "0", "-1",
    "99999999999999999999", "f32", "s4", "f32[]", "f32[2,2]{1,0}", "{0,1}", "{1,0:T(8,128)}",
    "(f32[2], s32[])", "ROOT", "ENTRY", "HloModule", "dimensions={0}", "to_apply=%add", "window={size=3x3}",
    "dim_labels=b01f_01io->b01f", "replica_groups={{0,1}}", "sharding={devices=[2,1]<=[2]}", "constant",
    "parameter(0)", "nan", "inf", "-0", "<=", "?", "token[]", "1e999",
)  # fmt: skip
SLOW_SECONDS = 1.0
LARGEST_BYTES = 1 << 24
TARGET = Target.named("x86_64-linux-gnu", "x86-64-v3")


def mutate_text(text: str, choose: random.Random) -> str:
    """Return a text with one mutation."""
    at, to = sorted(choose.randrange(len(text) + 1) for _ in range(2))
    match choose.randrange(6):
        case 0:
            return text[:at] + choose.choice(TOKENS) + text[at:]
        case 1:
            return text[:at] + text[min(to, at + 40) :]
        case 2:
            return text[:at] + text[at : at + 60] + text[at:]
        case 3:
            return text[:at] + choose.choice(TOKENS) + text[at + choose.randrange(8) :]
        case 4:
            return (
                text[:at]
                + chr(choose.choice((0, 9, 34, 37, 123, 125, 0x2028, choose.randrange(0x110000 - 0x800))))
                + text[at + 1 :]
            )
        case _:
            lines = text.split("\n")
            i, j = choose.randrange(len(lines)), choose.randrange(len(lines))
            lines[i], lines[j] = lines[j], lines[i]
            return "\n".join(lines)


def mutate_bytes(data: bytes, choose: random.Random) -> bytes:
    """Return bytes with one mutation."""
    changed = bytearray(data)
    at = choose.randrange(len(data) + 1)
    match choose.randrange(4):
        case 0 if at < len(changed):
            changed[at] ^= 1 << choose.randrange(8)
        case 1:
            del changed[at : at + choose.randrange(1, 20)]
        case 2:
            changed[at:at] = changed[at : at + 30]
        case _:
            changed[at:at] = bytes(choose.randrange(256) for _ in range(choose.randrange(1, 8)))
    return bytes(changed)


NUMBERS = (0, 1, -1, 2, 3, 4, 5, 7, 31, 64, 100, 1 << 20, -(1 << 31), (1 << 31) - 1)


def mutate_field(message: Message, choose: random.Random) -> None:
    """Give one field of a proto, or of a message in it, another value; lists lose or repeat elements."""
    present: list[Any] = [field for field, _ in message.ListFields()]
    inner = [f for f in present if f.message_type is not None and not f.message_type.GetOptions().map_entry]
    if inner and choose.random() < 0.85:
        value: Any = getattr(message, choose.choice(inner).name)
        if not hasattr(value, "append"):
            return mutate_field(value, choose)
        at = choose.randrange(len(value))
        match choose.randrange(8):
            case 0:
                del value[at]
            case 1:
                value.append(value[at])
            case _:
                mutate_field(value[at], choose)
        return None
    declared: list[Any] = list(message.DESCRIPTOR.fields)
    fields = [f for f in (present if choose.random() < 0.7 else declared) if _is_plain(f)]
    if not fields:
        return None
    field = choose.choice(fields)
    if not _is_list(field):
        return setattr(message, field.name, _drawn(field, getattr(message, field.name), choose))
    values: Any = getattr(message, field.name)
    at = choose.randrange(len(values) + 1)
    if at < len(values) and choose.random() < 0.4:
        del values[at]
    else:
        values.insert(at, _drawn(field, values[0] if values else field.default_value, choose))
    return None


def _is_list(field: FieldDescriptor) -> bool:
    return isinstance(field.default_value, list)


def _is_plain(field: FieldDescriptor) -> bool:
    return field.message_type is None


def _drawn(field: FieldDescriptor, value: Any, choose: random.Random) -> Any:
    """Return another value of a field's type."""
    kinds = FieldDescriptor
    if field.enum_type is not None:
        return choose.choice(field.enum_type.values).number
    match field.cpp_type:
        case kinds.CPPTYPE_BOOL:
            return not value
        case kinds.CPPTYPE_STRING:
            words = ["", "add", "f32", "a b", "\u202e", "tuple", "parameter", "reduce"]
            text = choose.choice(words)
            return text.encode() if field.type == kinds.TYPE_BYTES else text
        case kinds.CPPTYPE_FLOAT | kinds.CPPTYPE_DOUBLE:
            return choose.choice([0.0, -1.0, 1e30, float("nan"), float("inf")])
        case _:
            near = [int(value or 0) + d for d in (-1, 1)] if not isinstance(value, list) else []
            number = choose.choice([*NUMBERS, *near, *near, *near])
            unsigned = field.cpp_type in (kinds.CPPTYPE_UINT32, kinds.CPPTYPE_UINT64)
            end = 1 << (63 if field.cpp_type in (kinds.CPPTYPE_INT64, kinds.CPPTYPE_UINT64) else 31)
            number = abs(number) if unsigned else number
            return number if -end <= number < end else 0


def try_fields(data: bytes) -> None:
    """Read a proto, print and verify it, optimize it and emit its kernels."""
    module = HloModule.from_proto(data)
    module.to_text()
    module.verify()
    sizes = [leaf.byte_size for i in module.instructions() for _, leaf in i.shape.leaves() if leaf.is_array]
    if sum(sizes) < LARGEST_BYTES:
        emit_program(optimize(module), TARGET)


def try_text(text: str) -> None:
    """Read a text, verify it, print it."""
    module = HloModule.from_text(text)
    module.to_text()
    module.verify()


def try_bytes(data: bytes) -> None:
    """Read a proto, verify it, print it."""
    module = HloModule.from_proto(data)
    module.to_text()
    module.verify()


def run_case(attempt: Callable[[], None], tries: int = 3) -> str:
    """Return a message if a case raises an exception other than HloError, or takes too long; else "".

    A slow case is tried again: the garbage collector may have run meanwhile.
    """
    start = time.process_time()  # of this process alone: other processes may use the machine
    try:
        attempt()
    except HloError as error:
        str(error)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        return f"{type(error).__name__}: {str(error)[:200]}\n" + "".join(
            traceback.format_exc().splitlines(True)[-7:]
        )
    seconds = time.process_time() - start
    if seconds > SLOW_SECONDS and tries > 1:
        return run_case(attempt, tries - 1)
    return f"took {seconds:.1f} s" if seconds > SLOW_SECONDS else ""


def fuzz(
    texts: Sequence[str], protos: Sequence[bytes], cases: int, seed: int, save: Path | None = None
) -> list[str]:
    """Run mutated cases; returns a description of every failure."""
    choose = random.Random(seed)
    failures: list[str] = []
    for number in range(cases):
        rounds = 1 if choose.random() < 0.5 else choose.randrange(2, 6)
        if protos and choose.random() < 0.3:
            message = HloModuleProto.FromString(choose.choice(protos))
            for _ in range(rounds):
                mutate_field(message, choose)
            content = message.SerializeToString()
            problem = run_case(lambda data=content: try_fields(data))
        elif protos and choose.random() < 0.5:
            data = choose.choice(protos)
            for _ in range(rounds):
                data = mutate_bytes(data, choose)
            problem, content = run_case(lambda data=data: try_bytes(data)), data
        else:
            text = choose.choice(texts)
            for _ in range(rounds):
                text = mutate_text(text, choose)
            problem = run_case(lambda text=text: try_text(text))
            content = text.encode("utf-8", "surrogatepass")
        if problem:
            failures.append(f"case {number}: {problem}")
            if save is not None:
                (save / f"case{seed}_{number}").write_bytes(content)
    return failures


def main() -> None:
    """Fuzz the given files (.pb are protos, all others texts)."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save", type=Path)
    options = parser.parse_args()
    files = [f for f in options.files if f.stat().st_size < 20_000]
    texts = [f.read_text(errors="replace") for f in files if f.suffix != ".pb"]
    protos = [f.read_bytes() for f in files if f.suffix == ".pb"]
    if options.save:
        options.save.mkdir(parents=True, exist_ok=True)
    start = time.time()
    failures = fuzz(texts, protos, options.cases, options.seed, options.save)
    print("\n".join(failures[:40]))
    print(f"{options.cases} cases, {len(failures)} failures, {time.time() - start:.0f} s")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
