"""Run-time support of native programs: the thread pool, rendezvous, host calls, the entry."""
