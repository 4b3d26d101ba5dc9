"""Silent corruption: programs with an exact result, repeated, with their work permuted over the cards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from harness.checking.check import Check, CheckContext
from harness.hardware.account import Account, on_machine
from harness.hardware.blame import (
    Trial,
    Trials,
    blame_computing,
    computing_findings,
    copying_findings,
    unseen_rate,
)
from harness.hardware.corruption.measure import compute, prepare, repeat
from harness.hardware.delivery import COPIED_BYTES, blame_copies, copy
from harness.hardware.machine import Machine
from harness.plural import plural
from harness.records import CheckResult

#: The levels after ``quick`` exclude that 1 in so many results of an operation is wrong, unless the time is too short.
LEAST_EXCLUDED = 300


def run(context: CheckContext) -> CheckResult:
    """Compute and copy what is known exactly, and find the cause of what differs."""
    return on_machine(context, lambda machine, account: _check(machine, account, context))


def _check(machine: Machine, account: Account, context: CheckContext) -> str:
    cards = account.cards
    programs = prepare(machine, context.seed)
    computed = Trials()
    compute(machine, programs, context.level, computed)
    ran = len(computed.trials)
    repeat(machine, context.seed, context.level, computed)
    repeated = len(computed.trials) - ran
    if blame := blame_computing(computed.trials):
        if any(each.intermittent or not each.sure for each in blame):
            # More trials narrow down the rate and the cause.
            compute(machine, programs, context.level, computed)
            blame = blame_computing(computed.trials)
        account.found(*computing_findings(blame, cards, computed.details))
    count = ran
    size = sum(program.answers[0].expected.size for program in programs) // len(programs)
    # Half of the trials are results, of which every element is compared; half are digests.
    account.count(*cards, values=count // 2 * (size + 1), ops=count, programs=len(programs))
    account.count(*(cards if repeated else ()), values=repeated * size, ops=repeated)

    copied = Trials()
    for found in copy(machine, context.level, context.seed, copied):
        account.found_once(found)
    blamed = blame_copies(machine, context.seed, copied)
    copies = len(copied.trials)
    account.found(*copying_findings(blamed, cards, copied.details))
    account.count(*(cards if copies else ()), values=copies * COPIED_BYTES // 8, ops=2 * copies)

    runs = count // max(1, len(cards))
    excluded = excluded_rates(computed.trials)
    account.scope += [
        f"{name}: less than 1 in {least:,} results of a device are wrong, at 95 %" for name, least in excluded.items()
    ]
    if repeated and min(excluded.values()) < LEAST_EXCLUDED:
        short = ", ".join(name for name, least in excluded.items() if least < LEAST_EXCLUDED)
        account.scope.append(
            f"hint: too slow to exclude that 1 in {LEAST_EXCLUDED:,} results is wrong, as this level does otherwise "
            f"({short}): run it while the machine is idle, or with --level deep"
        )
    account.scope.append(
        f"{runs:,} runs on each of {plural(len(cards), 'device')}, which take turns at each shard index: an error in 1 "
        f"of {round(1 / unseen_rate(runs)):,} runs, or more often, would have been found with 95% confidence"
    )
    account.measured["runs_per_card"] = float(runs)
    return (
        f"{count + repeated:,} results with a known answer and {copies:,} copies on "
        f"{plural(len(cards), 'device')}: every bit is right; of each operation, less than 1 in "
        f"{min(excluded.values(), default=1):,} results are wrong, at 95 %"
    )


def excluded_rates(trials: Sequence[Trial]) -> dict[str, int]:
    """Return by operation which share of its results a card without a wrong one has less of wrong, at 95 %: 1 in N.

    The rate that N results leave possible is exact: ``1 - 0.05 ** (1 / N)``, about 3 / N. The card with the fewest
    results counts. Digests of results are left out: they prove that the results were fetched unchanged.
    """
    counts = Counter((trial.program, trial.card) for trial in trials if not trial.program.startswith("digest"))
    fewest: dict[str, int] = {}
    for (program, _), count in counts.items():
        fewest[program] = min(count, fewest.get(program, count))
    return {program: int(1 / unseen_rate(count)) for program, count in fewest.items()}


CHECK = Check(
    id="corruption",
    title="silent corruption",
    proves="programs with a known result give exactly this result every time, on each device and at each shard index, "
    "and copies between all ordered pairs of devices deliver what was sent",
    minimum_devices=1,
    typical_s=2,
    run=run,
    hardware=True,
    timed=True,
)
