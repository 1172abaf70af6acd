"""Programs of more than 1,000 instructions around the instructions that show a bug."""

from __future__ import annotations

import random
import re

from tests.planted_bugs.bugs import Bug

CHAINS = 150
LENGTH = 7
_UNARY = ("tanh", "sine", "cosine", "abs", "exponential")
_BINARY = ("add", "subtract", "multiply")


def program(bug: Bug, seed: int = 0, chains: int = CHAINS) -> str:
    """Return a program of many chains of operations, whose sum is the result; one of them has the bug's."""
    draw = random.Random(seed)
    lines = [f"p{n} = f32[8,16] parameter({n})" for n in range(4)]
    ends: list[str] = []
    for chain in range(chains):
        value, other = draw.choice(["p0", "p1"]), draw.choice(["p2", "p3"])
        for step in range(LENGTH):
            name = f"c{chain}_{step}"
            if step == 3 and chain == chains // 2:
                lines += _embedded(bug, value, other, f"bug{chain}_")
                value = f"bug{chain}_y"
            if step == LENGTH - 1 or draw.random() < 0.5:
                lines.append(f"{name} = f32[8,16] {draw.choice(_BINARY)}({value}, {other})")
            else:
                lines.append(f"{name} = f32[8,16] {draw.choice(_UNARY)}({value})")
            value = name
        lines.append(f"c{chain}_end = f32[8,16] tanh({value})")
        ends.append(f"c{chain}_end")
    while len(ends) > 4:
        pairs = list(zip(ends[::2], ends[1::2], strict=False))
        made = [f"s{len(lines)}_{n}" for n in range(len(pairs))]
        lines += [f"{name} = f32[8,16] add({a}, {b})" for name, (a, b) in zip(made, pairs, strict=True)]
        ends = made + (ends[-1:] if len(ends) % 2 else [])
    shapes = ", ".join(["f32[8,16]"] * len(ends))
    lines.append(f"ROOT result = ({shapes}) tuple({', '.join(ends)})")
    body = "\n  ".join(lines)
    return f"HloModule planted\n\n{bug.computations}\nENTRY main {{\n  {body}\n}}\n"


def _embedded(bug: Bug, x: str, w: str, prefix: str) -> list[str]:
    """Return the bug's instructions, with a prefix before the names of their values."""
    lines = [line.strip() for line in bug.lines.split("\n")]
    defined = {line.split(" = ")[0] for line in lines}

    def renamed(found: re.Match[str]) -> str:
        name = found[0]
        return {"x": x, "w": w}.get(name, f"{prefix}{name}" if name in defined else name)

    out: list[str] = []
    for line in lines:
        name, _, rest = line.partition(" = ")
        parts = re.match(r"(.*? [\w\-]+\()(.*?)(\).*)", rest)
        assert parts is not None, line
        head, arguments, tail = parts.groups()
        if "constant(" in head:
            out.append(f"{prefix}{name} = {rest}")
        else:
            operands = re.sub(r"\b[a-z]\b", renamed, arguments)
            out.append(f"{prefix}{name} = {head}{operands}{tail}")
    return out
