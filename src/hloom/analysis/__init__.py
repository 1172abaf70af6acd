"""Facts computed from modules: cost, trip counts, integer ranges, purity, combiners."""
