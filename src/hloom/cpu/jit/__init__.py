"""Compilation of LLVM IR to machine code, cache of the code on disk, and loader of object files."""
