"""Judge a partitioner: ``python -m tests.proofs.partitioned_corpus programs.zip [--by xla] [--only NAME]``.

Each program is partitioned by hloom or by jaxlib, and judged, in a process of its own. Prints the programs
that are not proved, and the numbers of verdicts; exits with 1 if hloom's program is refuted. With
``--verdicts FILE`` the verdicts are written to a file of JSON, and those of an earlier run are not looked for
again, except with ``--again WORD``: the programs with this verdict.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import signal
import sys
import time
from collections import Counter
from multiprocessing.connection import Connection
from pathlib import Path

from hloom import HloError, HloModule
from hloom.proofs.partitioned import annotated_tilings, prove_partitioned
from hloom.sharding import partitioned_program
from tests.proofs.xla_partitioning import partitioned_by_xla
from tests.sharding_corpus import programs

SECONDS = 20.0
"""Processor time in which a program is judged; it is open otherwise."""
MEMORY = 4 << 30
LONGEST = 600.0
"""Time that passes before a process is ended that waits for another one."""


def judged(text: str, devices: int, by: str) -> tuple[str, str]:
    """Return the verdict on a program's partitioning, and its reason."""
    whole = HloModule.from_text(text)
    try:
        if by == "xla":
            whole, local = partitioned_by_xla(text, devices)
            tilings = annotated_tilings(whole, devices)
        else:
            partitioned = partitioned_program(whole, devices)
            local, tilings = partitioned.module, (partitioned.parameters, partitioned.results)
    except (HloError, FileNotFoundError) as error:
        return "refused", str(error).replace("\n", " ")
    _limit_processor_time()
    try:
        verdict = prove_partitioned(whole, local, *tilings, samples=4)
    except (HloError, MemoryError) as error:
        return "open", f"{type(error).__name__} {error}".replace("\n", " ")
    return verdict.relation.value, verdict.reason or verdict.inputs


def _limit_processor_time() -> None:
    """End this process some seconds of processor time from now."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    seconds = int(used.ru_utime + used.ru_stime + SECONDS) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))


def _answer(text: str, devices: int, by: str, parent: Connection) -> None:
    if by != "xla":
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    parent.send(judged(text, devices, by))


def judged_apart(text: str, devices: int, by: str, start_method: str = "fork") -> tuple[str, str]:
    """Return the verdict of a process that may take too long, or end."""
    parent, child = multiprocessing.Pipe()
    process = multiprocessing.get_context(start_method).Process(  # type: ignore[attr-defined]
        target=_answer, args=(text, devices, by, child)
    )
    process.start()
    child.close()
    try:
        return parent.recv() if parent.poll(LONGEST) else ("open", f"more than {LONGEST:.0f} s")
    except EOFError:
        process.join()
        if process.exitcode == -signal.SIGXCPU:
            return "open", f"more than {SECONDS:.0f} s"
        return "refused", "the process ended"
    finally:
        process.kill()
        process.join()


def main() -> None:
    """Judge every program of a corpus."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--by", choices=("hloom", "xla"), default="hloom", help="The partitioner.")
    parser.add_argument("--only", default="", help="Judge the programs whose names contain this.")
    parser.add_argument("--verdicts", type=Path, help="A file of verdicts, read and written.")
    parser.add_argument("--again", action="append", default=[], help="Judge programs of this verdict again.")
    options = parser.parse_args()
    stored: Path | None = options.verdicts
    verdicts = json.loads(stored.read_text()) if stored and stored.exists() else {}
    for entry, text in programs(options.corpus):
        name = entry["name"]
        is_known = name in verdicts and verdicts[name][0] not in options.again
        if options.only not in name or entry["template"] or is_known:
            continue
        start = time.monotonic()
        verdicts[name] = relation, reason = judged_apart(text, entry["num_partitions"], options.by)
        if relation in ("refuted", "open", "refused"):
            seconds = time.monotonic() - start
            print(f"{relation:8} {seconds:5.1f} s {name:60} {reason[:140]}", flush=True)
        if stored:
            stored.write_text(json.dumps(verdicts, indent=1))
    counts = Counter(relation for relation, _ in verdicts.values())
    print(", ".join(f"{count} {word}" for word, count in counts.items()))
    sys.exit(1 if counts["refuted"] and options.by == "hloom" else 0)


if __name__ == "__main__":
    main()
