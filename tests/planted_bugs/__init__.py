"""Bugs planted in passes and kernels, which the tools of hloom.debug must find by name and shrink.

``python -m tests.planted_bugs [NAME ...]`` plants each bug in a program of 1,000 instructions or more, finds
it by check and bisect, and reduces the program. It prints a table, and fails if a bug is not found, remains
larger than `MOST_INSTRUCTIONS`, or takes longer than `MOST_SECONDS` of CPU time.
"""
