"""`hloom lsp`: a language server for HLO text.

`server.py` speaks the protocol; the other files answer queries about a text, by offsets.
"""
