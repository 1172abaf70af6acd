"""Sharded arrays as tiles and as files."""
