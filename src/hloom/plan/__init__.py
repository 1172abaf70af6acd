"""Planning: decisions about each kernel, made once before code generation, without LLVM."""
