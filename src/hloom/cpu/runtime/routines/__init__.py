"""Emitters of the run time's native code."""
