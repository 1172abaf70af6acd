"""Programs run with every array next to memory that is not mapped."""
