"""Planning: decisions on each kernel, made once, before code is generated and without LLVM."""
