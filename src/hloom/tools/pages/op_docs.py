"""The pages of ``docs/operations/``, written from the declarations.

``python -m hloom.tools.pages.op_docs DIRECTORY``, or ``make docs``.
"""

from __future__ import annotations

import sys
from pathlib import Path

import hloom.operations  # noqa: F401  # pyright: ignore[reportUnusedImport]  (declares the operations)
from hloom.ir.operation import REGISTRY
from hloom.tools.pages.op_page import op_markdown


def pages() -> dict[str, str]:
    """Yield file names and contents: a page for every operation, and a list by family."""
    families: dict[str, list[str]] = {}
    for opcode in sorted(REGISTRY):
        family = REGISTRY[opcode].__module__.rsplit(".", 1)[-1].replace("_", " ")
        families.setdefault(family, []).append(opcode)
    index = [
        "# Operations",
        "",
        "A page for every operation: arguments, shape rule, named rules, and an example with its result.",
        "They are written from the declarations by `make docs`; `hloom op NAME` prints the same.",
        "",
    ]
    for family in sorted(families):
        links = ", ".join(f"[{opcode}]({opcode}.md)" for opcode in families[family])
        index.append(f"- **{family}**: {links}")
    texts = {"README.md": "\n".join(index) + "\n"}
    texts.update({f"{opcode}.md": op_markdown(opcode).rstrip() + "\n" for opcode in sorted(REGISTRY)})
    return texts


def write(directory: Path) -> None:
    """Write every page, and remove those of operations that are no more."""
    directory.mkdir(parents=True, exist_ok=True)
    texts = pages()
    for old in directory.glob("*.md"):
        if old.name not in texts:
            old.unlink()
    for name, text in texts.items():
        (directory / name).write_text(text)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
