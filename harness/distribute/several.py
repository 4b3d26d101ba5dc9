"""A training whose strategy needs several processes: starts them, waits for them, and judges what they kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import TypeAdapter

from harness.distribute.batches import Data
from harness.distribute.causes import drawn
from harness.distribute.course import Course
from harness.distribute.equivalence import CollectiveCount, Equivalence, conclude
from harness.distribute.facts import Facts
from harness.distribute.multi_worker import moved, of_worker, single
from harness.distribute.uneven_collectives import uneven_collectives
from harness.distribute.workers import judge_processes
from harness.judgement.tolerance import epsilon_of_name
from harness.judgement.verification import Comparison
from harness.records import Exercised, Finding
from harness.runner.ask import ask
from harness.runner.job import Job, WorkerFiles
from harness.runner.limits import LAST_RESORT_S, STARTUP_LIMIT_S
from harness.runner.together import Ended, work_at_addresses


@dataclass
class Several:
    """One question to several processes. ``arguments`` are those of both tasks of ``runner.multi_worker``."""

    arguments: dict[str, object]
    data: Data
    steps: int
    loops: tuple[str, ...]
    workers: int
    limit_s: float
    folder: Path
    findings: list[Finding] = field(default_factory=list)
    undecided: list[str] = field(default_factory=list)
    comparisons: list[Comparison] = field(default_factory=list)
    collectives: list[CollectiveCount] = field(default_factory=list)
    exercised: Exercised = field(default_factory=Exercised)
    measured: dict[str, float] = field(default_factory=dict)

    def equivalent(self) -> Equivalence:
        """Run the training on one device, then in all workers, and judge."""
        limit_s = max(self.limit_s, STARTUP_LIMIT_S)
        job = Job("harness.distribute.multi_worker:run_reference", self.arguments, limit_s=limit_s + LAST_RESORT_S)
        told = ask(job, WorkerFiles.create(self.folder, "one-device"), limit_s=limit_s)
        facts = TypeAdapter(Facts).validate_python(told["facts"])
        count = TypeAdapter(int).validate_python(told["moved"])
        ended = self._work()
        failures = [(number, each) for number, each in enumerate(ended) if each.answer is None]
        for number, each in failures:
            self.findings.append(
                Finding(
                    "error",
                    f"worker {number} of {self.workers}",
                    None,
                    f"{self.steps} steps within {self.limit_s:g} s",
                    each.details,
                    each.message,
                )
            )
        if not failures:
            refused = dict(TypeAdapter(list[tuple[str, str]]).validate_python((ended[0].answer or {})["refused"]))
            self.findings += [_refused(loop, why) for loop, why in refused.items()]
            self._judge(facts, count, [loop for loop in self.loops if loop not in refused])
            for each in ended:
                self._take(each.answer or {})
        return self._equivalence()

    def _work(self) -> list[Ended]:
        def jobs(addresses: Sequence[str]) -> list[tuple[Job, WorkerFiles]]:
            limit_s = max(self.limit_s, STARTUP_LIMIT_S) + LAST_RESORT_S
            task = "harness.distribute.multi_worker:run_worker"
            told = {**self.arguments, "addresses": list(addresses)}
            return [
                (Job(task, {**told, "index": index}, limit_s), WorkerFiles.create(self.folder, f"worker-{index}"))
                for index in range(self.workers)
            ]

        return work_at_addresses(self.workers, jobs, self.limit_s)

    def _judge(self, facts: Facts, count: int, loops: Sequence[str]) -> None:
        for loop in loops:
            courses = [Course.load(of_worker(self.folder, loop, index)) for index in range(self.workers)]
            findings, compared, exercised = judge_processes(
                courses,
                Course.load(single(self.folder, loop)),
                [Course.load(moved(self.folder, loop, number)) for number in range(count)],
                facts,
                self.data,
                epsilon_of_name(facts.coarsest),
            )
            self.findings += findings
            if facts.random:
                self.undecided.append(drawn(facts))
            self.undecided += compared.undecided
            self.comparisons += compared.comparisons
            self.exercised += exercised

    def _take(self, answer: dict[str, object]) -> None:
        """What a worker says of the ops that it ran."""
        counts = TypeAdapter(tuple[CollectiveCount, ...]).validate_python(answer["collectives"])
        self.collectives += counts
        self.exercised += Exercised(
            ops=TypeAdapter(int).validate_python(answer["ops"]),
            gradient_ops=TypeAdapter(int).validate_python(answer["gradient_ops"]),
            devices=TypeAdapter(tuple[str, ...]).validate_python(answer["devices"]),
        )

    def _equivalence(self) -> Equivalence:
        self.findings += uneven_collectives(self.collectives, self.workers)
        verdict, reason = conclude(
            self.findings,
            self.undecided,
            self.exercised,
            f"{self.steps} steps equal to one device in {self.workers} processes",
        )
        return Equivalence(
            verdict,
            reason,
            tuple(self.findings),
            self.exercised,
            tuple(self.comparisons),
            strategy="multi_worker",
            loops=self.loops,
            steps=self.steps,
            collectives=tuple(self.collectives),
            measured=self.measured,
        )


def _refused(loop: str, why: str) -> Finding:
    return Finding(
        "error",
        f"{loop} under MultiWorkerMirroredStrategy",
        None,
        "it runs",
        why,
        "Keras's fit fails in its own code when there are several processes; use a custom loop",
    )
