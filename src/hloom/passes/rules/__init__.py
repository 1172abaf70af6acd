"""Rewrite rules by family; each file's rules are one ``RULES``. See `hloom.passes.rewriting`."""
