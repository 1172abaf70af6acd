"""Buffer assignment: a buffer for every value, in one arena."""
