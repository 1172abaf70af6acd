"""The language server: handlers of the protocol's requests.

pygls is an extra (``pip install hloom[lsp]``), so type checking of this file must not need it.
"""
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import asyncio
import sys
from importlib.metadata import version
from typing import Any

from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcException
from pygls.lsp.server import LanguageServer
from pygls.protocol import LanguageServerProtocol, default_converter, lsp_method

from hloom.errors import HloError
from hloom.tools.language_server.analysis import Analysis
from hloom.tools.language_server.completion import complete
from hloom.tools.language_server.documents import Documents
from hloom.tools.language_server.formatting import formatted
from hloom.tools.language_server.hover import hover, page
from hloom.tools.language_server.messages import Message, locations, renaming, symbols
from hloom.tools.language_server.outline import outline
from hloom.tools.language_server.source import Changes, Place, Source, Span
from hloom.tools.language_server.view import DocumentView

_COMPLETED = {
    "opcode": lsp.CompletionItemKind.Function,
    "instruction": lsp.CompletionItemKind.Variable,
    "computation": lsp.CompletionItemKind.Module,
    "attribute": lsp.CompletionItemKind.Property,
    "value": lsp.CompletionItemKind.EnumMember,
}


class HloServer(LanguageServer):
    """The language server with its open documents."""

    def __init__(self) -> None:
        super().__init__("hloom", version("hloom"), protocol_cls=_Protocol, converter_factory=_converter)
        self.documents = Documents(self.publish)

    def publish(self, uri: str, analysis: Analysis) -> None:
        """Send the errors of a document to the editor."""
        diagnostics = [
            lsp.Diagnostic(
                range=_range(analysis.source, problem.span),
                message=problem.message,
                severity=lsp.DiagnosticSeverity.Error,
                code=problem.rule,
                source="hloom",
            )
            for problem in analysis.problems
        ]
        self.text_document_publish_diagnostics(
            lsp.PublishDiagnosticsParams(uri=uri, diagnostics=diagnostics, version=analysis.source.version)
        )

    def change(self, params: lsp.DidChangeTextDocumentParams) -> None:
        """Apply the editor's changes to a document."""
        uri, version = params.text_document.uri, params.text_document.version
        source = self.documents[uri].source
        for edit in params.content_changes:
            if isinstance(edit, lsp.TextDocumentContentChangePartial):
                start, end = (Place(p.line, p.character) for p in (edit.range.start, edit.range.end))
                source = source.edited(start, end, edit.text, version)
            else:
                source = Source(edit.text, version, source.encoding)
        self.documents.update(uri, source)

    async def view(self, params: Any) -> tuple[DocumentView, int]:
        """Return the document of a request, and the offset of the request's position."""
        view = await self.documents[params.text_document.uri].view()
        return view, view.source.offset(params.position.line, params.position.character)


class _Protocol(LanguageServerProtocol):
    """The protocol without pygls' own application of edits, which splits the whole text for each."""

    @lsp_method(lsp.TEXT_DOCUMENT_DID_CHANGE)
    def lsp_text_document__did_change(self, params: lsp.DidChangeTextDocumentParams) -> Any:
        yield self.fm.features[lsp.TEXT_DOCUMENT_DID_CHANGE], (params,), None


def _converter() -> Any:
    """Return the converter of messages, which sends plain dictionaries unchanged."""
    converter = default_converter()
    for response in (lsp.ReferencesResponse, lsp.RenameResponse, lsp.DocumentSymbolResponse):
        converter.register_unstructure_hook(
            response, lambda m: {"id": m.id, "jsonrpc": m.jsonrpc, "result": m.result}
        )
    return converter


def _range(source: Source, span: Span) -> lsp.Range:
    return lsp.Range(lsp.Position(*source.place(span.start)), lsp.Position(*source.place(span.end)))


def serve() -> None:
    """Serve an editor on the standard input and output."""
    sys.setswitchinterval(0.001)  # so that answers do not wait for the analysis thread
    server = create_server()
    server.start_io()


def create_server() -> HloServer:
    """Create a server with handlers for all requests."""
    server = HloServer()
    _add_documents(server)
    _add_names(server)
    _add_words(server)
    return server


def _add_documents(server: HloServer) -> None:
    @server.feature(lsp.INITIALIZED)
    def _(params: lsp.InitializedParams) -> None:
        server.thread_pool.submit(page, "add")  # caches the rules of all operations

    @server.feature(lsp.TEXT_DOCUMENT_DID_OPEN)
    async def _(params: lsp.DidOpenTextDocumentParams) -> None:
        opened = params.text_document
        encoding = lsp.PositionEncodingKind(server.server_capabilities.position_encoding).value
        server.documents.update(opened.uri, Source(opened.text, opened.version, encoding))

    @server.feature(lsp.TEXT_DOCUMENT_DID_CHANGE)
    async def _(params: lsp.DidChangeTextDocumentParams) -> None:
        server.change(params)

    @server.feature(lsp.TEXT_DOCUMENT_DID_CLOSE)
    async def _(params: lsp.DidCloseTextDocumentParams) -> None:
        server.documents.close(params.text_document.uri)
        server.text_document_publish_diagnostics(lsp.PublishDiagnosticsParams(params.text_document.uri, []))


def _add_names(server: HloServer) -> None:
    @server.feature(lsp.TEXT_DOCUMENT_DEFINITION)
    async def _(params: lsp.DefinitionParams) -> lsp.Location | None:
        view, offset = await server.view(params)
        symbol = view.symbol_at(offset)
        span = view.definition(symbol) if symbol is not None else None
        return None if span is None else lsp.Location(params.text_document.uri, _range(view.source, span))

    @server.feature(lsp.TEXT_DOCUMENT_REFERENCES)
    async def _(params: lsp.ReferenceParams) -> list[Message]:
        view, offset = await server.view(params)
        symbol = view.symbol_at(offset)
        if symbol is None:
            return []
        occurrences = view.occurrences(symbol)
        if not params.context.include_declaration:
            defined = view.definition(symbol)
            occurrences = (token for token in occurrences if defined != (token.start, token.end))
        return locations(view.source, params.text_document.uri, occurrences)

    @server.feature(lsp.TEXT_DOCUMENT_PREPARE_RENAME)
    async def _(params: lsp.PrepareRenameParams) -> lsp.Range | None:
        view, offset = await server.view(params)
        token = view.token_at(offset) if view.symbol_at(offset) is not None else None
        return None if token is None else _range(view.source, Span(token.end - len(token.name), token.end))

    @server.feature(lsp.TEXT_DOCUMENT_RENAME, lsp.RenameOptions(prepare_provider=True))
    async def _(params: lsp.RenameParams) -> Message | None:
        view, offset = await server.view(params)
        symbol = view.symbol_at(offset)
        if symbol is None:
            return None
        try:
            name = view.check_new_name(symbol, params.new_name)
        except HloError as error:
            raise _refused(error) from error
        return renaming(view.source, params.text_document.uri, view.occurrences(symbol), name)

    @server.feature(lsp.TEXT_DOCUMENT_DOCUMENT_SYMBOL)
    async def _(params: lsp.DocumentSymbolParams) -> list[Message]:
        view = await server.documents[params.text_document.uri].view()
        return symbols(view.source, outline(view))


def _add_words(server: HloServer) -> None:
    @server.feature(lsp.TEXT_DOCUMENT_HOVER)
    async def _(params: lsp.HoverParams) -> lsp.Hover | None:
        view, offset = await server.view(params)
        explained = hover(view, offset)
        if explained is None:
            return None
        markdown, span = explained
        content = lsp.MarkupContent(lsp.MarkupKind.Markdown, markdown)
        return lsp.Hover(content, _range(view.source, span))

    @server.feature(
        lsp.TEXT_DOCUMENT_COMPLETION, lsp.CompletionOptions(trigger_characters=["%", "(", "=", ",", " "])
    )
    async def _(params: lsp.CompletionParams) -> lsp.CompletionList:
        view, offset = await server.view(params)
        completion = complete(view, offset)
        where = _range(view.source, completion.span)
        items = [
            lsp.CompletionItem(
                label=proposal.text,
                kind=_COMPLETED[proposal.kind],
                detail=proposal.detail or None,
                sort_text=f"{number:03}",
                text_edit=lsp.TextEdit(where, proposal.text),
            )
            for number, proposal in enumerate(completion.proposals)
        ]
        return lsp.CompletionList(completion.is_incomplete, items)

    @server.feature(lsp.TEXT_DOCUMENT_FORMATTING)
    async def _(params: lsp.DocumentFormattingParams) -> list[lsp.TextEdit]:
        source = server.documents[params.text_document.uri].source
        try:
            text = await asyncio.get_running_loop().run_in_executor(None, formatted, source.text)
        except HloError as error:
            raise _refused(error) from error
        changes = Changes(source.text, text)
        span = Span(changes.start, changes.old_end)
        return [lsp.TextEdit(_range(source, span), text[span.start : changes.forward(span.end)])]


def _refused(error: HloError) -> JsonRpcException:
    """Return the protocol's error for a refused request; editors show its message."""
    return JsonRpcException(f"{error.message} [{error.rule}]", code=lsp.LSPErrorCodes.RequestFailed)
