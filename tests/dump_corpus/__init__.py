"""Everything that XLA dumps of a range of JAX programs: texts, protos and snapshots, and of every pass.

- `programs`: the programs;
- `writing`: runs them on stock JAX with XLA's dump flags, in a process of its own;
- `checking`: reads, verifies, prints, compares, draws and runs every file;
- `python -m tests.dump_corpus DIR [NAME ...]`: writes the dumps and checks them all.
"""
