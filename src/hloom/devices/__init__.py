"""The devices of a run: their threads, what they exchange, how they wait; other processes."""
