"""Code generation for any LLVM target: symbolic indices, elements, loops, vector math."""
