"""Passes that order instructions."""
