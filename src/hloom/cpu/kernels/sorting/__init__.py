"""Emitters of sort and topk kernels: sorts by integer keys, merge sort by any comparator, top-k."""
