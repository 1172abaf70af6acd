"""The page of an operation, derived from its declaration: description, arguments, rules, example."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable
from typing import Final

import hloom.operations  # noqa: F401  # pyright: ignore[reportUnusedImport]  (declares the operations)
from hloom.errors import HloError, plural
from hloom.ir.codec import REQUIRED, DeclaredAttribute
from hloom.ir.operation import REGISTRY, Operation
from hloom.tools.pages.op_example import evaluated, example_of
from hloom.tools.pages.page_names import builder_function, opcode_of
from hloom.tools.pages.rules import rules_of

WIDTH: Final = 96
Style = Callable[[str, str], str]
"""A function of a text and its role (title, name, rule, dim or value) that returns the colored text."""


def plain(text: str, role: str) -> str:
    """Return the text without color."""
    return text


def operation_of(name: str) -> type[Operation]:
    """Return the operation of an opcode or builder function, such as ``DotGeneral``.

    Raises HloError with the rule ``op.known`` for other names.
    """
    import difflib

    operation = REGISTRY.get(opcode_of(name) or "")
    if operation is None:
        near = difflib.get_close_matches(name.lower().replace("_", "-"), REGISTRY, 3, 0.5)
        hint = f"; did you mean {', '.join(near)}?" if near else ""
        raise HloError(f"unknown operation {name!r}{hint}", rule="op.known")
    return operation


def op_list(style: Style = plain) -> str:
    """Return the list of all operations by family, as text."""
    parts: list[str] = []
    for family, opcodes in families():
        lines = textwrap.wrap("  ".join(opcodes), WIDTH - 4, break_on_hyphens=False)
        parts.append(style(family, "title") + "\n" + "\n".join("  " + line for line in lines))
    return "\n\n".join(parts) + f"\n\n{plural(len(REGISTRY), 'operation')}; `hloom op NAME` shows one.\n"


def families() -> list[tuple[str, list[str]]]:
    """Return the families of operations with their opcodes, both sorted; a family is a module's name."""
    members: dict[str, list[str]] = {}
    for opcode in sorted(REGISTRY):
        family = REGISTRY[opcode].__module__.rpartition(".")[2].replace("_", " ")
        members.setdefault(family, []).append(opcode)
    return sorted(members.items())


def op_page(name: str, style: Style = plain) -> str:
    """Return the page of an operation as text."""
    cls = operation_of(name)
    function = builder_function(name)
    name = cls.opcode
    parts = [
        _builder_page(function, style) if function is not None else "",
        style(signature(cls), "title"),
        docstring(cls),
        _attributes(cls, style),
        _shape_rule(cls, style),
        _rules(name, style),
        _example(name, style),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def signature(cls: type[Operation]) -> str:
    """Return a signature such as ``gather(operand, start_indices), offset_dims=..., [mode=...]``."""
    operands = ", ".join(n if n[0] != "*" else n[1:] + "..." for n in cls.operand_names)
    parts = [f"{cls.opcode}({operands})"]
    parts += [_in_brackets(f"{a.name}=...", a.default is REQUIRED) for a in cls.attributes]
    parts += [_in_brackets(f"{r.name}={'{...}' if r.many else '...'}", r.required) for r in cls.roles]
    return "\n    ".join(textwrap.wrap(", ".join(parts), WIDTH - 4, break_on_hyphens=False))


def _builder_page(function: Callable[..., object], style: Style) -> str:
    """Return the signature and the docstring of a function of `hloom.ops`."""
    parameters = ", ".join(
        str(p.replace(annotation=p.empty)) for p in inspect.signature(function).parameters.values()
    )
    title = style(f"hloom.ops.{function.__name__}({parameters})", "title")
    return f"{title}\n\n{inspect.getdoc(function) or ''}\n\nIt adds:"


def _in_brackets(text: str, required: bool) -> str:
    return text if required else f"[{text}]"


def docstring(cls: type[Operation]) -> str:
    """Return the docstring of an operation, with Markdown's quotes for code."""
    return (inspect.getdoc(cls) or "").replace("``", "`")


def _attributes(cls: type[Operation], style: Style) -> str:
    rows = _attribute_rows(cls)
    rows += [(r.name, "computations" if r.many else "computation") for r in cls.roles]
    if not rows:
        return ""
    width = max(len(name) for name, _ in rows)
    lines = [f"  {style(name.ljust(width), 'name')}  {words}" for name, words in rows]
    return style("Attributes", "title") + "\n" + "\n".join(lines)


def _attribute_rows(cls: type[Operation]) -> list[tuple[str, str]]:
    """Return the name of each attribute with ``required`` or its default value."""
    return [(a.name, _attribute_words(a)) for a in cls.attributes if a.proto or a.default is REQUIRED]


def _attribute_words(attribute: DeclaredAttribute) -> str:
    if attribute.default is REQUIRED:
        return "required"
    text = "none" if attribute.default is None else attribute.codec.text(attribute.default)
    return f"default {text or 'empty'}"


def _shape_rule(cls: type[Operation], style: Style) -> str:
    method = cls.infer if cls.infers else cls.check
    words = inspect.cleandoc(method.__doc__ or "")  # without the inherited one
    if not words or method in (Operation.infer, Operation.check):
        return ""
    note = "" if cls.infers else " The result's shape must be stated."
    return style("Result", "title") + "\n" + textwrap.indent(words.replace("``", "`") + note, "  ")


def _rules(name: str, style: Style) -> str:
    lines: list[str] = []
    for rule in rules_of(name):
        lines.append("  " + style(rule.name, "rule"))
        lines += textwrap.wrap(rule.message, WIDTH, initial_indent=" " * 6, subsequent_indent=" " * 6)
    return style("Rules", "title") + "\n" + "\n".join(lines) if lines else ""


def _example(name: str, style: Style) -> str:
    example = example_of(name)
    if example is None:
        return ""
    notes = [f"  // {key}: {text}" for key, text in example.notes.items()]
    shown = [style(line, "dim") for line in notes] + [f"  {line}" for line in example.lines]
    results = ["  " + style("=> ", "dim") + style(line, "value") for line in evaluated(example)]
    return style("Example", "title") + "\n" + "\n".join([*shown, *results])


def op_markdown(name: str) -> str:
    """Return the page of an operation as Markdown."""
    cls = operation_of(name)
    name = cls.opcode
    parts = [f"# {name}", f"```\n{signature(cls)}\n```", _argument_list(docstring(cls))]
    rows = _attribute_rows(cls)
    if rows:
        parts.append("| attribute | |\n|---|---|\n" + "\n".join(f"| `{n}` | {w} |" for n, w in rows))
    shape = _shape_rule(cls, plain)
    if shape:
        parts.append("## Result\n\n" + textwrap.dedent(shape.split("\n", 1)[1]))
    rules = rules_of(name)
    if rules:
        lines = "\n".join(f"- `{r.name}`: {_escaped(r.message)}" for r in rules)
        parts.append("## Rules\n\n" + lines)
    example = example_of(name)
    if example is not None:
        notes = [f"// {key}: {text}" for key, text in example.notes.items()]
        random = "random" in example.notes
        results = ["=> different at every run"] if random else [f"=> {line}" for line in evaluated(example)]
        parts.append("## Example\n\n```\n" + "\n".join([*notes, *example.lines, *results]) + "\n```")
    return "\n\n".join(parts) + "\n"


def _argument_list(text: str) -> str:
    """Rewrite the section ``Arguments:`` of a docstring as a Markdown list."""
    lines: list[str] = []
    in_section = False
    for line in text.split("\n"):
        in_section = line == "Arguments:" or (in_section and line[:4].isspace())
        match = re.fullmatch(r" {4}([\w*][\w, *]*): (.*)", line) if in_section else None
        if line == "Arguments:":
            lines += [line, ""]
        elif match is not None:
            names = ", ".join(f"`{name.strip()}`" for name in match[1].split(","))
            lines.append(f"- {names}: {match[2]}")
        else:
            lines.append("  " + line.strip() if in_section else line)
    return "\n".join(lines)


def _escaped(text: str) -> str:
    return re.sub(r"([<>*|])", r"\\\1", text)
