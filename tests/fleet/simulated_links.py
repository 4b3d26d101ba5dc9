"""How well faults between machines are localised, in simulated fleets: ``python tests/fleet/simulated_links.py``.

Every time is drawn: it varies by 3 % (``--noise``), and in 3 % of the exchanges (``--tails``) it is up to twice as
long. Machines differ by 1 %, and the way between racks takes 10 % longer. Nothing here has been measured on a network.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations

from harness.fleet.links.judge import LinkJudgement, judge_links
from harness.fleet.links.record import Lost, Report, Timing
from harness.fleet.links.schedule import Exchange, schedule
from harness.fleet.links.verdict import LinkFinding, Scope
from harness.fleet.policy import Judging

PER_RACK = 20
SIZES = (2**16, 2**22)
#: What may be planted: what has to be found of it.
KINDS = {
    "slow link": ("slow", Scope.LINK),
    "wrong link": ("wrong values", Scope.LINK),
    "closed link": ("no answer", Scope.LINK),
    "slow machine": ("slow", Scope.NODE),
    "wrong machine": ("wrong values", Scope.NODE),
    "dead machine": ("no answer", Scope.NODE),
    "slow rack": ("slow", Scope.RACK),
}


@dataclass(frozen=True)
class Planted:
    """A fault: its kind, the machines or the rack, and how much longer an exchange takes."""

    kind: str
    where: tuple[str, ...]
    factor: float = 1.0


@dataclass
class SimulatedNetwork:
    """Machines, their racks, and what is wrong between them."""

    seed: int
    nodes: tuple[str, ...]
    racks: dict[str, str]
    planted: list[Planted] = field(default_factory=list)
    #: How much times vary, and how many exchanges are up to twice as long.
    noise: float = 0.03
    tails: float = 0.03

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.speed = {name: self.rng.gauss(1.0, 0.01) for name in self.nodes}
        self.lost: list[Lost] = []

    def reports(self, exchanges: Sequence[Exchange], begin: int = 0) -> list[Report]:
        """Draw what the members of the exchanges from ``begin`` on report."""
        made: list[Report] = []
        dead = {each.where[0] for each in self.planted if each.kind == "dead machine"}
        died = {each.machine for each in self.lost}
        for number, exchange in list(enumerate(exchanges))[begin:]:
            members = exchange.members
            missing = tuple(name for name in members if name in dead and (exchange.round > 0 or name in died))
            for name in missing:
                if (name, exchange.stage) not in {(each.machine, each.stage) for each in self.lost}:
                    self.lost.append(Lost(name, "killed", exchange.stage))
            if missing or self._has(members, "closed link"):
                made += [
                    Report(name, number, "failed", "did not come", missing or (members[0],))
                    for name in members
                    if name not in missing
                ]
                continue
            wrong = self._has(members, "wrong link") or self._has(members, "wrong machine")
            slow = self._factor(members)
            for name in members:
                timings = tuple(
                    Timing(what, size, slow * size / 1e9 * (2 if what == "copy" else 3) * self.rng.gauss(1, 0.02))
                    for size in SIZES
                    for what in (("all-reduce", "copy") if exchange.is_pair else ("all-reduce",))
                )
                is_wrong = wrong and name == members[-1]
                made.append(
                    Report(name, number, "wrong" if is_wrong else "done", "drawn", (), timings, self.racks[name])
                )
        return made

    def _has(self, members: Sequence[str], kind: str) -> bool:
        return any(each.kind == kind and {*each.where} <= {*members} for each in self.planted)

    def _factor(self, members: Sequence[str]) -> float:
        racks = {self.racks[name] for name in members}
        slow = max(self.speed[name] for name in members) * max(0.5, self.rng.gauss(1.0, self.noise))
        slow *= 1.1 if len(racks) > 1 else 1.0
        slow *= self.rng.uniform(1.1, 2.0) if self.rng.random() < self.tails else 1.0
        for each in self.planted:
            if each.kind == "slow rack":
                slow *= each.factor if len(racks) > 1 and {*each.where} & racks else 1.0
            elif each.kind.startswith("slow") and {*each.where} <= {*members}:
                slow *= each.factor
        return slow

    def judged(self, rounds: int = 3, ring: int = 4) -> tuple[LinkJudgement, list[Exchange]]:
        """Draw the schedule and what is done again, as ``harness fleet links`` does, and judge it."""
        exchanges = list(schedule(self.nodes, rounds, ring))
        reports = self.reports(exchanges)
        found = judge_links(exchanges, reports, self.racks, Judging(), self.lost)
        for _ in range(2):
            if not found.again:
                break
            begin = len(exchanges)
            exchanges += found.again
            reports += self.reports(exchanges, begin)
            found = judge_links(exchanges, reports, self.racks, Judging(), self.lost)
        return found, exchanges


def network(seed: int, count: int, kinds: Sequence[str] = ()) -> SimulatedNetwork:
    """Make a fleet with one fault of each of ``kinds``, on different machines, between which there are exchanges."""
    nodes = tuple(f"n{number:03}" for number in range(count))
    racks = {name: f"r{number // PER_RACK:02}" for number, name in enumerate(nodes)}
    made = SimulatedNetwork(seed, nodes, racks)
    met = [pair for each in schedule(nodes, 3, 4) for pair in combinations(each.members, 2)]
    free = set(nodes)
    for kind in sorted(kinds, key=lambda kind: not kind.endswith("rack")):
        factor = made.rng.uniform(1.5, 3.0)
        if kind.endswith("rack"):
            rack = made.rng.choice(sorted({*racks.values()}))
            made.planted.append(Planted(kind, (rack,), factor))
            free -= {name for name in nodes if racks[name] == rack}
        elif kind.endswith("link"):
            pair = made.rng.choice([pair for pair in met if {*pair} <= free])
            made.planted.append(Planted(kind, tuple(sorted(pair)), factor))
            free -= {*pair}
        else:
            name = made.rng.choice(sorted(free))
            made.planted.append(Planted(kind, (name,), factor))
            free -= {name}
    return made


def is_of(finding: LinkFinding, fault: Planted) -> bool:
    """Whether a finding names the fault: what is wrong, and exactly where."""
    return (finding.fault, finding.scope) == KINDS[fault.kind] and tuple(sorted(finding.machines)) == fault.where


def main() -> None:
    """Print the figures."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--machines", type=int, default=200)
    options.add_argument("--seeds", type=int, default=20)
    options.add_argument("--noise", type=float, default=0.03)
    options.add_argument("--tails", type=float, default=0.03)
    given = options.parse_args()
    planted, found = Counter[str](), Counter[str]()
    accused = right = open_ = exchanges = again = 0
    wrong: list[str] = []
    for seed in range(given.seeds):
        for kinds in ((), tuple(KINDS)):
            made = network(seed, given.machines, kinds)
            made.noise, made.tails = given.noise, given.tails
            judgement, done = made.judged()
            exchanges += len(done)
            again += sum(each.stage > 0 for each in done)
            for fault in made.planted:
                planted[fault.kind] += 1
                found[fault.kind] += any(each.confirmed and is_of(each, fault) for each in judgement.verdict.findings)
            for each in judgement.verdict.findings:
                is_right = any(is_of(each, fault) for fault in made.planted)
                accused += each.confirmed
                right += each.confirmed and is_right
                open_ += not each.confirmed
                if each.confirmed and not is_right:
                    wrong.append(f"seed {seed}: {each.text}")
    sound = given.seeds
    print(f"simulated: {given.seeds} fleets of {given.machines:,} machines with 7 faults, and {sound} without any")
    print(f"precision: {right / accused:.3f} ({accused} accusations, {len(wrong)} wrong)")
    print(f"recall: {found.total() / planted.total():.3f} ({found.total()} of {planted.total()} faults localised)")
    print(f"not confirmed: {open_}; exchanges: {exchanges:,}, of which done again: {again:,}")
    print("| fault | planted | localised |\n|---|---|---|")
    for kind in KINDS:
        print(f"| {kind} | {planted[kind]} | {found[kind]} |")
    for line in wrong[:20]:
        print(line)


if __name__ == "__main__":
    main()
