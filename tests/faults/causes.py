"""What the first line of a verification must say of each planted fault of value, and how often it does.

python tests/faults/causes.py          prints found, cause right, cause wrong, and what was not found
"""

from __future__ import annotations

import re
import sys

import harness
from harness.faults.catalogue import FAULTS
from harness.faults.fault import Fault
from harness.records import Verdict

#: By the beginning of the fault's name. What stands for no known cause is right where none could be known.
CAUSES = {
    "V01-floor-slice": r"Rows \d+.* were dropped",
    "V01-fewer-rows": r"All \d+ rows were dropped",
    "V01-get-slice": r"Rows \d+.* were dropped",
    "V01-loss": r"Rows \d+.* were dropped",
    "V02": r"mean of means of uneven shards",
    "V03": r"InvalidArgumentError: .*evenly divide .*remainder\.py:",
    "V04": r"All \d+ rows were dropped",
    "V05-joined": r"joined along axis 1",
    "V05-stacked": r"is transposed",
    "V05-split": r"is split along axis 1",
    "V06": r"mean of means of uneven shards",
    "V07-own": r"mean of means of uneven shards",
    "V07-partial": r"divided by 16 rows, but the batch has 11",
    "V08": r"added up over 4 shards, but each shard's is a mean|times too large",
    "V12": r"regulariser, is counted 4 times",
    "V14-same": r"every shard draws the same random numbers",
    "V14-unseeded": r"drawn without a seed",
    "V14": r"each shard draws its own",
    "V15": r"optimizer is applied 4 times, once for each shard",
    "V16": r"keep the indices of one shard",
    "V17": r"averaged over shards, but it is no mean over rows",
    "V18": r"not row-wise",
    "V19": r"Table is split like a batch",
    "V20-drifting": r"each shard takes a training step of its own",
    "V20-stale-copy": r"gets no gradient: the program never reads it",
    "V20-stale-step": r"part of shard 3 .* is missing",
    "V21-coarse": r"computes in float16 instead of float32",
    "V21-one-element": r"no known cause gives these numbers",
    "V21-float16": r"0\.9001? times",
    "V21": r"0\.999 times|1 times",
}


def expected_cause(fault: Fault) -> str | None:
    """The words of the cause, or ``None`` for a fault that is none of value."""
    known = [begin for begin in CAUSES if fault.name.startswith(begin)]
    return CAUSES[max(known, key=len)] if known else None


def names_cause(fault: Fault, reason: str) -> bool:
    """Whether the first line says the cause."""
    words = expected_cause(fault)
    return words is None or re.search(words, reason, re.IGNORECASE) is not None


def main(names: list[str]) -> None:
    """Verify each fault of value and print the score."""
    devices = harness.configure("cpu:4")
    found = right = wrong = total = 0
    for fault in FAULTS.values():
        if expected_cause(fault) is None or (names and not any(name in fault.name for name in names)):
            continue
        case = fault.plant(devices)
        with case.surroundings():
            seen = harness.verify(
                case.parallel, case.reference, case.inputs, devices=case.meant or devices, **case.options
            )
        total += 1
        found += seen.verdict is Verdict.FAIL
        good = names_cause(fault, seen.reason)
        right += good
        named = "no known cause" not in seen.reason
        wrong += named and not good
        print(f"{'right' if good else 'WRONG' if named else 'none '} {fault.name}: {seen.reason}")
    print(f"{total} faults: found {found}, cause right {right} ({right / max(total, 1):.0%}), cause wrong {wrong}")


if __name__ == "__main__":
    main(sys.argv[1:])
