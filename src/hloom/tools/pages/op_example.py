"""An example program for each operation, evaluated when it is shown.

The programs are in `op_examples.hlo`, or generated for unary and binary elementwise operations.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import field
from functools import cache
from pathlib import Path
from typing import Any, Final

from hloom.ir.module import HloModule
from hloom.ir.operation import REGISTRY
from hloom.records import dataclass
from hloom.regex import regex
from hloom.shape.literal import Literal
from hloom.shape.shape import Shape

_FILE: Final = Path(__file__).with_name("op_examples.hlo")
_DIVIDER: Final = regex(r"^// ----- (.*)\n", re.M)
_COMPUTATION: Final = regex(r"%(\w+) \{ (.*) \}")
_VALUE: Final = regex(r"([a-z]\w*\[[\d,]*\])(\{.*\})")

_FLOATS: Final = {
    "acosh": "{1, 1.5, 2}",
    "log": "{0, 1, 2}",
    "log-plus-one": "{-1, 0, 1}",
    "log2": "{0, 1, 8}",
    "exp2": "{-1, 0, 3}",
    "rsqrt": "{0, 1, 4}",
    "sqrt": "{-1, 0, 4}",
    "cbrt": "{-8, 0, 27}",
    "round-nearest-afz": "{-2.5, 0.5, 1.5}",
    "round-nearest-even": "{-2.5, 0.5, 1.5}",
    "is-finite": "{1, inf, nan}",
}
_OF_INTEGERS: Final = (
    *("and", "or", "xor", "not", "shift-left", "shift-right-arithmetic", "shift-right-logical"),
    *("mulhi", "popcnt", "count-leading-zeros"),
)


@dataclass
class Example:
    """A small program with its devices, arguments and values from the host.

    Attributes:
        opcodes: the operations that it shows.
        lines: the lines of the called computations, then of the entry's instructions.
        notes: numbers of devices, arguments, and values from the host, by name.
    """

    opcodes: tuple[str, ...]
    lines: list[str]
    notes: dict[str, str] = field(default_factory=dict[str, str])

    def module(self) -> HloModule:
        """Parse the program."""
        computations: list[str] = []
        body: list[str] = []
        for line in self.lines:
            called = _COMPUTATION.fullmatch(line)
            if called is None:
                body.append(line)
            else:
                computations.append(f"{called[1]} {{\n" + called[2].replace("; ", "\n") + "\n}\n")
        return HloModule.from_text(
            "HloModule example\n\n" + "\n".join(computations) + "\nENTRY main {\n" + "\n".join(body) + "\n}\n"
        )


def example_of(opcode: str) -> Example | None:
    """Return the example of an operation, if there is one."""
    example = _stored().get(opcode)
    return example if example is not None else _elementwise(opcode)


@cache
def _stored() -> dict[str, Example]:
    _, *parts = _DIVIDER.split(_FILE.read_text())
    examples: dict[str, Example] = {}
    for names, text in zip(parts[::2], parts[1::2], strict=True):
        lines = text.strip().split("\n")
        notes: dict[str, str] = {}
        for line in lines:
            if line.startswith("// "):
                key, _, note = line[3:].partition(": ")
                notes[key] = note
        example = Example(tuple(names.split()), [line for line in lines if line[:3] != "// "], notes)
        examples |= dict.fromkeys(example.opcodes, example)
    return examples


def _elementwise(opcode: str) -> Example | None:
    cls = REGISTRY[opcode]
    if not cls.elementwise or cls.arity() not in (1, 2):
        return None
    binary = cls.arity() == 2
    if opcode in _OF_INTEGERS:
        kind, first, second = "s32[3]", "{6, -8, 1}", "{3, 1, 40}"
    elif opcode in ("real", "imag"):
        kind, first, second = "c64[2]", "{(1, 2), (3, -4)}", ""
    elif binary:
        kind, first, second = "f32[3]", "{7, -7, 2}", "{2, 2, 0.5}"
    else:
        kind, first, second = "f32[3]", _FLOATS.get(opcode, "{-1, 0, 0.5}"), ""
    lines = [f"x = {kind} constant({first})", *([f"y = {kind} constant({second})"] if binary else [])]
    operands = [Shape.parse(kind)] * (2 if binary else 1)
    result = REGISTRY[opcode]().infer(*operands)
    names = "x, y" if binary else "x"
    lines.append(f"ROOT r = {result.to_string(layout=False)} {opcode}({names})")
    return Example((opcode,), lines)


def evaluated(example: Example) -> list[str]:
    """Run an example on the evaluator; return a line for each device's result and each value for the host."""
    from hloom.runtime.executable import compile as compile_module

    module, notes = example.module(), example.notes
    replicas, partitions = int(notes.get("replicas", "1")), int(notes.get("partitions", "1"))
    executable = compile_module(module, backend="evaluator", num_replicas=replicas, num_partitions=partitions)
    host: object = executable.devices[0]
    if "infeed" in notes:
        host.transfer_to_infeed(_literal(notes["infeed"]))
    if "channel" in notes:
        channel, value = notes["channel"].split(" ", 1)
        host.transfer_to_channel(int(channel), _literal(value))
    arguments = [_literal(notes["arguments"])] if "arguments" in notes else []
    with _registered():
        values = executable.run([arguments] * (replicas * partitions))
    shape = module.entry.root.shape
    texts = [value_text(value, shape) for value in values]
    device = "partition" if partitions > 1 else "replica"
    lines = texts if len(texts) == 1 else [f"{device} {i}: {text}" for i, text in enumerate(texts)]
    if "outfeed" in example.opcodes:
        lines.append("the host gets " + value_text(host.transfer_from_outfeed(), Shape.parse("f32[2]")))
    if "sent" in notes:
        sent = host.transfer_from_channel(int(notes["sent"]))
        lines.append("the host gets " + value_text(sent, Shape.parse("f32[2]")))
    return lines


@contextmanager
def _registered() -> Generator[None]:
    """Register the Python function of the custom-call example while the context is active."""
    from hloom.runtime.custom_call import register_custom_call, unregister_custom_call

    def reverse(array: Any) -> Any:
        return array[::-1]

    register_custom_call("example.reversed", reverse)
    try:
        yield
    finally:
        unregister_custom_call("example.reversed")


def _literal(text: str) -> Literal:
    parts = _VALUE.fullmatch(text)
    assert parts is not None, text
    return Literal.parse(parts[2], Shape.parse(parts[1]))


def value_text(value: Any, shape: Shape) -> str:
    """Return a value as an HLO literal, with its shape."""
    if shape.is_tuple:
        return "(" + ", ".join(value_text(v, s) for v, s in zip(value, shape.tuple_shapes, strict=True)) + ")"
    if not shape.is_array:
        return str(shape)
    literal = value if isinstance(value, Literal) else Literal(value, shape)
    return f"{shape.to_string(layout=False)} {literal.to_text()}"
