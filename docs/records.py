"""Shows the parameters of the dataclasses of `hloom.records` in the site's API pages, as of Python's own."""

from typing import Any

import griffe


class Records(griffe.Extension):
    """Replaces the decorator by the one that griffe knows."""

    def on_class_instance(self, *, cls: griffe.Class, **_: Any) -> None:
        """Change the decorators of a class."""
        for decorator in cls.decorators:
            call = decorator.value
            name = call.function if isinstance(call, griffe.ExprCall) else call
            if isinstance(name, griffe.ExprName) and name.canonical_path == "hloom.records.dataclass":
                name.parent = griffe.ExprName("dataclasses")
