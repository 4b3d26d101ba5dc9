"""Judges a training under a strategy, loop by loop, from the histories of its processes and the single-device run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from harness.distribute.causes import Rerun, find_causes
from harness.distribute.compare import Compared
from harness.distribute.equivalence import CollectiveCount, Equivalence, conclude
from harness.distribute.facts import Facts
from harness.distribute.history import History
from harness.distribute.replay import Case, Replay
from harness.distribute.training import Data
from harness.evidence.trace import Trace
from harness.judgement.verification import Comparison
from harness.records import Exercised, Finding


@dataclass
class Judgement:
    """What was found, compared and exercised so far."""

    strategy: str
    loops: tuple[str, ...]
    steps: int
    findings: list[Finding] = field(default_factory=list)
    comparisons: list[Comparison] = field(default_factory=list)
    undecided: list[str] = field(default_factory=list)
    collectives: list[CollectiveCount] = field(default_factory=list)
    exercised: Exercised = field(default_factory=Exercised)
    measured: dict[str, float] = field(default_factory=dict)
    traces: dict[str, Trace] = field(default_factory=dict)

    def add(
        self,
        found: History,
        single: History,
        compared: Compared,
        facts: Facts,
        data: Data,
        broken_rules: Iterable[Finding],
        rerun: Rerun | None,
        replay: Replay | None = None,
    ) -> None:
        """Judge one loop, and look for causes where it diverged. ``broken_rules`` are the findings on how it ran."""
        broken = list(broken_rules)
        causes: list[Finding] = []
        differences: list[Finding] = []
        if facts.random:
            drawing = f"{', '.join(facts.random)} {'draws' if len(facts.random) == 1 else 'draw'}"
            self.undecided.append(
                f"{drawing} random numbers independently on each replica, so values cannot be compared"
            )
        elif compared.differences or compared.structure:
            # Copies that drift apart may have a cause too; any other broken rule explains the values that follow.
            if all(finding.kind == "sync" for finding in broken):
                causes = find_causes(Case(found, single, compared, facts, data), rerun, replay)
            differences = list(compared.findings(found.loop))
        self.findings += [*causes, *broken, *differences]
        if not facts.random:
            self.undecided += compared.undecided
        self.comparisons += compared.comparisons
        gradients = sum(array.size for array in found.values["gradient"].values())
        values = sum(array.size for named in found.values.values() for array in named.values()) - gradients
        self.exercised += Exercised(programs=1, values=values, gradients=gradients)

    def add_raised(self, finding: Finding) -> None:
        """A loop ended with an error under the strategy, though it ran on one device."""
        self.findings.append(finding)
        self.exercised += Exercised(programs=1)

    def equivalence(self, passed: str, *, traced: bool = True) -> Equivalence:
        """The result; ``passed`` is the reason of a PASS."""
        verdict, reason = conclude(self.findings, self.undecided, self.exercised, passed, traced=traced)
        return Equivalence(
            verdict,
            reason,
            tuple(self.findings),
            self.exercised,
            tuple(self.comparisons),
            self.traces,
            strategy=self.strategy,
            loops=self.loops,
            steps=self.steps,
            collectives=tuple(self.collectives),
            measured=self.measured,
        )
