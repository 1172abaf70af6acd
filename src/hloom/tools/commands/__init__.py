"""The commands of ``hloom``."""
