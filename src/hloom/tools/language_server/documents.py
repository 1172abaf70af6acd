"""The open documents: the latest text of each, analyzed in the background."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from hloom.tools.language_server.analysis import Analysis, Problem
from hloom.tools.language_server.source import Source, Span
from hloom.tools.language_server.view import DocumentView

PAUSE: Final = 0.15
"""Seconds without a change before a text is analyzed."""

Listener = Callable[[str, Analysis], None]


class Document:
    """An open document: its latest text, and its last analysis, which may be of an earlier text."""

    def __init__(self, uri: str, source: Source) -> None:
        self.uri = uri
        self.source = source
        self.analysis: Analysis | None = None
        self.first = asyncio.Event()
        self.work: asyncio.Task[None] | None = None

    async def view(self) -> DocumentView:
        """Return the latest text with the last analysis; wait for the first one."""
        await self.first.wait()
        assert self.analysis is not None
        return DocumentView(self.source, self.analysis)


class Documents:
    """All open documents, and the thread that analyzes them, one at a time."""

    def __init__(self, analysed: Listener) -> None:
        self._documents: dict[str, Document] = {}
        self._analysed = analysed
        self._executor = ThreadPoolExecutor(1, "hloom-analysis")

    def __getitem__(self, uri: str) -> Document:
        return self._documents[uri]

    def update(self, uri: str, source: Source) -> None:
        """Set the text of a document, and schedule its analysis."""
        document = self._documents.get(uri)
        if document is None:
            document = self._documents[uri] = Document(uri, source)
        document.source = source
        if document.work is None or document.work.done():
            document.work = asyncio.get_running_loop().create_task(self._follow(document))

    def close(self, uri: str) -> None:
        """Remove a document, and cancel its analysis."""
        document = self._documents.pop(uri, None)
        if document is not None and document.work is not None:
            document.work.cancel()

    async def _follow(self, document: Document) -> None:
        """Analyze a document until its latest text is analyzed."""
        loop = asyncio.get_running_loop()
        done: Source | None = None
        while done is not document.source:
            source = document.source
            if document.analysis is not None:
                await asyncio.sleep(PAUSE)
                if document.source is not source:
                    continue
            try:
                analysis = await loop.run_in_executor(self._executor, Analysis, source)
            except Exception as error:  # a defect of hloom: the editor shows it, and asks again after an edit
                analysis = Analysis(Source("", source.version))
                analysis.problems = [Problem(Span(0, 0), f"hloom failed: {error!r}", "lsp.defect")]
                traceback.print_exception(error)
            document.analysis = analysis
            document.first.set()
            done = source
            self._analysed(document.uri, analysis)
