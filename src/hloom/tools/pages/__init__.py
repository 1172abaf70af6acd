"""Pages of operations, and HTML for notebooks."""
