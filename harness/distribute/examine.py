"""Runs a training on one device and under a strategy, in this process, and judges it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from harness.devices.device import Devices
from harness.distribute.causes import Case, causes, drawn
from harness.distribute.conduct import judge_homes, judge_rows, judge_sync, judge_updates
from harness.distribute.course import Course
from harness.distribute.differences import Compared, compare
from harness.distribute.dtensor_loop import DTensorLoop
from harness.distribute.equivalence import CollectiveCount, Equivalence, conclude, count_collectives
from harness.distribute.facts import Facts
from harness.distribute.findings import findings_of
from harness.distribute.reference import Asked, Reference, look_at, make_session
from harness.distribute.strategies import make_strategy
from harness.distribute.uneven_collectives import judge_collectives
from harness.evidence.trace import Trace, trace
from harness.judgement.arithmetic import proven
from harness.judgement.placement import gradient_ops, judge_replicas
from harness.judgement.verification import Comparison
from harness.records import Exercised, Finding


def examine(strategy_name: str, devices: Devices, asked: Asked) -> Equivalence:
    """Judge a training under a strategy of one process. Each loop is run on one device and under the strategy."""
    if strategy_name.startswith("dtensor"):
        return _examine_dtensor(strategy_name, devices, asked)
    strategy = make_strategy(strategy_name, devices.names)
    facts = look_at(asked)
    judged = Judged(strategy_name, devices, asked, facts)
    for loop in asked.loops:
        reference = Reference(asked, loop, facts)
        single, moved = reference.courses(asked.data, asked.steps)
        traces: list[Trace] = []

        def watch(step: Callable[[], Any], traces: list[Trace] = traces) -> Any:
            traces.append(trace(step))
            return traces[0].outputs

        session = make_session(asked, loop, strategy, asked.data)
        found = session.run(reference.initial, asked.data, asked.steps, watch)
        judged.add_course(loop, found, single, compare(found, single, moved, reference.epsilon), strategy)
        judged.add_trace(found.loop, traces[0])
    return judged.equivalence()


def _examine_dtensor(strategy_name: str, devices: Devices, asked: Asked) -> Equivalence:
    """The same under DTensor, which has no strategy, and no ``fit`` in Keras 3."""
    asked = replace(asked, loops=("custom",))
    facts = look_at(asked)
    judged = Judged(strategy_name, devices, asked, facts)
    reference = Reference(asked, "custom", facts)
    single, moved = reference.courses(asked.data, asked.steps)
    import tensorflow as tf

    session = DTensorLoop(asked.build, tf.distribute.get_strategy(), asked.data, name=asked.name)
    session.lay_out(strategy_name.partition("_")[2], devices.names)
    found = session.run(reference.initial, asked.data, asked.steps)
    compared = compare(without_metrics(found), without_metrics(single), moved, reference.epsilon)
    judged.add_course("custom", found, single, compared, None)
    return judged.equivalence()


def without_metrics(course: Course) -> Course:
    """The same without its metrics."""
    return replace(course, values={**course.values, "metric": {}})


class Judged:
    """What has been found, compared and exercised so far."""

    def __init__(self, strategy_name: str, devices: Devices, asked: Asked, facts: Facts) -> None:
        self.strategy_name = strategy_name
        self.devices = devices
        self.asked = asked
        self.facts = facts
        self.findings: list[Finding] = []
        self.comparisons: list[Comparison] = []
        self.undecided: list[str] = []
        self.collectives: list[CollectiveCount] = []
        self.exercised = Exercised()
        self.measured: dict[str, float] = {}
        self.traces: dict[str, Trace] = {}

    def add_course(self, loop: str, found: Course, single: Course, compared: Compared, strategy: Any) -> None:
        """Judge what a run went through, and look for causes where it differs."""
        data, replicas = self.asked.data, found.replicas
        conduct = [
            *judge_rows([found], data, replicas),
            *judge_updates(found, single),
            *judge_sync(found),
            *judge_homes(found, self._homes()),
        ]
        self.findings += conduct
        if self.facts.random:
            self.undecided.append(drawn(self.facts))
        elif compared.differences or compared.structure:
            # Copies that drift apart may have a cause too; other conduct explains the values that follow from it.
            if all(finding.kind == "sync" for finding in conduct):
                case = Case(found, single, compared, self.facts, data, replicas)
                again = None if strategy is None else partial(self._again, loop, strategy)
                self.findings += causes(case, again)
            self.findings += findings_of(compared, found.loop)
        self.undecided += compared.undecided
        self.comparisons += compared.comparisons
        gradients = sum(array.size for array in found.values["gradient"].values())
        values = sum(array.size for named in found.values.values() for array in named.values()) - gradients
        self.exercised += Exercised(programs=1, values=values, gradients=gradients)
        for comparison in compared.comparisons:
            key = f"largest_share_of_bound_{comparison.where.partition(' ')[0]}_{loop}"
            share = comparison.largest_error / comparison.bound
            self.measured[key] = max(self.measured.get(key, 0.0), share)

    def add_trace(self, loop: str, seen: Trace) -> None:
        """Judge where the ops of a step ran, and which collectives did."""
        self.traces[loop] = seen
        counts = count_collectives(seen, loop)
        self.collectives += counts
        self.findings += judge_replicas(seen, self.devices, loop)
        self.findings += judge_collectives(counts, loop, self.devices, self.strategy_name == "mirrored")
        ran = proven(seen)
        names = tuple(sorted({str(op.device) for op in ran}))
        self.exercised += Exercised(ops=len(ran), gradient_ops=gradient_ops(seen), devices=names)

    def equivalence(self) -> Equivalence:
        """What follows."""
        verdict, reason = conclude(
            self.findings,
            self.undecided,
            self.exercised,
            f"{self.asked.steps} steps equal to one device on {len(self.devices)} replicas",
            traced=not self.strategy_name.startswith("dtensor"),
        )
        return Equivalence(
            verdict,
            reason,
            tuple(self.findings),
            self.exercised,
            tuple(self.comparisons),
            self.traces,
            strategy=self.strategy_name,
            loops=self.asked.loops,
            steps=self.asked.steps,
            collectives=tuple(self.collectives),
            measured=self.measured,
        )

    def _homes(self) -> tuple[str, ...]:
        return self.devices.names[:1] if self.strategy_name == "central_storage" else self.devices.names

    def _again(self, loop: str, strategy: Any, changes: tuple[str, ...], steps: int) -> bool:
        """Whether the two runs agree when both are changed; see ``causes.Again``."""
        even = "even" in changes
        data = self.asked.data.evened(int(strategy.num_replicas_in_sync)) if even else self.asked.data
        own = [change for change in changes if change != "even"]
        reference = Reference(self.asked, loop, self.facts, own)
        single, moved = reference.courses(data, steps)
        found = make_session(self.asked, loop, strategy, data, own).run(reference.initial, data, steps)
        return compare(found, single, moved, reference.epsilon).agree
