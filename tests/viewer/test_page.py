"""The text of the viewer's page, without a browser."""

from __future__ import annotations

from hloom.tools.viewer.page import html_page


def test_the_page_holds_its_parts_and_the_licence_of_the_layout_library() -> None:
    page = html_page({"manifest": {"title": "a < b"}, "program-0": {"names": ["x"]}})
    assert "<title>a &lt; b" in page
    assert "Permission is hereby granted, free of charge" in page
    for place in ("<!-- title -->", "<!-- data -->", "<!-- licence -->", "/* style */", "{/* imports */}"):
        assert place not in page
