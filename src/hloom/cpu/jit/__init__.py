"""Compilation of LLVM IR to loaded code: LLVM, parts, cache, loader."""
