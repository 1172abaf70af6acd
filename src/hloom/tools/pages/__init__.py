"""Pages of operations, and what notebooks show."""
