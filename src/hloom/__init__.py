"""hloom: XLA in Python."""
