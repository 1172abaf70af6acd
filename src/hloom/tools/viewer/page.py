"""The page: markup, style and modules of `viewer/`, and the compressed data, in one HTML file.

Every JavaScript module becomes a `data:` URL in an import map, so that the page has no parts outside of
itself and the sources need no build. Data are JSON, deflated and in base64; the browser inflates a program
when it is shown.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any, Final

from hloom.tools.pictures.markup import markup
from hloom.tools.viewer.program import Stage

_LAYOUT_LIBRARY: Final = "dagre/dagre.esm.js"


def page_parts(stages: Sequence[Stage], more: Mapping[str, Any]) -> dict[str, object]:
    """Return the parts of a page: a manifest, the data of each program, and `memory`, `code`, `time` and
    `sharding`.

    Programs of which one came from another by passes are shown with their changes.
    """
    first = stages[0].data["name"]
    groups = list(dict.fromkeys(stage.program for stage in stages))
    manifest = {
        "title": first,
        "groups": [group or first for group in groups],
        "programs": [
            {
                "title": stage.title,
                "count": len(stage.data["names"]),
                "group": groups.index(stage.program),
                "rewrites": list(filter(None, stage.rewrites)),
            }
            for stage in stages
        ],
        "parts": list(more),
    }
    return {"manifest": manifest, **{f"program-{n}": s.data for n, s in enumerate(stages)}, **more}


def html_page(parts: Mapping[str, Any]) -> str:
    """Return the page that shows the parts; the manifest names the others."""
    folder = resources.files("hloom.tools.viewer")
    modules = {f"viewer/{f.name}": f.read_text("utf-8") for f in folder.iterdir() if f.name.endswith(".js")}
    modules["dagre"] = folder.joinpath(_LAYOUT_LIBRARY).read_text("utf-8")
    imports = {name: _module_url(name, text) for name, text in sorted(modules.items())}
    replacements = {
        "/* style */": folder.joinpath("style.css").read_text("utf-8"),
        "{/* imports */}": _in_script(json.dumps({"imports": imports})),
        "<!-- title -->": markup(parts["manifest"]["title"]),
        "<!-- data -->": "\n".join(_data_script(name, part) for name, part in parts.items()),
        "<!-- licence -->": folder.joinpath("dagre/LICENSE").read_text("utf-8").replace("--", ""),
    }
    page = folder.joinpath("page.html").read_text("utf-8")
    for marker, text in replacements.items():
        page = page.replace(marker, text, 1)
    return page


def _module_url(name: str, text: str) -> str:
    """Return a module as a URL; the browser's debugger shows it under its name."""
    encoded = base64.b64encode(f"{text}\n//# sourceURL={name}\n".encode()).decode()
    return f"data:text/javascript;base64,{encoded}"


def _data_script(name: str, part: object) -> str:
    data = json.dumps(part, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace")
    encoded = base64.b64encode(zlib.compress(data, 6)).decode()
    return f'<script type="application/octet-stream" id="{name}">{encoded}</script>'


def _in_script(text: str) -> str:
    """Return JSON that cannot end its script element."""
    return text.replace("</", "<\\/")
