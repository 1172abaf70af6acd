"""Planning: decisions on each kernel, made once, before code generation and without LLVM."""
