#!/usr/bin/env python
"""How much is proved: the clean twins of the planted faults, and generated programs. No fault of value may be.

    python tests/benchmarks/scripts/proof_shares.py  # minutes
    python tests/benchmarks/scripts/proof_shares.py --programs 10000  # hours

Each program is verified with its proof. Programs under test and their proofs must never contradict each other: results
that are proved equal and differ are named.
"""

from __future__ import annotations

import argparse
import collections
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

# The repository's own package, whether it is installed or not.
sys.path[:0] = [str(Path(__file__).resolve().parents[3])]

if TYPE_CHECKING:
    from harness import Devices, Verification

_VALUES = ("value", "gradient", "shape", "dtype", "missing-gradient")


def planted(devices: Devices, *, faulty: bool) -> Iterator[tuple[str, Verification]]:
    """The planted faults of values, or their clean twins."""
    from harness.faults.catalogue import FAULTS

    for fault in FAULTS.values():
        if fault.devices_needed <= len(devices) and not fault.unsuited(devices):
            yield fault.name, fault.plant(devices).judge(devices, faulty=faulty)


def generated(devices: Devices, count: int, seed: int) -> Iterator[tuple[str, Verification]]:
    """Programs under ``make_parallel``, ``pipeline`` and ``ensemble`` in turn."""
    from harness import strategies
    from harness.checks.ensembles import verify_models
    from harness.checks.generated_programs import verify_program
    from harness.checks.model_parallel import verify_staged

    each = max(1, count // 3)
    kinds: tuple[tuple[str, Any, Callable[[Any, Any], Verification]], ...] = (
        ("make_parallel", strategies.programs(), verify_program),
        ("pipeline", strategies.staged_programs(max_stages=len(devices)), verify_staged),
        ("ensemble", strategies.models(max_models=len(devices)), verify_models),
    )
    for name, strategy, verify in kinds:
        for number, example in enumerate(strategies.sample(strategy, each, seed=seed)):
            yield f"{name} {number}", verify(example, devices)


def main() -> int:
    """Count, and print what is not proved."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=int, default=90, help="so many generated programs")
    parser.add_argument("--seed", type=int, default=0, help="of the generated programs")
    parser.add_argument("--only", choices=["twins", "faults", "generated"], help="only these")
    options = parser.parse_args()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

    import harness

    devices = harness.configure("cpu:4")
    sets: dict[str, Callable[[], Iterator[tuple[str, Verification]]]] = {
        "twins": lambda: planted(devices, faulty=False),
        "faults": lambda: planted(devices, faulty=True),
        "generated": lambda: generated(devices, options.programs, options.seed),
    }
    wrong = 0
    for kind, make in sets.items():
        if options.only not in (None, kind):
            continue
        counts: collections.Counter[str] = collections.Counter()
        why: collections.Counter[str] = collections.Counter()
        for name, verification in make():
            proof = verification.proof
            if kind == "generated" and not verification.passed:
                sys.stdout.write(f"{kind}, {name}: {verification.reason}\n")
            differs = any(finding.kind in _VALUES for finding in verification.findings)
            if proof is None or not proof.results:
                counts["no graph" if proof is None else "no results"] += 1
                continue
            if kind == "faults" and not differs:
                continue
            counts["proved" if proof.proved else "not proved"] += 1
            if proof.proved and differs:
                wrong += 1
                sys.stdout.write(f"{kind}, {name}: PROVED, AND DIFFERS: {verification.reason}\n")
            elif not proof.proved:
                blocked = next(each for each in proof.results if not each.proved)
                why[blocked.why] += 1
                if kind != "faults":
                    sys.stdout.write(f"{kind}, {name}: {blocked.name}: {blocked.why}\n")
                counts["refuted"] += any(each.refuted for each in proof.results)
            sys.stdout.flush()
        sys.stdout.write(f"{kind}: {dict(counts)}\n")
        for text, count in why.most_common(12):
            sys.stdout.write(f"  {count} x {text}\n")
    sys.stdout.write(f"proved and different: {wrong}\n")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
