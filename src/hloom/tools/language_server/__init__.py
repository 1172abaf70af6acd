"""`hloom lsp`: a language server for HLO text.

`server.py` speaks the protocol; the other files answer questions about a text and know only offsets.
"""
