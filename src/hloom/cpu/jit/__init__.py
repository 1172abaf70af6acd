"""From LLVM text to loaded code: LLVM, parts, the cache, the loader."""
