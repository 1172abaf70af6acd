"""Passes that write operations in terms of simpler ones."""
