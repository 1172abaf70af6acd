"""Passes on collectives."""
