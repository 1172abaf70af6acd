"""HLO as protocol buffers, wire-compatible with XLA."""
