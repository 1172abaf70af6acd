"""Elements that move: slices, pads, transposes, concatenations, gathers, updates, scatters."""
