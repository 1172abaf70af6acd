"""Example programs, and a demonstration."""
