"""Whole models, with random weights of published sizes: `python -m benchmarks.models`."""
