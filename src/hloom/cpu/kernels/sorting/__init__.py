"""Sorts: by keys, by comparing, of rows and of one long row; top-k."""
