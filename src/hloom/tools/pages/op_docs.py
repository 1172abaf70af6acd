"""``make docs``: write the pages of ``docs/operations/`` from the declarations of operations.

``python -m hloom.tools.pages.op_docs DIRECTORY`` does the same.
"""

from __future__ import annotations

import sys
from pathlib import Path

import hloom.operations  # noqa: F401  # pyright: ignore[reportUnusedImport]  (declares the operations)
from hloom.ir.operation import REGISTRY
from hloom.tools.pages.op_page import families, op_markdown


def pages() -> dict[str, str]:
    """Return the contents of each file, by name: a page for each operation, and a list by family."""
    index = [
        "# Operations",
        "",
        "A page for every operation: arguments, shape rule, named rules, and an example with its result.",
        "They are written from the declarations by `make docs`; `hloom op NAME` prints the same.",
        "",
    ]
    for family, opcodes in families():
        links = ", ".join(f"[{opcode}]({opcode}.md)" for opcode in opcodes)
        index.append(f"- **{family}**: {links}")
    texts = {"README.md": "\n".join(index) + "\n"}
    texts.update({f"{opcode}.md": op_markdown(opcode).rstrip() + "\n" for opcode in sorted(REGISTRY)})
    return texts


def write(directory: Path) -> None:
    """Write all pages to a directory, and delete pages of operations that no longer exist."""
    directory.mkdir(parents=True, exist_ok=True)
    texts = pages()
    for old in directory.glob("*.md"):
        if old.name not in texts:
            old.unlink()
    for name, text in texts.items():
        (directory / name).write_text(text)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
