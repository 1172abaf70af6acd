"""Planning: propagation of shardings, assignments of operations, and resharding plans."""
