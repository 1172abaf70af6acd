"""Passes on while loops."""
