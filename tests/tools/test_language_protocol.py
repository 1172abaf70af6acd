"""The language server, asked by a client through the Language Server Protocol."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import pytest

pytest.importorskip("pygls")

from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcException
from pygls.lsp.client import LanguageClient

T = TypeVar("T")
URI = "file:///program.hlo"
TEXT = """HloModule m

ENTRY main {
  x = f32[4,8] parameter(0)
  y = f32[4,8] nagate(x)
  z = f32[4,9] add(x, x)
  ROOT r = f32[4,8] multiply(x, x)
}
"""
DOCUMENT = lsp.TextDocumentIdentifier(URI)


class Session:
    """A client with one open document."""

    def __init__(
        self, client: LanguageClient, published: asyncio.Queue[lsp.PublishDiagnosticsParams]
    ) -> None:
        self.client = client
        self.published = published
        self.version = 1

    async def diagnostics(self) -> lsp.PublishDiagnosticsParams:
        """Return the diagnostics of the latest text."""
        while True:
            found = await asyncio.wait_for(self.published.get(), 600)
            if found.version == self.version:
                return found

    def edit(self, line: int, start: int, end: int, text: str) -> None:
        self.version += 1
        where = lsp.Range(lsp.Position(line, start), lsp.Position(line, end))
        self.client.text_document_did_change(
            lsp.DidChangeTextDocumentParams(
                lsp.VersionedTextDocumentIdentifier(self.version, URI),
                [lsp.TextDocumentContentChangePartial(where, text)],
            )
        )


def in_event_loop(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in a thread: tests of the viewer leave a running event loop in this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


def in_session(
    test: Callable[[Session], Awaitable[None]], text: str = TEXT, encodings: Sequence[str] = ()
) -> None:
    """Start the server, open the document, run the test, and end the server as editors do."""
    kinds = [lsp.PositionEncodingKind(name) for name in encodings] or None
    abilities = lsp.ClientCapabilities(general=lsp.GeneralClientCapabilities(position_encodings=kinds))

    async def run() -> None:
        client: Any = LanguageClient("test", "1")
        published: asyncio.Queue[lsp.PublishDiagnosticsParams] = asyncio.Queue()
        client.feature(lsp.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)(lambda found: published.put_nowait(found))
        await client.start_io(sys.executable, "-m", "hloom.tools.cli", "lsp", env=dict(os.environ))
        await client.initialize_async(lsp.InitializeParams(capabilities=abilities))
        client.initialized(lsp.InitializedParams())
        client.text_document_did_open(
            lsp.DidOpenTextDocumentParams(lsp.TextDocumentItem(URI, "hlo", 1, text))
        )
        await test(Session(client, published))
        await client.shutdown_async(None)
        client.exit(None)
        await client.stop()

    in_event_loop(run())


def test_diagnostics_follow_the_edits() -> None:
    async def check(session: Session) -> None:
        first = await session.diagnostics()
        assert [(d.code, d.range.start.line, d.range.start.character) for d in first.diagnostics] == [
            ("text.opcode", 4, 15),
            ("instruction.shape-matches", 5, 2),
        ]
        assert first.diagnostics[0].range.end == lsp.Position(4, 21)
        session.edit(4, 16, 17, "e")
        assert [d.code for d in (await session.diagnostics()).diagnostics] == ["instruction.shape-matches"]
        session.edit(5, 12, 13, "8")
        assert not (await session.diagnostics()).diagnostics

    in_session(check)


def test_names() -> None:
    async def check(session: Session) -> None:
        client, at = session.client, lsp.Position(6, 29)
        found: Any = await client.text_document_definition_async(lsp.DefinitionParams(DOCUMENT, at))
        assert found.range == lsp.Range(lsp.Position(3, 2), lsp.Position(3, 3))
        context = lsp.ReferenceContext(include_declaration=False)
        used: Any = await client.text_document_references_async(lsp.ReferenceParams(context, DOCUMENT, at))
        assert [(u.range.start.line, u.range.start.character) for u in used] == [
            (4, 22), (5, 19), (5, 22), (6, 29), (6, 32),
        ]  # fmt: skip
        where: Any = await client.text_document_prepare_rename_async(lsp.PrepareRenameParams(DOCUMENT, at))
        assert where == lsp.Range(at, lsp.Position(6, 30))
        renamed: Any = await client.text_document_rename_async(lsp.RenameParams(DOCUMENT, at, "input"))
        assert [edit.new_text for edit in renamed.changes[URI]] == ["input"] * 6
        with pytest.raises(JsonRpcException, match=r"another instruction 'z' \[rename\.unique\]"):
            await client.text_document_rename_async(lsp.RenameParams(DOCUMENT, at, "z"))
        symbols: Any = await client.text_document_document_symbol_async(lsp.DocumentSymbolParams(DOCUMENT))
        assert [(s.name, [c.name for c in s.children or ()]) for s in symbols] == [
            ("main", ["x", "y", "z", "r"])
        ]

    in_session(check)


def test_positions_are_counted_as_the_client_prefers() -> None:
    """Neovim offers UTF-8 first; the name after the comment is at another character then."""
    text = TEXT.replace("multiply(x", "multiply(/*é😀*/x")

    async def check(session: Session) -> None:
        context = lsp.ReferenceContext(include_declaration=True)
        at = lsp.ReferenceParams(context, DOCUMENT, lsp.Position(3, 2))
        used: Any = await session.client.text_document_references_async(at)
        session.edit(6, 39, 40, "z")  # the x after the comment
        again: Any = await session.client.text_document_references_async(at)
        assert [u.range.start.character for u in used if u.range.start.line == 6] == [39, 42]
        assert [u.range.start.character for u in again if u.range.start.line == 6] == [42]

    in_session(check, text, ["utf-8", "utf-16"])


def test_words() -> None:
    async def check(session: Session) -> None:
        client, at = session.client, lsp.Position(6, 22)
        shown: Any = await client.text_document_hover_async(lsp.HoverParams(DOCUMENT, at))
        assert shown.contents.value.startswith("### multiply")
        offered: Any = await client.text_document_completion_async(lsp.CompletionParams(DOCUMENT, at))
        assert [item.label for item in offered.items] == ["mulhi", "multiply"]
        assert offered.items[0].text_edit.range.start == lsp.Position(6, 20)

    in_session(check)


def test_formatting() -> None:
    async def check(session: Session) -> None:
        request = lsp.DocumentFormattingParams(DOCUMENT, lsp.FormattingOptions(2, True))
        with pytest.raises(JsonRpcException, match=r"unknown opcode 'nagate'.*\[format\.valid\]"):
            await session.client.text_document_formatting_async(request)
        session.edit(4, 15, 21, "negate")
        session.edit(5, 12, 13, "8")
        edits = await session.client.text_document_formatting_async(request)
        assert edits is not None
        (edit,) = edits
        assert "ENTRY main (x: f32[4,8]) -> f32[4,8]" in edit.new_text

    in_session(check)


def test_a_defect_is_shown_and_survived(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception while a text is analysed ends neither the server nor the answers after the next edit."""
    from hloom.tools.language_server import documents
    from hloom.tools.language_server.analysis import Analysis
    from hloom.tools.language_server.source import Source

    def fail(source: Source) -> Analysis:
        if "defect" in source.text:
            raise ZeroDivisionError("planted")
        return Analysis(source)

    async def run() -> list[list[str]]:
        shown: list[list[str]] = []
        analysed = asyncio.Event()

        def publish(uri: str, analysis: Analysis) -> None:
            shown.append([problem.message for problem in analysis.problems])
            analysed.set()

        opened = documents.Documents(publish)
        for version, text in enumerate(("// defect", TEXT.replace("nagate", "negate"))):
            analysed.clear()
            opened.update(URI, Source(text, version))
            await asyncio.wait_for(analysed.wait(), 600)
            assert (await opened[URI].view()).source.text == text
        return shown

    monkeypatch.setattr(
        documents, "Analysis", type("Planted", (), {"__new__": lambda cls, source: fail(source)})
    )
    first, second = in_event_loop(run())
    assert first == ["hloom failed: ZeroDivisionError('planted')"]
    assert [message[:19] for message in second] == ["the shape is stated"]
