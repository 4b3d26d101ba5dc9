"""How well a fleet is judged, on 20 simulated fleets of 2,000 machines: ``python tests/fleet/simulation.py``.

2 % of the machines have a fault. As the report advises, those that only the comparison accuses are run again, once.
Every figure is of a simulation. What is drawn, and what comes from runs, is described in ``simulated_fleet.py``.
"""

from __future__ import annotations

import argparse
import random
import time
from collections import Counter
from datetime import datetime, timezone

from simulated_fleet import RIGHT, Planted, SimulatedFleet, fleet, rerun

from harness.fleet.actions import Action
from harness.fleet.fleet import judge_runs
from harness.fleet.policy import Policy
from harness.fleet.verdicts import FleetVerdict

NOW = datetime(2026, 11, 3, tzinfo=timezone.utc)


class Score:
    """What was found of what was planted, by kind."""

    def __init__(self) -> None:
        self.planted: Counter[str] = Counter()
        self.found: Counter[str] = Counter()
        self.right_card: Counter[str] = Counter()
        self.right_action: Counter[str] = Counter()
        self.false: list[str] = []

    def add(self, given: SimulatedFleet, verdict: FleetVerdict) -> None:
        """Compare a verdict with what was planted."""
        by_machine: dict[str, Planted] = {each.machine: each for each in given.planted}
        for each in verdict.accusations:
            if each.machine not in by_machine and each.action is not Action.RERUN:
                self.false.append(f"{each.machine} {each.subject}: {each.reasons[0]}")
        for fault in given.planted:
            own = [
                each
                for each in verdict.accusations
                if each.machine == fault.machine and each.action is not Action.RERUN
            ]
            self.planted[fault.kind] += 1
            self.found[fault.kind] += bool(own)
            self.right_card[fault.kind] += any(each.labels == fault.labels for each in own)
            self.right_action[fault.kind] += any(
                each.labels == fault.labels and each.action is fault.action for each in own[:1]
            )

    def figures(self) -> dict[str, float]:
        """Precision and recall by machine, and the shares of right cards and actions of what was found."""
        found, planted = self.found.total(), self.planted.total()
        return {
            "precision": found / (found + len(self.false)) if found else 0.0,
            "recall": found / planted,
            "right card": self.right_card.total() / found if found else 0.0,
            "right action": self.right_action.total() / found if found else 0.0,
        }

    def table(self) -> str:
        """The matrix of faults, in Markdown."""
        lines = [
            "| fault | right action | planted | found | right card | right action given |",
            "|---|---|---|---|---|---|",
        ]
        for kind, (action, _) in RIGHT.items():
            counts = (self.planted[kind], self.found[kind], self.right_card[kind], self.right_action[kind])
            lines.append(f"| `{kind}` | {action} | {' | '.join(map(str, counts))} |")
        return "\n".join(lines)


def main() -> None:
    """Print the figures."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--machines", type=int, default=2000)
    options.add_argument("--seeds", type=int, default=20)
    given = options.parse_args()
    score, judged_s, suspects = Score(), 0.0, 0
    for seed in range(given.seeds):
        made = fleet(seed, given.machines)
        began = time.process_time()
        first = judge_runs(made.runs, Policy(), NOW)
        judged_s += time.process_time() - began
        again = {each.machine for each in first.accusations if each.action is Action.RERUN}
        suspects += len(again - {each.machine for each in made.planted})
        made = rerun(made, again, random.Random(seed + 1000))
        began = time.process_time()
        second = judge_runs(made.runs, Policy(), NOW)
        judged_s += time.process_time() - began
        score.add(made, second)
    planted = score.planted.total()
    print(f"simulated: {given.seeds} fleets of {given.machines:,} machines, {planted} faults of {len(RIGHT)} kinds")
    for name, value in score.figures().items():
        print(f"{name}: {value:.3f}")
    print(f"sound machines run again: {suspects}; accused after it: {len(score.false)}")
    print(f"processor time to judge a fleet: {judged_s / given.seeds / 2:.2f} s; all: {judged_s:.1f} s")
    print(score.table())
    for line in score.false[:20]:
        print(line)


if __name__ == "__main__":
    main()
