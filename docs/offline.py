"""A hook of mkdocs: pages load the worker of the search from the site, not from another server."""

from __future__ import annotations

from typing import Any

SHIM = "https://unpkg.com/iframe-worker/shim"


def on_post_template(output: str, template_name: str, config: Any) -> str:
    """Replace the address in the page for missing pages."""
    return output.replace(SHIM, "assets/iframe-worker.js")


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Replace the address of the shim by that of its copy in ``assets/``."""
    return output.replace(SHIM, "../" * page.url.count("/") + "assets/iframe-worker.js")
