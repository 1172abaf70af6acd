"""Proofs of partitioned programs for any number of devices: every value in terms of the global arguments."""
