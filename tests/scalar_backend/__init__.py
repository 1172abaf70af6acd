"""A backend in one folder: scalar LLVM code for each kernel plan, Python for control flow."""
