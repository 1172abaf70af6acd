"""The programs, a file for each group."""
