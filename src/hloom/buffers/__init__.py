"""Buffer assignment: a buffer for every value, temporaries in one arena."""
