"""The choice of shardings, and the collectives that they need."""
