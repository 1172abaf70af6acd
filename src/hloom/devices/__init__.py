"""The devices of a run: threads, mailboxes, waiting and deadlocks, and devices of other processes."""
