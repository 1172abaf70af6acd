"""The language server: handlers of the protocol's requests, which `View` answers.

pygls is an extra (``pip install hloom[lsp]``), so that this file must be checked without it too.
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
from pygls.protocol import default_converter

from hloom.errors import HloError
from hloom.tools.language_server.analysis import Analysis
from hloom.tools.language_server.completion import complete
from hloom.tools.language_server.documents import Documents
from hloom.tools.language_server.formatting import formatted
from hloom.tools.language_server.hover import hover, page
from hloom.tools.language_server.outline import Entry, outline
from hloom.tools.language_server.source import Changes, Source, Span
from hloom.tools.language_server.view import View

_COMPLETED = {
    "opcode": lsp.CompletionItemKind.Function,
    "instruction": lsp.CompletionItemKind.Variable,
    "computation": lsp.CompletionItemKind.Module,
    "attribute": lsp.CompletionItemKind.Property,
    "value": lsp.CompletionItemKind.EnumMember,
}
_OUTLINED = {
    "computation": lsp.SymbolKind.Function,
    "parameter": lsp.SymbolKind.TypeParameter,
    "constant": lsp.SymbolKind.Constant,
}


class HloServer(LanguageServer):
    """A language server with its open documents."""

    def __init__(self) -> None:
        super().__init__("hloom", version("hloom"), converter_factory=_converter)
        self.documents = Documents(self.publish)

    def publish(self, uri: str, analysis: Analysis) -> None:
        """Send the errors of a document."""
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

    def take(self, uri: str) -> None:
        """Take the text of a document from the workspace, which applies the edits."""
        document = self.workspace.get_text_document(uri)
        self.documents.update(uri, document.source, document.version or 0)

    async def view(self, params: Any) -> tuple[View, int]:
        """Return the document that a request is about, and the offset of its position."""
        view = await self.documents[params.text_document.uri].view()
        return view, view.source.offset(params.position.line, params.position.character)


def _converter() -> Any:
    """Return the converter of messages, with short cuts for those that come by the thousand."""
    converter = default_converter()

    def of_range(value: lsp.Range) -> Any:
        return {
            "start": {"line": value.start.line, "character": value.start.character},
            "end": {"line": value.end.line, "character": value.end.character},
        }

    def of_symbol(value: lsp.DocumentSymbol) -> Any:
        return {
            "name": value.name,
            "detail": value.detail,
            "kind": value.kind.value,
            "range": of_range(value.range),
            "selectionRange": of_range(value.selection_range),
            "children": [of_symbol(child) for child in value.children or ()],
        }

    converter.register_unstructure_hook(lsp.Range, of_range)
    converter.register_unstructure_hook(lsp.DocumentSymbol, of_symbol)
    converter.register_unstructure_hook(
        lsp.Location, lambda value: {"uri": value.uri, "range": of_range(value.range)}
    )
    converter.register_unstructure_hook(
        lsp.TextEdit, lambda value: {"range": of_range(value.range), "newText": value.new_text}
    )
    return converter


def _range(source: Source, span: Span) -> lsp.Range:
    return lsp.Range(lsp.Position(*source.place(span.start)), lsp.Position(*source.place(span.end)))


def serve() -> None:
    """Serve a client on the standard input and output."""
    sys.setswitchinterval(0.001)  # answers do not wait for the thread that analyses
    server = create_server()
    server.start_io()


def create_server() -> HloServer:
    """Return a server with its handlers."""
    server = HloServer()
    _add_documents(server)
    _add_names(server)
    _add_words(server)
    return server


def _add_documents(server: HloServer) -> None:
    @server.feature(lsp.INITIALIZED)
    def _(params: lsp.InitializedParams) -> None:
        server.thread_pool.submit(page, "add")  # reads the rules of all operations, once

    @server.feature(lsp.TEXT_DOCUMENT_DID_OPEN)
    async def _(params: lsp.DidOpenTextDocumentParams) -> None:
        server.take(params.text_document.uri)

    @server.feature(lsp.TEXT_DOCUMENT_DID_CHANGE)
    async def _(params: lsp.DidChangeTextDocumentParams) -> None:
        server.take(params.text_document.uri)

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
    async def _(params: lsp.ReferenceParams) -> list[lsp.Location]:
        view, offset = await server.view(params)
        symbol = view.symbol_at(offset)
        if symbol is None:
            return []
        defined = view.definition(symbol)
        return [
            lsp.Location(params.text_document.uri, _range(view.source, Span(token.start, token.end)))
            for token in view.occurrences(symbol)
            if params.context.include_declaration or defined != (token.start, token.end)
        ]

    @server.feature(lsp.TEXT_DOCUMENT_PREPARE_RENAME)
    async def _(params: lsp.PrepareRenameParams) -> lsp.Range | None:
        view, offset = await server.view(params)
        token = view.token_at(offset) if view.symbol_at(offset) is not None else None
        return None if token is None else _range(view.source, Span(token.end - len(token.name), token.end))

    @server.feature(lsp.TEXT_DOCUMENT_RENAME, lsp.RenameOptions(prepare_provider=True))
    async def _(params: lsp.RenameParams) -> lsp.WorkspaceEdit | None:
        view, offset = await server.view(params)
        symbol = view.symbol_at(offset)
        if symbol is None:
            return None
        try:
            name = view.check_new_name(symbol, params.new_name)
        except HloError as error:
            raise _refused(error) from error
        edits = [
            lsp.TextEdit(_range(view.source, Span(token.end - len(token.name), token.end)), name)
            for token in view.occurrences(symbol)
        ]
        return lsp.WorkspaceEdit(changes={params.text_document.uri: edits})

    @server.feature(lsp.TEXT_DOCUMENT_DOCUMENT_SYMBOL)
    async def _(params: lsp.DocumentSymbolParams) -> list[lsp.DocumentSymbol]:
        view = await server.documents[params.text_document.uri].view()
        return [_symbol(view, entry) for entry in outline(view)]


def _symbol(view: View, entry: Entry) -> lsp.DocumentSymbol:
    return lsp.DocumentSymbol(
        name=entry.name,
        detail=entry.detail,
        kind=_OUTLINED.get(entry.kind, lsp.SymbolKind.Variable),
        range=_range(view.source, entry.span),
        selection_range=_range(view.source, entry.name_span),
        children=[_symbol(view, child) for child in entry.children],
    )


def _add_words(server: HloServer) -> None:
    @server.feature(lsp.TEXT_DOCUMENT_HOVER)
    async def _(params: lsp.HoverParams) -> lsp.Hover | None:
        view, offset = await server.view(params)
        found = hover(view, offset)
        if found is None:
            return None
        content = lsp.MarkupContent(lsp.MarkupKind.Markdown, found[0])
        return lsp.Hover(content, _range(view.source, found[1]))

    @server.feature(
        lsp.TEXT_DOCUMENT_COMPLETION, lsp.CompletionOptions(trigger_characters=["%", "(", "=", ",", " "])
    )
    async def _(params: lsp.CompletionParams) -> lsp.CompletionList:
        view, offset = await server.view(params)
        found = complete(view, offset)
        where = _range(view.source, found.span)
        items = [
            lsp.CompletionItem(
                label=proposal.text,
                kind=_COMPLETED[proposal.kind],
                detail=proposal.detail or None,
                sort_text=f"{number:03}",
                text_edit=lsp.TextEdit(where, proposal.text),
            )
            for number, proposal in enumerate(found.proposals)
        ]
        return lsp.CompletionList(found.is_incomplete, items)

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
    """Return the protocol's error of a request that a rule refuses; editors show its message."""
    return JsonRpcException(f"{error.message} [{error.rule}]", code=lsp.LSPErrorCodes.RequestFailed)
