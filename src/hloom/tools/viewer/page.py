"""The page: markup, style and JavaScript modules of `viewer/`, and the compressed data, in one HTML file.

Each JavaScript module becomes a `data:` URL in an import map, so that the page is self-contained and the
sources need no build. Data are JSON, deflated and encoded in base64; the browser inflates a program when it
is shown.
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
    """Return the data of a page: a manifest, the data of each stage, and `more`, the data of the tabs.

    Consecutive stages of a program are shown with their changes.
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
                "rewrites": stage.rewrites,
                "states": len(stage.states),
            }
            for stage in stages
        ],
        "parts": list(more),
    }
    programs = {f"program-{n}": stage.data for n, stage in enumerate(stages)}
    states = {
        f"program-{n}.{k}": data for n, stage in enumerate(stages) for k, data in enumerate(stage.states, 1)
    }
    return {"manifest": manifest, **programs, **states, **more}


def html_page(parts: Mapping[str, Any]) -> str:
    """Return the HTML page of the data of `page_parts`."""
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
    """Return a JavaScript module as a data URL, which debuggers show under the module's name."""
    encoded = base64.b64encode(f"{text}\n//# sourceURL={name}\n".encode()).decode()
    return f"data:text/javascript;base64,{encoded}"


def _data_script(name: str, part: object) -> str:
    data = json.dumps(part, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace")
    encoded = base64.b64encode(zlib.compress(data, 6)).decode()
    return f'<script type="application/octet-stream" id="{name}">{encoded}</script>'


def _in_script(text: str) -> str:
    """Escape JSON so that it cannot end its script element."""
    return text.replace("</", "<\\/")
