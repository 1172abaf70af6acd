"""Building programs in Python: XlaBuilder, and the functions of the operation-semantics page by family."""
