"""Passes that remove or simplify instructions."""
